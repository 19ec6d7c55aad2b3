"""Chains of neighbours between two very different data sets.

What tells the ends of a chain apart must show at one of its links. A mechanism that decides by a limit of its own - a
number of usable users, a spread, a total - jumps somewhere on the way; bisection finds the link without being told
the limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator

from hubermean.auditing.worlds import SHAPES, Floats, Integers, Pair, Scene, User, pair_of
from hubermean.laws import Law
from hubermean.relations import Neighbors
from hubermean.user_table import UserTable

# Ends that differ in what a limit may be about: usable users, spread, place; then any two.
_ENDS = (("cluster", "alone"), ("cluster", "opposites"), ("tails", "alone"), ("cluster", "majority"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """Data set k has the first k users of `there` and the others of `here`; under `add-remove`, only the former."""

    shape: str
    here: tuple[Floats, Integers] | None
    there: tuple[Floats, Integers]

    def __len__(self) -> int:
        return len(self.there[1])

    def table(self, k: int) -> UserTable:
        return UserTable.from_means(*self._users(k, k))

    def link(self, k: int) -> Pair:
        """Data set k against data set k + 1."""
        means, records = self._users(k, k + 1)
        before = None if self.here is None else _user(self.here, k)
        return Pair(shape=self.shape, means=means, records=records, before=before, after=_user(self.there, k))

    def _users(self, upto: int, since: int) -> tuple[Floats, Integers]:
        means, records = self.there[0][:upto], self.there[1][:upto]
        if self.here is None:
            return means, records
        return np.vstack([means, self.here[0][since:]]), np.append(records, self.here[1][since:])


def chain_of(number: int, scene: Scene, rng: Generator) -> Chain:
    """A chain between two shapes, those of `_ENDS` first."""
    shapes = _ENDS[number] if number < len(_ENDS) else rng.choice(SHAPES, 2)
    here, there = (pair_of(str(shape), scene, rng) for shape in shapes)
    shape = f"{there.shape} after {here.shape}"
    if scene.neighbors is Neighbors.ADD_REMOVE:
        # Some users of each: first those of one end, then those of the other.
        means = np.vstack([here.means[::2], there.means[::2]])
        return Chain(shape=shape, here=None, there=(means, np.append(here.records[::2], there.records[::2])))
    records = here.records if scene.neighbors is Neighbors.REPLACE_VALUES else there.records
    return Chain(shape=shape, here=(here.means, here.records), there=(there.means, records))


class Scale(Protocol):
    """Makes the law of a data set, and says how far those of two are apart that so many users tell apart."""

    def law(self, table: UserTable) -> Law | None: ...

    def apart(self, first: Law | None, second: Law | None, users: int) -> float: ...


def weakest_link(chain: Chain, scale: Scale, rng: Generator) -> Pair | None:
    """A link where most is given away, by bisection."""
    low, high = 0, len(chain)
    if high == 0:
        return None
    first, last = scale.law(chain.table(low)), scale.law(chain.table(high))
    while high - low > 1:
        middle = (low + high) // 2
        between = scale.law(chain.table(middle))
        left, right = scale.apart(first, between, middle - low), scale.apart(between, last, high - middle)
        if left > right or (left == right and rng.random() < 0.5):
            high, last = middle, between
        else:
            low, first = middle, between
    return chain.link(low)


def _user(users: tuple[Floats, Integers], number: int) -> User:
    means, records = users
    return User(mean=tuple(means[number].tolist()), records=int(records[number]))
