"""The private scale and center of users: an interval length that holds most of them, and where most of them lie.

**Scale.** For a length b let inside_b be the largest number of users in any public interval of that length. One user
changes it by at most one. The exponential mechanism over a public grid of lengths finds one that holds a share of all
users while a somewhat shorter one does not, so the choice is clear also where counts jump, as they do for values of a
few kinds. Where even the shortest lengths hold the share, users tie: the shortest are chosen, which means that no scale
was found. A base measure, which costs no privacy, breaks the ties that are left. The intervals of a length start at the
multiples of a power of two, between 32 and 64 of them to a length: one of them holds any given users who lie within
31/32 of the length. Only intervals that hold an eighth of all users are compared; each of those contains a quantile
(`UserPositions.quantiles`), and there are few. Proof: proofs/adaptive.md, Lemma 1.

**Center.** Which of many overlapping windows of one length holds most users. Windows cover all that lies
within a public
radius of zero, however many they are. The base measure falls with the distance from zero, so that a center costs the
logarithm of its own distance, counted in windows, over the users that the right windows hold. Lemma 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.fixed_point import round_means
from hubermean.data.user_table import UserTable
from hubermean.distributions.output import ExponentialMechanism, PermuteAndFlip, choose_selection
from hubermean.errors import InputError, parameter
from hubermean.searches.positions import (
    LocalPositions,
    MeanPositions,
    RoundedPositions,
    SortedPositions,
    UserPositions,
    select_usable,
)

LEAST_PART = 8
"""Intervals that hold no more than one in so many parts of the weight are not distinguished."""

_STEP_BITS = 5  # 2^5 to 2^6 steps to a length
_TWICE = 9  # lengths further on, by 2^(1/8) each, one is more than twice as long


def steps_of(lengths: FloatArray) -> FloatArray:
    """From one start to the next: the largest power of two that is at most 1/32 of the length."""
    _, exponents = np.frexp(lengths)
    steps: FloatArray = np.ldexp(1.0, exponents - 1 - _STEP_BITS)
    return steps


def last_start(points: FloatArray, steps: FloatArray) -> FloatArray:
    """The last start that is at most the point, exactly: of the floats that are multiples of the step."""
    with np.errstate(over="ignore"):
        starts = np.floor(points / steps) * steps
    starts = np.where(starts > points, starts - steps, starts)  # a quotient too small for a float
    # All floats so large are multiples of the step.
    return np.where(np.abs(points) >= steps * 2.0**53, points, starts)


@np.errstate(over="ignore", under="ignore")  # intervals may end beyond all numbers, or next to 0
def count_fullest(
    positions: UserPositions, lengths: FloatArray, *, least: int = 0, most: int | None = None
) -> IntArray:
    """For each length the largest weight in one of its intervals, an eighth of all, or `least`: what is most.

    `lengths` ascend by a factor of 2^(1/8) or more. Weights above `most` are not distinguished and count as that.

    Formal guarantees, without `least` and `most`: rises by at least 0 and at most a user's weight when that user is
    added, and does not fall from one length to the next (proofs/adaptive.md, Lemma 1).
    """
    quantiles = positions.quantiles(LEAST_PART)
    marks = quantiles.marks
    found = np.full(len(lengths), max(quantiles.total // LEAST_PART, least), dtype=np.int64)
    most = max(quantiles.total, least) if most is None else most
    if not len(marks):
        return np.minimum(found, most)
    steps = steps_of(lengths)
    # Whatever holds a mark lies between these two.
    by_length = lengths[:, np.newaxis]
    lows = marks - by_length - 2.0 * np.spacing(np.maximum(np.abs(marks), by_length))
    highs = marks + by_length
    around = positions.within(lows.ravel(), highs.ravel()).reshape(lows.shape)
    # An interval of twice the length holds all of that, if it is no shorter for being rounded.
    longer = slice(_TWICE, None)
    starts = last_start(lows[:-_TWICE], steps[longer, np.newaxis])
    held = np.where(starts + by_length[longer] >= highs[:-_TWICE], around[:-_TWICE], 0)
    found[longer] = np.maximum(found[longer], held.max(axis=1, initial=0))
    found = np.maximum.accumulate(found)
    # What is found so far is there; what may hold more than that, and more than is distinguished, is counted exactly.
    length, mark = np.nonzero((around > found[:, np.newaxis]) & (found < most)[:, np.newaxis])
    if len(length):
        owners, lows = _holding(marks[mark], lengths, length)
        np.maximum.at(found, owners, positions.within(lows, lows + lengths[owners]))
    return np.minimum(found, most)


def _holding(marks: FloatArray, lengths: FloatArray, which: IntArray) -> tuple[IntArray, FloatArray]:
    """(which, starts) of the intervals that hold marks, each one once; `which` of the lengths goes with each mark."""
    steps = steps_of(lengths)[which]
    starts = last_start(marks, steps)
    owners, found = [], []
    while (holds := starts + lengths[which] >= marks).any():  # some sixty times
        owners.append(which[holds])
        found.append(starts[holds])
        starts = last_start(np.nextafter(starts, -np.inf), steps)
    owner, start = np.concatenate(owners), np.concatenate(found)
    order = np.lexsort([start, owner])
    owner, start = owner[order], start[order]
    new = np.append(True, (owner[1:] != owner[:-1]) | (start[1:] != start[:-1]))
    return owner[new], start[new]


PER_OCTAVE = 8
LENGTHS: FloatArray = np.exp2(np.arange(-57 * PER_OCTAVE, 43 * PER_OCTAVE + 1) / PER_OCTAVE)
"""The public grid of lengths over all sizes that values are read with, the shortest first."""

SHORTEST = 2
"""A length is compared with the one so many steps shorter; the first so many, with none, mean "no scale found"."""

_PER_CENT = 100
_DECAY = 0.05  # nats per octave by which longer lengths weigh less
# So many nats more weigh the shortest lengths: where most users tie, but not enough of them to reach the share, these
# go before the 450 or so other lengths that hold nothing but the tie, which would pass for a scale.
_NO_SCALE = math.log(450.0) + math.log(1e3)
# By so many nats must the data speak for the right lengths, against ties and against lengths that are too long: the
# wrong ones are then chosen about once in twenty releases where half of the users tie, which a second search makes
# good, and without such ties once in a hundred thousand or less.
_SURELY = _NO_SCALE + math.log(20.0)
_HARDLY = 8.0
_GENEROUS, _CHEAP = 3.0, 0.1
_SHARES = ((75, 0.13), (65, 0.35))  # per cent, and the largest part of the budget to be spent on them
_BEYOND_TIES, _BEYOND_TIES_NATS = (78, 98), 15.0


@dataclass(frozen=True, kw_only=True)
class ScaleSearch:
    """What is searched for, from public and released numbers: the length from which on an interval holds the share.

    Attributes:
        per_cent: the share of the users.
        epsilon: what the choice costs.
        add_remove: whether neighbors differ by one user more or less, as under `add-remove`.
    """

    per_cent: int
    epsilon: Fraction
    add_remove: bool

    @property
    def share(self) -> float:
        return self.per_cent / _PER_CENT

    @property
    def sensitivity(self) -> int:
        """Of a cost, in hundredths of a user (proofs/adaptive.md, Lemma 2)."""
        return max(self.per_cent, _PER_CENT - self.per_cent) if self.add_remove else _PER_CENT

    @classmethod
    def plan(cls, users: float, *, add_remove: bool, largest: float) -> ScaleSearch | None:
        """The largest share that is not too dear, for no more epsilon than the largest; None where users are too few.

        `largest` is the most that may be spent, about a third of what there is.
        """
        for per_cent, part in _SHARES:
            search = cls(per_cent=per_cent, epsilon=Fraction(1), add_remove=add_remove)
            needed = search._needed(users, _SURELY)
            if needed <= largest * part / _SHARES[-1][1]:
                generous = max(needed, min(_GENEROUS * needed, _CHEAP * largest))
                return cls(per_cent=per_cent, epsilon=Fraction(generous), add_remove=add_remove)
        # Fewer users: less surely, and not where many of them tie.
        if search._needed(users, _HARDLY) <= largest:
            return cls(per_cent=per_cent, epsilon=Fraction(largest), add_remove=add_remove)
        return None

    def _needed(self, users: float, nats: float) -> float:
        """The epsilon at which lengths that hold half of the users, or as far above the share, fall so far behind."""
        gap = min(self.per_cent - 50 if self.per_cent > 70 else 35, _PER_CENT - self.per_cent)
        return 2.0 * self.sensitivity * nats / (gap * max(users, 1.0))

    @classmethod
    def beyond_ties(cls, users: float, *, add_remove: bool, epsilon: float) -> ScaleSearch | None:
        """A search for a larger share, after most users were found to tie; None where users are too few."""
        low, high = _BEYOND_TIES
        for per_cent in range(high, low - 1, -1):
            search = cls(per_cent=per_cent, epsilon=Fraction(max(epsilon, 0.0)), add_remove=add_remove)
            if 2.0 * search.sensitivity * _BEYOND_TIES_NATS <= epsilon * (_PER_CENT - per_cent) * users:
                return search
        return None

    def distribution(
        self, positions: UserPositions, *, concentrated: bool
    ) -> ExponentialMechanism | PermuteAndFlip:
        """A length, by number."""
        rate = self.epsilon / (2 * self.sensitivity)
        # Costs beyond this are not distinguished.
        largest = math.ceil((100 * _DECAY + _NO_SCALE + 40.0) / float(rate))
        aim = self.per_cent * positions.quantiles(LEAST_PART).total
        least, most = (aim - largest) // _PER_CENT, -((-aim - largest) // _PER_CENT)
        inside = count_fullest(positions, LENGTHS, least=least, most=most)
        # By how much each length passes the share.
        passed = np.clip(_PER_CENT * inside - aim, -largest, largest)
        costs = np.maximum(-passed, 0)
        np.maximum(costs[SHORTEST:], passed[:-SHORTEST], out=costs[SHORTEST:])
        # The base measure, as a cost that is the same for all data.
        nats = _DECAY / PER_OCTAVE * np.arange(len(LENGTHS))
        nats[SHORTEST:] += _NO_SCALE
        costs += np.rint(nats / float(rate)).astype(np.int64)
        return choose_selection(costs, rate, concentrated=concentrated)


_WINDOW_STEP_BITS = 12  # grid units between windows: at least 2^12
_MOST_WINDOWS = 2**46
# Nats that the users of the right window must outweigh: what the base measure takes off a center a million windows from
# zero, its normaliser, and a chance of one in ten thousand to choose a window without users. With fewer users only
# centers within a few hundred windows are found as surely.
_FAR, _NEAR = 29.0, 16.0
_LOST = 0.05  # of the share: what the right window may hold less than the scale was meant to
_COMPARED_PARTS = 64  # windows that hold no more than one in so many parts of the weight are not compared


@dataclass(frozen=True, kw_only=True)
class Windows:
    """`count` windows, `step` grid units apart and `length` long, symmetric about zero; grid units are 2^exponent."""

    exponent: int
    step: int
    length: int
    count: int

    @classmethod
    def covering(cls, radius: float, *, step: float, steps: int) -> Windows:
        """Windows `steps` steps long whose middles cover [-radius, radius]; steps are rounded up.

        Raises:
            InputError: steps are too short for the numbers that values are read with.
        """
        exponent = math.floor(math.log2(step)) - _WINDOW_STEP_BITS
        if exponent < -60:
            exponent = -60
            if step < 2.0 ** (exponent + _WINDOW_STEP_BITS // 2):
                raise InputError("the values are too close together; measure them in a smaller unit")
        unit = Fraction(2) ** exponent
        whole = math.ceil(Fraction(step) / unit)
        each_side = math.ceil(Fraction(radius) / (whole * unit))
        if 2 * each_side + 1 > _MOST_WINDOWS:
            raise InputError(f"{parameter('radius')} is too large beside threshold or scale; lower it")
        return cls(exponent=exponent, step=whole, length=steps * whole, count=2 * each_side + 1)

    @property
    def reach(self) -> int:
        """How far from 0 the outermost window ends."""
        return (self.count // 2) * self.step + (self.length + 1) // 2

    def middle(self, number: int) -> float:
        """The middle of a window, in units of the values."""
        return float((number - self.count // 2) * self.step * Fraction(2) ** self.exponent)

    def runs(self, positions: UserPositions, *, parts: int) -> tuple[IntArray, IntArray]:
        """(inside, sizes): the weight in every window, from left to right, as runs of windows that hold the same.

        What holds no more than one in so many parts of all weight counts as holding that.

        Formal guarantees: a user that is added raises the weight that a window counts for by at least 0 and at most its
        own (proofs/adaptive.md, Lemma 3).
        """
        quantiles = positions.quantiles(parts)
        least, numbers = quantiles.total // parts, self._holding(quantiles.marks)
        starts = self._first_end + numbers * self.step
        weights = positions.within(starts, starts + self.length)
        heavy = weights > least
        numbers, weights = numbers[heavy], weights[heavy]
        # All others count for the least; of two things said of a window the first is right.
        cuts = np.concatenate([numbers, [0], numbers + 1])
        counted = np.concatenate([weights, np.full(len(numbers) + 1, least)])
        first, said = np.unique(cuts, return_index=True)
        first, inside = first[first < self.count], counted[said][first < self.count]
        new = np.diff(inside, prepend=-1) != 0
        return inside[new], np.diff(np.append(first[new], self.count))

    @property
    def _first_end(self) -> int:
        """Where the leftmost window begins."""
        return -(self.count // 2) * self.step - self.length // 2

    def _holding(self, marks: IntArray) -> IntArray:
        """The numbers of the windows that hold a mark."""
        offset = marks - self._first_end
        last = np.clip(offset // self.step, -1, self.count - 1)
        first = np.clip(-((self.length - offset) // self.step), 0, self.count)
        shifts = np.arange(self.length // self.step + 1)
        numbers = (first[:, np.newaxis] + shifts)[first[:, np.newaxis] + shifts <= last[:, np.newaxis]]
        return np.unique(numbers)


@dataclass(frozen=True, kw_only=True)
class CenterSearch:
    """A window of many users, at a price.

    Attributes:
        windows: among which.
        epsilon: what the choice costs.
        add_remove: whether a neighbor only adds users or only removes them, as under `add-remove`.
    """

    windows: Windows
    epsilon: Fraction
    add_remove: bool

    @classmethod
    def cost(cls, users: float, *, share: float, add_remove: bool, largest: float) -> float | None:
        """The epsilon of a search that finds a window with this share of the users; None where users are too few."""
        per_nat = (1.0 if add_remove else 2.0) / (max(share - _LOST, 0.1) * max(users, 1.0))
        if per_nat * _NEAR > largest:
            return None
        return min(per_nat * _FAR, largest)

    def distribution(self, positions: UserPositions) -> ExponentialMechanism:
        """A window, by number; positions are whole numbers."""
        inside, sizes = self.windows.runs(positions, parts=_COMPARED_PARTS)
        rate = self.epsilon / (1 if self.add_remove else 2)
        ends, rings = np.cumsum(sizes), self._ring_ends()
        cuts = np.union1d(ends, rings)
        costs = (inside.max() - inside)[np.searchsorted(ends, cuts)]
        # Windows in the k-th ring around zero are 2^k from it, and weigh 2^-k.
        distances = np.abs(cuts - 1 - self.windows.count // 2)
        octaves = np.frexp((distances + 1).astype(np.float64))[1] - 1
        costs += np.rint(octaves * (math.log(2.0) / float(rate))).astype(np.int64)
        return ExponentialMechanism(costs=costs, sizes=np.diff(cuts, prepend=0), rate=rate)

    def _ring_ends(self) -> IntArray:
        """One past the last window of every ring, from left to right: rings double in width with their distance."""
        half = self.windows.count // 2
        widths = 2 ** np.arange(half.bit_length() + 1, dtype=np.int64)
        # A window d from the middle is in ring floor(log2(d + 1)); those of one ring lie on both sides.
        rights, lefts = half + widths - 1, half - widths + 2
        ends = np.concatenate([lefts, rights, [self.windows.count]])
        return np.unique(ends[(ends > 0) & (ends <= self.windows.count)])


@dataclass(frozen=True)
class GridPositions:
    """Users with usable records at their means on the grid of windows."""

    column: int
    windows: Windows

    def __call__(self, part: UserTable) -> LocalPositions:
        exponent, reach = self.windows.exponent, self.windows.reach

        def one_by_one() -> SortedPositions:
            sums = part.sums[self.column]
            positions = round_means(sums, part.counts, exponent=exponent, low=-reach, high=reach)
            return SortedPositions(select_usable(part, positions))

        if not part.means_are_accurate(self.column):
            return one_by_one()
        means = MeanPositions(self.column)(part)
        return RoundedPositions(means, exponent=exponent, reach=reach, one_by_one=one_by_one)
