"""The privacy loss between two output distributions of one mechanism, kind by kind.

Distributions of different kinds or lengths count as fully distinguishable: a mechanism whose kind of output depends
on the data has no guarantee.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.auditing.loss import (
    NO_LOSS,
    TOTAL_LOSS,
    ConditionalLoss,
    ConditionalOutcome,
    DiscreteLoss,
    GaussianScales,
    GaussianShift,
    LaplaceShift,
    Loss,
    combine_independent,
)
from hubermean.data.arrays import FloatArray
from hubermean.distributions.output import (
    ExponentialMechanism,
    Independent,
    NoiseDistribution,
    NoisySum,
    NoisyTest,
    OutputDistribution,
    PermuteAndFlip,
    SelectedPartitions,
    Staged,
    ThresholdedSums,
    Uniform,
)

# Outcomes of a first stage at which the second is compared: all if they are few, else a representative selection.
_CANDIDATES_PER_RUN = 5
_NODES = 15
_ROTATIONS = 4
_LEAST_MASS = 1e-15
_MOST_DIFFERENT = 8
# Number of likely and of most revealing outcomes per nested stage: fewer at greater depth.
_SEEN = ((2, 1), (1, 1), (1, 1), (1, 0))
_DISCRETE_SCALE = 1000.0  # below, a discrete Gaussian is evaluated point by point
_TAILS = 38.0  # in scales; beyond, Gaussian probabilities underflow
_DISCRETE_SHIFT = 512  # below, a discrete Laplace distribution is evaluated point by point


def compare(first: OutputDistribution, second: OutputDistribution, *, depth: int = 0) -> Loss:
    """Return the loss of a sample from `first` against `second`; `depth` counts the enclosing stages."""
    match first, second:
        case Uniform(), Uniform():
            return NO_LOSS if first.limit == second.limit else TOTAL_LOSS
        case ExponentialMechanism(), ExponentialMechanism():
            return _compare_selections(first, second)
        case PermuteAndFlip(), PermuteAndFlip():
            return _compare_selections(first, second)
        case NoisySum(), NoisySum():
            return _compare_sums(first, second)
        case NoisyTest(), NoisyTest():
            return _compare_tests(first, second, depth)
        case Independent(), Independent():
            mine, theirs = list(first.parts), list(second.parts)
            if len(mine) != len(theirs):
                return TOTAL_LOSS
            return combine_independent(
                [compare(*pair, depth=depth) for pair in zip(mine, theirs, strict=True)]
            )
        case Staged(), Staged():
            return _compare_staged(first, second, depth)
        case ThresholdedSums(), ThresholdedSums():
            return compare(first.as_selection(), second.as_selection(), depth=depth)
        case SelectedPartitions(), SelectedPartitions() if first.bits == second.bits:
            found = list(_selections(first, second))
            unmatched = math.fsum(mass for _, mass, loss in found if loss == math.inf)
            matched = _atoms([one for one in found if one[2] < math.inf]) or NO_LOSS
            return replace(matched, unmatched=unmatched)
    return TOTAL_LOSS


def make_repeatable(distribution: OutputDistribution) -> OutputDistribution:
    """Return the same distribution with every part computed once, so that it can be compared repeatedly."""
    match distribution:
        case Independent():
            return replace(distribution, parts=[make_repeatable(part) for part in distribution.parts])
        case NoisyTest():
            return replace(distribution, inner=make_repeatable(distribution.inner))
        case Staged():
            made: dict[str, OutputDistribution] = {}
            then = distribution.then

            def remembered(outcome: Any) -> OutputDistribution:
                key = repr(outcome)
                if key not in made:
                    made[key] = make_repeatable(then(outcome))
                return made[key]

            return Staged(first=distribution.first, then=remembered)
    return distribution


Chosen = ExponentialMechanism | PermuteAndFlip


def _compare_selections(first: Chosen, second: Chosen) -> DiscreteLoss:
    """Compare runs cut at the ends of both, so that each piece has one cost under either."""
    pieces = _Pieces.of(first, second)
    if pieces is None:
        return TOTAL_LOSS
    return DiscreteLoss(values=pieces.losses, masses=pieces.masses)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pieces:
    """Runs of candidates with one probability under each of two selections."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    masses: FloatArray  # of a whole run, under the first
    losses: FloatArray

    @classmethod
    def of(cls, first: Chosen, second: Chosen) -> _Pieces | None:
        """Return the common pieces; None if the candidates differ."""
        if isinstance(first, PermuteAndFlip) or isinstance(second, PermuteAndFlip):
            return cls._flipped(first, second)
        ends = [np.cumsum(distribution.sizes) for distribution in (first, second)]
        if ends[0][-1] != ends[1][-1]:
            return None
        cuts = np.union1d(*ends)
        sizes = np.diff(cuts, prepend=0)
        logs = []
        with np.errstate(under="ignore"):
            for distribution, own_ends in zip((first, second), ends, strict=True):
                exponents = -float(distribution.rate) * (distribution.costs - distribution.costs.min())
                normaliser = math.log(float(distribution.sizes.astype(np.float64) @ np.exp(exponents)))
                logs.append((exponents - normaliser)[np.searchsorted(own_ends, cuts)])
            masses = sizes * np.exp(logs[0])
        return cls(starts=cuts - sizes, sizes=sizes, masses=masses, losses=logs[0] - logs[1])

    @classmethod
    def _flipped(cls, first: Chosen, second: Chosen) -> _Pieces | None:
        """Return one piece per candidate."""
        if (
            isinstance(first, ExponentialMechanism)
            or isinstance(second, ExponentialMechanism)
            or len(first.costs) != len(second.costs)
        ):
            return None
        mine, theirs = first.log_probabilities(), second.log_probabilities()
        numbers = np.arange(len(mine))
        return cls(starts=numbers, sizes=np.ones_like(numbers), masses=np.exp(mine), losses=mine - theirs)


