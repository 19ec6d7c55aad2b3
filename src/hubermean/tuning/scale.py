"""The private scale: the length of an interval that holds most users, wherever it lies.

For a length b let inside_b be the largest number of users in any interval of that length (`lattice` says which
there are). One user changes it by at most one, and it takes a sort and little else. A selection over a public grid of
lengths finds one that holds a share of all users while a somewhat shorter one does not: so the choice is clear also
where counts jump, as they do for values of a few kinds. Where even the shortest lengths hold the share, users tie, and
those are chosen: no scale was found. A base measure, which costs no privacy, breaks what ties are left.
Proof: proofs/adaptive.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubermean.laws import Choice, PermuteAndFlip, select
from hubermean.tuning.lattice import LEAST_PART, heaviest
from hubermean.tuning.line import Line

Floats = NDArray[np.float64]

PER_OCTAVE = 8
LENGTHS: Floats = np.exp2(np.arange(-57 * PER_OCTAVE, 43 * PER_OCTAVE + 1) / PER_OCTAVE)
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
    """What is sought, from public and released numbers: the length from which on an interval holds the share.

    Attributes:
        per_cent: the share of the users.
        epsilon: what the choice costs.
        one_way: whether neighbours differ by one user more or less, as under `add-remove`.
    """

    per_cent: int
    epsilon: Fraction
    one_way: bool

    @property
    def share(self) -> float:
        return self.per_cent / _PER_CENT

    @property
    def sensitivity(self) -> int:
        """Of a cost, in hundredths of a user (proofs/adaptive.md, Lemma 2)."""
        return max(self.per_cent, _PER_CENT - self.per_cent) if self.one_way else _PER_CENT

    @classmethod
    def plan(cls, users: float, *, one_way: bool, largest: float) -> ScaleSearch | None:
        """The largest share that is not too dear, for no more epsilon than the largest; None where users are too few.

        `largest` is the most that may be spent, about a third of what there is.
        """
        for per_cent, part in _SHARES:
            search = cls(per_cent=per_cent, epsilon=Fraction(1), one_way=one_way)
            needed = search._needed(users, _SURELY)
            if needed <= largest * part / _SHARES[-1][1]:
                generous = max(needed, min(_GENEROUS * needed, _CHEAP * largest))
                return cls(per_cent=per_cent, epsilon=Fraction(generous), one_way=one_way)
        # Fewer users: less surely, and not where many of them tie.
        if search._needed(users, _HARDLY) <= largest:
            return cls(per_cent=per_cent, epsilon=Fraction(largest), one_way=one_way)
        return None

    def _needed(self, users: float, nats: float) -> float:
        """The epsilon at which lengths that hold half of the users, or as far above the share, fall so far behind."""
        gap = min(self.per_cent - 50 if self.per_cent > 70 else 35, _PER_CENT - self.per_cent)
        return 2.0 * self.sensitivity * nats / (gap * max(users, 1.0))

    @classmethod
    def beyond_ties(cls, users: float, *, one_way: bool, epsilon: float) -> ScaleSearch | None:
        """A search for a larger share, after most users were found to tie; None where users are too few."""
        low, high = _BEYOND_TIES
        for per_cent in range(high, low - 1, -1):
            search = cls(per_cent=per_cent, epsilon=Fraction(max(epsilon, 0.0)), one_way=one_way)
            if 2.0 * search.sensitivity * _BEYOND_TIES_NATS <= epsilon * (_PER_CENT - per_cent) * users:
                return search
        return None

    def law(self, line: Line, *, concentrated: bool) -> Choice | PermuteAndFlip:
        """A length, by number."""
        rate = self.epsilon / (2 * self.sensitivity)
        # Costs beyond this are not told apart.
        largest = math.ceil((100 * _DECAY + _NO_SCALE + 40.0) / float(rate))
        aim = self.per_cent * line.survey(LEAST_PART).total
        least, most = (aim - largest) // _PER_CENT, -((-aim - largest) // _PER_CENT)
        inside = heaviest(line, LENGTHS, least=least, most=most)
        # By how much each length passes the share.
        passed = np.clip(_PER_CENT * inside - aim, -largest, largest)
        costs = np.maximum(-passed, 0)
        np.maximum(costs[SHORTEST:], passed[:-SHORTEST], out=costs[SHORTEST:])
        # The base measure, as a cost that is the same for all data.
        nats = _DECAY / PER_OCTAVE * np.arange(len(LENGTHS))
        nats[SHORTEST:] += _NO_SCALE
        costs += np.rint(nats / float(rate)).astype(np.int64)
        return select(costs, rate, concentrated=concentrated)
