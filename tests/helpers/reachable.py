"""Which answers a data set can lead to: find noise that leads to a wanted sample, and release with that very noise.

A floating-point attack (Mironov 2012) needs an answer that one data set can lead to and its neighbor cannot. To show
that there is none: take an answer of the first, find noise with which the second leads to the same sample, run both
through the release path with a noise source that follows the script, and compare all bits.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from hubermean.distributions.output import (
    ExponentialMechanism,
    Independent,
    NoisySum,
    NoisyTest,
    PermuteAndFlip,
    SelectedPartitions,
    Staged,
    Uniform,
)
from hubermean.errors import NotReleased
from hubermean.types.release import Release
from hubermean.types.release_table import ReleaseTable

LARGEST_NOISE = 2**63 - 1
"""The sampler's integers have 64 bits; each of them has a positive probability at every scale."""


class UnreachableError(Exception):
    """No noise leads there. `by_delta` where that is no number but a decision which delta pays for."""

    def __init__(self, what: str, *, by_delta: bool = False) -> None:
        super().__init__(what)
        self.by_delta = by_delta


class ScriptedNoise:
    """A source that gives what it was told to give, in order, and nothing twice."""

    secure = False

    def __init__(self, script: Iterable[tuple[str, int]]) -> None:
        self._script = iter(script)

    def _next(self, kind: str) -> int:
        found, number = next(self._script)
        assert found == kind, f"{kind} was asked for, not {found}"
        return number

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        return [self._next("noise") for _ in range(size)]

    def discrete_gaussian(self, stddev: float, size: int) -> list[int]:
        return [self._next("noise") for _ in range(size)]

    def below(self, limit: int) -> int:
        number = self._next("below")
        assert 0 <= number < limit
        return number

    def choose(self, costs: Any, sizes: Any, rate: Fraction) -> int:
        number = self._next("choice")
        assert 0 <= number < int(sizes.sum())
        return number

    def permute_and_flip(self, costs: Any, rate: Any) -> int:
        number = self._next("choice")
        assert 0 <= number < len(costs)
        return number

    def spent(self) -> bool:
        return next(self._script, None) is None


def some_sample(distribution: Any, rng: random.Random) -> Any:
    """A sample that the law can give: likely ones, ones far out, and ones in between."""
    match distribution:
        case NoisySum():
            return [
                int(place) + _some_noise(own.scale, rng)
                for place, own in zip(distribution.position, distribution.distributions(), strict=True)
            ]
        case ExponentialMechanism():
            if rng.random() < 0.6:  # one of the likeliest
                run = int(rng.choice(np.flatnonzero(distribution.costs == distribution.costs.min()).tolist()))
                return int(distribution.sizes[:run].sum()) + rng.randrange(int(distribution.sizes[run]))
            last = int(distribution.sizes.sum()) - 1
            # Both ends too, so that one candidate more or less would be seen.
            return rng.choice((0, last, rng.randint(0, last)))
        case PermuteAndFlip():
            best = int(rng.choice(np.flatnonzero(distribution.costs == distribution.costs.min()).tolist()))
            last = len(distribution.costs) - 1
            return best if rng.random() < 0.6 else rng.choice((0, last, rng.randint(0, last)))
        case Uniform():
            return rng.randrange(distribution.limit)
        case Independent():
            return tuple(some_sample(part, rng) for part in distribution.parts)
        case Staged():
            first = some_sample(distribution.first, rng)
            return first, some_sample(distribution.then(first), rng)
        case NoisyTest():
            certain = distribution.passes == 1 << distribution.bits
            return (
                some_sample(distribution.inner, rng)
                if certain or (distribution.passes and rng.random() < 0.9)
                else None
            )
        case SelectedPartitions():
            whole = 1 << distribution.bits
            items = sorted(distribution.chances.items())
            return tuple(key for key, chance in items if chance and (chance == whole or rng.random() < 0.9))
    return distribution.some_sample(rng)


def _some_noise(scale: float, rng: random.Random) -> int:
    match rng.randrange(4):
        case 0:
            return rng.randint(-2, 2)
        case 1:
            return round(rng.uniform(-50.0, 50.0) * scale)
        case _:
            return round(scale * rng.choice((-1, 1)) * rng.expovariate(1.0))


def noise_toward(distribution: Any, sample: Any) -> list[tuple[str, int]]:
    """The noise with which a law gives this sample.

    Raises:
        UnreachableError: there is none.
    """
    match distribution:
        case NoisySum():
            noise = [wanted - int(place) for place, wanted in zip(distribution.position, sample, strict=True)]
            _must(all(abs(one) <= LARGEST_NOISE for one in noise), "noise beyond 64 bits")
            return [("noise", one) for one in noise]
        case ExponentialMechanism():
            _must(0 <= sample < int(distribution.sizes.sum()), "a candidate that is not there")
            return [("choice", sample)]
        case PermuteAndFlip():
            _must(0 <= sample < len(distribution.costs), "a candidate that is not there")
            return [("choice", sample)]
        case Uniform():
            _must(0 <= sample < distribution.limit, "a number that is not there")
            return [("below", sample)]
        case Independent():
            return [
                step
                for part, own in zip(distribution.parts, sample, strict=True)
                for step in noise_toward(part, own)
            ]
        case Staged():
            first, second = sample
            return [*noise_toward(distribution.first, first), *noise_toward(distribution.then(first), second)]
        case NoisyTest():
            if sample is None:
                _must(distribution.passes < 1 << distribution.bits, "a refusal", by_delta=True)
                return [("below", (1 << distribution.bits) - 1)]
            _must(distribution.passes > 0, "a pass", by_delta=True)
            return [("below", 0), *noise_toward(distribution.inner, sample)]
        case SelectedPartitions():
            return _keys_toward(distribution, sample)
    found: list[tuple[str, int]] = distribution.noise_toward(sample)
    return found


def _keys_toward(distribution: SelectedPartitions, keys: tuple[Any, ...]) -> list[tuple[str, int]]:
    whole = 1 << distribution.bits
    _must(
        set(keys) <= {key for key, chance in distribution.chances.items() if chance}, "a group", by_delta=True
    )
    steps = []
    for key in sorted(distribution.chances):
        chance = distribution.chances[key]
        _must(key in keys or chance < whole, "a group that is left out", by_delta=True)
        if chance < whole:
            steps.append(("below", 0 if key in keys else whole - 1))
    return steps


def _must(holds: bool, what: str, *, by_delta: bool = False) -> None:
    if not holds:
        raise UnreachableError(what, by_delta=by_delta)


def shown(release: Any) -> tuple[Any, ...]:
    """All that a release shows: the bits of its values, and every other number to the last digit."""
    try:
        made = release()
    except NotReleased as refusal:
        return ("not released", str(refusal))
    if isinstance(made, ReleaseTable):
        return made.values.tobytes(), made.to_json()
    assert isinstance(made, Release)
    return bits(made.values), made.to_json()


def bits(values: Iterable[float]) -> tuple[bytes, ...]:
    """The 64 bits of each float: 0.0 and -0.0 differ."""
    return tuple(struct.pack(">d", value) for value in values)