def log_ratio_range(first: ExponentialMechanism, second: ExponentialMechanism) -> float:
    """Return the largest minus the smallest log-ratio (bounded range); infinite if the candidates differ."""
    pieces = _Pieces.of(first, second)
    return math.inf if pieces is None else float(np.ptp(pieces.losses))


def _compare_sums(first: NoisySum, second: NoisySum) -> Loss:
    distributions = list(zip(first.distributions(), second.distributions(), strict=False))
    same_kind = all(mine.kind == theirs.kind for mine, theirs in distributions)
    if len(first.position) != len(second.position) or not same_kind:
        return TOTAL_LOSS
    gaps = [abs(float(one - two)) for one, two in zip(first.position, second.position, strict=True)]
    if any(mine.scale != theirs.scale for mine, theirs in distributions):
        return _compare_scales(gaps, distributions)
    parts: list[Loss] = []
    for gap, (distribution, _) in zip(gaps, distributions, strict=True):
        if gap > 0.0:
            parts.append(
                _gaussian(gap, distribution.scale)
                if distribution.kind == "gaussian"
                else _laplace(gap, distribution.scale)
            )
    return combine_independent(parts)


def _compare_scales(
    gaps: list[float], distributions: list[tuple[NoiseDistribution, NoiseDistribution]]
) -> Loss:
    """Compare noise of different scales: one ratio for all coordinates (smooth sensitivity), or one coordinate.

    One coordinate reveals no more than all of them, so the latter is a lower bound.
    """
    ratios = [math.log(theirs.scale / mine.scale) for mine, theirs in distributions]
    if len(set(ratios)) == 1 and all(mine.kind == "gaussian" for mine, _ in distributions):
        shift = math.hypot(*(gap / mine.scale for gap, (mine, _) in zip(gaps, distributions, strict=True)))
        return GaussianScales(shift=shift, log_ratio=ratios[0], dimension=len(distributions))
    most = max(range(len(distributions)), key=lambda number: abs(ratios[number]))
    mine, theirs = distributions[most]
    if mine.kind == "laplace":
        return _laplace_scales(gaps[most], mine.scale, theirs.scale)
    return GaussianScales(shift=gaps[most] / mine.scale, log_ratio=ratios[most], dimension=1)


