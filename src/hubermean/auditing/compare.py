"""From two laws of one mechanism to the loss between them, kind by kind.

Laws of different kinds, or of different length, count as fully told apart: a mechanism whose kind of law depends on the
data has no promise to keep.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.auditing.loss import (
    EVERYTHING,
    NOTHING,
    Atoms,
    Case,
    Cases,
    Floats,
    GaussianScales,
    GaussianShift,
    LaplaceShift,
    Loss,
    independent,
)
from hubermean.laws import (
    Choice,
    Gate,
    Independent,
    Law,
    NoisySum,
    PermuteAndFlip,
    Selection,
    Staged,
    Uniform,
)
from hubermean.noise import NoiseLaw

# Outcomes of a first draw at which the second is looked at: all where they are few, else a spread of them.
_CANDIDATES_PER_RUN = 5
_NODES = 15
_ROTATIONS = 4
_LEAST_MASS = 1e-15
_MOST_DIFFERENT = 8
# Of stages within stages so many likely cases are looked at and so many telling ones; fewer, the deeper they lie.
_SEEN = ((2, 1), (1, 1), (1, 1), (1, 0))
_DISCRETE_SCALE = 1000.0  # below, the steps of a discrete Gaussian law are told apart one by one
_TAILS = 38.0  # scales, beyond which a Gaussian law has less than a float can hold
_DISCRETE_SHIFT = 512  # below, the steps of a discrete Laplace law are told apart one by one


def compare(first: Law, second: Law, *, depth: int = 0) -> Loss:
    """The loss of a draw from `first`, seen against `second`; `depth` counts the stages around them."""
    match first, second:
        case Uniform(), Uniform():
            return NOTHING if first.limit == second.limit else EVERYTHING
        case Choice(), Choice():
            return _choices(first, second)
        case PermuteAndFlip(), PermuteAndFlip():
            return _choices(first, second)
        case NoisySum(), NoisySum():
            return _sums(first, second)
        case Gate(), Gate():
            return _gates(first, second, depth)
        case Independent(), Independent():
            mine, theirs = list(first.parts), list(second.parts)
            if len(mine) != len(theirs):
                return EVERYTHING
            return independent([compare(*pair, depth=depth) for pair in zip(mine, theirs, strict=True)])
        case Staged(), Staged():
            return _staged(first, second, depth)
        case Selection(), Selection() if first.bits == second.bits:
            found = list(_selections(first, second))
            unmatched = math.fsum(mass for _, mass, loss in found if loss == math.inf)
            told = _atoms([one for one in found if one[2] < math.inf]) or NOTHING
            return replace(told, unmatched=unmatched)
    return EVERYTHING


def readable(law: Law) -> Law:
    """The same law with every part made once, so that it can be compared more than once, also where draws lead."""
    match law:
        case Independent():
            return replace(law, parts=[readable(part) for part in law.parts])
        case Gate():
            return replace(law, inner=readable(law.inner))
        case Staged():
            made: dict[str, Law] = {}
            then = law.then

            def remembered(outcome: Any) -> Law:
                key = repr(outcome)
                if key not in made:
                    made[key] = readable(then(outcome))
                return made[key]

            return Staged(first=law.first, then=remembered)
    return law


Chosen = Choice | PermuteAndFlip


def _choices(first: Chosen, second: Chosen) -> Atoms:
    """Runs cut at the ends of both, so that each piece has one cost under either."""
    pieces = _Pieces.of(first, second)
    if pieces is None:
        return EVERYTHING
    return Atoms(values=pieces.losses, masses=pieces.masses)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pieces:
    """Runs of candidates that have one probability under each of two choices."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    masses: Floats  # of a whole run, under the first
    losses: Floats

    @classmethod
    def of(cls, first: Chosen, second: Chosen) -> _Pieces | None:
        """None if the candidates differ."""
        if isinstance(first, PermuteAndFlip) or isinstance(second, PermuteAndFlip):
            return cls._flipped(first, second)
        ends = [np.cumsum(law.sizes) for law in (first, second)]
        if ends[0][-1] != ends[1][-1]:
            return None
        cuts = np.union1d(*ends)
        sizes = np.diff(cuts, prepend=0)
        logs = []
        with np.errstate(under="ignore"):
            for law, own_ends in zip((first, second), ends, strict=True):
                exponents = -float(law.rate) * (law.costs - law.costs.min())
                normaliser = math.log(float(law.sizes.astype(np.float64) @ np.exp(exponents)))
                logs.append((exponents - normaliser)[np.searchsorted(own_ends, cuts)])
            masses = sizes * np.exp(logs[0])
        return cls(starts=cuts - sizes, sizes=sizes, masses=masses, losses=logs[0] - logs[1])

    @classmethod
    def _flipped(cls, first: Chosen, second: Chosen) -> _Pieces | None:
        """Candidate by candidate."""
        if isinstance(first, Choice) or isinstance(second, Choice) or len(first.costs) != len(second.costs):
            return None
        mine, theirs = first.log_probabilities(), second.log_probabilities()
        numbers = np.arange(len(mine))
        return cls(starts=numbers, sizes=np.ones_like(numbers), masses=np.exp(mine), losses=mine - theirs)


