"""The black-box check keeps still where a guarantee is kept, and speaks up where half the noise breaks it.

Significance is 1e-3 per check throughout, by construction; the tests here measure it, and the power. Noise drawn in
this file is rounded to a public grid: the check refutes noise in bare floating point, and rightly so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, special

from helpers.black_box import SIGNIFICANCE, Output, Samples, check, largest_probability, least_probability
from helpers.black_box_pairs import (
    ADD_REMOVE,
    PAIRS,
    REPLACE_USER,
    REPLACE_VALUES,
    Pair,
    dataset,
    halved,
    seeded,
)
from hubermean import NotReleased
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.base import Outcome
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.noise.source import NoiseSource
from hubermean.noise.system import SystemNoise
from hubermean.release.path import release_user_table
from hubermean.types.request import PublicFacts, Request

Both = tuple[Samples, Samples]
GRID = 2.0**20


def on_grid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.round(values * GRID) / GRID


# ---- mechanisms of a few lines that are private at their guarantee exactly, and no further ----


@dataclass(frozen=True, kw_only=True)
class Toy:
    """`draw(rng, size, share)`: outputs of two neighbors, with a share of the noise that the guarantee needs."""

    name: str
    epsilon: float
    delta: float
    draw: Callable[[np.random.Generator, int, float], Both]


def _laplace(rng: np.random.Generator, size: int, share: float) -> Both:
    first, second = (on_grid(place + share * rng.laplace(size=size)) for place in (0.0, 1.0))
    return first, second


def _gaussian_delta(sigma: float, epsilon: float) -> float:
    """Balle & Wang (2018), Theorem 8, for a shift of one."""
    middle, side = 0.5 / sigma, epsilon * sigma
    return float(special.ndtr(middle - side) - math.exp(epsilon) * special.ndtr(-middle - side))


SIGMA = optimize.brentq(lambda sigma: _gaussian_delta(sigma, 1.0) - 0.02, 0.1, 10.0, xtol=1e-12)


def _gaussian(rng: np.random.Generator, size: int, share: float) -> Both:
    first, second = (on_grid(place + share * SIGMA * rng.normal(size=size)) for place in (0.0, 1.0))
    return first, second


def _two_columns(rng: np.random.Generator, size: int, share: float) -> Both:
    """Each column has half of an epsilon of two."""
    first, second = (on_grid(place + share * rng.laplace(size=(size, 2))) for place in (0.0, 1.0))
    return first, second


def _refusal(rng: np.random.Generator, size: int, share: float) -> Both:
    """Refuses rarely or e^1 times as often; what is released says nothing."""
    rare = 0.05
    values = on_grid(rng.normal(size=(2, size)))
    refused = rng.random((2, size)) < np.array([[rare], [rare * math.exp(1.0 / share)]])
    first, second = (
        [None if no else (float(value),) for value, no in zip(*one, strict=True)]
        for one in zip(values, refused, strict=True)
    )
    return first, second


TOYS = (
    Toy(name="Laplace", epsilon=1.0, delta=0.0, draw=_laplace),
    Toy(name="Gaussian", epsilon=1.0, delta=0.02, draw=_gaussian),
    Toy(name="Laplace, two columns", epsilon=2.0, delta=0.0, draw=_two_columns),
    Toy(name="refusal", epsilon=1.0, delta=0.0, draw=_refusal),
)
toys = pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)


def alarms(toy: Toy, share: float, *, repetitions: int, size: int, significance: float = SIGNIFICANCE) -> int:
    rng = np.random.default_rng([TOYS.index(toy), size])
    return sum(
        check(*toy.draw(rng, size, share), toy.epsilon, toy.delta, significance=significance).refuted
        for _ in range(repetitions)
    )


@toys
def test_false_alarms_at_the_guarantee_exactly(toy: Toy) -> None:
    """200 checks of each mechanism, 800 together: no more alarms than one in a thousand can explain."""
    assert least_probability(alarms(toy, 1.0, repetitions=200, size=400), 200, 1e-3) <= SIGNIFICANCE


@toys
def test_false_alarms_at_a_lower_confidence(toy: Toy) -> None:
    """One alarm in twenty is allowed here: choosing events on the samples that test them would raise many more."""
    count = alarms(toy, 1.0, repetitions=40, size=400, significance=0.05)
    assert least_probability(count, 40, 1e-3) <= 0.05


@pytest.mark.slow
@toys
def test_false_alarms_of_more_samples(toy: Toy) -> None:
    """1,000 checks of each mechanism with 4,000 samples of each side."""
    assert least_probability(alarms(toy, 1.0, repetitions=1_000, size=4_000), 1_000, 1e-3) <= SIGNIFICANCE


@toys
def test_half_the_noise_is_caught(toy: Toy) -> None:
    """4,000 samples of each side: all of 60 checks catch it, so the power is above 0.95 with 95% confidence."""
    assert least_probability(alarms(toy, 0.5, repetitions=60, size=4_000), 60, 0.05) > 0.95


@pytest.mark.slow
@toys
def test_slightly_too_little_noise_is_caught(toy: Toy) -> None:
    """85% of the noise, with 100,000 samples of each side."""
    assert alarms(toy, 0.85, repetitions=10, size=100_000) == 10


# ---- the mechanisms themselves ----


def cases(pairs: list[Pair]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "pair",
        [
            pytest.param(
                pair,
                id=f"{pair.name}, {pair.neighbors.value}",
                marks=[pytest.mark.slow] if pair.slow else [],
            )
            for pair in pairs
        ],
    )


all_pairs = cases(list(PAIRS))
tight_pairs = cases([pair for pair in PAIRS if pair.tight])


@pytest.mark.fair_sample(0.25)
@all_pairs
def test_mechanisms_are_not_refuted(pair: Pair) -> None:
    verdict = check(*pair.outputs(seeded(1)), pair.epsilon, pair.delta)
    assert not verdict.refuted, verdict


@pytest.mark.fair_sample(0.3)
@tight_pairs
def test_half_the_noise_of_a_mechanism_is_caught(pair: Pair) -> None:
    verdict = check(*pair.outputs(halved(2)), pair.epsilon, pair.delta)
    assert verdict.refuted, verdict


@pytest.mark.slow
@all_pairs
def test_mechanisms_are_not_refuted_by_many_samples(pair: Pair) -> None:
    verdict = check(*pair.outputs(seeded(3), times=5), pair.epsilon, pair.delta)
    assert not verdict.refuted, verdict


@pytest.mark.slow
@tight_pairs
def test_half_the_noise_of_a_mechanism_is_caught_again_and_again(pair: Pair) -> None:
    """10 checks, each on outputs of its own."""
    first, second = pair.outputs(halved(4), times=10)
    size = pair.samples
    parts = [slice(start, start + size) for start in range(0, 10 * size, size)]
    caught = sum(check(first[part], second[part], pair.epsilon, pair.delta).refuted for part in parts)
    assert caught == 10


@pytest.mark.slow
@tight_pairs
def test_mechanisms_are_not_refuted_with_the_noise_of_real_releases(pair: Pair) -> None:
    """Through `release_user_table` and the operating system's entropy; nothing is remembered from one to the next."""
    request = Request(
        columns=pair.first.columns,
        epsilon=pair.epsilon,
        delta=pair.delta,
        neighbors=pair.neighbors,
        per=pair.per,
    )

    def outputs(table: UserTable) -> list[Output]:
        return [
            release_user_table(table, request, pair.mechanism, SystemNoise()).values
            for _ in range(pair.samples)
        ]

    verdict = check(outputs(pair.first), outputs(pair.second), pair.epsilon, pair.delta)
    assert not verdict.refuted, verdict


