"""The private spread: the length of an interval that holds most of the weight, wherever it lies.

For a length b let inside_b be the largest weight of user means in any interval of that length (`lattice` says which
there are). One user changes it by at most its weight, and it takes a sort and little else. An exponential mechanism
over a public grid of lengths picks one that holds a share of all weight while a somewhat shorter one does not: so the
choice is clear also where weights jump, as they do for values of a few kinds. Where even the shortest lengths hold it,
users tie, and those are chosen: no spread was found. A base measure, which costs no privacy, breaks what ties are left.
Proof: proofs/tuning.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubermean.laws import Choice
from hubermean.tuning.lattice import LEAST_PART, heaviest
from hubermean.tuning.line import Line

Floats = NDArray[np.float64]
IntArray = NDArray[np.int64]

PER_OCTAVE = 8
LENGTHS: Floats = np.exp2(np.arange(-57 * PER_OCTAVE, 43 * PER_OCTAVE + 1) / PER_OCTAVE)
"""The public grid of lengths over all sizes that values are read with, the shortest first."""

SHORTEST = 2
"""A length is compared with the one so many steps shorter; the first so many, with none, mean "no spread found"."""

LARGEST_SHARE = 0.85
"""The share of the weight that the interval holds, in per cent a whole number; less where users are few."""

SMALLEST_SHARE = 0.65
# So large a share, if all others lie together far away, cannot stretch the interval: the hostile are not counted on to
# be more than one in twenty.
_HONEST_SHARE = 0.95
_PER_CENT = 100
_SHARE_AMONG_TIES = 98
_HARDLY_LARGER = 88  # per cent
_GENEROUS, _CHEAP = 3.0, 0.25
_DECAY = 0.05  # nats per octave by which longer lengths weigh less
# With one in twenty users far away, the interval reaches out to them about once in a thousand releases: so many nats
# per length, for the 140 or so lengths that the base measure leaves in play beside the two that are right. Without them
# it is once in a million.
_FAR_TOO_LONG = math.log(1e3) + math.log(70.0)
# So many nats more weigh the shortest lengths. Where most users tie, but not enough of them to reach the share, they
# go before all other lengths that hold nothing but the tie: those would pass for a spread, and the mean for the tie.
_NO_SPREAD = math.log(1e3) + 3.0
_PRIOR = 100 * _DECAY + _NO_SPREAD  # nats that the data must say against the shortest lengths
_GAP = 0.8  # of the share: by so much do much too short intervals fall behind, if values do not tie


@dataclass(frozen=True, kw_only=True)
class SpreadSearch:
    """What is sought, from public and released numbers: the length from which on an interval holds the share.

    Attributes:
        per_cent: the share of the weight.
        epsilon: what the choice costs.
    """

    per_cent: int
    epsilon: Fraction

    @property
    def share(self) -> float:
        return self.per_cent / _PER_CENT

    @classmethod
    def plan(cls, weight: float, *, largest: float) -> SpreadSearch | None:
        """A search for the largest share, for no more epsilon than the largest; None where users are too few.

        `weight` is that of all users, in units of the heaviest.
        """
        weight = max(weight, 1.0)
        least = 2.0 * _FAR_TOO_LONG / ((_HONEST_SHARE - LARGEST_SHARE) * weight)
        # Where users are many, more than that is cheap, and clusters are told apart more surely.
        part = min(max(least, min(_GENEROUS * least, _CHEAP * largest)), largest)
        share = min(LARGEST_SHARE, _HONEST_SHARE - 2.0 * _FAR_TOO_LONG / (part * weight))
        per_cent = math.floor(share * _PER_CENT + 1e-9)
        if per_cent < SMALLEST_SHARE * _PER_CENT:
            return None
        part = max(part, 2.0 * _PRIOR / (_GAP * per_cent / _PER_CENT * weight))
        return cls(per_cent=per_cent, epsilon=Fraction(part)) if part <= largest else None

    @classmethod
    def among_ties(cls, weight: float, *, epsilon: float) -> SpreadSearch | None:
        """A search for a larger share, after most of the weight was found to tie; None where users are too few."""
        if epsilon <= 0.0:
            return None
        per_cent = min(_largest_per_cent(weight, epsilon), _SHARE_AMONG_TIES)
        if per_cent <= LARGEST_SHARE * _PER_CENT:
            return None
        return cls(per_cent=per_cent, epsilon=Fraction(epsilon))

    @classmethod
    def beyond(cls, weight: float, *, share: float, largest: float) -> SpreadSearch | None:
        """The cheapest search for a given larger share, or as large a one as the largest epsilon can tell apart.

        None where that is hardly larger than the usual one. Hostile users that are more than the rest can stretch it.
        """
        if largest <= 0.0:
            return None
        per_cent = min(_largest_per_cent(weight, largest), math.floor(share * _PER_CENT), _SHARE_AMONG_TIES)
        if per_cent <= _HARDLY_LARGER:
            return None
        part = 2.0 * _FAR_TOO_LONG / ((1.0 - per_cent / _PER_CENT) * max(weight, 1.0))
        return cls(per_cent=per_cent, epsilon=Fraction(min(part, largest)))

    def law(self, line: Line, *, cap: int) -> Choice:
        """A length, by number; every weight is a whole number from 0 to cap."""
        rate = self.epsilon / (2 * _PER_CENT * cap)
        # Costs beyond this are not told apart.
        largest = math.ceil((_PRIOR + 40.0) / float(rate))
        aim = self.per_cent * line.survey(LEAST_PART).total
        least, most = (aim - largest) // _PER_CENT, -((-aim - largest) // _PER_CENT)
        inside = heaviest(line, LENGTHS, least=least, most=most)
        # By how much each length passes the share.
        passed = np.clip(_PER_CENT * inside - aim, -largest, largest)
        costs = np.maximum(-passed, 0)
        np.maximum(costs[SHORTEST:], passed[:-SHORTEST], out=costs[SHORTEST:])
        # The base measure, as a cost that is the same for all data.
        nats = _DECAY / PER_OCTAVE * np.arange(len(LENGTHS))
        nats[SHORTEST:] += _NO_SPREAD
        costs += np.rint(nats / float(rate)).astype(np.int64)
        return Choice(costs=costs, sizes=np.ones_like(costs), rate=rate)


def _largest_per_cent(weight: float, epsilon: float) -> int:
    """The largest share for which the interval would not reach out to all of the rest."""
    return math.floor((1.0 - 2.0 * _FAR_TOO_LONG / (epsilon * max(weight, 1.0))) * _PER_CENT)
