"""What a refusal says it spent is what the steps claim that were sampled: no more, and none of them forgotten.

Claims are what audits hold the output distributions to (`tests/auditing/test_claims.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hubermean as hm
from hubermean.accounting.budget import Claim
from hubermean.data.encoding import BINARY
from hubermean.data.user_table import UserTable
from hubermean.distributions.output import Independent, NoisyTest, OutputDistribution, Staged, get_claim
from hubermean.mechanisms.propose_test_release.mechanism import ProposeTestRelease
from hubermean.mechanisms.registry import resolve_mechanism
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.options import PublicParameters
from hubermean.types.request import PublicFacts, Request


def claims_of(distribution: OutputDistribution) -> Iterator[Claim]:
    claim = get_claim(distribution)
    if claim is not None:
        yield claim
    elif isinstance(distribution, Independent):
        for part in distribution.parts:
            yield from claims_of(part)


def sample_with_claims(
    distribution: OutputDistribution, noise: InsecureSeededNoise
) -> tuple[Any, list[Claim]]:
    """A sample, and the claims of all distributions that were sampled for it."""
    if isinstance(distribution, Staged):
        claims = list(claims_of(distribution.first))
        first = distribution.first.sample(noise)
        rest, later = sample_with_claims(distribution.then(first), noise)
        return (first, rest), [*claims, *later]
    nothing = isinstance(distribution, NoisyTest) and distribution.passes == 0 and distribution.claim is None
    return distribution.sample(noise), [] if nothing else list(claims_of(distribution))


GENERATOR = np.random.default_rng(8)
NORMAL = GENERATOR.normal(size=3_000)
CASES: dict[str, tuple[Any, Any, dict[str, Any], dict[str, Any], str]] = {
    # means, counts, request, public parameters, words of the refusal
    "too few users": (np.arange(5.0), None, {}, {}, "too few users"),
    "ties, no search": (np.full(800, 3.0), None, {}, {}, "same value"),
    "ties, searched": (np.full(5_000, 3.0), None, {}, {}, "same value"),
    "ties in one column": (np.c_[NORMAL, np.zeros(3_000)], None, {}, {}, "same value in 'mean_1', so"),
    "far from 0": (NORMAL + 1e12, None, {}, {"scale": 1.0, "radius": 100.0}, "further from 0"),
    "many columns": (GENERATOR.normal(size=(300, 12)), None, {"delta": 1e-6}, {}, "too few users"),
    "few records": (
        NORMAL,
        np.ones(3_000, dtype=int),
        {"per": "record", "delta": 1e-6},
        {"max_records": 5_000},
        "too few records",
    ),
    "smooth sensitivity": (NORMAL[:450], None, {"delta": 1e-6}, {}, "too few users for mechanism"),
    "a test without a plan": (
        NORMAL[:300],
        None,
        {"delta": 1e-6, "epsilon": 0.2},
        {"threshold": 5.0, "radius": 100.0},
        "the test needs were measured",
    ),
}
MECHANISMS = {
    "few records": "smooth-sensitivity",
    "smooth sensitivity": "smooth-sensitivity",
    "a test without a plan": "propose-test-release",
}


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("case", CASES)
def test_a_refusal_states_the_claims_of_what_was_sampled(case: str, seed: int) -> None:
    means, counts, asked, known, words = CASES[case]
    table = UserTable.from_means(means, counts)
    given = {"epsilon": 1.0, "delta": 0.0, "per": "user", "neighbors": "add-remove", **asked}
    request = Request.checked(table.columns, **given)
    mechanism = resolve_mechanism(MECHANISMS.get(case, "adaptive"), PublicParameters(**known))
    prepared: Any = mechanism.prepare(request, PublicFacts.of(table, request.neighbors))
    sample, claims = sample_with_claims(prepared.distribution(table), InsecureSeededNoise(seed))
    assert claims
    with pytest.raises(hm.NotReleased, match=words) as caught:
        prepared.outcome(sample)
    refusal = caught.value
    if claims[0].rho is not None:
        rho = sum((Fraction(claim.rho or 0) for claim in claims), Fraction(0))
        assert refusal.rho == rho
        assert refusal.delta == request.delta
        assert float(rho) < refusal.epsilon <= request.epsilon
    else:
        epsilon = sum((Fraction(claim.epsilon or 0) for claim in claims), Fraction(0))
        assert 0 <= Fraction(repr(refusal.epsilon)) - epsilon <= epsilon / 10**5
        assert refusal.delta == 0.0
        if prepared.concentrated() is None:
            assert refusal.rho is None
        else:
            assert refusal.rho == epsilon**2 / 2  # noise on a number of users
    assert f"{refusal.epsilon:g} of {request.epsilon:g}" in str(refusal)


def test_a_test_that_fails_and_an_answer_that_is_withheld_cost_everything() -> None:
    clusters = np.repeat([-5.0, 5.0], 800)
    with pytest.raises(hm.NotReleased, match="did not pass") as caught:
        hm.mean_of_user_means(
            clusters, epsilon=1, delta=1e-5, mechanism="propose-test-release", threshold=2.0, radius=10.0
        )
    assert (caught.value.epsilon, caught.value.delta) == (1.0, 1e-5)


def test_steps_before_a_test_that_was_not_made_are_counted() -> None:
    request = Request.checked(("v",), epsilon=0.5, delta=1e-6, per="user", neighbors="add-remove")
    facts = PublicFacts.declared(("v",), (BINARY.limit,))
    made = ProposeTestRelease(threshold=5.0, radius=100.0).prepare(request, facts)
    whole = replace(request, epsilon=1.0)
    prepared = replace(made, charged=whole, before=Fraction(1, 2))
    with pytest.raises(hm.NotReleased, match=r"epsilon = 0\.520001 of 1 was spent") as caught:
        prepared.outcome(([0], None))
    assert (caught.value.epsilon, caught.value.delta) == (0.520001, 0.0)


def test_a_test_after_steps_knows_what_they_cost() -> None:
    request = Request.checked(("v",), epsilon=1.0, delta=1e-6, per="user", neighbors="add-remove")
    table = UserTable.from_means(NORMAL)
    mechanism = resolve_mechanism("propose-test-release", PublicParameters())
    prepared: Any = mechanism.prepare(request, PublicFacts.of(table, request.neighbors))
    sample, claims = sample_with_claims(prepared.distribution(table), InsecureSeededNoise(1))
    results = prepared.replay(sample, prepared.last)
    steps = sum(
        (Fraction(claim.epsilon or 0) for claim in claims[:-2]), Fraction(0)
    )  # without weight and test
    assert 0 < results.made.before == results.found.spent == steps
    assert results.made.charged == request


@pytest.mark.parametrize("users", [100, 300, 500, 650, 700])
def test_too_few_users_for_a_later_step_end_a_release_after_the_count(users: int) -> None:
    request = Request.checked(("v",), epsilon=1.0, delta=0.0, per="record", neighbors="add-remove")
    table = UserTable.from_means(NORMAL[:users], np.full(users, 3))
    prepared: Any = resolve_mechanism("adaptive", PublicParameters()).prepare(
        request, PublicFacts.of(table, request.neighbors)
    )
    outcomes = []
    for seed in range(20):
        sample, claims = sample_with_claims(prepared.distribution(table), InsecureSeededNoise(seed))
        try:
            prepared.outcome(sample)
        except hm.NotReleased as refusal:
            outcomes.append((str(refusal), refusal.epsilon, [claim.what for claim in claims]))
    for reason, spent, steps in outcomes:
        assert "too few users" not in reason or (spent < 0.04 and steps == ["number of users"])
    assert outcomes or users > 650