def test_the_pairs_use_the_laws_they_are_named_after() -> None:
    for pair in PAIRS:
        for distribution in ("Laplace", "Gaussian"):
            if f" {distribution}:" in pair.name:
                outcome = pair.prepared(pair.first).run(pair.first, InsecureSeededNoise(0))
                assert str(outcome.parameters["noise"]).startswith(f"discrete {distribution}")


# ---- a mechanism that may refuse ----


@dataclass(frozen=True, kw_only=True)
class CautiousCount:
    """Releases the number of users, if a noisy count of them passes a test; half the budget for each."""

    least: int
    noisy_test: bool = True
    name = "a toy that may refuse"

    def check(self, request: Request) -> None: ...

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedCount:
        return PreparedCount(mechanism=self, scale=2.0 * GRID / request.epsilon)


@dataclass(frozen=True, kw_only=True)
class PreparedCount:
    mechanism: CautiousCount
    scale: float

    def run(self, table: UserTable, noise: NoiseSource) -> Outcome:
        tested, released = (
            int(GRID) * table.n_users + extra for extra in noise.discrete_laplace(self.scale, 2)
        )
        if not self.mechanism.noisy_test:
            tested = int(GRID) * table.n_users
        if tested < self.mechanism.least * GRID:
            raise NotReleased("too few users; ask for less", epsilon=0.0, delta=0.0)
        return Outcome(values=(released / GRID,))


MAY_REFUSE = Pair(
    name="a toy that may refuse",
    mechanism=CautiousCount(least=3),
    neighbors=ADD_REMOVE,
    first=dataset(1.0, 1.0, 1.0),
    second=dataset(1.0, 1.0),
    samples=3_000,
)


def test_a_mechanism_that_may_refuse() -> None:
    assert None in MAY_REFUSE.outputs(seeded(5))[0]
    assert not check(*MAY_REFUSE.outputs(seeded(5)), MAY_REFUSE.epsilon).refuted
    assert check(*MAY_REFUSE.outputs(halved(6)), MAY_REFUSE.epsilon).refuted
    open_secret = replace(MAY_REFUSE, mechanism=CautiousCount(least=3, noisy_test=False))
    assert check(*open_secret.outputs(seeded(7)), MAY_REFUSE.epsilon).refuted