def range_of(first: Choice, second: Choice) -> float:
    """The largest less the least log-ratio: what bounded range bounds; infinite if the candidates differ."""
    pieces = _Pieces.of(first, second)
    return math.inf if pieces is None else float(np.ptp(pieces.losses))


def _sums(first: NoisySum, second: NoisySum) -> Loss:
    laws = list(zip(first.laws(), second.laws(), strict=False))
    same_kind = all(mine.kind == theirs.kind for mine, theirs in laws)
    if len(first.position) != len(second.position) or not same_kind:
        return EVERYTHING
    gaps = [abs(float(one - two)) for one, two in zip(first.position, second.position, strict=True)]
    if any(mine.scale != theirs.scale for mine, theirs in laws):
        return _scales(gaps, laws)
    parts: list[Loss] = []
    for gap, (law, _) in zip(gaps, laws, strict=True):
        if gap > 0.0:
            parts.append(_gaussian(gap, law.scale) if law.kind == "gaussian" else _laplace(gap, law.scale))
    return independent(parts)


def _scales(gaps: list[float], laws: list[tuple[NoiseLaw, NoiseLaw]]) -> Loss:
    """Noise whose scale differs between the two: all coordinates alike, as a smooth sensitivity has it, or one alone.

    One coordinate gives away no more than all of them, so the latter is a lower bound.
    """
    ratios = [math.log(theirs.scale / mine.scale) for mine, theirs in laws]
    if len(set(ratios)) == 1 and all(mine.kind == "gaussian" for mine, _ in laws):
        shift = math.hypot(*(gap / mine.scale for gap, (mine, _) in zip(gaps, laws, strict=True)))
        return GaussianScales(shift=shift, log_ratio=ratios[0], dimension=len(laws))
    most = max(range(len(laws)), key=lambda number: abs(ratios[number]))
    mine, theirs = laws[most]
    if mine.kind == "laplace":
        return _laplace_scales(gaps[most], mine.scale, theirs.scale)
    return GaussianScales(shift=gaps[most] / mine.scale, log_ratio=ratios[most], dimension=1)


def _gaussian(gap: float, scale: float) -> Loss:
    """Two discrete Gaussians of one scale; as continuous ones where the grid is so fine that it makes no difference."""
    if scale >= _DISCRETE_SCALE or gap != round(gap):
        return GaussianShift(shift=gap / scale)
    reach = math.ceil(_TAILS * scale)
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    masses = np.exp(-0.5 * (x / scale) ** 2)
    values = gap * (gap - 2.0 * x) / (2.0 * scale * scale)
    # The loss grows without bound in the tails, however rarely they are met.
    return Atoms(values=np.append(values, math.inf), masses=np.append(masses / masses.sum(), 1e-300))


def _laplace(gap: float, scale: float) -> Loss:
    if gap > _DISCRETE_SHIFT or gap != round(gap):
        return LaplaceShift(shift=gap / scale)
    # At x from 0 to the gap the loss is (gap - 2 x) / scale; outside it is constant.
    whole = round(gap)
    x = np.arange(whole + 1, dtype=np.float64)
    step = -1.0 / scale
    normaliser = math.log(-math.expm1(step) / (1.0 + math.exp(step)))
    masses = np.exp(normaliser + x * step)
    # The first stands for everything below it, the last for everything above.
    masses[0] /= -math.expm1(step)
    masses[-1] /= -math.expm1(step)
    return Atoms(values=(whole - 2.0 * x) / scale, masses=masses)


def _laplace_scales(gap: float, scale: float, other: float) -> Atoms:
    """Laplace laws of different scales, on a grid of quantiles of the first: at most what they give away."""
    tails = np.logspace(-12, math.log10(0.5), 400)
    upto = np.concatenate([tails, 1.0 - tails[-2::-1]])
    x = np.where(upto <= 0.5, np.log(2.0 * upto), -np.log(2.0 * (1.0 - upto))) * scale
    losses: Floats = np.log(other / scale) - np.abs(x) / scale + np.abs(x - gap) / other
    values, masses = np.minimum(losses[1:], losses[:-1]), np.diff(upto)
    if scale > other:  # the loss grows without bound in the tails, however rarely they are met
        values, masses = np.append(values, math.inf), np.append(masses, 1e-300)
    return Atoms(values=values, masses=masses)


