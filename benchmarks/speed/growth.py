"""How fast something grows: the exponent p of the best fit of c * size^p."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def fitted_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """By least squares on logarithms; not a number where nothing can be said."""
    usable = [(size, value) for size, value in zip(sizes, values, strict=True) if value > 0]
    if len({size for size, _ in usable}) < 2:
        return math.nan
    x, y = np.log(np.array(usable)).T
    x -= x.mean()
    return float(x @ y / (x @ x))


def last_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Between the two largest sizes, where what does not grow weighs least."""
    largest = sorted(zip(sizes, values, strict=True))[-2:]
    return fitted_exponent([size for size, _ in largest], [value for _, value in largest])
