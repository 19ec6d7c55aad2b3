"""The interface between distributions and randomness."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class NoiseSource(Protocol):
    """Integer noise on a public grid. Scales are in grid units; samples are independent.

    A scale may be private, as with smooth sensitivity, so implementations must not store it.

    `discrete_laplace`: P(k) proportional to exp(-|k| / scale) on the integers.
    `discrete_gaussian`: P(k) proportional to exp(-k^2 / (2 stddev^2)) on the integers.
    `below`: a uniform integer in [0, limit).
    `choose`: a candidate with probability proportional to exp(-rate * cost); see `sample_exponential_mechanism`.
    `permute_and_flip`: a candidate by permute-and-flip; see `noise.exponential_mechanism.permute_and_flip`.
    """

    secure: bool

    def discrete_laplace(self, scale: float, size: int) -> list[int]: ...

    def discrete_gaussian(self, stddev: float, size: int) -> list[int]: ...

    def below(self, limit: int) -> int: ...

    def choose(self, costs: NDArray[np.int64], sizes: NDArray[np.int64], rate: Fraction) -> int: ...

    def permute_and_flip(self, costs: NDArray[np.int64], rate: Fraction) -> int: ...
