"""Passes over parts that are not made twice for one release."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

from hubermean.user_table import PrivateTable, UserTable

T = TypeVar("T")
Look = Callable[[UserTable], Any]


def asked_once(table: PrivateTable) -> PrivateTable:
    """The same users; what was made of them before is at hand, and in parts the answer to what was asked before."""
    if isinstance(table, UserTable):
        return table.keeping()
    return table if isinstance(table, AskedOnce) else AskedOnce(table)


def each_part_at_once(table: PrivateTable, looks: Sequence[Look]) -> list[list[Any]]:
    """What every part answers to each of the questions; one pass at most."""
    if isinstance(table, AskedOnce):
        return table.answers_to(looks)
    parts = table.each_part(_Several(tuple(looks)))
    return [[part[place] for part in parts] for place in range(len(looks))]


class SameUsers:
    """The users of a table, of whom only the way to ask is another; a subclass says which."""

    def __init__(self, table: PrivateTable) -> None:
        self._table = table

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

    def collected(self) -> UserTable:
        return self._table.collected()


class AskedOnce(SameUsers):
    """Keeps what parts answered, by what they were asked; private, and gone with the law that asked."""

    def __init__(self, table: PrivateTable) -> None:
        super().__init__(table)
        self._answers: dict[bytes, list[Any]] = {}

    def each_part(self, look: Callable[[UserTable], T]) -> list[T]:
        (answers,) = self.answers_to([look])
        return answers

    def answers_to(self, looks: Sequence[Look]) -> list[list[Any]]:
        """What every part answers to each of the questions; one pass, if any is new."""
        asked = [pickle.dumps(look) for look in looks]
        new = {key: look for key, look in zip(asked, looks, strict=True) if key not in self._answers}
        if new:
            self._answers.update(zip(new, each_part_at_once(self._table, list(new.values())), strict=True))
        return [self._answers[key] for key in asked]


@dataclass(frozen=True, repr=False)
class _Several:
    """Several questions to a part."""

    looks: tuple[Look, ...]

    def __call__(self, part: UserTable) -> list[Any]:
        return [look(part) for look in self.looks]
