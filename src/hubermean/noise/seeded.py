"""Seeded noise for tests and simulations. It provides no privacy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hubermean.noise.exponential_mechanism import (
    IntArray,
    permute_and_flip,
    sample_exponential_mechanism,
    uniform_below,
)


class InsecureSeededNoise:
    """The same distributions up to floating point, reproducible and therefore not private.

    A release made with it carries the parameter `insecure_noise`.
    """

    secure = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        # The difference of two geometric variables is discrete Laplace.
        success = -np.expm1(-1.0 / scale)
        first = self._generator.geometric(success, size)
        second = self._generator.geometric(success, size)
        return [int(a) - int(b) for a, b in zip(first, second, strict=True)]

    def discrete_gaussian(self, stddev: float, size: int) -> list[int]:
        return [round(float(draw)) for draw in self._generator.normal(0.0, stddev, size)]

    def below(self, limit: int) -> int:
        return uniform_below(self._generator.bytes, limit)

    def choose(self, costs: IntArray, sizes: IntArray, rate: Fraction) -> int:
        return sample_exponential_mechanism(self._generator.bytes, costs, sizes, rate)

    def permute_and_flip(self, costs: IntArray, rate: Fraction) -> int:
        return permute_and_flip(self._generator.bytes, costs, rate)
