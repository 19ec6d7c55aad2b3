"""Noise for releases: exact integer samplers (OpenDP's and `selection`), fed by the operating system."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np

from hubermean.noise.selection import IntArray, exponential_choice, uniform_below

LARGEST_SCALE = 2.0**50
"""OpenDP returns noise in 64 bits and saturates; at this scale a draw saturates with probability e^-8192."""

_MOST_WORKERS = 8
_DRAWS_PER_WORKER = 2_000


class SystemNoise:
    """Exact discrete Laplace and Gaussian noise.

    Formal guarantees:
    - draws follow the stated law exactly (Canonne, Kamath & Steinke 2020, algorithms 2 and 3, as implemented
      by OpenDP in arbitrary-precision rationals), up to saturation at 64 bits with probability below e^-8000;
    - choices follow their law exactly (`selection`);
    - nothing but the operating system's entropy decides them; there is no seed.
    """

    secure = True

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        return self._draw("make_laplace", "l1_distance", "i64", scale, size)

    def discrete_gaussian(self, stddev: float, size: int) -> list[int]:
        return self._draw("make_gaussian", "l2_distance", "f64", stddev, size)

    def below(self, limit: int) -> int:
        return uniform_below(os.urandom, limit)

    def choose(self, costs: IntArray, sizes: IntArray, rate: Fraction) -> int:
        return exponential_choice(os.urandom, costs, sizes, rate)

    def _draw(self, constructor: str, metric: str, distance: str, scale: float, size: int) -> list[int]:
        if not (math.isfinite(scale) and 0 < scale <= LARGEST_SCALE):
            raise ValueError("a noise scale must lie in (0, 2^50] grid units; choose a coarser grid")
        # Imported when noise is drawn, and by parts: OpenDP's prelude takes four times as long to load.
        from opendp import domains, measurements, metrics, mod

        mod.enable_features("contrib")
        integers = domains.vector_domain(domains.atom_domain(T="i64"))

        def some(number: int) -> list[int]:
            measurement = getattr(measurements, constructor)(
                integers, getattr(metrics, metric)(T=distance), scale
            )
            draws: list[int] = measurement(np.zeros(number, dtype=np.int64))
            return draws

        workers = min(os.cpu_count() or 1, _MOST_WORKERS, size // _DRAWS_PER_WORKER)
        if workers <= 1:
            return some(size)
        # The sampler works outside of Python, so that several can do so at once.
        shares = [size // workers + (number < size % workers) for number in range(workers)]
        with ThreadPoolExecutor(workers) as pool:
            return [draw for draws in pool.map(some, shares) for draw in draws]
