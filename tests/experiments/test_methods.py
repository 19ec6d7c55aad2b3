"""What methods are evaluated by is what they would do: expectations beside draws; and tuning finds what is best."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hubermean.distributions.output import Independent
from hubermean.mechanisms.winsorized.mechanism import Winsorized
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean_experiments.figures.data import DataSet, measure_span, simulate_data_sets
from hubermean_experiments.figures.methods import (
    AutoMethod,
    AutoPrivateCounts,
    Candidate,
    ClippedMethod,
    Evaluation,
    HuberAsPrinted,
    InverseSensitivityMethod,
    Method,
    Problem,
    ProposeTestReleaseMethod,
    SmoothSensitivityMethod,
    TwoStageAsPrinted,
    WinsorizedMethod,
    methods_for,
)
from hubermean_experiments.figures.panels import (
    DELTA,
    EPSILON,
    FAIR,
    FULL,
    GRID,
    PANELS,
    PAPER,
    SETTINGS,
    SYNTHETIC,
    PanelPoint,
)
from hubermean_experiments.figures.simulation import run_point, tune
from hubermean_experiments.paper.literal import paper_literal

DRAWS = 900


def problem_of(panel, users, x):
    point = PanelPoint(panel=PANELS[panel], users=users, x=x)
    distribution = SYNTHETIC[point.panel.distribution]
    sets = list(simulate_data_sets(point, distribution, SETTINGS, seed=2, purpose="tuning", first=0, size=3))
    span = measure_span(one["fair"] for one in sets)
    return Problem(point=point, distribution=distribution, setting=FAIR, span=span, thresholds=GRID), sets[0][
        "fair"
    ]


def evaluated(method, factor, data):
    return dict(method.evaluate(factor, data))


def agrees(expected, drawn):
    """What was expected, perhaps averaged over some draws, beside squared errors of releases; a fifth more noise would
    show."""
    mean, error = np.mean(drawn), np.std(drawn) / math.sqrt(len(drawn))
    own = np.std(expected) / math.sqrt(len(expected))
    assert math.hypot(error, own) < 0.06 * mean
    assert np.mean(expected) == pytest.approx(mean, abs=4.5 * math.hypot(error, own))


@pytest.mark.parametrize("panel", ["1c", pytest.param("1e", marks=pytest.mark.slow), "2b"])
def test_the_paper_is_evaluated_by_what_it_releases(panel):
    problem, data = problem_of(panel, 1_000, 4)
    method = HuberAsPrinted(problem, 1)
    factor = 8.0
    found = evaluated(method, factor, data)[Candidate(method="HLM as printed", factor=factor)]
    scale = (
        problem.distribution.deviation
        if problem.unequal
        else problem.user_mean_stddev * math.sqrt(problem.columns)
    )
    noise = InsecureSeededNoise(3)
    runs = [
        paper_literal(
            data.means,
            data.counts if problem.unequal else None,
            threshold=factor * scale,
            radius=problem.joint_radius,
            epsilon=EPSILON,
            delta=DELTA,
            gamma=method._gamma,
            outliers="witness",
            noise=noise,
        ).values
        for _ in range(DRAWS)
    ]
    agrees([found.error], [data.error_of(np.array(values)) for values in runs])


@pytest.mark.parametrize(
    ("kind", "panel", "users", "x", "factor"),
    [
        (InverseSensitivityMethod, "1c", 500, 1, 4.0),
        (ProposeTestReleaseMethod, "1f", 3_000, 3, 4.0),
        (SmoothSensitivityMethod, "1b", 5_000, 2, 2.0),  # noise well within the radius
        (SmoothSensitivityMethod, "1e", 500, 2, 2.0),  # answers are brought back to it
        (WinsorizedMethod, "1c", 500, 1, 4.0),
        pytest.param(WinsorizedMethod, "1d", 500, 2, 2.0, marks=pytest.mark.slow),
    ],
)
def test_mechanisms_are_evaluated_by_what_they_release(kind, panel, users, x, factor):
    problem, data = problem_of(panel, users, x)
    method = kind(problem, 1)
    candidate = next(iter(evaluated(method, factor, data)))
    # What is drawn on the way, such as bins, differs between judgements.
    expected = [evaluated(method, factor, data)[candidate].error for _ in range(60)]
    prepared = method._prepared[(factor, candidate.share) if kind is ProposeTestReleaseMethod else factor]
    distribution, noise = prepared.distribution(data.table), InsecureSeededNoise(5)
    if kind is InverseSensitivityMethod:  # its columns can be gone through once
        distribution = Independent(parts=tuple(distribution.parts))
    drawn = [
        data.error_of(np.array(prepared.outcome(distribution.sample(noise)).values)) for _ in range(DRAWS)
    ]
    agrees(expected, drawn)


def test_the_probability_of_a_release_is_that_of_the_output_distribution():
    problem, data = problem_of("1f", 3_000, 3)
    method = ProposeTestReleaseMethod(problem, 1)
    for candidate, found in method.evaluate(3.0, data):
        distribution = method._prepared[3.0, candidate.share].distribution(data.table)
        assert found.probability == distribution.passes / 2**distribution.bits


def test_the_clipped_oracle_gets_the_span():
    problem, data = problem_of("1a", 400, 1)
    found = evaluated(ClippedMethod(problem, 1), 1.0, data)
    assert list(found) == [Candidate(method="clipped, right bounds")]
    assert problem.span[0] == pytest.approx(-1.0, abs=0.02)
    assert problem.span[1] == pytest.approx(1.0, abs=0.02)
    # Noise of range/n on a mean of 400 users: far below the radius, which is 10.
    assert 0.0 < found[Candidate(method="clipped, right bounds")].error < 0.05


def test_auto_with_private_counts():
    problem, data = problem_of("2b", 3_000, 3)
    public, private = AutoMethod(problem, 1), AutoPrivateCounts(problem, 1)
    assert public.request.neighbors.counts_are_public
    assert not private.request.neighbors.counts_are_public
    for method in (public, private):
        (found,) = evaluated(method, 1.0, data).values()
        assert found.probability in (0.0, 1.0)


@pytest.mark.parametrize("panel", PANELS)
def test_every_panel_has_every_method(panel):
    point = PanelPoint(panel=PANELS[panel], users=50, x=1)
    names = [name for kind in methods_for(point) for name in kind.names]
    wanted = {"HLM as printed", "WME as printed", "smooth-sensitivity", "auto", "clipped, right bounds"}
    assert wanted | {"inverse-sensitivity" if point.panel.columns == 1 else "propose-test-release"} <= set(
        names
    )


def test_thresholds_are_chosen_from_many():
    assert len(set(FULL.thresholds)) >= 15
    assert all(
        kind.tunes
        for kind in (
            HuberAsPrinted,
            TwoStageAsPrinted,
            WinsorizedMethod,
            SmoothSensitivityMethod,
            InverseSensitivityMethod,
            ProposeTestReleaseMethod,
        )
    )


@pytest.mark.parametrize(("panel", "x"), [("1a", 10), ("1d", 3), ("2b", 6)])
def test_in_the_paper_s_setting_bins_may_be_centered_on_the_true_mean(panel, x):
    problem = problem_of(panel, 1_000, x)[0]
    for setting in SETTINGS:
        at = replace(problem, setting=setting)
        widths = TwoStageAsPrinted(at, 1).grid
        reach = at.radius * (2.0 if at.columns > 1 else 1.0)
        odd = {math.ceil(reach / (factor * at.user_mean_stddev)) for factor in set(widths) - set(GRID)}
        assert all(bins % 2 == 1 for bins in odd)
        assert (len(odd) >= 5) == (setting is PAPER)
        winsorized = WinsorizedMethod(at, 1)
        counts = {
            winsorized.prepared(
                factor, Winsorized(threshold=factor * winsorized.joint_stddev, radius=at.radius)
            ).bins.count
            for factor in set(winsorized.grid) - set(GRID)
        }
        assert all(bins % 2 == 1 for bins in counts)


class Valley(Method):
    """An error that is least at a factor of 4, up to noise that all candidates share; a small factor refuses."""

    names = ("valley",)

    def __init__(self, setting):
        self.problem = replace(problem_of("1a", 10, 1)[0], setting=setting)
        self.calls = 0

    def evaluate(self, factor, data):
        self.calls += 1
        luck = float(data.means[0, 0])
        probability = 0.5 if factor < 1.0 else 1.0
        error = math.log(factor / 4.0) ** 2 + 1.0 + luck + 0.05 * luck * math.log(factor)
        yield Candidate(method="valley", factor=factor), Evaluation(error=error, probability=probability)


def _luck(first, size):
    for number in range(first, first + size):
        luck = np.random.default_rng(number).uniform()
        one = DataSet(means=np.array([[luck]]), counts=np.array([1]), truth=np.zeros(1))
        yield {setting.name: one for setting in SETTINGS}


def test_tuning_finds_the_best_and_drops_the_others_early():
    methods = [Valley(setting) for setting in SETTINGS]
    tuned = tune(methods, (10, 20, 60), _luck)
    assert {method.problem.setting.name for method, _ in tuned} == {"paper", "fair"}
    for finalists in tuned.values():
        assert finalists[0].factor == 4.0
        assert all(candidate.factor >= 1.0 for candidate in finalists)
    assert all(method.calls < 10 * len(GRID) + 50 * 4 for method in methods)


TINY = replace(
    FULL, thresholds=(1.0, 4.0), tuning=(3, 6), batch=6, batches=2, precision=math.inf, most_batches=2
)


@pytest.mark.parametrize(("panel", "x"), [("1a", 2), ("2b", 10)])
def test_a_point_is_a_function_of_its_arguments(panel, x):
    point = PanelPoint(panel=PANELS[panel], users=120, x=x)
    distribution = SYNTHETIC[point.panel.distribution]
    rows = run_point(point, distribution, TINY, seed=4)
    assert rows == run_point(point, distribution, TINY, seed=4)
    assert rows != run_point(point, distribution, TINY, seed=5)
    assert len(rows) == 2 * (1 + sum(len(kind.names) for kind in methods_for(point)))
    for row in rows:
        assert row.runs in (0, 12)
        if row.same_draws_mse is not None:
            assert row.same_draws_mse <= row.mse


def test_more_draws_until_it_is_precise():
    point = PanelPoint(panel=PANELS["1b"], users=100, x=1)
    effort = replace(
        FULL, thresholds=(1.0, 4.0), tuning=(3, 6), batch=10, batches=2, precision=0.05, most_batches=12
    )
    rows = run_point(point, SYNTHETIC["Gaussian"], effort, seed=4)
    served = [row for row in rows if row.mse is not None and row.method != "non-private"]
    assert {row.runs for row in served} != {20}
    assert all(row.mse_error / row.mse <= 0.05 or row.runs == 120 for row in served)