# ---- broken on purpose in other ways than by half the noise ----


@pytest.mark.slow
def test_a_forgotten_half_of_the_sensitivity_is_caught() -> None:
    """The noise of `add-remove`, where one user in truth replaces another."""
    population = (0.5,) * 60
    pair = Pair(
        name="the wrong relation",
        mechanism=Clipped(bounds=(0.0, 1.0)),
        neighbors=ADD_REMOVE,
        first=dataset(*population, 0.0),
        second=dataset(*population, 1.0),
        samples=6_000,
        remembered=("statistic",),
    )
    assert check(*pair.outputs(seeded(8)), pair.epsilon).refuted
    assert not check(*replace(pair, neighbors=REPLACE_USER).outputs(seeded(8)), pair.epsilon).refuted


def test_a_forgotten_change_of_a_count_is_caught() -> None:
    """Counts taken as public, while a user's count changes: the sum is protected, but what it is divided by is not."""
    pair = Pair(
        name="counts are not public",
        mechanism=Clipped(bounds=(0.0, 1.0), max_records=100),
        neighbors=REPLACE_VALUES,
        per="record",
        first=dataset(0.5, 0.5, ([0.5], 1)),
        second=dataset(0.5, 0.5, ([0.5], 100)),
        samples=1_000,
        remembered=("statistic",),
    )
    first, second = ([output[:1] for output in side if output] for side in pair.outputs(seeded(9)))
    assert check(first, second, pair.epsilon).refuted, "by the value alone, without its interval"
    private = replace(pair, neighbors=REPLACE_USER)
    assert not check(*private.outputs(seeded(9)), pair.epsilon).refuted


def test_a_scale_that_follows_the_data_is_caught() -> None:
    """No mean moves, and the shape is the same: only distances from the center tell."""
    rng = np.random.default_rng(10)
    for dimension in (1, 3):
        narrow, wide = (on_grid(scale * rng.normal(size=(4_000, dimension))) for scale in (1.0, 5.0))
        assert check(narrow, wide, 1.0, 0.02).refuted
        assert check(wide, narrow, 1.0, 0.02).refuted


def test_noise_in_bare_floating_point_is_caught() -> None:
    """All of the noise, but its last bits give away what it was added to (Mironov, 2012)."""
    rng = np.random.default_rng(11)
    verdict = check(rng.laplace(size=4_000), 1.0 + rng.laplace(size=4_000), 1.0)
    assert verdict.refuted
    assert "lowest bit" in verdict.event


def test_a_parameter_that_shows_a_count_is_caught() -> None:
    """Whatever a release shows is part of its output, also beside the value."""

    class Telling(PreparedCount):
        def run(self, table: UserTable, noise: NoiseSource) -> Outcome:
            return replace(super().run(table, noise), parameters={"weights": [table.n_users]})

    class TellingMechanism(CautiousCount):
        def prepare(self, request: Request, facts: PublicFacts) -> PreparedCount:
            return Telling(mechanism=self, scale=2.0 * GRID / request.epsilon)

    pair = replace(MAY_REFUSE, mechanism=TellingMechanism(least=-100))
    assert check(*pair.outputs(seeded(12)), pair.epsilon).refuted


# ---- the checker's own parts ----


@pytest.mark.parametrize("hits", [0, 1, 7, 20])
def test_bounds_are_those_of_clopper_and_pearson(hits: int) -> None:
    """At the lower bound as true probability, as many hits or more have probability `error`; likewise above."""
    from scipy import stats

    low, high = least_probability(hits, 20, 0.01), largest_probability(hits, 20, 0.01)
    assert low == 0.0 if hits == 0 else stats.binom.sf(hits - 1, 20, low) == pytest.approx(0.01)
    assert high == 1.0 if hits == 20 else stats.binom.cdf(hits, 20, high) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (None, (1.0,)),
        ((1.0,), (2.0,)),
        ((math.nan,), (1.0,)),
        ((math.inf, 0.0), (-math.inf, 0.0)),
        ((1.0,), (1.0, 1.0)),
        ((), None),
    ],
)
def test_two_constant_outputs_are_distinguished(first: Output, second: Output) -> None:
    assert check([first] * 200, [second] * 200, 1.0).refuted
    assert check([first] * 200, [second] * 200, 1.0, 0.999).refuted is False
    assert not check([first] * 200, [first] * 200, 0.0).refuted


def test_either_direction_is_looked_at() -> None:
    """An output that one data set has now and then and the other never: only one of the two ratios is large."""
    often, never = [(0.0,)] * 900 + [None] * 100, [(0.0,)] * 1000
    shuffled: list[Any] = [often[place] for place in np.random.default_rng(13).permutation(1000)]
    for one, two in ((shuffled, never), (never, shuffled)):
        verdict = check(one, two, 1.0)
        assert verdict.refuted
        assert not check(one, two, 1.0, 0.2).refuted


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two samples"):
        check([(1.0,)], [(1.0,), (2.0,)], 1.0)