def _gaussian(gap: float, scale: float) -> Loss:
    """Compare two discrete Gaussians of one scale; as continuous ones if the grid is fine enough."""
    if scale >= _DISCRETE_SCALE or gap != round(gap):
        return GaussianShift(shift=gap / scale)
    reach = math.ceil(_TAILS * scale)
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    masses = np.exp(-0.5 * (x / scale) ** 2)
    values = gap * (gap - 2.0 * x) / (2.0 * scale * scale)
    # The loss is unbounded in the tails, however improbable they are.
    return DiscreteLoss(values=np.append(values, math.inf), masses=np.append(masses / masses.sum(), 1e-300))


def _laplace(gap: float, scale: float) -> Loss:
    if gap > _DISCRETE_SHIFT or gap != round(gap):
        return LaplaceShift(shift=gap / scale)
    # At x from 0 to the gap the loss is (gap - 2 x) / scale; outside it is constant.
    whole = round(gap)
    x = np.arange(whole + 1, dtype=np.float64)
    step = -1.0 / scale
    normaliser = math.log(-math.expm1(step) / (1.0 + math.exp(step)))
    masses = np.exp(normaliser + x * step)
    # The first mass includes everything below, the last everything above.
    masses[0] /= -math.expm1(step)
    masses[-1] /= -math.expm1(step)
    return DiscreteLoss(values=(whole - 2.0 * x) / scale, masses=masses)


def _laplace_scales(gap: float, scale: float, other: float) -> DiscreteLoss:
    """Bound the loss between Laplace distributions of different scales from below, on a grid of quantiles."""
    tails = np.logspace(-12, math.log10(0.5), 400)
    upto = np.concatenate([tails, 1.0 - tails[-2::-1]])
    x = np.where(upto <= 0.5, np.log(2.0 * upto), -np.log(2.0 * (1.0 - upto))) * scale
    losses: FloatArray = np.log(other / scale) - np.abs(x) / scale + np.abs(x - gap) / other
    values, masses = np.minimum(losses[1:], losses[:-1]), np.diff(upto)
    if scale > other:  # the loss is unbounded in the tails, however improbable they are
        values, masses = np.append(values, math.inf), np.append(masses, 1e-300)
    return DiscreteLoss(values=values, masses=masses)


def _compare_tests(first: NoisyTest, second: NoisyTest, depth: int) -> ConditionalLoss:
    """Compare refusing and passing; the inner distributions matter only if both may pass."""
    passing = [test.passes / (1 << test.bits) for test in (first, second)]
    refusing = [((1 << test.bits) - test.passes) / (1 << test.bits) for test in (first, second)]
    cases, unmatched = [], 0.0
    for (mass, other), then in (
        (refusing, NO_LOSS),
        (passing, compare(first.inner, second.inner, depth=depth) if all(passing) else NO_LOSS),
    ):
        if mass > 0.0 and other > 0.0:
            cases.append(ConditionalOutcome(mass=mass, loss=math.log(mass / other), then=then))
        else:
            unmatched += mass
    return ConditionalLoss(cases=cases, unmatched=unmatched)


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcomes:
    """Outcomes of a first stage: those at which the next stage is compared, and the loss of all others.

    `seen` has (outcome, its probability or that of the outcomes it represents, log-ratio). The others count with
    their own loss only, which is at most the loss including later stages.
    """

    seen: list[tuple[Any, float, float]]
    others: DiscreteLoss | None = None

    def depth_after(self, depth: int) -> int:
        """Return the depth of the next stage; a sample with one outcome adds none."""
        return depth + (len(self.seen) > 1)


