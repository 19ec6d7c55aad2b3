"""Small helpers that build data sets for tests; no test here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from hubermean.data.encoding import BINARY, encode_binary
from hubermean.data.fixed_point import ExactIntegers, ExactSums
from hubermean.data.user_table import UserTable
from hubermean.types.request import Neighbors

Records = Sequence[float]


def table_of(users: Iterable[Records]) -> UserTable:
    """A one-column user table made in Python integers, independent of any engine; NaN records are unusable."""
    users = [list(records) for records in users]
    highs, lows, counts = [], [], []
    for records in users:
        usable = np.array([record for record in records if np.isfinite(record)], dtype=np.float64)
        high, low = encode_binary(usable)
        highs.append(sum(high.tolist()))
        lows.append(sum(low.tolist()))
        counts.append(len(usable))
    sums = ExactSums(
        encoding=BINARY, high=ExactIntegers.from_integers(highs), low=ExactIntegers.from_integers(lows)
    )
    return UserTable(
        columns=("v",),
        sums=(sums,),
        counts=np.array(counts, dtype=np.int64),
        records=np.array([len(records) for records in users], dtype=np.int64),
    )


def exact_sum(values: Iterable[float]) -> Fraction:
    """The sum of finite floats as ingest must see it: each rounded half to even at 2^-20 and 2^-60."""
    unit = Fraction(1, 2**60)
    limit = Fraction(8 * 10**12)
    total = Fraction(0)
    for value in values:
        clamped = max(min(Fraction(value), limit), -limit)
        high = Fraction(round(clamped * 2**20), 2**20)
        total += high + round((clamped - high) / unit) * unit
    return total


def sums_by_size(table: UserTable, column: int = 0) -> list[tuple[Fraction, int, int]]:
    """The contents of a table in an order of its own, for comparison."""
    sums = table.sums[column]
    rows = zip(range(table.n_users), table.counts.tolist(), table.records.tolist(), strict=True)
    return sorted((sums.fraction(position), count, records) for position, count, records in rows)


def iterate_neighbors(
    dataset: tuple[Records, ...], relation: Neighbors, contents: Sequence[Records]
) -> Iterator[tuple[Records, ...]]:
    """Every neighbor in which one user has other contents; users have no order, so rotate to reach them all."""
    for turn in range(len(dataset)):
        *others, last = dataset[turn:] + dataset[:turn]
        match relation:
            case Neighbors.ADD_REMOVE:
                yield tuple(others)
            case Neighbors.REPLACE_USER:
                yield from ((*others, content) for content in contents)
            case Neighbors.REPLACE_VALUES:
                yield from ((*others, content) for content in contents if len(content) == len(last))
