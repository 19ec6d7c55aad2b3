"""What is known of float64: its constants, and a norm that neither over- nor underflows."""

from __future__ import annotations

import math

import numpy as np

from hubermean.location.rows import Floats

# Unit roundoff of float64, the smallest positive float64, and a factor that absorbs every second-order term
# and the rounding of scalar sums (proofs/huber-location.md, 3.1).
UNIT = 2.0**-53
TINY = 2.0**-1074
SLACK = 1.0 + 2.0**-20

# A square below 2**-1022 is lost, and with it a distance of at most this per square root of a column.
LOST_DISTANCE = 2.0**-510


def length(vector: Floats) -> float:
    """The Euclidean norm, scaled first: squares of numbers within range may be out of it (proof 3.1)."""
    largest = float(np.max(np.abs(vector), initial=0.0))
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(vector / largest))
