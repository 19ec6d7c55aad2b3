"""Noise sources that tell whether a release drew noise, or that draw none so that the answer is the exact one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np

from hubermean import _api as api
from hubermean.noise.seeded import InsecureSeededNoise


class CountedNoise:
    """Seeded noise, so that a finding can be replayed, with the number of draws."""

    secure = True

    def __init__(self, seed: int = 0) -> None:
        self._source = InsecureSeededNoise(seed)
        self.draws = 0

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        self.draws += size
        return self._source.discrete_laplace(scale, size)

    def discrete_gaussian(self, stddev: float, size: int) -> list[int]:
        self.draws += size
        return self._source.discrete_gaussian(stddev, size)

    def below(self, limit: int) -> int:
        self.draws += 1
        return self._source.below(limit)

    def choose(self, costs: Any, sizes: Any, rate: Fraction) -> int:
        self.draws += 1
        return self._source.choose(costs, sizes, rate)

    def permute_and_flip(self, costs: Any, rate: Fraction) -> int:
        self.draws += 1
        return self._source.permute_and_flip(costs, rate)


class NoNoise(CountedNoise):
    """Zeros, and the candidate in the middle of the best run: what would be released without privacy."""

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        self.draws += size
        return [0] * size

    def discrete_gaussian(self, stddev: float, size: int) -> list[int]:
        self.draws += size
        return [0] * size

    def below(self, limit: int) -> int:
        self.draws += 1
        return 0

    def choose(self, costs: Any, sizes: Any, rate: Fraction) -> int:
        self.draws += 1
        best = int(np.argmin(costs))
        return int(sizes[:best].sum()) + int(sizes[best]) // 2

    def permute_and_flip(self, costs: Any, rate: Fraction) -> int:
        self.draws += 1
        return int(np.argmin(costs))


@contextlib.contextmanager
def drawn_from(source: CountedNoise) -> Iterator[CountedNoise]:
    """Releases draw from `source` instead of the operating system."""
    with mock.patch.object(api, "SystemNoise", return_value=source):
        yield source
