"""Users on many machines, played by one: a table in parts through which nothing passes but pickles; no test here."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

import numpy as np

from hubermean.user_table import UserTable

T = TypeVar("T")


class PartedUsers:
    """A `PrivateTable` made of parts. Counts the passes and notes the largest answer of a part, in bytes."""

    def __init__(self, parts: Sequence[UserTable], whole: UserTable) -> None:
        self.parts, self.whole = list(parts), whole
        self.passes, self.largest_answer = 0, 0

    @property
    def columns(self) -> tuple[str, ...]:
        return self.whole.columns

    @property
    def limits(self) -> tuple[Fraction, ...]:
        return self.whole.limits

    @property
    def n_users(self) -> int:
        return self.whole.n_users

    def each_part(self, look: Callable[[UserTable], T]) -> list[T]:
        self.passes += 1
        sent = pickle.dumps(look)
        answers = []
        for part in self.parts:
            answer = pickle.dumps(pickle.loads(sent)(part))
            self.largest_answer = max(self.largest_answer, len(answer))
            answers.append(pickle.loads(answer))
        self.parts.reverse()  # the order of parts means nothing
        return answers

    def collected(self) -> UserTable:
        return self.whole


def parted(table: UserTable, n_parts: int, seed: int = 0) -> PartedUsers:
    """The users of a table, shuffled into parts of unequal sizes, the first of several empty."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(table.n_users)
    cuts = np.sort((table.n_users * rng.random(n_parts - 1) ** 2).astype(np.int64))
    cuts[:1] = 0
    whole = table.taken(np.arange(table.n_users))  # the same numbers as in the parts, to the last bit
    return PartedUsers([table.taken(positions) for positions in np.split(order, cuts)], whole)
