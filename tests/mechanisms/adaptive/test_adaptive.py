"""Nothing known: what is needed is found privately, the guarantee covers all steps, and the answer is a good one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hubermean as hm
from hubermean.accounting.concentrated import largest_rho
from hubermean.data.user_table import UserTable
from hubermean.distributions.output import Independent, OutputDistribution, Staged, Uniform, get_claim
from hubermean.mechanisms.adaptive.clipped_step import MeanInterval
from hubermean.mechanisms.adaptive.mechanism import Adaptive, PreparedAdaptive
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.searches.location import LENGTHS
from hubermean.types.request import Neighbors, PublicFacts, Request

REPLACE_USER = Neighbors.REPLACE_USER
ADD_REMOVE = Neighbors.ADD_REMOVE


def prepared(
    table: UserTable,
    relation: Neighbors = REPLACE_USER,
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    per: str = "user",
    **options: Any,
) -> PreparedAdaptive:
    request = Request.checked(table.columns, epsilon=epsilon, delta=delta, per=per, neighbors=relation)
    return Adaptive(**options).prepare(request, PublicFacts.of(table, relation))


# --- the budget -------------------------------------------------------------------------------------------------


def booked(distribution: OutputDistribution) -> Fraction:
    """What a law claims to cost, in epsilon or in rho; the parts of several columns added up."""
    parts = list(distribution.parts) if isinstance(distribution, Independent) else [distribution]
    claims = [get_claim(part) for part in parts if not isinstance(part, Uniform)]
    assert None not in claims
    return sum((Fraction(one.rho if one.rho is not None else one.epsilon) for one in claims), Fraction(0))  # type: ignore[union-attr,arg-type]


@pytest.mark.parametrize("relation", list(Neighbors))
@pytest.mark.parametrize(("columns", "per"), [(1, "user"), (1, "record"), (3, "user"), (3, "record")])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.7, 1e-6), (3.3, 0.0)])
def test_steps_spend_no_more_than_there_is(
    relation: Neighbors, columns: int, per: str, epsilon: float, delta: float
) -> None:
    """Step by step: what is claimed is what is booked, and all of it adds up to the budget."""
    rng, noise = np.random.default_rng(7), InsecureSeededNoise(8)
    table = UserTable.from_means(rng.normal(size=(20_000, columns)), rng.integers(1, 30, 20_000))
    made = prepared(table, relation, epsilon=epsilon, delta=delta, per=per)
    found, distribution = made.split.start, made.distribution(table)
    for step in made.steps:
        assert isinstance(distribution, Staged)
        drawn, before = distribution.first.sample(noise), found.spent
        found = step.update(found, drawn)
        assert found.spent - before == booked(distribution.first)
        distribution = distribution.then(drawn)
    total = made.split.privacy_budget.total
    assert found.spent + booked(distribution) == total
    concentrated = made.split.concentrated
    assert total == Fraction(largest_rho(epsilon, delta)) if concentrated else total == Fraction(epsilon)
    # The noise of the last step costs no more than what is left, by its own scales.
    last, spent = made.clipped_step(found), Fraction(0)
    for own, distributions in zip(last.sums, last.noises, strict=True):
        sensitivities = [own.sensitivity(), own.squares or 0]
        for sensitivity, one in zip(sensitivities, distributions, strict=False):
            share = Fraction(sensitivity) / Fraction(one.scale)
            spent += share**2 / 2 if concentrated else share
    assert (total - found.spent) * Fraction(99, 100) <= spent <= total - found.spent


def test_many_columns_share_a_concentrated_budget() -> None:
    """Choices at epsilon^2 / 8, Laplace noise at epsilon^2 / 2, Gaussian at S^2 / (2 sigma^2): all within rho."""
    rng, noise = np.random.default_rng(26), InsecureSeededNoise(27)
    scales = 10.0 ** np.arange(-6, 6)
    table = UserTable.from_means(rng.normal(size=(20_000, 12)) * scales)
    made = prepared(table, ADD_REMOVE, epsilon=1.0, delta=1e-6)
    assert made.split.concentrated
    outcome = made.run(table, noise)
    assert np.abs(np.array(outcome.values) / scales).max() < 0.3


@pytest.mark.parametrize("per", [pytest.param("user", marks=pytest.mark.slow), "record"])
def test_a_thousand_columns_and_more(per: str) -> None:
    """Steps serve all columns at once, so that none lies deeper than another."""
    means = np.random.default_rng(31).normal(size=(300, 1200))
    release = hm.mean_of_user_means(means, np.full(300, 2), epsilon=2e4, per=per)  # type: ignore[arg-type]
    assert len(release.values) == 1200
    assert np.abs(np.array(release.values) - means.mean(axis=0)).max() < 0.2


def test_what_follows_a_step_is_public() -> None:
    """Neighbors agree on everything but the laws: the same steps, the same plans for the same answers."""
    means = np.random.default_rng(8).normal(size=2000)
    counts = np.full(2000, 3)
    for relation in Neighbors:
        other = np.append(np.delete(means, 0), 1e12)
        changed = np.append(np.delete(counts, 0), 3 if relation.counts_are_public else 10_000)
        if relation is ADD_REMOVE:
            other, changed = other[:-1], changed[:-1]
        for per in ("user", "record"):
            tables = UserTable.from_means(means, counts), UserTable.from_means(other, changed)
            one, two = (prepared(table, relation, per=per) for table in tables)
            assert one.split.start == two.split.start
            assert [type(step) for step in one.steps] == [type(step) for step in two.steps]
            found, same = one.split.expected(1900.0), two.split.expected(1900.0)
            assert found == same
            for number in (100, 400, 500, 700):
                reached = replace(found, lengths=(number,), shares=(0.75,), centers=(0.0,), weight=1900.0)
                assert one.split.center_search(0, reached) == two.split.center_search(0, reached)
                if per == "user":
                    tail = one.split.tail(0, reached, (3.0, 4.0))
                    assert tail == two.split.tail(0, reached, (3.0, 4.0))
                    reached = replace(reached, tails=(tail,))
                assert one.clipped_step(reached).sums == two.clipped_step(reached).sums


AUDITS: list[dict[str, Any]] = [
    {"neighbors": "replace-user", "per": "record"},
    {"neighbors": "add-remove"},
    {"neighbors": "replace-user"},
    {"neighbors": "replace-values", "per": "record"},
]


def test_an_audit_of_all_steps() -> None:
    """Users of 1 to 10,000 records among them."""
    found = hm.audit("adaptive", epsilon=1.0, pairs=2, **AUDITS[0])
    assert found.kept


@pytest.mark.slow
@pytest.mark.parametrize("options", AUDITS, ids=str)
def test_an_audit_of_all_steps_and_many_pairs(options: dict[str, Any]) -> None:
    found = hm.audit("adaptive", epsilon=1.0, pairs=60, **options)
    assert found.kept
    assert found.loss > 0.2


# --- the answer -------------------------------------------------------------------------------------------------


def error_ratio(
    draw: Any,
    deviation: float,
    *,
    n: int,
    runs: int,
    shift: float = 0.0,
    scale: float = 1.0,
    per: str = "user",
) -> float:
    """MSE over that of the plain mean; the true mean is drawn at random."""
    rng, noise = np.random.default_rng(10), InsecureSeededNoise(11)
    errors = []
    for _ in range(runs):
        truth = shift + scale * rng.uniform(-50, 50)
        table = UserTable.from_means(truth + scale * draw(rng, n), np.full(n, 5))
        errors.append((prepared(table, per=per).run(table, noise).values[0] - truth) ** 2)
    return float(np.mean(errors)) / ((scale * deviation) ** 2 / n)


@pytest.mark.fair_sample(0.5)
@pytest.mark.parametrize("per", ["user", "record"])
@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (1e6, 1.0), (0.0, 1e-6), (0.0, 1e6)])
def test_a_thousand_users_of_unknown_spread(shift: float, scale: float, per: str) -> None:
    """About 1.5 over many runs; with 40 the standard error is 0.35."""
    normal = error_ratio(
        lambda rng, n: rng.normal(size=n), 1.0, n=1000, runs=40, shift=shift, scale=scale, per=per
    )
    assert normal < 3.0


def test_ten_thousand_users_cost_next_to_nothing() -> None:
    assert error_ratio(lambda rng, n: rng.normal(size=n), 1.0, n=10_000, runs=20) < 2.2
    heavy = (4 / 18) ** 0.5
    assert error_ratio(lambda rng, n: rng.pareto(4.0, n) - 1 / 3, heavy, n=10_000, runs=20) < 3.5


@pytest.mark.parametrize("neighbors", ["replace-user", "replace-values", "add-remove"])
def test_the_front_door_needs_nothing_but_epsilon(neighbors: str) -> None:
    rng = np.random.default_rng(12)
    users = np.repeat(np.arange(3000), 2)
    table = pa.table({"u": users, "v": rng.normal(1000.0, 5.0, 6000), "w": rng.lognormal(0, 1, 6000)})
    for per in ("record", "user"):
        release = hm.mean(table, user="u", value="v", epsilon=1, per=per, neighbors=neighbors)  # type: ignore[arg-type]
        assert release.mechanism == "adaptive"
        assert release.value == pytest.approx(1000.0, abs=1.5)
        assert 3.0 < release.parameters["scale"] < 20.0
        low, high = release.interval()  # type: ignore[misc]
        assert low < release.value < high  # type: ignore[operator]
        assert "clipping" in release.interval_details().covers  # type: ignore[union-attr]
    assert "scale" in repr(release.details)
    both = hm.mean(table, user="u", value=["v", "w"], epsilon=4, neighbors=neighbors)
    assert both.value == pytest.approx([1000.0, 1.65], rel=0.3)
    assert len(both.parameters["scale"]) == 2


@pytest.mark.parametrize(
    "known",
    [
        {"threshold": 40.0},
        {"scale": 8.0},
        {"threshold": 40.0, "radius": 1e5},
        {"max_records": 2},
        {"bounds": (900, 1100)},
    ],
    ids=str,
)
def test_what_is_known_costs_nothing(known: dict[str, Any]) -> None:
    rng = np.random.default_rng(14)
    means, counts = rng.normal(1000.0, 8.0, 2000), np.full(2000, 2)
    plain = hm.mean_of_user_means(means, counts, epsilon=1)
    told = hm.mean_of_user_means(means, counts, epsilon=1, mechanism="adaptive", **known)
    assert told.budget_breakdown[-1].amount > plain.budget_breakdown[-1].amount
    assert told.value == pytest.approx(1000.0, abs=3.0)


def test_a_number_of_users_that_is_given_need_not_be_measured() -> None:
    rng = np.random.default_rng(28)
    means, counts = rng.normal(5.0, 1.0, 20_000), rng.integers(1, 9, 20_000)
    spent = []
    for given in (None, 18_000):
        release = hm.mean_of_user_means(means, counts, epsilon=1, neighbors="add-remove", n_users=given)
        assert release.value == pytest.approx(5.0, abs=0.3)
        assert release.budget_breakdown[-1].what == "the mean"
        spent.append(release.budget_breakdown[-1].amount)
    assert spent[1] > spent[0]
    with pytest.raises(hm.InputError, match="but n_users expects 90"):
        hm.mean_of_user_means(means, counts, epsilon=1, neighbors="add-remove", n_users=90)


def test_auto_tunes_what_the_others_would_have_to_be_told() -> None:
    rng = np.random.default_rng(15)
    means, counts = rng.normal(5.0, 1.0, 2000), rng.integers(1, 9, 2000)
    for known in ({"bounds": (0, 10)}, {"threshold": 4.0, "radius": 100.0}, {"threshold": 4.0}):
        release = hm.mean_of_user_means(means, counts, epsilon=1, **known)  # type: ignore[arg-type]
        assert release.mechanism == "adaptive"
        assert release.value == pytest.approx(5.0, abs=0.5)


def test_heavy_users_count_with_all_of_their_records() -> None:
    """The mean over records of users whose many records are the large ones; a low cap on records would miss it."""
    rng, noise = np.random.default_rng(16), InsecureSeededNoise(17)
    counts = np.where(np.arange(6000) % 10 == 0, 30, 2)
    means = np.where(counts > 2, 4.0, 1.0) + rng.normal(size=6000)
    truth = float((means * counts).sum() / counts.sum())
    table = UserTable.from_means(means, counts)
    values = [prepared(table, ADD_REMOVE, per="record").run(table, noise).values[0] for _ in range(20)]
    assert np.median(values) == pytest.approx(truth, rel=0.05)


def test_a_few_users_with_most_of_the_records_are_warned_of() -> None:
    """Whatever such users hold beyond the cap may be what decides the mean."""
    rng, noise = np.random.default_rng(41), InsecureSeededNoise(42)
    counts = np.where(np.arange(1500) < 100, 1000, 1)
    table = UserTable.from_means(rng.normal(size=1500), counts)
    equal = UserTable.from_means(rng.normal(size=1500), np.full(1500, 20))
    warned = [bool(prepared(table, ADD_REMOVE, per="record").run(table, noise).warnings) for _ in range(10)]
    quiet = [bool(prepared(equal, ADD_REMOVE, per="record").run(equal, noise).warnings) for _ in range(10)]
    assert sum(warned) >= 5
    assert sum(quiet) <= 2


def test_a_cap_that_is_given_caps() -> None:
    counts = np.where(np.arange(4000) % 4 == 0, 100, 1)
    means = np.where(counts > 1, 5.0, 1.0) + np.random.default_rng(3).normal(0, 0.1, 4000)
    release = hm.mean_of_user_means(means, counts, epsilon=100, max_records=1, mechanism="adaptive")
    assert release.value == pytest.approx(2.0, abs=0.05)
    assert release.parameters["max_records"] == 1


# --- one-sided bounds and the interval --------------------------------------------------------------------------


def test_a_bound_on_one_side_saves_budget_and_holds() -> None:
    means = np.random.default_rng(33).exponential(size=3000)
    for bounds in ((0, None), (None, 50)):
        release = hm.mean_of_user_means(means, epsilon=1, bounds=bounds)
        assert release.mechanism == "adaptive"
        assert release.value == pytest.approx(1.0, abs=0.25)
        low, high = release.interval()  # type: ignore[misc]
        assert low < 1.0 < high  # type: ignore[operator]
    assert release.parameters["bounds"][1] == pytest.approx(50, rel=1e-3)
    with pytest.raises(hm.InputError, match="None leaves an end open"):
        hm.mean_of_user_means(means, epsilon=1, bounds=("a", None))  # type: ignore[arg-type]
    with pytest.raises(hm.InputError, match="both bounds for all columns"):
        hm.mean_of_user_means(np.ones((3000, 2)), epsilon=1, bounds=[(0, None), (0, 1)])


@pytest.mark.parametrize("per", ["user", "record"])
def test_the_interval_holds_the_mean_of_skewed_users(per: str) -> None:
    """Log-normal users, of unequal numbers of records: 60 releases, of which at least 52 hold the mean (p < 0.02)."""
    rng, noise = np.random.default_rng(34), InsecureSeededNoise(35)
    held = 0
    for _ in range(60):
        counts = rng.integers(1, 20, 2000)
        table = UserTable.from_means(rng.lognormal(0, 1, 2000), counts)
        interval = prepared(table, ADD_REMOVE, per=per).run(table, noise).interval_rule.at(0.95)  # type: ignore[union-attr]
        assert interval.covers == "noise, sampling and clipping"
        assert "cut off" in interval.assumption
        held += interval.low[0] <= np.exp(0.5) <= interval.high[0]
    assert held >= 52


def test_a_tail_too_heavy_for_a_mean_is_said() -> None:
    rng, noise = np.random.default_rng(36), InsecureSeededNoise(37)
    warned = {2.0: 0, 0.5: 0}
    for sigma in warned:
        for _ in range(20):
            table = UserTable.from_means(rng.lognormal(0, sigma, 1500))
            warned[sigma] += bool(prepared(table, ADD_REMOVE).run(table, noise).warnings)
    assert warned[2.0] >= 15
    assert warned[0.5] == 0


def test_more_is_expected_beyond_the_bounds_of_a_heavy_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(40)
    heavy, light = (UserTable.from_means(rng.lognormal(0, sigma, 1000)) for sigma in (2.0, 0.5))

    def run(table: UserTable) -> Any:
        return prepared(table, ADD_REMOVE).run(table, InsecureSeededNoise(41)).interval_rule.estimates[0]  # type: ignore[union-attr]

    more, as_ever = run(heavy), run(light)
    monkeypatch.setattr("hubermean.mechanisms.adaptive.clipped_step._HEAVY_CUT_OFF", 0.0)
    assert run(heavy).value < more.value
    assert run(heavy).clipped == more.clipped
    assert run(light) == as_ever


def test_a_large_budget_sees_one_user_far_from_all_others() -> None:
    """He carries a part of the mean that nothing else tells of; with little he is cut off."""
    values = np.append(np.random.default_rng(9).normal(130.0, 15.0, 4_000), 4_000.0)
    table = UserTable.from_means(values)
    for epsilon, kept in ((3.0, False), (100.0, True)):
        outcome = prepared(table, ADD_REMOVE, epsilon=epsilon).run(table, InsecureSeededNoise(3))
        assert (outcome.parameters["bounds"][1] > 4_000.0) == kept


def test_more_budget_means_less_error() -> None:
    rng = np.random.default_rng(38)
    counts = rng.zipf(2.0, 4000).clip(max=300)
    table = UserTable.from_means(rng.lognormal(0, 1, 4000), counts)
    for per, truth in (
        ("user", float(table.means.mean())),
        ("record", float((table.means * counts).sum() / counts.sum())),
    ):
        noise, errors = InsecureSeededNoise(39), []
        for epsilon in (0.5, 2.0, 8.0, 32.0, 100.0):
            made = prepared(table, ADD_REMOVE, per=per, epsilon=epsilon)
            runs = [made.run(table, noise).values[0] - truth for _ in range(30)]
            errors.append(float(np.median(np.abs(runs))))
        assert errors == sorted(errors, reverse=True)


# --- refusals ---------------------------------------------------------------------------------------------------


def test_refusals_say_what_would_help() -> None:
    public: dict[str, Any] = {"neighbors": "replace-user"}
    with pytest.raises(
        hm.InputError,
        match=r"takes about \d+ users here, but there are 50; give bounds, or threshold and radius",
    ):
        hm.mean_of_user_means(np.arange(50.0), epsilon=1, **public)
    with pytest.raises(hm.InputError, match=r"users here, but there are 50; give bounds"):
        hm.mean_of_user_means(np.arange(50.0), epsilon=1, per="record", **public)
    for per in ("user", "record"):
        with pytest.raises(hm.InputError, match="users here, but n_users expects 60"):
            hm.mean_of_user_means(np.arange(50.0), epsilon=1, n_users=60, per=per)  # type: ignore[arg-type]
        # Now and then noise makes them look like enough, and their scale is not found.
        with pytest.raises(hm.NotReleased, match=r"too few users|the same value|for their number"):
            hm.mean_of_user_means(np.arange(50.0), epsilon=1, per=per)  # type: ignore[arg-type]
    with pytest.raises(hm.NotReleased, match="most users have the same value") as caught:
        hm.mean_of_user_means(np.full(5000, 3.0), epsilon=1)
    assert 0.2 < caught.value.epsilon < 0.5  # the users are counted and searched for a scale, no more
    assert "give bounds, for a flag (0, 1)" in str(caught.value)
    with pytest.raises(hm.InputError, match="there are 50; give bounds"):
        hm.mean_of_user_means(np.arange(50.0), epsilon=1, scale=10.0, radius=1000.0, **public)
    with pytest.raises(hm.InputError, match="there are 50; give radius, or bounds"):
        hm.mean_of_user_means(np.arange(50.0), epsilon=1, scale=10.0, **public)
    with pytest.raises(hm.NotReleased):
        hm.mean_of_user_means(np.full(5000, np.nan), epsilon=1)


@pytest.mark.parametrize("relation", list(Neighbors))
@pytest.mark.parametrize("per", ["user", "record"])
def test_a_thousand_users_are_enough(relation: Neighbors, per: str) -> None:
    table = UserTable.from_means(np.random.default_rng(1).normal(size=1000), np.full(1000, 4))
    made = prepared(table, relation, per=per)
    needed = made.split.least_users()
    assert needed < 1000
    made.run(table, InsecureSeededNoise(3))


def released_values(means: Any, *, runs: int, relation: Neighbors = REPLACE_USER) -> list[float]:
    """What was released, of so many runs; refusals left out."""
    table, noise = UserTable.from_means(means), InsecureSeededNoise(17)
    values = []
    for _ in range(runs):
        try:
            values.append(prepared(table, relation).run(table, noise).values[0])
        except hm.NotReleased:
            continue
    return values


def test_a_tie_never_passes_for_a_spread() -> None:
    """Constant users under `add-remove` came out as 0.00000003 in place of 7 twice in a hundred runs."""
    assert released_values(np.full(5000, 7.0), runs=300, relation=ADD_REMOVE) == []
    rng = np.random.default_rng(18)
    zeros = np.where(rng.random(3000) < 0.95, 0.0, 20.0)
    for relation in (REPLACE_USER, ADD_REMOVE):
        assert released_values(zeros, runs=100, relation=relation) == []


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_flags_and_amounts_that_most_users_have_none_of(share: float) -> None:
    """Beyond a tie a larger share is looked at, where users are enough."""
    rng = np.random.default_rng(25)
    some = rng.random(12_000) >= share
    for means in (np.where(some, 1.0, 0.0), np.where(some, rng.lognormal(3, 0.5, 12_000), 0.0)):
        values = released_values(means, runs=20)
        assert len(values) >= 19
        assert np.abs(np.array(values) - means.mean()).max() < 6 * means.std() / 12_000**0.5


@pytest.mark.parametrize("share", [0.5, 0.7, 0.78])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_a_cluster_far_away_belongs_to_the_mean(share: float, spread: float) -> None:
    """Weights inside jump here; lengths on the wrong side of the jump would leave the cluster out."""
    rng = np.random.default_rng(19)
    means = np.where(rng.random(4000) < share, 0.0, 1e6) + spread * rng.normal(size=4000)
    values = released_values(means, runs=40)
    assert len(values) == 40
    assert np.abs(np.array(values) - means.mean()).max() < 5 * means.std() / 4000**0.5


@pytest.mark.parametrize("relation", list(Neighbors))
def test_means_far_from_zero_are_found_or_refused(relation: Neighbors) -> None:
    """Within a thousand million scales of zero; further out, as exactly as one in a thousand million."""
    normal = np.random.default_rng(20).normal(size=3000)
    for place, spread in ((1.7e9, 1.0), (-1.7e9, 1.0), (5e12, 1e10), (-6e12, 1e10), (7e12, 1e-3)):
        for value in released_values(place + spread * normal, runs=5, relation=relation):
            assert value == pytest.approx(place, abs=max(spread, 1e-9 * abs(place)))
    assert len(released_values(5e12 + 1e10 * normal, runs=5, relation=relation)) == 5
    assert len(released_values(2e9 + normal, runs=5, relation=relation)) == 5


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_users_without_a_value_are_borne(share: float) -> None:
    rng = np.random.default_rng(13)
    means = rng.normal(50.0, 1.0, 4000)
    means[: round(4000 * share)] = np.nan
    values = released_values(means, runs=20)
    assert len(values) == 20
    assert values == pytest.approx([50.0] * 20, abs=0.5)


@pytest.mark.parametrize(
    "known", [{"scale": 1.0}, {"threshold": 4.0}, {"scale": 1.0, "radius": 100.0}], ids=str
)
def test_what_a_refusal_says_would_help_helps(known: dict[str, Any]) -> None:
    table = UserTable.from_means(np.random.default_rng(29).normal(7.0, 1.0, 300))
    needed = prepared(UserTable.from_means(np.zeros(5000))).split.least_users()
    assert prepared(UserTable.from_means(np.zeros(5000)), **known).split.least_users() < needed
    assert prepared(table, **known).run(table, InsecureSeededNoise(30)).values[0] == pytest.approx(
        7.0, abs=1.0
    )


@pytest.mark.parametrize("relation", list(Neighbors))
@pytest.mark.parametrize("per", ["user", "record"])
def test_an_epsilon_that_no_number_of_users_makes_up_for(relation: Neighbors, per: str) -> None:
    with pytest.raises(
        hm.InputError, match="epsilon is too small to estimate the bounds privately; raise it, or give"
    ):
        hm.mean_of_user_means(np.zeros(5), np.ones(5, dtype=int), epsilon=1e-8, per=per, neighbors=relation)  # type: ignore[arg-type]


def test_what_cannot_be_released_is_refused_before_anything_is_spent() -> None:
    means = np.random.default_rng(21).normal(size=20_000)
    with pytest.raises(hm.InputError, match="users here, but there are 20,000"):
        hm.mean_of_user_means(means, epsilon=0.005, per="record", max_records=3, neighbors="replace-user")
    counts = np.zeros(20_000, dtype=np.int64)
    with pytest.raises(hm.InputError, match="no user has a record"):
        hm.mean_of_user_means(means, counts, epsilon=1, per="record", neighbors="replace-values")


# --- hostile users ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", [1, 2])
def test_one_hostile_user_in_twenty_moves_the_answer_by_no_more_than_is_stated(sides: int) -> None:
    """At 1,000 scales; each moves the mean by at most the width of the bounds over the number of users."""
    rng, noise = np.random.default_rng(22), InsecureSeededNoise(23)
    for _ in range(40):
        means = rng.normal(size=2000)
        means[:100] = 1000.0
        if sides == 2:
            means[:50] = -1000.0
        table = UserTable.from_means(means)
        made = prepared(table, hostile=0.05).run(table, noise)
        low, high = made.parameters["bounds"]
        noise_and_sampling = 8 * (1 / 2000 + 8 * ((high - low) / 2 / 0.6 / 2000) ** 2) ** 0.5
        stated = made.parameters["largest_shift_by_hostile_users"]
        assert stated == pytest.approx(100 * (high - low) / 2000, rel=0.1)
        assert abs(made.values[0]) <= stated + noise_and_sampling
        assert high - low < 100.0


def test_lengths_are_distinguished_by_the_release() -> None:
    """The spread in a release is a length of the public grid."""
    release = hm.mean_of_user_means(np.random.default_rng(24).normal(size=2000), epsilon=1)
    assert 2.0 * release.parameters["scale"] in LENGTHS


def test_few_users_are_warned_of_and_more_are_not() -> None:
    rng, noise = np.random.default_rng(43), InsecureSeededNoise(44)
    for users, warned in ((190, True), (400, False)):
        table = UserTable.from_means(rng.normal(size=users))
        warnings = prepared(table, ADD_REMOVE).run(table, noise).warnings
        assert any("So few users" in sentence for sentence in warnings) == warned


def test_an_answer_adds_what_clipping_took_off_and_the_interval_does_not() -> None:
    """The longer tail loses more; what is added never leaves the interval."""
    rng, noise = np.random.default_rng(45), InsecureSeededNoise(46)
    for sign in (1.0, -1.0):
        table, added = UserTable.from_means(sign * rng.lognormal(0.0, 1.0, 5000)), []
        for _ in range(20):
            outcome = prepared(table, ADD_REMOVE).run(table, noise)
            assert isinstance(outcome.interval_rule, MeanInterval)
            (estimate,) = outcome.interval_rule.estimates
            added.append(sign * (outcome.values[0] - estimate.clipped))
            interval = outcome.interval_rule.at(0.95)
            assert interval.low[0] < outcome.values[0] < interval.high[0]
        assert np.mean(added) > 0.0
    public = prepared(table, ADD_REMOVE, bounds=(None, 0.0)).run(table, noise)
    assert isinstance(public.interval_rule, MeanInterval)
    assert public.values[0] < public.interval_rule.estimates[0].clipped  # only at the end that is open