def _gates(first: Gate, second: Gate, depth: int) -> Cases:
    """Nothing, or something: the inner laws are compared only where both may pass."""
    passing = [gate.passes / (1 << gate.bits) for gate in (first, second)]
    refusing = [((1 << gate.bits) - gate.passes) / (1 << gate.bits) for gate in (first, second)]
    cases, unmatched = [], 0.0
    for (mass, other), then in (
        (refusing, NOTHING),
        (passing, compare(first.inner, second.inner, depth=depth) if all(passing) else NOTHING),
    ):
        if mass > 0.0 and other > 0.0:
            cases.append(Case(mass=mass, loss=math.log(mass / other), then=then))
        else:
            unmatched += mass
    return Cases(cases=cases, unmatched=unmatched)


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcomes:
    """What a first draw may show: the outcomes at which what follows is compared, and the loss of all others.

    `seen` has (outcome, its probability or that of those it stands for, ln of the ratio). The others count with what
    they tell by themselves, which is at most what they and all that follows tell.
    """

    seen: list[tuple[Any, float, float]]
    others: Atoms | None = None

    def depth_after(self, depth: int) -> int:
        """A draw with one outcome is no stage."""
        return depth + (len(self.seen) > 1)


def outcomes_of(first: Staged, second: Staged, depth: int) -> Outcomes | None:
    """The likely outcomes of the first draws, and those that tell most: the fewer, the deeper the stages lie.

    None where the first draws have no outcomes in common.
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
    """Of every run that is seen one candidate, or several if all runs are seen."""
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
        others=Atoms(values=pieces.losses[others], masses=pieces.masses[others]) if len(others) else None,
    )


def _atoms(outcomes: list[tuple[Any, float, float]]) -> Atoms | None:
    if not outcomes:
        return None
    return Atoms(
        values=np.array([loss for _, _, loss in outcomes]), masses=np.array([mass for _, mass, _ in outcomes])
    )


def _staged(first: Staged, second: Staged, depth: int) -> Loss:
    """Case by case, as far as cases are looked at."""
    outcomes = outcomes_of(first, second, depth)
    if outcomes is None:
        return EVERYTHING
    cases = [
        Case(
            mass=mass,
            loss=loss,
            then=compare(first.then(outcome), second.then(outcome), depth=outcomes.depth_after(depth)),
        )
        for outcome, mass, loss in outcomes.seen
        if loss < math.inf
    ]
    if outcomes.others is not None:
        cases.append(Case(mass=1.0, loss=0.0, then=outcomes.others))
    unmatched = math.fsum(mass for _, mass, loss in outcomes.seen if loss == math.inf)
    return Cases(cases=cases, unmatched=unmatched)


def _outcomes(first: Law, second: Law) -> Iterator[tuple[Any, float, float]]:
    """(outcome, its probability or that of those it stands for, ln of the ratio) of a first draw."""
    match first, second:
        case Uniform(), Uniform() if first.limit == second.limit:
            seen = min(first.limit, _ROTATIONS)
            for number in range(seen):
                yield number * (first.limit // seen), 1.0 / seen, 0.0
        case Selection(), Selection() if first.bits == second.bits:
            yield from _selections(first, second)
        case NoisySum(), NoisySum() if len(first.position) == len(second.position) == 1:
            yield from _measurements(first, second)
        case NoisySum(), NoisySum() if len(first.position) == len(second.position):
            for outcome, mass, loss in _joint([_one_by_one(law) for law in (first, second)]):
                yield [place for (place,) in outcome], mass, loss
        case (Choice() | PermuteAndFlip() as one, Choice() | PermuteAndFlip() as two):
            pieces = _Pieces.of(one, two)
            if pieces is not None:
                yield from _of_choice(pieces, 2, 2).seen
        case Independent(), Independent():
            yield from _joint([list(law.parts) for law in (first, second)])


def _one_by_one(law: NoisySum) -> list[Law]:
    laws = zip(law.position, law.laws(), strict=True)
    return [NoisySum(position=[place], noise=noise) for place, noise in laws]


def _joint(parts: list[list[Law]]) -> Iterator[tuple[Any, float, float]]:
    """Outcomes of independent draws: the likely ones together, then one of them at a time as it tells most.

    Together they have less than all of the probability, so what they tell is a lower bound.
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
    """Quantiles of a measured integer, Laplace noise of one scale: each stands for its share of the first law."""
    (one,), (two,) = first.position, second.position
    (mine,), (theirs,) = first.laws(), second.laws()
    if mine != theirs or mine.kind != "laplace":
        return
    # The middle ones first: of those that are as likely, they lead furthest.
    for number in sorted(range(_NODES), key=lambda number: abs(2 * number + 1 - _NODES)):
        share = (number + 0.5) / _NODES
        tail = math.log(2.0 * min(share, 1.0 - share)) * mine.scale
        place = round(one + (tail if share <= 0.5 else -tail))
        yield [place], 1.0 / _NODES, (abs(place - two) - abs(place - one)) / mine.scale


def _selections(first: Selection, second: Selection) -> Iterator[tuple[Any, float, float]]:
    """Which of the keys appear whose chances differ, in all ways; the others are as they most likely are.

    These tell nothing by themselves, and what follows is the same for both wherever they appear.
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
