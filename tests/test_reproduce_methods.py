"""What methods are judged by is what they would do: expectations beside draws; and tuning finds what is best."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hubermean.laws import Independent
from hubermean.mechanisms import Winsorized
from hubermean.noise.insecure import InsecureSeededNoise
from hubermean.reproduce import paper_literal
from hubermean.reproduce.figures.data import DataSet, data_sets, typical_span
from hubermean.reproduce.figures.methods import (
    Choice,
    Judged,
    Method,
    OfAuto,
    OfAutoCountsHidden,
    OfClipped,
    OfExact,
    OfPaper,
    OfSmooth,
    OfTested,
    OfTwoStage,
    OfWinsorized,
    Task,
    methods_of,
)
from hubermean.reproduce.figures.panels import (
    DELTA,
    EPSILON,
    FAIR,
    FULL,
    GRID,
    PANELS,
    PAPER,
    SETTINGS,
    SYNTHETIC,
    Point,
)
from hubermean.reproduce.figures.point import run_point
from hubermean.reproduce.figures.tuning import tune

DRAWS = 900


def task_of(panel, users, x):
    point = Point(panel=PANELS[panel], users=users, x=x)
    law = SYNTHETIC[point.panel.law]
    sets = list(data_sets(point, law, SETTINGS, seed=2, purpose="tuning", first=0, size=3))
    span = typical_span(one["fair"] for one in sets)
    return Task(point=point, law=law, setting=FAIR, span=span, thresholds=GRID), sets[0]["fair"]


def judged(method, factor, data):
    return dict(method.judge(factor, data))


def agrees(expected, drawn):
    """What was expected, perhaps averaged over some draws, beside squared errors of releases; a fifth more noise would
    show."""
    mean, error = np.mean(drawn), np.std(drawn) / math.sqrt(len(drawn))
    own = np.std(expected) / math.sqrt(len(expected))
    assert math.hypot(error, own) < 0.06 * mean
    assert np.mean(expected) == pytest.approx(mean, abs=4.5 * math.hypot(error, own))


@pytest.mark.parametrize("panel", ["1c", pytest.param("1e", marks=pytest.mark.slow), "2b"])
def test_the_paper_is_judged_by_what_it_releases(panel):
    task, data = task_of(panel, 1_000, 4)
    method = OfPaper(task, 1)
    factor = 8.0
    found = judged(method, factor, data)[Choice(method="HLM as printed", factor=factor)]
    scale = task.law.deviation if task.unequal else task.spread * math.sqrt(task.columns)
    noise = InsecureSeededNoise(3)
    runs = [
        paper_literal(
            data.means,
            data.counts if task.unequal else None,
            threshold=factor * scale,
            radius=task.joint_radius,
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
        (OfExact, "1c", 500, 1, 4.0),
        (OfTested, "1f", 3_000, 3, 4.0),
        (OfSmooth, "1b", 5_000, 2, 2.0),  # noise well within the radius
        (OfSmooth, "1e", 500, 2, 2.0),  # answers are brought back to it
        (OfWinsorized, "1c", 500, 1, 4.0),
        pytest.param(OfWinsorized, "1d", 500, 2, 2.0, marks=pytest.mark.slow),
    ],
)
def test_mechanisms_are_judged_by_what_they_release(kind, panel, users, x, factor):
    task, data = task_of(panel, users, x)
    method = kind(task, 1)
    choice = next(iter(judged(method, factor, data)))
    # What is drawn on the way, such as bins, differs between judgements.
    expected = [judged(method, factor, data)[choice].error for _ in range(60)]
    prepared = method._prepared[(factor, choice.share) if kind is OfTested else factor]
    law, noise = prepared.law(data.table), InsecureSeededNoise(5)
    if kind is OfExact:  # its columns can be gone through once
        law = Independent(parts=tuple(law.parts))
    drawn = [data.error_of(np.array(prepared.outcome(law.draw(noise)).values)) for _ in range(DRAWS)]
    agrees(expected, drawn)


def test_the_chance_of_a_release_is_that_of_the_law():
    task, data = task_of("1f", 3_000, 3)
    method = OfTested(task, 1)
    for choice, found in method.judge(3.0, data):
        law = method._prepared[3.0, choice.share].law(data.table)
        assert found.chance == law.passes / 2**law.bits


def test_the_clipped_oracle_is_told_the_span():
    task, data = task_of("1a", 400, 1)
    found = judged(OfClipped(task, 1), 1.0, data)
    assert list(found) == [Choice(method="clipped, right bounds")]
    assert task.span[0] == pytest.approx(-1.0, abs=0.02)
    assert task.span[1] == pytest.approx(1.0, abs=0.02)
    # Noise of range/n on a mean of 400 users: far below the radius, which is 10.
    assert 0.0 < found[Choice(method="clipped, right bounds")].error < 0.05


def test_auto_with_private_counts_is_asked_so():
    task, data = task_of("2b", 3_000, 3)
    public, private = OfAuto(task, 1), OfAutoCountsHidden(task, 1)
    assert public.request.neighbors.counts_are_public
    assert not private.request.neighbors.counts_are_public
    for method in (public, private):
        (found,) = judged(method, 1.0, data).values()
        assert found.chance in (0.0, 1.0)


@pytest.mark.parametrize("panel", PANELS)
def test_every_panel_has_every_method(panel):
    point = Point(panel=PANELS[panel], users=50, x=1)
    names = [name for kind in methods_of(point) for name in kind.names]
    wanted = {"HLM as printed", "WME as printed", "smooth", "auto", "clipped, right bounds"}
    assert wanted | {"exact" if point.panel.columns == 1 else "tested"} <= set(names)


def test_thresholds_are_chosen_from_many():
    assert len(set(FULL.thresholds)) >= 15
    assert all(kind.tunes for kind in (OfPaper, OfTwoStage, OfWinsorized, OfSmooth, OfExact, OfTested))


@pytest.mark.parametrize(("panel", "x"), [("1a", 10), ("1d", 3), ("2b", 6)])
def test_in_the_paper_s_setting_bins_may_be_centred_on_the_answer(panel, x):
    task = task_of(panel, 1_000, x)[0]
    for setting in SETTINGS:
        at = replace(task, setting=setting)
        widths = OfTwoStage(at, 1).grid
        reach = at.radius * (2.0 if at.columns > 1 else 1.0)
        odd = {math.ceil(reach / (factor * at.spread)) for factor in set(widths) - set(GRID)}
        assert all(bins % 2 == 1 for bins in odd)
        assert (len(odd) >= 5) == (setting is PAPER)
        winsorized = OfWinsorized(at, 1)
        counts = {
            winsorized.prepared(
                factor, Winsorized(threshold=factor * winsorized.joint_spread, radius=at.radius)
            ).bins.count
            for factor in set(winsorized.grid) - set(GRID)
        }
        assert all(bins % 2 == 1 for bins in counts)


class Valley(Method):
    """An error that is least at a factor of 4, up to noise that all choices share; a small factor refuses."""

    names = ("valley",)

    def __init__(self, setting):
        self.task = replace(task_of("1a", 10, 1)[0], setting=setting)
        self.calls = 0

    def judge(self, factor, data):
        self.calls += 1
        luck = float(data.means[0, 0])
        chance = 0.5 if factor < 1.0 else 1.0
        error = math.log(factor / 4.0) ** 2 + 1.0 + luck + 0.05 * luck * math.log(factor)
        yield Choice(method="valley", factor=factor), Judged(error=error, chance=chance)


def _luck(first, size):
    for number in range(first, first + size):
        luck = np.random.default_rng(number).uniform()
        one = DataSet(means=np.array([[luck]]), counts=np.array([1]), truth=np.zeros(1))
        yield {setting.name: one for setting in SETTINGS}


def test_tuning_finds_the_best_and_drops_the_rest_early():
    methods = [Valley(setting) for setting in SETTINGS]
    tuned = tune(methods, (10, 20, 60), _luck)
    assert {method.task.setting.name for method, _ in tuned} == {"paper", "fair"}
    for finalists in tuned.values():
        assert finalists[0].factor == 4.0
        assert all(choice.factor >= 1.0 for choice in finalists)
    assert all(method.calls < 10 * len(GRID) + 50 * 4 for method in methods)


TINY = replace(
    FULL, thresholds=(1.0, 4.0), tuning=(3, 6), batch=6, batches=2, precision=math.inf, most_batches=2
)


@pytest.mark.parametrize(("panel", "x"), [("1a", 2), ("2b", 10)])
def test_a_point_is_a_function_of_its_arguments(panel, x):
    point = Point(panel=PANELS[panel], users=120, x=x)
    law = SYNTHETIC[point.panel.law]
    rows = run_point(point, law, TINY, seed=4)
    assert rows == run_point(point, law, TINY, seed=4)
    assert rows != run_point(point, law, TINY, seed=5)
    assert len(rows) == 2 * (1 + sum(len(kind.names) for kind in methods_of(point)))
    for row in rows:
        assert row.runs in (0, 12)
        if row.same_draws_mse is not None:
            assert row.same_draws_mse <= row.mse


def test_more_draws_until_it_is_precise():
    point = Point(panel=PANELS["1b"], users=100, x=1)
    effort = replace(
        FULL, thresholds=(1.0, 4.0), tuning=(3, 6), batch=10, batches=2, precision=0.05, most_batches=12
    )
    rows = run_point(point, SYNTHETIC["Gaussian"], effort, seed=4)
    served = [row for row in rows if row.mse is not None and row.method != "non-private"]
    assert {row.runs for row in served} != {20}
    assert all(row.mse_error / row.mse <= 0.05 or row.runs == 120 for row in served)