def list_outcomes(first: Staged, second: Staged, depth: int) -> Outcomes | None:
    """Return the likely and the most revealing outcomes of the first stages, fewer at greater depth.

    None if the first stages have no outcomes in common.
    """
    one, two = first.first, second.first
    likely, telling = _SEEN[min(depth, len(_SEEN) - 1)]
    if isinstance(one, Chosen) and isinstance(two, Chosen):
        pieces = _Pieces.of(one, two)
        if pieces is None:
            return None
        usual = int(pieces.starts[int(np.argmax(pieces.masses))])
        if depth == 0 and not isinstance(first.then(usual), Staged | Independent):
            likely = telling = len(pieces.masses)
        return _of_choice(pieces, likely, telling)
    found = list(_outcomes(one, two))
    if not found:
        return None
    if len(found) <= likely + telling:
        return Outcomes(seen=found)
    found.sort(key=lambda outcome: -outcome[1])
    rest = sorted(found[likely:], key=lambda outcome: -outcome[2])
    return Outcomes(seen=found[:likely] + rest[:telling], others=_atoms(rest[telling:]))


def _of_choice(pieces: _Pieces, likely: int, telling: int) -> Outcomes:
    """Return one candidate of every selected run, or several if all runs are selected."""
    possible = np.flatnonzero(pieces.masses > _LEAST_MASS)
    by_mass = possible[np.argsort(-pieces.masses[possible], kind="stable")]
    rest = by_mass[likely:]
    rest = rest[np.argsort(-pieces.losses[rest], kind="stable")]
    seen, others = np.concatenate([by_mass[:likely], rest[:telling]]), rest[telling:]
    several = _CANDIDATES_PER_RUN if not len(others) else 1
    outcomes: list[tuple[Any, float, float]] = []
    for piece in seen.tolist():
        size, start = int(pieces.sizes[piece]), int(pieces.starts[piece])
        count = min(size, several)
        places = [start + (size - 1) // 2] if count == 1 else np.linspace(0, size - 1, count) + start
        for place in places:
            outcomes.append((int(place), float(pieces.masses[piece]) / count, float(pieces.losses[piece])))
    return Outcomes(
        seen=outcomes,
        others=DiscreteLoss(values=pieces.losses[others], masses=pieces.masses[others])
        if len(others)
        else None,
    )


def _atoms(outcomes: list[tuple[Any, float, float]]) -> DiscreteLoss | None:
    if not outcomes:
        return None
    return DiscreteLoss(
        values=np.array([loss for _, _, loss in outcomes]), masses=np.array([mass for _, mass, _ in outcomes])
    )


def _compare_staged(first: Staged, second: Staged, depth: int) -> Loss:
    """Compare outcome by outcome, as far as outcomes are evaluated."""
    outcomes = list_outcomes(first, second, depth)
    if outcomes is None:
        return TOTAL_LOSS
    cases = [
        ConditionalOutcome(
            mass=mass,
            loss=loss,
            then=compare(first.then(outcome), second.then(outcome), depth=outcomes.depth_after(depth)),
        )
        for outcome, mass, loss in outcomes.seen
        if loss < math.inf
    ]
    if outcomes.others is not None:
        cases.append(ConditionalOutcome(mass=1.0, loss=0.0, then=outcomes.others))
    unmatched = math.fsum(mass for _, mass, loss in outcomes.seen if loss == math.inf)
    return ConditionalLoss(cases=cases, unmatched=unmatched)


def _outcomes(first: OutputDistribution, second: OutputDistribution) -> Iterator[tuple[Any, float, float]]:
    """Yield (outcome, its probability or that of the outcomes it represents, log-ratio) of a first stage."""
    match first, second:
        case Uniform(), Uniform() if first.limit == second.limit:
            seen = min(first.limit, _ROTATIONS)
            for number in range(seen):
                yield number * (first.limit // seen), 1.0 / seen, 0.0
        case ThresholdedSums(), ThresholdedSums():
            yield from _selections(first.as_selection(), second.as_selection())
        case SelectedPartitions(), SelectedPartitions() if first.bits == second.bits:
            yield from _selections(first, second)
        case NoisySum(), NoisySum() if len(first.position) == len(second.position) == 1:
            yield from _measurements(first, second)
        case NoisySum(), NoisySum() if len(first.position) == len(second.position):
            for outcome, mass, loss in _joint(
                [_one_by_one(distribution) for distribution in (first, second)]
            ):
                yield [place for (place,) in outcome], mass, loss
        case (
            ExponentialMechanism() | PermuteAndFlip() as one,
            ExponentialMechanism() | PermuteAndFlip() as two,
        ):
            pieces = _Pieces.of(one, two)
            if pieces is not None:
                yield from _of_choice(pieces, 2, 2).seen
        case Independent(), Independent():
            yield from _joint([list(distribution.parts) for distribution in (first, second)])


def _one_by_one(distribution: NoisySum) -> list[OutputDistribution]:
    distributions = zip(distribution.position, distribution.distributions(), strict=True)
    return [NoisySum(position=[place], noise=noise) for place, noise in distributions]


def _joint(parts: list[list[OutputDistribution]]) -> Iterator[tuple[Any, float, float]]:
    """Yield outcomes of independent samples: all likely ones together, then one at a time at its most revealing.

    Together they have less than probability one, so the loss is a lower bound.
    """
    if len(parts[0]) != len(parts[1]):
        return
    found = [list(_outcomes(one, two)) for one, two in zip(*parts, strict=True)]
    if not all(found):
        return
    likely = [max(outcomes, key=lambda outcome: outcome[1]) for outcomes in found]
    yield _together(likely)
    for number, outcomes in enumerate(found):
        telling = max(outcomes, key=lambda outcome: outcome[2])
        if telling is not likely[number]:
            yield _together([*likely[:number], telling, *likely[number + 1 :]])


def _together(outcomes: list[tuple[Any, float, float]]) -> tuple[Any, float, float]:
    shown, masses, losses = zip(*outcomes, strict=True)
    return tuple(shown), math.prod(masses), math.fsum(losses)


def _measurements(first: NoisySum, second: NoisySum) -> Iterator[tuple[Any, float, float]]:
    """Yield quantiles of a noisy integer; each represents its share of the first distribution."""
    (one,), (two,) = first.position, second.position
    (mine,), (theirs,) = first.distributions(), second.distributions()
    if mine != theirs:
        return
    # The middle ones first: among equally likely outcomes, they lead furthest.
    for number in sorted(range(_NODES), key=lambda number: abs(2 * number + 1 - _NODES)):
        share = (number + 0.5) / _NODES
        if mine.kind == "gaussian":
            place = round(one + NormalDist().inv_cdf(share) * mine.scale)
            loss = float((place - two) ** 2 - (place - one) ** 2) / (2.0 * mine.scale**2)
        else:
            tail = math.log(2.0 * min(share, 1.0 - share)) * mine.scale
            place = round(one + (tail if share <= 0.5 else -tail))
            loss = (abs(place - two) - abs(place - one)) / mine.scale
        yield [place], 1.0 / _NODES, loss


def _selections(first: SelectedPartitions, second: SelectedPartitions) -> Iterator[tuple[Any, float, float]]:
    """Yield all combinations of the keys whose probabilities differ, with the other keys in their most likely state.

    The other keys reveal nothing by themselves, and later stages are the same for both wherever they appear.
    """
    whole = 1 << first.bits
    chances = {
        key: (first.chances.get(key, 0), second.chances.get(key, 0))
        for key in {*first.chances, *second.chances}
    }
    usual = [key for key, (mine, theirs) in chances.items() if mine == theirs and 2 * mine >= whole]
    different = sorted(key for key, (mine, theirs) in chances.items() if mine != theirs)[:_MOST_DIFFERENT]
    for appears in itertools.product((True, False), repeat=len(different)):
        mass = other = 1.0
        for key, shown in zip(different, appears, strict=True):
            mine, theirs = (one if shown else whole - one for one in chances[key])
            mass, other = mass * (mine / whole), other * (theirs / whole)
        if mass > 0.0:
            keys = [key for key, shown in zip(different, appears, strict=True) if shown]
            loss = math.log(mass / other) if other > 0.0 else math.inf
            yield tuple(sorted([*usual, *keys])), mass, loss
