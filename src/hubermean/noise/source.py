"""What a mechanism may ask of randomness."""

from __future__ import annotations

from typing import Protocol


class NoiseSource(Protocol):
    """Integer noise on a public grid. Scales are in grid units and public; draws are independent.

    `discrete_laplace`: P(k) proportional to exp(-|k| / scale) on the integers.
    `discrete_gaussian`: P(k) proportional to exp(-k^2 / (2 stddev^2)) on the integers.
    """

    secure: bool

    def discrete_laplace(self, scale: float, size: int) -> list[int]: ...

    def discrete_gaussian(self, stddev: float, size: int) -> list[int]: ...
