"""Requests, prepared mechanisms and small datasets for the tests of `winsorized`; no test here."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from helpers.neighbors import Records, table_of
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.winsorized.mechanism import PreparedWinsorized, Winsorized
from hubermean.types.request import Neighbors, PublicFacts, Request

NAN = float("nan")
REPLACE = (Neighbors.REPLACE_USER, Neighbors.REPLACE_VALUES)
Dataset = tuple[Records, ...]
CONTENTS: list[Records] = [
    *((value,) for value in (-50.0, -1.0, 0.3, 2.9, 50.0, NAN)),
    *((-50.0, -50.0), (50.0, 50.0), (0.3, NAN), (NAN, NAN)),
    *((50.0,) * 5, (-50.0,) * 5),
]


def request(
    relation: Neighbors, per: str = "user", *, epsilon: float = 0.7, delta: float = 0.0, columns: int = 1
) -> Request:
    names = tuple(f"c{column}" for column in range(columns))
    return Request(columns=names, epsilon=epsilon, delta=delta, neighbors=relation, per=per)  # type: ignore[arg-type]


def prepared(
    table: UserTable, asked: Request, *, tau: float = 1.0, radius: float = 3.0, **options: Any
) -> PreparedWinsorized:
    mechanism = Winsorized(threshold=tau, radius=radius, **options)
    return mechanism.prepare(asked, PublicFacts.of(table, asked.neighbors))


@functools.cache
def public_run(asked: Request, n_users: int, records: tuple[int, ...] | None) -> PreparedWinsorized:
    """What is decided from public facts, once for all data sets that share them."""
    table = table_of([(0.0,) * count for count in (records or (1,) * n_users)])
    return prepared(table, asked)


def public_facts(table: UserTable, asked: Request) -> tuple[Request, int, tuple[int, ...] | None]:
    facts = PublicFacts.of(table, asked.neighbors)
    assert facts.n_users is not None
    counts = facts.record_counts
    return asked, facts.n_users, None if counts is None else tuple(sorted(counts.tolist()))


def iterate_neighbors(dataset: Dataset, relation: Neighbors) -> Iterator[Dataset]:
    """Every neighbor in which the last user differs; users have no order, so rotate to reach the others."""
    for turn in range(len(dataset)):
        *others, last = dataset[turn:] + dataset[:turn]
        for content in CONTENTS:
            if relation is Neighbors.REPLACE_USER or len(content) == len(last):
                yield (*others, content)
