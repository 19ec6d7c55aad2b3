"""Users in parts, as a cluster would hold them, but all on this machine: for tests of laws over parts."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from hubermean.data.user_table import SumsFromMeans, UserTable
from hubermean.distributions.output import (
    ExponentialMechanism,
    Independent,
    NoisySum,
    NoisyTest,
    PermuteAndFlip,
    Staged,
    Uniform,
)

T = TypeVar("T")


@dataclass
class PartedTable:
    """Parts of a table; questions and answers are pickled, passes counted, the largest answer kept in mind.

    Only with a `whole` may users be brought together.
    """

    parts: Sequence[UserTable]
    whole: UserTable | None = None
    passes: int = 0
    largest_answer: int = 0
    largest_question: int = 0
    max_local_users: int | None = 0

    @classmethod
    def of(cls, table: UserTable, number: int, rng: Generator) -> PartedTable:
        """Users in random parts of very unequal sizes; from the third on, one of them is empty."""
        order = rng.permutation(table.n_users)
        cuts = np.sort((table.n_users * rng.random(max(number - 1, 0)) ** 3).astype(np.int64))
        if number > 2:
            cuts[-1] = cuts[-2]
        return cls([_some(table, positions) for positions in np.split(order, cuts)])

    @property
    def columns(self) -> tuple[str, ...]:
        return self.parts[0].columns

    @property
    def n_users(self) -> int:
        return sum(part.n_users for part in self.parts)

    @property
    def limits(self) -> tuple[Fraction, ...]:
        return self.parts[0].limits

    def map_partitions(self, look: Callable[[UserTable], T]) -> list[T]:
        self.passes += 1
        question = pickle.dumps(look)
        self.largest_question = max(self.largest_question, len(question))
        answers = [pickle.dumps(pickle.loads(question)(part)) for part in self.parts]
        self.largest_answer = max(self.largest_answer, *map(len, answers))
        self.parts = self.parts[::-1]  # the order of parts means nothing
        return [pickle.loads(answer) for answer in answers]

    def collect(self) -> UserTable:
        assert self.whole is not None, "users were to stay in their parts"
        return self.whole


def partitioned(table: UserTable, number: int) -> PartedTable:
    """Users in parts that may be brought together: sums on either side, the same numbers to the last bit."""
    whole = table.take(np.arange(table.n_users))
    made = PartedTable.of(whole, number, np.random.default_rng(0))
    made.whole = whole
    return made


def _some(table: UserTable, positions: NDArray[np.int64]) -> UserTable:
    """Some users, held as they are in the table: means or sums, which differ in the last bits of floats."""
    if isinstance(table.sums, SumsFromMeans):
        return UserTable.from_means(table.sums.array[positions], table.records[positions])
    return table.take(positions)


def populations(size: int, rng: Generator) -> dict[str, NDArray[np.float64]]:
    """Means that ask different things of a search: smooth, tied, clustered, far away, at the brink of a threshold."""
    return {
        "normal": rng.normal(size=size),
        "all tie": np.full(size, 3.25),
        "within a grid unit": 1.0 + rng.normal(size=size) * 2.0**-50,
        "two far clusters": rng.choice([-1e4, 1e4], size) + rng.normal(size=size) * 1e-3,
        "uniform": rng.uniform(-1e3, 1e3, size),
        "heavy tails": rng.standard_cauchy(size),
        "most tie": np.where(rng.random(size) < 0.95, 1.5, rng.normal(size=size) * 10),
        "beyond the radius": 1e9 + rng.normal(size=size),
        "at the brink": rng.choice([-1.0, 1.0], size) * (2.0 + rng.random(size) * 1e-6),
        "few values": rng.integers(-3, 4, size) * 0.5,
    }


POPULATIONS = tuple(populations(1, np.random.default_rng(0)))


def record_counts(size: int, rng: Generator) -> NDArray[np.int64]:
    """Few records for most users and many for some; one user in ten has none."""
    return np.where(rng.random(size) < 0.1, 0, np.minimum(rng.zipf(1.7, size), 10**6))


def plain(distribution: Any) -> Any:
    """All numbers of a law, for comparing two of them; of a staged one, those of its first draw."""
    match distribution:
        case NoisySum():
            return list(distribution.position), distribution.distributions()
        case ExponentialMechanism():
            return distribution.costs.tolist(), distribution.sizes.tolist(), distribution.rate
        case PermuteAndFlip():
            return distribution.costs.tolist(), distribution.rate
        case Independent():
            return [plain(part) for part in distribution.parts]
        case Staged():
            return plain(distribution.first)
        case Uniform():
            return distribution.limit
        case NoisyTest():
            return distribution.passes, distribution.bits, plain(distribution.inner)
    raise TypeError(type(distribution))
