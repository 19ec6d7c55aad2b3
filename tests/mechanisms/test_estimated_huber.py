"""`inverse-sensitivity`, `propose-test-release` and `smooth-sensitivity` by name alone: the steps find what
they need, the budget holds, the answer is good."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hubermean as hm
from helpers.partitioned import PartedTable
from hubermean.accounting.budget import Claim
from hubermean.auditing.claims import ADDS_UP, measure_claims
from hubermean.auditing.compare import make_repeatable
from hubermean.data.user_table import UserTable
from hubermean.huber.solver import huber_location
from hubermean.mechanisms.estimated_huber import PreparedEstimatedHuber
from hubermean.mechanisms.propose_test_release import stability
from hubermean.mechanisms.registry import resolve_mechanism
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request

NAMES = {"inverse-sensitivity": 0.0, "propose-test-release": 1e-6, "smooth-sensitivity": 1e-6}
RELATIONS = list(Neighbors)
WARM = 1e-9


def prepared(
    table: UserTable,
    name: str,
    relation: Neighbors = Neighbors.REPLACE_USER,
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    per: str = "user",
    **known: Any,
) -> PreparedEstimatedHuber:
    delta = NAMES[name] if delta is None else delta
    request = Request.checked(table.columns, epsilon=epsilon, delta=delta, per=per, neighbors=relation)
    made = resolve_mechanism(name, PublicParameters.from_keywords(**known)).prepare(
        request, PublicFacts.of(table, relation)
    )
    assert isinstance(made, PreparedEstimatedHuber)
    return made


def users(n: int, seed: int = 0, columns: int = 1) -> UserTable:
    """Means that differ, of users whose numbers of records do."""
    rng = np.random.default_rng(seed)
    records = np.minimum(np.ceil(rng.pareto(2.0, n)).astype(np.int64) + 1, 1000)
    return UserTable.from_means(1e4 + rng.normal(size=(n, columns)) * 10.0 ** np.arange(columns), records)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("per", ["user", "record"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_and_a_budget_are_enough(name: str, per: str, relation: Neighbors) -> None:
    """`smooth-sensitivity` takes many users: four in ten thousand of them would have to change before the
    location were lost."""
    table = users(30_000)
    outcome = prepared(table, name, relation, per=per, epsilon=3.0).run(table, InsecureSeededNoise(1))
    weights = table.records if per == "record" else np.ones(table.n_users)
    assert outcome.values[0] == pytest.approx(np.average(table.means, weights=weights), abs=0.3)
    in_epsilon = [Fraction(one.amount) for one in outcome.budget_breakdown if one.unit == "epsilon"]
    assert Fraction(299, 100) <= sum(in_epsilon) <= 3
    assert sum(one.amount for one in outcome.budget_breakdown if one.unit == "delta") == NAMES[name]
    assert outcome.parameters.get("threshold_power") == (1.0 if per == "record" else None)
    assert ("max_records" in outcome.parameters) == (
        per == "record" and (name != "inverse-sensitivity" or relation.counts_are_public)
    )


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_different_scale_are_each_found(name: str) -> None:
    table = users(30_000, columns=3)
    outcome = prepared(table, name, epsilon=6.0).run(table, InsecureSeededNoise(2))
    errors = np.array(outcome.values) - table.means.mean(axis=0)
    assert (np.abs(errors) < [0.1, 1.0, 10.0]).all()


@pytest.mark.parametrize("shift", [0.0, 1e9])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_units_do_not_matter(scale: float, shift: float) -> None:
    rng = np.random.default_rng(3)
    means = rng.normal(size=3_000) * scale + shift * scale * 1e-3
    table = UserTable.from_means(means)
    value = prepared(table, "inverse-sensitivity").run(table, InsecureSeededNoise(3)).values[0]
    assert value == pytest.approx(means.mean(), abs=0.05 * scale)


@pytest.mark.parametrize(
    ("name", "n", "most"),
    [
        ("inverse-sensitivity", 1_000, 2.0),
        ("inverse-sensitivity", 10_000, 1.25),
        ("propose-test-release", 10_000, 1.4),
    ],
)
def test_errors_are_near_those_of_the_plain_mean(name: str, n: int, most: float) -> None:
    """Symmetric users; measured are 1.1 to 1.5, 1.05 and 1.1."""
    errors, plain = [], []
    for seed in range(60):
        rng = np.random.default_rng([seed, n])
        truth = rng.uniform(-100.0, 100.0)
        table = UserTable.from_means(rng.normal(size=n) + truth)
        made = prepared(table, name, Neighbors.ADD_REMOVE)
        errors.append(made.run(table, InsecureSeededNoise(seed)).values[0] - truth)
        plain.append(float(table.means.mean()) - truth)
    assert np.mean(np.square(errors)) <= most * np.mean(np.square(plain))


@pytest.mark.parametrize("name", ["inverse-sensitivity", "propose-test-release"])
@pytest.mark.parametrize("per", ["user", "record"])
@pytest.mark.parametrize("relation", [Neighbors.REPLACE_USER, Neighbors.ADD_REMOVE])
def test_parts_are_released_as_one_table(name: str, per: str, relation: Neighbors) -> None:
    """Exactly in integers; `propose-test-release` finds the center of parts within its tolerance."""
    table = users(20_000)
    parts = PartedTable.of(table, 7, np.random.default_rng(4))
    made = prepared(table, name, relation, per=per, epsilon=3.0)
    one, other = (made.run(data, InsecureSeededNoise(5)).values for data in (table, parts))
    assert other == (one if name == "inverse-sensitivity" else pytest.approx(one, abs=1e-6))


def test_the_interval_of_exact_holds_the_location_also_where_the_number_of_users_is_private() -> None:
    rng = np.random.default_rng(6)
    held = []
    for seed in range(100):
        table = UserTable.from_means(rng.normal(size=3_000))
        made = prepared(table, "inverse-sensitivity", Neighbors.ADD_REMOVE)
        outcome = made.run(table, InsecureSeededNoise(seed))
        assert outcome.interval_rule is not None
        interval = outcome.interval_rule.at(0.9)
        assert interval.covers.startswith("noise")
        location = huber_location(table.means, thresholds=outcome.parameters["threshold"]).point
        held.append(interval.low[0] <= location <= interval.high[0])
        assert interval.high[0] - interval.low[0] < 0.2
    assert np.mean(held) >= 0.88


@pytest.mark.parametrize("per", ["user", "record"])
def test_a_threshold_that_is_known_needs_a_center_alone(per: str) -> None:
    table = users(5_000)
    known = {"threshold_power": 0.5, "max_records": 50} if per == "record" else {}
    made = prepared(table, "inverse-sensitivity", per=per, threshold=4.0, **known)
    assert [step.what for step in made.steps] == ["number of users", "center of user means"]
    outcome = made.run(table, InsecureSeededNoise(7))
    assert outcome.parameters["threshold"] == pytest.approx(4.0, rel=1e-6)
    assert outcome.values[0] == pytest.approx(1e4, abs=0.5)


def test_a_radius_that_is_known_is_where_the_center_is_sought() -> None:
    table = UserTable.from_means(np.random.default_rng(8).normal(size=5_000))
    outcome = prepared(table, "inverse-sensitivity", radius=50.0).run(table, InsecureSeededNoise(8))
    assert outcome.values[0] == pytest.approx(0.0, abs=0.2)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "n", "message"),
    [
        ("inverse-sensitivity", 50, "takes about .* users here, but there are 50"),
        ("propose-test-release", 400, "'propose-test-release'"),
        ("smooth-sensitivity", 1_000, "too few users for mechanism 'smooth-sensitivity'"),
    ],
)
def test_too_few_public_users_are_refused_before_anything_is_spent(name: str, n: int, message: str) -> None:
    table = UserTable.from_means(np.random.default_rng(9).normal(size=n))
    with pytest.raises(hm.InputError, match=message):
        prepared(table, name)


@pytest.mark.parametrize("name", ["propose-test-release", "smooth-sensitivity"])
def test_too_few_private_users_cost_the_steps_that_ran(name: str) -> None:
    table = UserTable.from_means(np.random.default_rng(10).normal(size=450))
    made = prepared(table, name, Neighbors.ADD_REMOVE)
    with pytest.raises(hm.NotReleased, match="of 1 was spent") as refused:
        made.run(table, InsecureSeededNoise(10))
    assert 0.5 < refused.value.epsilon < 0.7
    assert refused.value.delta == 0.0


def test_a_private_test_that_fails_costs_all_of_the_budget() -> None:
    """Users in two clusters: the steps find something, and the test sees that most users do not lie around it."""
    means = np.where(np.arange(6_000) % 100 < 62, 0.0, 1.0) * 50.0 + np.random.default_rng(11).normal(
        size=6_000
    )
    table = UserTable.from_means(means)
    made = prepared(table, "propose-test-release", threshold=4.0, delta=1e-6)
    with pytest.raises(hm.NotReleased, match="epsilon = 1 and delta = 1e-06 were spent") as refused:
        made.run(table, InsecureSeededNoise(11))
    assert (refused.value.epsilon, refused.value.delta) == (1.0, 1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"mechanism": "inverse-sensitivity", "bounds": (0, 1)},
            "bounds is not used by mechanism 'inverse-sensitivity'",
        ),
        ({"mechanism": "propose-test-release"}, "mechanism 'propose-test-release' needs delta > 0"),
        (
            {"mechanism": "adaptive", "threshold_power": 1},
            "threshold_power is not used by mechanism 'adaptive'",
        ),
        ({"threshold_power": 1}, "threshold_power is not used"),
        ({"mechanism": "winsorized", "threshold_power": 1}, "threshold_power is not used"),
    ],
)
def test_what_would_be_ignored_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(hm.InputError, match=message):
        hm.mean_of_user_means(np.zeros(5_000), epsilon=1, **arguments)


# --- privacy ----------------------------------------------------------------------------------------------------------


@pytest.mark.fair_sample(0.34)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("per", ["user", "record"])
@pytest.mark.parametrize("name", NAMES)
def test_no_step_gives_away_more_than_it_claims(name: str, per: str, relation: Neighbors) -> None:
    """A user goes from one record among the others to ten thousand far away, and back, and into nothing."""
    rng, n = np.random.default_rng(12), 1_500
    means, records = rng.normal(size=n), rng.integers(1, 5, n)
    changes = [((0.0, 1), (1e6, 10_000)), ((-3.0, 10_000), (3.0, 10_000)), ((1e6, 2), (np.nan, 2))]
    for before, after in changes:
        if relation is Neighbors.REPLACE_VALUES:
            after = (after[0], before[1])
        first = UserTable.from_means(np.append(means, before[0]), np.append(records, before[1]))
        second = UserTable.from_means(np.append(means, after[0]), np.append(records, after[1]))
        if relation is Neighbors.ADD_REMOVE:
            second = UserTable.from_means(means, records)
        made = prepared(first, name, relation, per=per, epsilon=6.0, delta=0.01 if NAMES[name] else 0.0)
        assert made.steps
        distributions = [make_repeatable(made.distribution(table)) for table in (first, second)]
        guarantee = Claim(what="all", epsilon=6.0, delta=made.request.delta)
        used = measure_claims(distributions[0], distributions[1], guarantee)
        assert max(used.values()) <= 1.0 + WARM, used
        assert used[ADDS_UP] > 0.95


# --- the way in -------------------------------------------------------------------------------------------------------


def test_the_power_goes_all_the_way_from_the_caller_to_the_release() -> None:
    rng = np.random.default_rng(13)
    records = rng.integers(1, 30, 400)
    table = pa.table({"u": np.repeat(np.arange(400), records), "v": rng.normal(size=records.sum())})
    release = hm.mean(
        table,
        user="u",
        value="v",
        epsilon=50,
        mechanism="inverse-sensitivity",
        threshold=60.0,
        threshold_power=1,
        radius=100,
        neighbors="replace-user",
        n_users=400,
    )
    assert release.parameters["threshold_power"] == 1.0
    assert "max_records" not in release.parameters
    assert release.value == pytest.approx(table["v"].to_numpy().mean(), abs=0.05)


def test_an_epsilon_too_small_for_any_test_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dry run asks for a hundred scales, whose tests are the same; each took a second to be found too long."""
    made = stability.calibrate_propose_test_release
    asked = []

    def counted(*given: Any, **named: Any) -> Any:
        asked.append(named)
        return made(*given, **named)

    monkeypatch.setattr(stability, "calibrate_propose_test_release", counted)
    with pytest.raises(hm.InputError, match="epsilon is too small"):
        prepared(users(2), "propose-test-release", Neighbors.ADD_REMOVE, epsilon=1.25e-6, per="record")
    assert len(asked) == 1
