"""Neighbor pairs for `propose-test-release`, and what must hold for each of them; no test here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from helpers.partitioned import partitioned
from helpers.smooth_sensitivity_pairs import Array, BrokenGuaranteeError, Dataset, T, hockey_stick
from hubermean.accounting.propose_test_release import calibrate_propose_test_release
from hubermean.distributions.output import NoiseDistribution, NoisySum, NoisyTest
from hubermean.huber.geometry import Geometry
from hubermean.mechanisms.contributions import parse_threshold_power
from hubermean.mechanisms.propose_test_release.mechanism import PreparedProposeTestRelease, ProposeTestRelease
from hubermean.mechanisms.propose_test_release.stability import StabilityTest, TotalWeightBounds
from hubermean.types.request import Neighbors, PublicFacts, Request

# (epsilon, delta, reserve / epsilon): short tests, so that datasets of some dozen users have a say.
SETTINGS = ((4.0, 0.05, 0.35), (2.0, 0.01, 0.2), (6.0, 1e-3, 0.35), (1.0, 0.1, 0.35))
AIMED = ("ladder", "rungs", "last rung", "springs at rest", "edge of the first step", "heavy")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A mechanism together with a plan of our choice: every plan is valid, for every data set."""

    prepared: PreparedProposeTestRelease
    plan: StabilityTest

    @property
    def geometry(self) -> Geometry:
        return self.prepared.geometry

    @property
    def shift(self) -> float:
        """What Lemma 1 guarantees of the center."""
        return self.plan.step - self.geometry.depth_step


def prepare(
    dataset: Dataset,
    relation: Neighbors,
    *,
    cap: int = 1,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    radius: float = 5.0,
    share: float = 0.9,
) -> PreparedProposeTestRelease:
    request = dataset.request(relation, cap=cap, epsilon=epsilon, delta=delta)
    mechanism = ProposeTestRelease(
        threshold=T, radius=radius, max_records=cap if cap > 1 else None, share=share
    )
    return mechanism.prepare(request, PublicFacts.of(dataset.table(), relation))


@lru_cache(maxsize=512)
def setup_at(
    relation: Neighbors,
    *,
    curvature: int,
    setting: tuple[float, float, float] = SETTINGS[0],
    dimension: int = 1,
    cap: int = 1,
    power: float | None = None,
    high: float = 1e4,
    gradient_rate: float | None = None,
) -> Setup | None:
    """The mechanism with rho of our choice; a larger `gradient_rate` lets the solver stop early."""
    epsilon, delta, part = setting
    factor = 1.0 if relation is Neighbors.ADD_REMOVE else 2.0
    request = Request(
        columns=tuple(f"mean_{j}" for j in range(dimension)),
        epsilon=epsilon,
        delta=delta,
        neighbors=relation,
        per="record" if cap > 1 else "user",
    )
    geometry = Geometry.choose(
        threshold=T, radius=5.0, dimension=dimension, power=parse_threshold_power(power), weight_cap=cap
    )
    if gradient_rate is not None:
        geometry = replace(geometry, gradient_rate=gradient_rate)
    test = calibrate_propose_test_release(epsilon, delta, reserve=part * epsilon, dimension=dimension)
    plan = StabilityTest._of_test(
        test,
        geometry,
        TotalWeightBounds(low=curvature + test.margin * cap, high=high),
        weight_cap=cap,
        factor=factor,
        share=1.0,
    )
    if plan is None:
        return None
    assert plan.curvature == curvature
    prepared = PreparedProposeTestRelease(
        request=request,
        cap=cap,
        radius=5.0,
        share=0.9,
        geometry=geometry,
        total_weight=1,  # not used: the plan is given
        weight_noise=None,
        planned_weight=1.0,
    )
    return Setup(prepared=prepared, plan=plan)


