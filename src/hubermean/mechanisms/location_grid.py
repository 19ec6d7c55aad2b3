"""The public grid on which `exact` looks for the Huber location, and how many level sets are told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from hubermean.errors import InputError
from hubermean.mechanisms.shells import LARGEST_PULL
from hubermean.mechanisms.thresholds import influence_bound

LARGEST_RADIUS = 2**60  # in grid units
LARGEST_DEPTH = 2**20
LARGEST_UNEQUAL_DEPTH = 2**14  # with unequal weights every shell costs a sort of its candidates
MOST_PLANNED_USERS = 2**24  # where the number of users is private; more costs accuracy, not privacy
_FINEST_THRESHOLD_BITS = 30
_COARSEST_THRESHOLD_BITS = 8
_HEAVIEST_PLANNED = 2**10  # records of a user; of heavier ones the location may lie between two grid points
_LOST_MASS = 40.0  # shells are told apart until the rest of the grid together has probability about e^-40


@dataclass(frozen=True, kw_only=True)
class LocationGrid:
    """Multiples of 2^exponent; threshold and radius are whole numbers of them, and so is each column's center.

    Attributes:
        threshold: A, the threshold of a user of weight one.
        radius: the answer lies within this distance of the center.
        centers: one per column; empty where all are 0.
        power: theta, in parts of `thresholds.WHOLE`.
    """

    exponent: int
    threshold: int
    radius: int
    centers: tuple[int, ...] = ()
    power: int = 0

    @classmethod
    def choose(
        cls,
        threshold: float,
        radius: float,
        *,
        heaviest: int,
        power: int = 0,
        smallest: float | None = None,
        centers: Sequence[float] = (),
    ) -> LocationGrid:
        """As fine as 64 bits allow for users of `heaviest` influence in all, in thresholds; from public numbers alone.

        `smallest` is the threshold of the heaviest user, which should be told from 0, too.
        """
        spare = 0 if smallest is None else max(math.ceil(math.log2(threshold / smallest)), 0)
        bits = min(_FINEST_THRESHOLD_BITS + spare, LARGEST_PULL.bit_length() - 2 - heaviest.bit_length())
        farthest = radius + max((abs(center) for center in centers), default=0.0)
        exponent = max(
            math.floor(math.log2(threshold)) - bits,
            math.ceil(math.log2(farthest)) - (LARGEST_RADIUS.bit_length() - 1),
            -60,
        )
        spacing = Fraction(2) ** exponent
        grid = cls(
            exponent=exponent,
            threshold=math.floor(Fraction(threshold) / spacing),
            radius=min(math.floor(Fraction(radius) / spacing), LARGEST_RADIUS),
            centers=tuple(round(Fraction(center) / spacing) for center in centers),
            power=power,
        )
        if grid.radius < 2**_COARSEST_THRESHOLD_BITS:
            raise InputError("radius is too small beside threshold; raise radius or lower threshold")
        if grid.threshold < 2**_COARSEST_THRESHOLD_BITS:
            raise InputError(
                "threshold is too small beside radius and the weights of all users; "
                "raise threshold, or lower radius or record_cap"
            )
        return grid

    def center(self, column: int) -> int:
        return self.centers[column] if self.centers else 0

    def influence(self, weight: int) -> int:
        """The most that a user of this weight, or of any smaller one, can add to the gradient."""
        return influence_bound(weight, self.threshold, self.power)


def depth_of(grid: LocationGrid, epsilon: Fraction, *, n_users: int | None, cap: int, equal: bool) -> int:
    """How many shells are told apart: the rest of the grid then has probability of the order of e^-40.

    Fewer would make the answer a guess, so an epsilon that needs more than can be computed is refused.
    """
    wanted = math.ceil(2.0 / float(epsilon) * (math.log(2 * grid.radius + 1) + _LOST_MASS))
    # The best grid point need not have score 0: next to the location |G| can be half of all weight.
    users = MOST_PLANNED_USERS if n_users is None else n_users
    wanted += 1 + users * min(cap, _HEAVIEST_PLANNED) // grid.influence(cap)
    # A public number of users bounds every score: when all may change, every point can be the answer.
    wanted = max(1, wanted if n_users is None else min(wanted, n_users))
    if wanted > (LARGEST_DEPTH if equal or n_users is None else LARGEST_UNEQUAL_DEPTH):
        raise InputError("epsilon is too small for mechanism 'exact' here; raise epsilon, or use per='user'")
    return wanted
