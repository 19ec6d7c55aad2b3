"""A noise law with its public scale, on a public grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hubermean.noise.source import NoiseSource


@dataclass(frozen=True, kw_only=True)
class NoiseLaw:
    """Discrete Laplace or Gaussian noise; `scale` is in grid units (the standard deviation for a Gaussian)."""

    kind: Literal["laplace", "gaussian"]
    scale: float

    @property
    def name(self) -> str:
        return f"discrete {self.kind.capitalize()}"

    @property
    def stddev(self) -> float:
        return self.scale * math.sqrt(2.0) if self.kind == "laplace" else self.scale

    def draw(self, source: NoiseSource, size: int) -> list[int]:
        if self.kind == "laplace":
            return source.discrete_laplace(self.scale, size)
        return source.discrete_gaussian(self.scale, size)

    def bound(self, *, tail: float) -> float:
        """A bound that |noise| exceeds with probability at most `tail`."""
        if self.kind == "laplace":
            # P(|X| > t) = 2 r^(t + 1) / (1 + r) for whole t >= 0, with r = exp(-1 / scale).
            return self.scale * math.log(2.0 / (tail * (1.0 + math.exp(-1.0 / self.scale))))
        # Sub-Gaussian with the same variance (Canonne, Kamath & Steinke 2020, Cor. 17); the normal quantile
        # is exact up to one grid cell.
        from statistics import NormalDist

        return -self.scale * NormalDist().inv_cdf(tail / 2.0) + 1.0
