"""Users who all lie within the threshold: of their loss nothing is needed but what they weigh and add up to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubermean.location.floats import SLACK, TINY, UNIT, length
from hubermean.location.rows import Floats


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Core:
    """Some of the users; private.

    Attributes:
        weight: W = sum a_i, exactly.
        total: S = sum a_i y_i, as computed.
        error: at least |total - S|.
        threshold: T.
    """

    weight: float
    total: Floats
    error: float
    threshold: float

    def force(self, centre: Floats) -> Floats:
        """S - W c: minus the gradient of their loss where all lie within the threshold of the centre."""
        return np.asarray(self.total - self.weight * centre)

    def force_error(self, centre: Floats) -> float:
        """At least |force - (S - W c)|: the error of the sum, and two roundings of a difference of both."""
        sizes = self.weight * length(centre) + length(self.total)
        return SLACK * (self.error + 2.0 * UNIT * sizes) + 2.0 * centre.size * TINY
