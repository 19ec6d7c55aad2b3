"""The private center: which of many windows of one length holds most users.

Windows overlap and cover all that lies within a public radius of zero, however many they are. The base measure of the
exponential mechanism falls with the distance from zero, so that a center costs the logarithm of its own distance,
counted in windows, over the users that the right windows hold. Proof: proofs/adaptive.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hubermean.errors import InputError
from hubermean.laws import Choice
from hubermean.tuning.line import IntArray, Line

_STEP_BITS = 12  # grid units between windows: at least 2^12
_MOST_WINDOWS = 2**46
# Nats that the users of the right window must outweigh: what the base measure takes off a center a million windows from
# zero, its normaliser, and a chance of one in ten thousand to choose a window without users. With fewer users only
# centers within a few hundred windows are found as surely.
_FAR, _NEAR = 29.0, 16.0
_LOST = 0.05  # of the share: what the right window may hold less than the scale was meant to
_TOLD_APART = 64  # windows that hold no more than one in so many parts of the weight are not told apart


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
        exponent = math.floor(math.log2(step)) - _STEP_BITS
        if exponent < -60:
            exponent = -60
            if step < 2.0 ** (exponent + _STEP_BITS // 2):
                raise InputError("the values are too close together; measure them in a smaller unit")
        unit = Fraction(2) ** exponent
        whole = math.ceil(Fraction(step) / unit)
        each_side = math.ceil(Fraction(radius) / (whole * unit))
        if 2 * each_side + 1 > _MOST_WINDOWS:
            raise InputError("radius is too large beside threshold or scale; lower it")
        return cls(exponent=exponent, step=whole, length=steps * whole, count=2 * each_side + 1)

    @property
    def reach(self) -> int:
        """How far from 0 the outermost window ends."""
        return (self.count // 2) * self.step + (self.length + 1) // 2

    def middle(self, number: int) -> float:
        """The middle of a window, in units of the values."""
        return float((number - self.count // 2) * self.step * Fraction(2) ** self.exponent)

    def runs(self, line: Line, *, parts: int) -> tuple[IntArray, IntArray]:
        """(inside, sizes): the weight in every window, from left to right, as runs of windows that hold the same.

        What holds no more than one in so many parts of all weight counts as holding that.

        Formal guarantees: a user that is added raises the weight that a window counts for by at least 0 and at most its
        own (proofs/adaptive.md, Lemma 3).
        """
        survey = line.survey(parts)
        least, numbers = survey.total // parts, self._holding(survey.marks)
        starts = self._first_end + numbers * self.step
        weights = line.within(starts, starts + self.length)
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
        one_way: whether a neighbour only adds users or only removes them, as under `add-remove`.
    """

    windows: Windows
    epsilon: Fraction
    one_way: bool

    @classmethod
    def cost(cls, users: float, *, share: float, one_way: bool, largest: float) -> float | None:
        """The epsilon of a search that finds a window with this share of the users; None where users are too few."""
        per_nat = (1.0 if one_way else 2.0) / (max(share - _LOST, 0.1) * max(users, 1.0))
        if per_nat * _NEAR > largest:
            return None
        return min(per_nat * _FAR, largest)

    def law(self, line: Line) -> Choice:
        """A window, by number; positions are whole numbers."""
        inside, sizes = self.windows.runs(line, parts=_TOLD_APART)
        rate = self.epsilon / (1 if self.one_way else 2)
        ends, rings = np.cumsum(sizes), self._ring_ends()
        cuts = np.union1d(ends, rings)
        costs = (inside.max() - inside)[np.searchsorted(ends, cuts)]
        # Windows in the k-th ring around zero are 2^k from it, and weigh 2^-k.
        distances = np.abs(cuts - 1 - self.windows.count // 2)
        octaves = np.frexp((distances + 1).astype(np.float64))[1] - 1
        costs += np.rint(octaves * (math.log(2.0) / float(rate))).astype(np.int64)
        return Choice(costs=costs, sizes=np.diff(cuts, prepend=0), rate=rate)

    def _ring_ends(self) -> IntArray:
        """One past the last window of every ring, from left to right: rings double in width with their distance."""
        half = self.windows.count // 2
        widths = 2 ** np.arange(half.bit_length() + 1, dtype=np.int64)
        # A window d from the middle is in ring floor(log2(d + 1)); those of one ring lie on both sides.
        rights, lefts = half + widths - 1, half - widths + 2
        ends = np.concatenate([lefts, rights, [self.windows.count]])
        return np.unique(ends[(ends > 0) & (ends <= self.windows.count)])
