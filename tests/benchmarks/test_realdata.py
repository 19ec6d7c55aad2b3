"""What the benchmark on real data computes by itself, against known answers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from realdata.aims import Verdict, honest, table_verdicts
from realdata.hindsight import best_error, best_for_influence
from realdata.law_runs import ColumnsResult, LawResult
from realdata.laws import LAWS
from realdata.other_methods import (
    Compared,
    coinpress,
    concentrated,
    durfee_mean,
    opendp_mean,
    right_bounds,
    unbounded_quantile,
)
from realdata.page_text import write_page
from realdata.plots import draw_comparison, errors_by_table
from realdata.releases import EPSILONS, RELATIONS, Measured, measure, root_mean_square
from realdata.results import Results, TableFacts
from realdata.tables import UserSums

EASY = np.random.default_rng(1).normal(100.0, 5.0, 5_000)


def table(counts: list[float], means: list[float]) -> UserSums:
    sizes = np.array(counts)
    return UserSums(name="made", what="", source="", counts=sizes, sums=sizes * np.array(means))


def brute_force(pulls: np.ndarray, weight: float, epsilon: float) -> float:
    bounds = np.abs(pulls).max() * 2.0 ** (-np.arange(60) / 4)
    return min(
        math.hypot(np.abs(pulls - np.clip(pulls, -low, high)).sum(), math.sqrt(2) * max(low, high) / epsilon)
        for low in bounds
        for high in bounds
    ) / weight  # fmt: skip


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_hindsight_finds_what_a_search_by_hand_finds(epsilon: float) -> None:
    pulls = np.random.default_rng(2).lognormal(0.0, 1.0, 40)
    pulls -= pulls.mean()
    assert best_for_influence(pulls, 40.0, epsilon) == pytest.approx(brute_force(pulls, 40.0, epsilon))


def test_opposite_cuts_do_not_cancel() -> None:
    """Two far users on opposite sides: cutting both costs nothing unless absolute values are added."""
    pulls = np.array([-1e6, *np.zeros(98), 1e6])
    assert best_for_influence(pulls, 100.0, 1.0) > 1e4


def test_hindsight_per_record_also_tries_a_cap_on_records() -> None:
    """One user with nearly all records at the mean: a cap cuts nothing that lies off the mean."""
    made = table([1.0] * 50 + [10_000.0], [1.0, -1.0] * 25 + [0.0])
    pulls = made.counts * (made.means - made.plain_mean("record"))
    assert best_error(made, "record", 1.0) <= best_for_influence(pulls, made.counts.sum(), 1.0)
    assert best_error(made, "user", 1.0) == pytest.approx(brute_force(made.means, 51.0, 1.0))


def test_plain_means_and_sampling_error_of_a_table_by_hand() -> None:
    made = table([1.0, 3.0], [0.0, 4.0])
    assert made.plain_mean("user") == 2.0
    assert made.plain_mean("record") == 3.0
    assert made.sampling_error("user") == pytest.approx(math.sqrt(8.0) / 2.0)
    assert made.sampling_error("record") == pytest.approx(math.sqrt(18.0) / 4.0)


def test_concentrated_budget_gives_back_epsilon() -> None:
    rho = concentrated(1.0, 1e-6)
    assert rho + 2.0 * math.sqrt(rho * math.log(1e6)) == pytest.approx(1.0)


def test_coinpress_is_near_the_mean_of_normal_data() -> None:
    found = coinpress(np.random.default_rng(3), EASY, 50, epsilon=1.0, steps=4)
    assert root_mean_square(found - EASY.mean())[0] < 0.5


def test_unbounded_quantile_is_near_the_quantile() -> None:
    ordered = np.sort(EASY)
    found = [unbounded_quantile(np.random.default_rng(seed), ordered, 2_500.0, 1.0) for seed in range(20)]
    assert np.median(found) == pytest.approx(100.0, rel=0.02)


def test_means_clipped_at_unbounded_quantiles_are_near_the_mean() -> None:
    found = durfee_mean(np.random.default_rng(4), EASY - 100.0, 50, epsilon=1.0, quantile=0.99)
    assert root_mean_square(found - (EASY - 100.0).mean())[0] < 0.5


def test_opendp_adds_noise_for_the_bounds_it_is_given() -> None:
    low, high = right_bounds(EASY, 10.0)
    assert (low + high) / 2.0 == pytest.approx((EASY.min() + EASY.max()) / 2.0)
    found = opendp_mean(np.random.default_rng(5), EASY, 400, epsilon=1.0, times=10.0)
    scale = (high - low) / len(EASY)
    assert root_mean_square(found - EASY.mean())[0] == pytest.approx(math.sqrt(2.0) * scale, rel=0.35)


@pytest.mark.parametrize("name", [name for name, law in LAWS.items() if law.tail == "light"])
def test_laws_have_the_mean_and_deviation_they_state(name: str) -> None:
    law = LAWS[name]
    drawn = law.draw(np.random.default_rng(6), 200_000)
    assert abs(drawn.mean() - law.mean) < 5.0 * law.deviation / math.sqrt(len(drawn))
    assert drawn.std() == pytest.approx(law.deviation, rel=0.03)


@pytest.mark.parametrize("per", ["user", "record"])
def test_a_light_table_is_released_and_covered(per: str) -> None:
    generator = np.random.default_rng(7)
    made = table(
        list(generator.integers(1, 6, 2_000).astype(float)), list(generator.normal(50.0, 5.0, 2_000))
    )
    found = measure(made, per, 1.0, "add-remove", 5, 8)
    assert found.released == 1.0
    assert found.rmse < 0.05
    assert 0.0 < found.hindsight < found.sampling


def measured(**changes: object) -> Measured:
    made = Measured(
        table="made", users=2_000, per="user", epsilon=1.0, neighbors="add-remove", runs=10, released=1.0,
        rmse=0.02, rmse_error=0.001, bias=0.0, hindsight=0.01, sampling=0.03, coverage=0.95,
        half_width=0.06, warned=0.0,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def results(**changes: object) -> Results:
    tables = [
        measured(per=per, epsilon=epsilon, rmse=0.02 / epsilon, hindsight=0.01 / epsilon)
        for per in ("user", "record")
        for epsilon in EPSILONS
    ]
    tables += [measured(per=per, neighbors="replace-user") for per in ("user", "record")]
    law = LawResult(
        law="Rayleigh", users=1_000, neighbors="add-remove", place="as is", runs=500, released=1.0, ratio=1.1,
        ratio_error=0.01, medians=1.1, far=0.0, coverage=0.96, width=1.2, warned=0.0,
    )  # fmt: skip
    columns = ColumnsResult(
        law="Lomax(4)", columns=3, users=10_000, delta=1e-6, neighbors="add-remove", runs=5, released=1.0,
        ratio=1.5, ratio_error=0.1,
    )  # fmt: skip
    names = ("OpenDP, bounds x 1", "CoinPress, 2 steps", "CoinPress, 4 steps", "Durfee, q = 0.9")
    return replace(
        Results(
            facts=[replace(TableFacts.of(table([1.0, 2.0, 1.0], [0.0, 3.0, 4.0])), name="made", users=2_000)],
            tables=tables,
            methods=[Compared(table="made", method=name, rmse=0.1) for name in names],
            laws=[replace(law, neighbors=relation) for relation in RELATIONS],
            places=[replace(law, place="scaled by 1e6")],
            columns=[columns],
        ),
        **changes,  # type: ignore[arg-type]
    )


def words(verdicts: list[Verdict]) -> list[str]:
    return [verdict.word for verdict in verdicts]


def test_aims_on_tables_are_met_by_good_numbers() -> None:
    assert words(table_verdicts(results())) == ["met"] * 5


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"rmse": 0.065, "bias": 0.065}, 0),
        ({"sampling": 0.01}, 2),
        ({"coverage": 0.9}, 3),
        ({"rmse": 0.5, "hindsight": 0.4}, 4),
    ],
)
def test_aims_on_tables_are_missed_by_bad_numbers(change: dict[str, float], missed: int) -> None:
    good = results()
    rows = [replace(row, **change) if row.epsilon == 1.0 else row for row in good.tables]
    verdict = table_verdicts(replace(good, tables=rows))[missed]
    assert verdict.word == "**missed**"
    assert verdict.misses


def test_a_warning_excuses_coverage_only_where_hindsight_is_far_off() -> None:
    assert honest(measured(coverage=0.5, hindsight=0.2, warned=1.0))
    assert not honest(measured(coverage=0.5, hindsight=0.2))
    assert not honest(measured(coverage=0.5, warned=1.0))


def test_the_page_says_what_is_missed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    bad = [replace(row, ratio=9.0) for row in results().laws]
    write_page(page, results(laws=bad), revision="abc")
    text = page.read_text()
    assert "Rayleigh, n = 1,000: 9.00" in text
    assert "**9.00**" in text
    assert "CoinPress, best" in text
    assert "{" not in text


def test_the_figure_of_the_readme_reads_the_page(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "evidence" / "realdata.md"
    errors = errors_by_table(page.read_text())
    names = ("adaptive", "OpenDP, bounds x 1", "OpenDP, bounds x 3", "OpenDP, bounds x 10")
    assert len(errors) == 19
    assert all(0.0 < row[name] < 100.0 for row in errors.values() for name in names)
    right, *better = [sum(row["adaptive"] < row[name] for row in errors.values()) for name in names[1:]]
    readme = (page.parents[2] / "README.md").read_text()
    assert f"OpenDP is better on {19 - right} tables" in readme
    assert f"hubermean is better on {better[0]}; with bounds 10 times too wide, on all {better[1]}" in readme
    draw_comparison(page, tmp_path / "comparison.svg")
    assert "</svg>" in (tmp_path / "comparison.svg").read_text()
