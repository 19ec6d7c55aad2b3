"""Noise for releases: exact integer samplers (OpenDP's and those of this package), fed by the operating system."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np

from hubermean.noise.batch import LARGEST_SCALE, Kind, sample_many
from hubermean.noise.exponential_mechanism import (
    IntArray,
    permute_and_flip,
    sample_exponential_mechanism,
    uniform_below,
)

BATCH_SIZE = 1_000
"""From this many samples on, `sample_many` is used: OpenDP would take ten milliseconds or more."""


class SystemNoise:
    """Exact discrete Laplace and Gaussian noise, and exact selection.

    **Formal guarantees**
    - Samples follow the stated distribution exactly: small batches by Canonne, Kamath & Steinke (2020), algorithms 2
      and 3, as implemented by OpenDP in arbitrary-precision rationals, large batches by `sample_many`; both up to
      saturation at 64 bits, with probability below e^-8000.
    - Selections follow their distribution exactly (`noise.exponential_mechanism`).
    - The operating system's entropy is the only source of randomness; there is no seed.
    """

    secure = True

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        return self._sample("laplace", scale, size)

    def discrete_gaussian(self, stddev: float, size: int) -> list[int]:
        return self._sample("gaussian", stddev, size)

    def below(self, limit: int) -> int:
        return uniform_below(os.urandom, limit)

    def choose(self, costs: IntArray, sizes: IntArray, rate: Fraction) -> int:
        return sample_exponential_mechanism(os.urandom, costs, sizes, rate)

    def permute_and_flip(self, costs: IntArray, rate: Fraction) -> int:
        return permute_and_flip(os.urandom, costs, rate)

    def _sample(self, kind: Kind, scale: float, size: int) -> list[int]:
        if not (math.isfinite(scale) and 0 < scale <= LARGEST_SCALE):
            raise ValueError("a noise scale must lie in (0, 2^50] grid units; choose a coarser grid")
        if size >= BATCH_SIZE:
            together: list[int] = sample_many(os.urandom, kind, scale, size).tolist()
            return together
        # Imported on use and in parts: OpenDP's prelude takes four times as long to load.
        from opendp import domains, measurements, metrics, mod

        mod.enable_features("contrib")
        integers = domains.vector_domain(domains.atom_domain(T="i64"))
        if kind == "laplace":
            measurement = measurements.make_laplace(integers, metrics.l1_distance(T="i64"), scale)
        else:
            measurement = measurements.make_gaussian(integers, metrics.l2_distance(T="f64"), scale)
        draws: list[int] = measurement(np.zeros(size, dtype=np.int64))
        return draws
