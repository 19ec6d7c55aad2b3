"""Claims of single steps: what an audit makes of them, and that the search excites every one of them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hubermean as hm
from helpers.caught import is_caught
from hubermean.accounting.budget import Claim
from hubermean.accounting.concentrated import largest_rho
from hubermean.auditing.claims import ADDS_UP, measure_claims, measure_share
from hubermean.auditing.compare import make_repeatable
from hubermean.distributions.output import (
    ExponentialMechanism,
    Independent,
    NoiseDistribution,
    NoisySum,
    NoisyTest,
    SelectedPartitions,
    Staged,
    Uniform,
    without_claims,
)
from hubermean.ingest.duckdb import source as duckdb_source

GUARANTEE = Claim(what="guarantee", epsilon=1.0, delta=1e-5)


def choice(*costs: int, rate: Fraction = Fraction(1, 4), claim: Claim | None = None) -> ExponentialMechanism:
    return ExponentialMechanism(
        costs=np.array(costs), sizes=np.ones(len(costs), dtype=np.int64), rate=rate, claim=claim
    )


def noisy(place: int, *, kind: Any = "laplace", scale: float = 10.0, claim: Claim | None = None) -> NoisySum:
    return NoisySum(position=[place], noise=NoiseDistribution(kind=kind, scale=scale), claim=claim)


def test_a_choice_is_judged_by_its_range() -> None:
    """Costs move by one up and one down: a range of twice the rate."""
    one, two = choice(0, 5, 3), choice(1, 4, 3)
    assert measure_share(Claim(what="c", epsilon=0.5), one, two) == pytest.approx(1.0)
    assert measure_share(Claim(what="c", rho=0.5**2 / 8), one, two) == pytest.approx(1.0)
    assert measure_share(Claim(what="c", epsilon=Fraction(0)), one, two) == math.inf
    assert measure_share(Claim(what="c", epsilon=Fraction(0)), one, one) == 0.0


def test_noise_is_judged_in_the_unit_of_its_claim() -> None:
    assert measure_share(Claim(what="n", epsilon=0.3), noisy(0), noisy(3)) == pytest.approx(1.0)
    assert measure_share(Claim(what="n", rho=0.3**2 / 2), noisy(0), noisy(3)) == pytest.approx(1.0)
    gaussian = [noisy(place, kind="gaussian", scale=2000.0) for place in (0, 1000)]
    assert measure_share(Claim(what="n", rho=0.125), *gaussian) == pytest.approx(1.0)
    assert measure_share(Claim(what="n", epsilon=1e-3), *gaussian) == math.inf
    assert measure_share(Claim(what="n", rho=1.0), noisy(0), noisy(0, scale=9.0)) == math.inf
    joint = measure_share(Claim(what="n", epsilon=1.0, delta=1e-3, among=4), *gaussian)
    alone = measure_share(
        Claim(what="n", epsilon=1.0, delta=1e-3), gaussian[0], noisy(2000, kind="gaussian", scale=2000.0)
    )
    assert joint == pytest.approx(alone)


def test_claims_add_up_along_a_path() -> None:
    def distribution(place: int, mean: float) -> Staged:
        first = noisy(place, claim=Claim(what="weight", epsilon=0.25))
        last = Claim(what="mean", epsilon=mean)
        return Staged(first=first, then=lambda _: choice(place, 0, claim=last))

    found = measure_claims(
        make_repeatable(distribution(0, 0.75)), make_repeatable(distribution(1, 0.75)), GUARANTEE
    )
    assert found == pytest.approx({"weight": 0.4, "mean": 1 / 3, ADDS_UP: 1.0})
    assert (
        measure_claims(
            make_repeatable(distribution(0, 1.0)), make_repeatable(distribution(1, 1.0)), GUARANTEE
        )[ADDS_UP]
        == 1.25
    )
    nothing = make_repeatable(without_claims(distribution(0, 1.0)))
    assert measure_claims(nothing, nothing, GUARANTEE) == {}


def test_parts_in_rho_fit_a_claim_in_epsilon_and_delta() -> None:
    rho = largest_rho(1.0, 1e-5)
    parts = [choice(0, 1, claim=Claim(what="column", rho=rho / 2)) for _ in range(2)]
    whole = Independent(parts=parts, claim=Claim(what="mean", epsilon=1.0, delta=1e-5))
    found = measure_claims(whole, whole, GUARANTEE)
    assert found["mean"] == pytest.approx(1.0)
    assert found[ADDS_UP] == 1.0


def test_a_cost_that_depends_on_the_data_is_found() -> None:
    one, two = (noisy(0, claim=Claim(what="n", epsilon=epsilon)) for epsilon in (0.1, 0.2))
    found = measure_claims(one, two, GUARANTEE)
    assert found["what n costs does not depend on the data"] == math.inf


def test_laws_without_stages_state_claims_too() -> None:
    claim = Claim(what="t", epsilon=0.5, delta=0.1)
    first, second = (NoisyTest(passes=passes, bits=3, inner=noisy(0), claim=claim) for passes in (2, 3))
    assert measure_claims(first, second, GUARANTEE)["t"] == pytest.approx(math.log(1.5) / 0.5)
    first, second = (SelectedPartitions(chances={"a": one}, bits=3, claim=claim) for one in (0, 1))
    assert measure_claims(first, second, GUARANTEE)["t"] == pytest.approx(1.25)
    assert measure_claims(Uniform(limit=2), Uniform(limit=2), GUARANTEE) == {}


RELATIONS = ["replace-user", "replace-values", "add-remove"]
# Shares of what a step costs that some pair must use. Noise and the exponential mechanism come near 1; permute-and-flip
# only where nearly all candidates move at once, and a cap by share allows for more than add-remove can change.
SURELY, HALF = 0.85, 0.49
STEPS = {
    "user": {
        "scale and center": HALF,
        "scale and center beyond ties": HALF,
        "bounds": HALF,
        "the mean": SURELY,
    },
    "record": {
        "scale and center": HALF,
        "scale and center beyond ties": HALF,
        "influence bound": HALF,
        "first step": 0.99,
        "the mean": SURELY,
    },
    "groups": dict.fromkeys(
        (
            "number of users",
            "scale and center",
            "scale and center beyond ties",
            "norm bounds",
            "weights of groups",
            "the mean",
        ),
        0.99,
    ),
}


def lagging(found: hm.Audit, steps: dict[str, float]) -> dict[str, float]:
    """The steps that no pair came near enough to."""
    return {
        step: found.claims.get(step, 0.0)
        for step, least in steps.items()
        if found.claims.get(step, 0.0) < least
    }


@pytest.mark.slow
@pytest.mark.parametrize("per", ["user", "record"])
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_every_step_comes_near_its_claim(neighbors: str, per: Any) -> None:
    found = hm.audit("adaptive", epsilon=20, per=per, neighbors=neighbors, pairs=40)
    assert found.kept, found
    steps = dict(STEPS[per])
    if per == "record" and neighbors != "replace-values":
        steps |= {"contribution bound": HALF, "weight of all users": 0.99}
    assert not lagging(found, steps), found.claims


def test_every_step_of_one_audit_comes_near_its_claim() -> None:
    found = hm.audit("adaptive", epsilon=20, neighbors="replace-values", pairs=12)
    assert found.kept, found
    assert not lagging(found, STEPS["user"]), found.claims


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_every_step_of_adaptive_groups_comes_near_its_claim(neighbors: str) -> None:
    found = hm.audit("adaptive", epsilon=20, groups=3, per="record", neighbors=neighbors, pairs=40)
    assert found.kept, found
    assert not lagging(found, STEPS["groups"]), found.claims


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(("per", "cap"), [("user", None), ("record", 3), ("record", None)])
def test_counts_keep_their_guarantee(per: Any, cap: int | None, neighbors: str) -> None:
    found = hm.audit("count", epsilon=1, per=per, max_records=cap, neighbors=neighbors, pairs=40)
    assert found.kept, found
    assert found.claims["the count"] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("container", ["parquet", "csv", "jsonl", "polars", "arrow-dictionary"])
def test_a_guarantee_holds_through_a_container(container: str) -> None:
    found = hm.audit("clipped", epsilon=1, bounds=(0, 10), container=container, pairs=10)
    assert found.kept, found
    assert found.loss > 0.5
    found = hm.audit("count", epsilon=1, groups=3, container=container, neighbors="add-remove", pairs=6)
    assert found.kept, found


def test_a_slip_of_the_reader_is_found_through_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only users of as many records as anybody are kept: one user decides how others are read."""
    made = duckdb_source.DuckdbSource.read_users

    def users(self: Any, *given: Any, **named: Any) -> Any:
        table = made(self, *given, **named)
        count_fullest = int(table.counts.max(initial=0))
        return table.take(np.flatnonzero(table.counts == count_fullest))

    monkeypatch.setattr(duckdb_source.DuckdbSource, "read_users", users)
    options: dict[str, Any] = {"epsilon": 1, "bounds": (0, 10), "neighbors": "add-remove", "pairs": 30}
    assert is_caught("clipped", container="csv", **options)
    assert hm.audit("clipped", **options).kept


def test_an_unknown_container_is_refused() -> None:
    with pytest.raises(hm.InputError, match="container must be one of 'parquet'"):
        hm.audit("clipped", epsilon=1, bounds=(0, 10), container="papyrus")
