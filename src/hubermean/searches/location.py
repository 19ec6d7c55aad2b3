"""The private center and scale of users: an interval that holds most of them.

**Windows.** For every length b of a public grid there are public intervals [e, fl(e + b)] whose starts e are the
multiples of a power of two, 16 to 32 of them to a length (`Windows`). One user changes the number of users in a window
by at most one. Only windows that hold an eighth of all users are distinguished; each of those contains a quantile
(`UserPositions.quantiles`), and there are few.

**Interval.** `IntervalSearch` selects one window of any length by the exponential mechanism: it should hold a share of
all users, and no window of a somewhat shorter length should. Its middle is the center, half its length the scale. Two
more candidates stand for "most users tie" and "no window holds most users". The base measure, which costs no privacy,
falls with the distance from zero. With few users a window should also hold half of those beside the fullest place, or
one that holds nothing but a tie would pass; and with very few the share is a half, at which windows that hold nobody
and windows that are far too long fall behind by the same number of users.

**Center.** Where the length is given, `CenterSearch` selects the window that holds most users. Proof:
proofs/adaptive.md, Lemmas 1 to 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from hubermean.data.arrays import FloatArray, IntArray
from hubermean.distributions.output import ExponentialMechanism
from hubermean.errors import InputError, parameter
from hubermean.searches.positions import FullPlaces, UserPositions, distinct

PER_OCTAVE = 8
LENGTHS: FloatArray = np.exp2(np.arange(-57 * PER_OCTAVE, 45 * PER_OCTAVE + 1) / PER_OCTAVE)
"""The public grid of lengths, the shortest first: the longest hold all numbers that are read as floats."""

SHORTER = 2
"""No window of the length so many places before should hold the share, where users are not very few."""

_STEP_BITS = 4  # 2^4 to 2^5 steps to a length
_MOST_STEPS = 2**_STEP_BITS * 2 + 2  # windows of one length that can hold one place
_FARTHEST = 2**34  # steps from zero
_LEAST_PART, _LEAST_PART_OF_FEW = 8, 32  # windows that hold no more of the users are not distinguished
_TIED_PART = 24  # of the users: with fewer at one place they do not count as tied
_INNER = 0.46  # of a length: whoever lies so close to a place shares a window with it


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Public intervals of several lengths, symmetric about zero, numbered from the first length on, left to right.

    Attributes:
        lengths: ascending.
        radius: how far from zero the middle of a window may lie, beside 2^34 steps.
    """

    lengths: tuple[float, ...]
    radius: float

    @cached_property
    def steps(self) -> FloatArray:
        """From one start to the next, for every length: the largest power of two that is at most 1/16 of it."""
        _, exponents = np.frexp(np.array(self.lengths))
        steps: FloatArray = np.ldexp(1.0, exponents - 1 - _STEP_BITS)
        return steps

    @cached_property
    def _halves(self) -> IntArray:
        """Half a length in steps, rounded."""
        return np.rint(np.array(self.lengths) / self.steps / 2.0).astype(np.int64)

    @cached_property
    def each_side(self) -> IntArray:
        """How many windows of each length lie on either side of the one in the middle."""
        return np.minimum(self.radius / self.steps, _FARTHEST).astype(np.int64)

    @cached_property
    def ends(self) -> IntArray:
        """One past the number of the last window of each length."""
        return np.cumsum(2 * self.each_side + 1)

    @cached_property
    def _middles(self) -> IntArray:
        """The number of the window in the middle, of each length."""
        return self.ends - self.each_side - 1

    def number(self, which: IntArray, offsets: IntArray) -> IntArray:
        """The numbers of windows."""
        return self._middles[which] + offsets

    def find(self, numbers: IntArray) -> tuple[IntArray, IntArray]:
        """(which, offsets): of which length a window is, and how many steps from the middle."""
        which = np.searchsorted(self.ends, numbers, side="right")
        return which, numbers - self._middles[which]

    def starts(self, which: IntArray, offsets: IntArray) -> FloatArray:
        """Where windows begin, exactly: numbers of at most 35 bits times a power of two."""
        starts: FloatArray = (offsets - self._halves[which]) * self.steps[which]
        return starts

    def middle(self, number: int) -> tuple[int, float]:
        """(which, middle) of a window."""
        which, offset = self.find(np.array([number]))
        return int(which[0]), float(self.starts(which, offset)[0] + self.lengths[int(which[0])] / 2.0)

    def is_outermost(self, number: int) -> bool:
        """Whether a window is the first or the last of its length."""
        which, offset = self.find(np.array([number]))
        return abs(int(offset[0])) == int(self.each_side[which[0]])

    @cached_property
    def _rings(self) -> tuple[IntArray, IntArray]:
        """(firsts, rings): the windows of every length in runs of equal distance from zero, in powers of four steps.

        A window d steps from the middle is in ring floor(log4(d + 1)).
        """
        inner = 4 ** np.arange(_FARTHEST.bit_length() // 2 + 1, dtype=np.int64) - 1  # where a ring begins
        ring = np.arange(len(inner))
        # Of a length: the left parts of its rings, outermost first, then the right ones; the middle is in ring 0.
        begins = np.concatenate([1 - np.append(inner[1:], 4 * inner[-1])[::-1], inner[1:]])
        numbers = np.concatenate([ring[::-1], ring[1:]])
        sides = self.each_side[:, np.newaxis]
        firsts = np.maximum(begins, -sides)
        kept = (firsts <= sides) & (np.append(firsts[:, 1:], sides + 1, axis=1) > firsts)
        return (firsts + self._middles[:, np.newaxis])[kept], np.broadcast_to(numbers, kept.shape)[kept]

    def holding(self, marks: FloatArray, which: IntArray) -> tuple[IntArray, IntArray]:
        """(which, offsets) of the windows of these lengths that hold a mark, each once."""
        last = np.floor(marks / self.steps[which, np.newaxis])
        # Of marks between the same two starts the first will do.
        first = np.diff(last, axis=1, prepend=-np.inf) > 0
        row, mark = np.nonzero(first)
        owners = np.repeat(which[row], _MOST_STEPS)
        flat = np.clip(last[first], -(2.0**60), 2.0**60).astype(np.int64)[:, np.newaxis]
        flat = (flat - np.arange(_MOST_STEPS)).ravel() + self._halves[owners]
        inside = np.abs(flat) <= self.each_side[owners]
        owners, flat, places = owners[inside], flat[inside], np.repeat(marks[mark], _MOST_STEPS)[inside]
        holds = self.starts(owners, flat) + np.array(self.lengths)[owners] >= places
        return self.find(distinct(self.number(owners[holds], flat[holds])))

    def count(
        self, positions: UserPositions, which: IntArray, offsets: IntArray, *, outermost_open: bool = False
    ) -> IntArray:
        """How many users are in each window, and beyond it where it is the outermost of its length and open."""
        lows = self.starts(which, offsets)
        highs = lows + np.array(self.lengths)[which]
        if outermost_open:
            lows = np.where(offsets == -self.each_side[which], -np.inf, lows)
            highs = np.where(offsets == self.each_side[which], np.inf, highs)
        return positions.within(lows, highs)

    def bound(self, positions: UserPositions, marks: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
        """(atoms, outer, inner): the users at each mark, and for each length bounds on those in a window.

        No window that holds a mark holds more than `outer` users, and some window holds `inner` users.
        """
        if not len(marks):
            nobody = np.zeros(len(self.lengths), dtype=np.int64)
            return nobody[:0], nobody, nobody
        lengths = np.array(self.lengths)[:, np.newaxis]
        outer_lows = marks - lengths - 2.0 * np.spacing(np.maximum(np.abs(marks), lengths))
        inner_lows, inner_highs = marks - _INNER * lengths, marks + _INNER * lengths
        lows = np.concatenate([marks, outer_lows.ravel(), inner_lows.ravel()])
        highs = np.concatenate([marks, (marks + lengths).ravel(), inner_highs.ravel()])
        users = positions.within(lows, highs)
        atoms, around = users[: len(marks)], users[len(marks) :].reshape(2, len(lengths), len(marks))
        covered = np.abs(marks) + 2.0 * lengths <= (self.each_side * self.steps)[:, np.newaxis]
        return atoms, around[0].max(axis=1), np.where(covered, around[1], 0).max(axis=1)

    def in_runs(
        self, numbers: IntArray, costs: IntArray, others: IntArray, *, nats: float
    ) -> tuple[IntArray, IntArray]:
        """(costs, sizes) of all windows, in runs: those of `numbers` have their own costs, all others their length's.

        To each is added the base measure, `nats` per ring in units of cost, rounded.
        """
        firsts, rings = self._rings
        total = int(self.ends[-1])
        cuts = distinct(np.concatenate([firsts, numbers, numbers + 1]))
        cuts = cuts[cuts < total]
        found = others[np.searchsorted(self.ends, cuts, side="right")]
        found[np.searchsorted(cuts, numbers)] = costs
        ring = rings[np.searchsorted(firsts, cuts, side="right") - 1]
        return found + np.rint(ring * nats).astype(np.int64), np.diff(np.append(cuts, total))


_PER_CENT = 100
_TIE, _NOTHING = 0, 1  # the candidates before the windows
# So many nats more than a window weighs a tie: where most users tie, but not enough of them to reach the share, it goes
# before the 11,000 or so windows that hold nothing but the tie, which would pass for a scale.
_TIE_NATS = math.log(11_000.0) + math.log(1e4)
_TIE_NATS_OF_FEW = math.log(11_000.0) + math.log(1e3)
_ALL_NATS = 32.0  # of all windows together, where the base measure is flat
_GENEROUS, _CHEAP = 3.0, 0.1


@dataclass(frozen=True, kw_only=True)
class _Aim:
    """A share to aim at, and what is taken for granted where it is.

    Attributes:
        per_cent: the share of the users.
        part: the largest part of the budget that the search may cost.
        nats: by so many must the data speak against windows of half of the users, or of as many too many.
        ring_nats: by how much the base measure falls with the distance from zero, from ring to ring.
        nothing_nats: how many more "no window holds most users" weighs than a window.
        tie_nats: likewise "most users tie".
        few: users are few: a window should hold others than those at its fullest place.
    """

    per_cent: int
    part: float
    nats: float
    ring_nats: float = 0.0
    nothing_nats: float = 9.5
    tie_nats: float = _TIE_NATS
    few: bool = False


# The wrong lengths are chosen about once in twenty releases where half of the users tie, which a second search makes
# good, and without such ties once in a hundred thousand or less. With fewer users windows without any are too many to
# be outweighed wherever they are: so they weigh less the further they lie from zero.
_AIMS = (
    _Aim(per_cent=90, part=0.17, nats=20.0),
    _Aim(per_cent=75, part=0.42, nats=20.0),
    _Aim(per_cent=65, part=1.0, nats=40.0, few=True),  # more, since few users may be measured as many
    _Aim(
        per_cent=65,
        part=1.0,
        nats=22.5,
        ring_nats=1.5 * math.log(2.0),
        nothing_nats=4.0,
        tie_nats=_TIE_NATS_OF_FEW,
        few=True,
    ),
    # "Nothing" costs as much as a window without users and outweighs all of them together ten thousandfold, so the
    # search itself says whether users are enough, and their measured number need not be sure.
    _Aim(
        per_cent=50,
        part=1.09,
        nats=4.5,
        ring_nats=2.0 * math.log(2.0),
        nothing_nats=11.4 + math.log(1e4),
        few=True,
    ),
)
_TIMES = 6.0  # what is needed for any release is spent on very few users, where there is so much
_SERVING_NATS = 26.5  # by which windows without users fall behind, for a release to be expected
_VERY_FEW_SHARE = 0.58  # on average, of windows that hold half or are up to an octave longer
_BEYOND_TIES, _BEYOND_TIES_NATS = (78, 98), 15.0


@dataclass(frozen=True, kw_only=True)
class IntervalSearch:
    """A window of any length that holds a share of the users, while none of a somewhat shorter length does.

    Attributes:
        per_cent: the share of the users.
        epsilon: what the choice costs.
        add_remove: whether neighbors differ by one user more or less, as under `add-remove`.
        radius: how far from zero the middle may lie.
        ring_nats, nothing_nats, tie_nats: as of `_Aim`.
        tied: where users are few, how many of those who share a place count as if they did not; None where they are
            not few, and windows need not hold anybody beside the fullest place.
    """

    per_cent: int
    epsilon: Fraction
    add_remove: bool
    radius: float
    ring_nats: float = 0.0
    nothing_nats: float = 9.5
    tie_nats: float = _TIE_NATS
    tied: int | None = None

    @property
    def share(self) -> float:
        """About what the window holds that is found."""
        return _VERY_FEW_SHARE if self.is_for_very_few else self.per_cent / _PER_CENT

    @property
    def is_for_very_few(self) -> bool:
        return self.per_cent == 50

    @property
    def shorter(self) -> int:
        """No window of the length so many places before should hold the share."""
        return PER_OCTAVE if self.is_for_very_few else SHORTER

    @property
    def parts(self) -> int:
        """Windows that hold no more than one in so many parts of the users are not distinguished."""
        return _LEAST_PART if self.tied is None else _LEAST_PART_OF_FEW

    @property
    def sensitivity(self) -> int:
        """Of a cost, in hundredths of a user (proofs/adaptive.md, Lemma 2)."""
        return max(self.per_cent, _PER_CENT - self.per_cent) if self.add_remove else _PER_CENT

    @property
    def windows(self) -> Windows:
        return _windows(self.radius)

    @classmethod
    def plan(cls, users: float, *, add_remove: bool, largest: float, radius: float) -> IntervalSearch | None:
        """The largest share that is not too dear, for no more epsilon than the largest; None where users are too few.

        `largest` is the most that may be spent, about a third of what there is; with very few users a little more.
        """
        if users < 1.0:
            return None
        for aim in _AIMS:
            search = cls(
                per_cent=aim.per_cent,
                epsilon=Fraction(largest),
                add_remove=add_remove,
                radius=radius,
                ring_nats=aim.ring_nats,
                nothing_nats=aim.nothing_nats,
                tie_nats=aim.tie_nats,
                tied=max(int(users) // _TIED_PART, 1) if aim.few else None,
            )
            needed = search._needed(users, aim.nats)
            if needed <= largest * aim.part:
                if search.is_for_very_few:
                    return replace(search, epsilon=Fraction(min(_TIMES * needed, largest * aim.part)))
                generous = max(needed, min(_GENEROUS * needed, _CHEAP * largest))
                return replace(search, epsilon=Fraction(generous))
        return None

    def _needed(self, users: float, nats: float) -> float:
        """The epsilon at which lengths that hold half of the users, or as far above the share, fall so far behind."""
        gap = min(self.per_cent - 50 if self.per_cent > 70 else 35, _PER_CENT - self.per_cent)
        return 2.0 * self.sensitivity * nats / (gap * max(users, 1.0))

    def serves(self, users: float, *, part: float = 1.0) -> bool:
        """Whether a window, and not "nothing", is to be expected of so many users; `part` asks for less."""
        return float(self.rate) * self.per_cent * users >= part * _SERVING_NATS

    @property
    def rate(self) -> Fraction:
        return self.epsilon / (2 * self.sensitivity)

    @classmethod
    def beyond_ties(
        cls, users: float, *, add_remove: bool, epsilon: float, radius: float
    ) -> IntervalSearch | None:
        """A search for a larger share, after most users were found to tie; None where users are too few."""
        low, high = _BEYOND_TIES
        budget = Fraction(max(epsilon, 0.0))
        for per_cent in range(high, low - 1, -1):
            search = cls(per_cent=per_cent, epsilon=budget, add_remove=add_remove, radius=radius)
            if 2.0 * search.sensitivity * _BEYOND_TIES_NATS <= epsilon * (_PER_CENT - per_cent) * users:
                return search
        return None

    def distribution(self, positions: UserPositions) -> ExponentialMechanism:
        """A tie, nothing, or a window, by number."""
        windows, rate, k = self.windows, self.rate, self.shorter
        quantiles = positions.quantiles(self.parts)
        total = quantiles.total
        if self.tied is not None and total > self.parts * self.tied:  # so that every tie is at a mark
            quantiles = positions.quantiles(-(-total // self.tied))
        least, aim = total // self.parts, self.per_cent * total
        # Costs beyond this are not distinguished.
        largest = math.ceil((_ALL_NATS + self.tie_nats + 40.0) / float(rate))
        atoms, outer, inner = windows.bound(positions, quantiles.marks)
        full = FullPlaces.of(quantiles.marks, atoms, total if self.tied is None else self.tied)
        too_long = np.append(np.zeros(k, dtype=bool), _PER_CENT * inner[:-k] - aim >= largest)
        # Counted are the lengths that might be selected, and those that such lengths are compared with.
        compared = ~too_long | np.append(~too_long[k:], np.zeros(k, dtype=bool))
        counted = np.flatnonzero((outer > least) & (_PER_CENT * outer > aim - largest) & compared)
        which, offsets = windows.holding(quantiles.marks, counted)
        users = windows.count(positions, which, offsets)
        heavy = users > least
        which, offsets, users = which[heavy], offsets[heavy], users[heavy]
        inside = np.zeros(len(LENGTHS), dtype=np.int64)
        np.maximum.at(inside, which, users)
        # By how much some window of the shorter length passes the share.
        passed = np.where(too_long, largest, 0)
        passed[k:] = np.maximum(passed[k:], _PER_CENT * inside[:-k] - aim)
        lows = windows.starts(which, offsets)
        beside = users - full.most(lows, lows + np.array(windows.lengths)[which])
        missed = np.minimum(
            np.maximum(aim - _PER_CENT * users, self._half_missed(total, full, beside)),
            aim - _PER_CENT * least,
        )
        costs, sizes = windows.in_runs(
            windows.number(which, offsets),
            np.minimum(np.maximum(missed, passed[which]), largest),
            np.minimum(np.maximum(aim - _PER_CENT * least, passed), largest),
            nats=self.ring_nats / float(rate),
        )
        atom = max(int(atoms.max(initial=0)), least)
        tied = atom if self.tied is None else min(atom, self.tied)
        tie = min(max(aim - _PER_CENT * atom, self._half_missed(total, full, tied), 0), largest)
        tie -= round(self.tie_nats / float(rate))
        # Where every window costs the largest, all of them together must not outweigh this.
        nothing = aim - _PER_CENT * least if self.is_for_very_few else aim // 3
        nothing = min(nothing, max(largest - math.ceil((_ALL_NATS + 5.0) / float(rate)), 0))
        nothing -= round(self.nothing_nats / float(rate))
        return ExponentialMechanism(
            costs=np.concatenate([[tie, nothing], costs]), sizes=np.concatenate([[1, 1], sizes]), rate=rate
        )

    def _half_missed(self, total: int, full: FullPlaces, beside: Any) -> Any:
        """What a window lacks that holds so many `beside` its fullest place, if it should hold half of all such.

        Where users are not few this is never more than it lacks of the share.
        """
        weight = self.sensitivity if self.add_remove else self.sensitivity // 2
        return weight * (total - full.largest - 2 * beside)

    def found(self, number: int) -> tuple[int, float] | None:
        """(length, middle) of what was selected, the length by number; None for a tie.

        Raises:
            LookupError: no window holds most users.
        """
        if number == _TIE:
            return None
        if number == _NOTHING:
            raise LookupError
        return self.windows.middle(number - 2)


@lru_cache(maxsize=16)
def _windows(radius: float) -> Windows:
    return Windows(lengths=tuple(LENGTHS.tolist()), radius=radius)


# Nats that the users of the right window must outweigh: what the base measure takes off a center far from zero, its
# normaliser, and a chance of one in ten thousand to choose a window without users. With fewer users only centers near
# zero are found as surely.
_FAR, _NEAR, _RING_NATS = 29.0, 16.0, math.log(2.0)
_LOST = 0.05  # of the share: what the right window may hold less than the scale was meant to
_COMPARED_PARTS = 64  # windows that hold no more than one in so many parts of the users are not compared


@dataclass(frozen=True, kw_only=True)
class CenterSearch:
    """The window of one given length that holds most users; those beyond the outermost windows are counted there.

    Attributes:
        windows: among which.
        epsilon: what the choice costs.
        add_remove: whether a neighbor only adds users or only removes them, as under `add-remove`.
    """

    windows: Windows
    epsilon: Fraction
    add_remove: bool

    @classmethod
    def plan(
        cls, length: float, *, radius: float, users: float, share: float, add_remove: bool, largest: float
    ) -> CenterSearch | None:
        """A search that finds a window with this share of the users; None where users are too few.

        Raises:
            InputError: the radius is too large.
        """
        windows = Windows(lengths=(length,), radius=radius)
        if radius / float(windows.steps[0]) > _FARTHEST:
            raise InputError(f"{parameter('radius')} is too large beside threshold or scale; lower it")
        per_nat = (1.0 if add_remove else 2.0) / (max(share - _LOST, 0.1) * max(users, 1.0))
        if users < 1.0 or per_nat * _NEAR > largest:
            return None
        return cls(
            windows=windows,
            epsilon=Fraction(min(per_nat * _FAR, largest)),
            add_remove=add_remove,
        )

    def distribution(self, positions: UserPositions) -> ExponentialMechanism:
        """A window, by number."""
        rate = self.epsilon / (1 if self.add_remove else 2)
        quantiles = positions.quantiles(_COMPARED_PARTS)
        windows, least = self.windows, quantiles.total // _COMPARED_PARTS
        which, offsets = windows.holding(quantiles.marks, np.zeros(1, dtype=np.int64))
        last = int(windows.each_side[0])
        offsets = distinct(np.append(offsets, [-last, last]))
        which = np.zeros_like(offsets)
        users = np.maximum(windows.count(positions, which, offsets, outermost_open=True), least)
        costs, sizes = windows.in_runs(
            windows.number(which, offsets),
            users.max() - users,
            np.array([users.max() - least]),
            nats=_RING_NATS / float(rate),
        )
        return ExponentialMechanism(costs=costs, sizes=sizes, rate=rate)
