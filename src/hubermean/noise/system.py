"""Noise for releases: exact integer samplers (OpenDP's, `many` and `selection`), fed by the operating system."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np

from hubermean.noise.many import LARGEST_SCALE, Kind, many_draws
from hubermean.noise.selection import IntArray, exponential_choice, permute_and_flip, uniform_below

MANY = 1_000
"""From so many draws on they are made together: one after another they would take ten milliseconds and more."""


class SystemNoise:
    """Exact discrete Laplace and Gaussian noise.

    Formal guarantees:
    - draws follow the stated law exactly: few of them by Canonne, Kamath & Steinke (2020), algorithms 2 and 3, as
      implemented by OpenDP in arbitrary-precision rationals, many of them by `many_draws`; both up to saturation
      at 64 bits with probability below e^-8000;
    - choices follow their law exactly (`selection`);
    - nothing but the operating system's entropy decides them; there is no seed.
    """

    secure = True

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        return self._draw("laplace", scale, size)

    def discrete_gaussian(self, stddev: float, size: int) -> list[int]:
        return self._draw("gaussian", stddev, size)

    def below(self, limit: int) -> int:
        return uniform_below(os.urandom, limit)

    def choose(self, costs: IntArray, sizes: IntArray, rate: Fraction) -> int:
        return exponential_choice(os.urandom, costs, sizes, rate)

    def permute_and_flip(self, costs: IntArray, rate: Fraction) -> int:
        return permute_and_flip(os.urandom, costs, rate)

    def _draw(self, kind: Kind, scale: float, size: int) -> list[int]:
        if not (math.isfinite(scale) and 0 < scale <= LARGEST_SCALE):
            raise ValueError("a noise scale must lie in (0, 2^50] grid units; choose a coarser grid")
        if size >= MANY:
            together: list[int] = many_draws(os.urandom, kind, scale, size).tolist()
            return together
        # Imported when noise is drawn, and by parts: OpenDP's prelude takes four times as long to load.
        from opendp import domains, measurements, metrics, mod

        mod.enable_features("contrib")
        integers = domains.vector_domain(domains.atom_domain(T="i64"))
        if kind == "laplace":
            measurement = measurements.make_laplace(integers, metrics.l1_distance(T="i64"), scale)
        else:
            measurement = measurements.make_gaussian(integers, metrics.l2_distance(T="f64"), scale)
        draws: list[int] = measurement(np.zeros(size, dtype=np.int64))
        return draws
