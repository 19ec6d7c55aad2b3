"""Passes over parts that are not made twice for one release."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

from hubermean.user_table import PrivateTable, UserTable

T = TypeVar("T")


def asked_once(table: PrivateTable) -> PrivateTable:
    """The same users; in parts, a question that was asked before has its answer at hand."""
    return table if isinstance(table, UserTable) else AskedOnce(table)


class AskedOnce:
    """Keeps what parts answered, by what they were asked; private, and gone with the law that asked."""

    def __init__(self, table: PrivateTable) -> None:
        self._table = table
        self._answers: dict[bytes, list[Any]] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        return self._table.columns

    @property
    def n_users(self) -> int:
        return self._table.n_users

    @property
    def limits(self) -> tuple[Fraction, ...]:
        return self._table.limits

    @property
    def held_up_to(self) -> int | None:
        return self._table.held_up_to

    def each_part(self, look: Callable[[UserTable], T]) -> list[T]:
        asked = pickle.dumps(look)
        if asked not in self._answers:
            self._answers[asked] = self._table.each_part(look)
        return self._answers[asked]

    def collected(self) -> UserTable:
        return self._table.collected()