def least_setup(
    relation: Neighbors, *, extra: int, setting: tuple[float, float, float], **kind: Any
) -> Setup:
    """The plan of least curvature, or `extra` more."""
    curvature = 1
    while setup_at(relation, curvature=curvature, setting=setting, **kind) is None:
        curvature += max(1, kind.get("cap", 1) // 4)
    made = setup_at(relation, curvature=curvature + extra, setting=setting, **kind)
    assert made is not None
    return made


def make_aimed_dataset(rng: np.random.Generator, family: str, setup: Setup, *, d: int, cap: int) -> Dataset:
    """A data set made for the plan: weights and depths sit where the certificate decides."""
    plan, step, own = setup.plan, setup.plan.step, setup.geometry.threshold_of(cap)
    most = plan.test.margin
    j = int(rng.integers(1, most + 1))
    users = -(-plan.curvature // cap) + j + int(rng.integers(-1, 2))
    nudge = int(rng.integers(-2, 3)) * 2.0**-53
    weights = np.full(users, cap)
    match family:
        case "ladder":  # rho + j w at a depth of exactly j steps, in balance around 0
            radii = np.full(users, own - j * step + nudge)
        case "rungs":  # a user at every whole number of steps, give or take an ulp
            radii = own - (np.arange(users) % (most + 1)) * step + rng.integers(-2, 3, users) * 2.0**-53
        case "last rung":  # everyone at the center but one, which a change throws across
            radii = np.zeros(users)
            radii[-1] = own - (j + 1.5) * step
        case "springs at rest":  # the same in the middle of many who push against each other
            far = 2 * int(rng.integers(5, 60))
            radii = np.concatenate(
                [np.full(users, (own - j * step) * rng.uniform(0, 1)), np.full(far, 1.5 * own)]
            )
            weights = np.concatenate([weights, rng.integers(1, cap + 1, far // 2).repeat(2)])
        case "edge of the first step":  # depths between 0 and one step
            radii = own - step * rng.choice([0.0, 1e-15, 0.5, 1.0 - 1e-15, 1.0, 1.0 + 1e-15], users)
        case "heavy":  # few heavy users and many light ones
            light = 2 * min(cap, 50)
            weights = np.where(rng.random(users + light) < 0.5, cap, 1)
            radii = rng.choice([0.0, own - j * step, own - (j - 1) * step], users + light)
        case _:
            raise ValueError(family)
    signs = np.where(np.arange(len(radii)) % 2, 1.0, -1.0)
    means = np.zeros((len(radii), d))
    if d > 1 and rng.random() < 0.5:
        direction = rng.normal(size=(len(radii), d))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        direction[1::2] = -direction[: len(radii) // 2 * 2 : 2]  # pairs in balance
        means = direction * radii[:, None]
    else:
        means[:, 0] = signs * radii
    return Dataset(means=means, counts=weights.astype(np.int64))


def outlier_neighbors(dataset: Dataset, relation: Neighbors, cap: int) -> Iterator[Dataset]:
    """Yield datasets with one of the last users moved far to either side, at full weight if its weight may change."""
    n, d = dataset.means.shape
    for user in (n - 1, n - 2, 0):
        others = dataset.without(user)
        if relation is Neighbors.ADD_REMOVE:
            yield others
            continue
        count = cap if relation is Neighbors.REPLACE_USER else int(dataset.counts[user])
        for side in (-50.0, 50.0):
            yield others.with_user(side * np.eye(d)[0], count)


@dataclass(frozen=True, kw_only=True)
class Side:
    """The law on one data set, and what it was made from."""

    passes: float
    place: Array
    sigma: float
    center: Array
    margin: int


def side(setup: Setup, dataset: Dataset, *, n_parts: int | None = None) -> Side:
    """With its users on this machine, or in so many parts."""
    plan = setup.plan
    table = dataset.table()
    located = setup.prepared.locate(table if n_parts is None else partitioned(table, n_parts))
    if not plan.reserve:  # with one, users not found in time are users without a margin
        located = located.search_until_certified()
        if located.total_weight and not located.certified:
            raise BrokenGuaranteeError("the solver missed its rate")
    passes, place, sigma = law_of(setup.prepared.noisy_test(located, plan))
    margin = plan.distance_to_instability(located, setup.geometry)
    return Side(passes=passes, place=place, sigma=sigma, center=located.center, margin=margin)


def law_of(noisy_test: NoisyTest) -> tuple[float, Array, float]:
    """Chance to pass, answer on the grid, noise: read off the very object that is drawn from."""
    inner = noisy_test.inner
    assert isinstance(inner, NoisySum)
    sigma = inner.noise.scale if isinstance(inner.noise, NoiseDistribution) else math.nan
    return noisy_test.passes / 2**noisy_test.bits, np.array(inner.position, dtype=float), sigma


def check_pair(setup: Setup, first: Side, second: Side) -> tuple[float, float]:
    """Raise where the pair breaks a guarantee; shift over its bound (0 without one), divergence over delta."""
    if abs(first.margin - second.margin) > 1:
        raise BrokenGuaranteeError("the margin is not 1-Lipschitz")
    moved = 0.0
    if max(first.margin, second.margin) >= 1:
        moved = float(np.linalg.norm(first.center - second.center)) / setup.shift
        if moved > 1.0:
            raise BrokenGuaranteeError("the center moves by more than the step")
        gap = float(np.linalg.norm(first.place - second.place))
        if gap > setup.plan.test.alpha * first.sigma:
            raise BrokenGuaranteeError("the answers are further apart than the noise covers")
    request = setup.prepared.request
    worst = max(
        divergence(request.epsilon, 1.0, one, 1.0, two) for one, two in ((first, second), (second, first))
    )
    if worst > request.delta * (1.0 + 1e-6):
        raise BrokenGuaranteeError("the divergence of the two outputs exceeds delta")
    return moved, worst / request.delta


def divergence(epsilon: float, mass: float, one: Side, other_mass: float, two: Side) -> float:
    """sup_A of P(A) - e^epsilon Q(A) over what happens with total mass `mass` under P, `other_mass` under Q.

    The outcomes are "no", of mass times 1 - p, and answers, of mass times p times a Gaussian density of one scale for
    both (the grid is finer than any float can tell).
    """
    refusals = mass * (1.0 - one.passes) - math.exp(epsilon) * other_mass * (1.0 - two.passes)
    here, there = mass * one.passes, other_mass * two.passes
    if here == 0.0:
        return max(refusals, 0.0)
    if there == 0.0:
        return max(refusals, 0.0) + here
    assert one.sigma == two.sigma
    gap = float(np.linalg.norm(one.place - two.place)) / one.sigma
    level = epsilon - math.log(here / there)
    # Beyond 40 deviations the two do not meet, and the closed form would overflow.
    answers = here if gap > 40.0 else here * max(hockey_stick(level, gap, 0.0, 1), 0.0)
    return max(refusals, 0.0) + answers


def estimated_weight_divergence(
    prepared: PreparedProposeTestRelease, dataset: Dataset, other: Dataset
) -> float:
    """The divergence with the measuring of the total weight: summed up over every value that can be measured."""
    assert prepared.weight_noise is not None
    scale, epsilon = prepared.weight_noise.scale, prepared.request.epsilon
    reach = math.ceil(20.0 * scale)
    normal = math.tanh(0.5 / scale)  # of exp(-|k|/scale) over all whole k
    distributions = [prepared.distribution(one.table()) for one in (dataset, other)]
    totals = [int(distribution.first.position[0]) for distribution in distributions]  # type: ignore[attr-defined]
    values = range(min(totals) - reach, max(totals) + reach + 1)
    sides = [_sides_by_estimated_weight(prepared, one, values) for one in (dataset, other)]
    for distribution, total, of_law in zip(distributions, totals, sides, strict=True):
        drawn_from = law_of(distribution.then([total]))  # type: ignore[attr-defined]
        assert drawn_from[0] == of_law[total].passes
        assert np.array_equal(drawn_from[1], of_law[total].place)
    worst = []
    for here, there in ((0, 1), (1, 0)):
        total = 2.0 * math.exp(-20.0)  # what lies outside the range
        for value in values:
            mass, other_mass = (
                normal * math.exp(-abs(value - totals[number]) / scale) for number in (here, there)
            )
            total += divergence(epsilon, mass, sides[here][value], other_mass, sides[there][value])
        worst.append(total)
    return max(worst)


def _sides_by_estimated_weight(
    prepared: PreparedProposeTestRelease, dataset: Dataset, values: range
) -> dict[int, Side]:
    """The law after each measured value; the users are located once."""
    table = dataset.table()
    located = prepared.geometry.locate(*prepared.points.read(table))
    sides = {}
    for value in values:
        plan = prepared.plan_for_estimate(value)
        noisy_test = prepared.noisy_test(located, plan)
        passes, place, sigma = law_of(noisy_test)
        sides[value] = Side(passes=passes, place=place, sigma=sigma, center=located.center, margin=0)
    return sides
