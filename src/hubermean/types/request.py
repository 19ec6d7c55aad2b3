"""What a caller asks for: the neighbor relation, the request, and what is public about the data.

A neighbor relation is the change of the data that a release hides; it decides what is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from itertools import repeat
from typing import Literal, NamedTuple, Self, get_args

from hubermean.accounting.budget import checked_budget
from hubermean.data.arrays import IntArray
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.errors import InputError, parameter


class NamedRelation(Enum):
    """A neighbor relation that callers name."""

    @classmethod
    def parse(cls, name: str | Self) -> Self:
        """Return the relation of a name; InputError if there is none."""
        try:
            return cls(name)
        except ValueError:
            known = ", ".join(repr(relation.value) for relation in cls)
            raise InputError(f"{parameter('neighbors')} must be one of {known}, not {name!r}") from None


class Neighbors(NamedRelation):
    """A neighbor relation between data sets.

    >>> Neighbors.parse("add-remove").users_are_public
    False
    >>> Neighbors.REPLACE_VALUES.counts_are_public
    True
    """

    REPLACE_USER = "replace-user"
    REPLACE_VALUES = "replace-values"
    ADD_REMOVE = "add-remove"

    @property
    def users_are_public(self) -> bool:
        """Whether the number of users is public: all neighbors have the same."""
        return self is not Neighbors.ADD_REMOVE

    @property
    def counts_are_public(self) -> bool:
        """Whether the number of records of each user is public."""
        return self is Neighbors.REPLACE_VALUES

    @property
    def change(self) -> str:
        """The change that a release hides, as the subject of a sentence."""
        return {
            Neighbors.ADD_REMOVE: "Adding or removing all of one user's records",
            Neighbors.REPLACE_USER: "Replacing all of one user's records by any others, more or fewer,",
            Neighbors.REPLACE_VALUES: "Replacing all of one user's values by any others",
        }[self]

    @property
    def grouped_change(self) -> str:
        """The change that a table of groups hides: the groups of a user are hidden along with the records."""
        return {
            Neighbors.ADD_REMOVE: "Adding or removing all of one user's records in all groups",
            Neighbors.REPLACE_USER: "Replacing all of one user's records by any others, more or fewer, in any groups,",
            Neighbors.REPLACE_VALUES: "Replacing all of one user's values by any others in any groups",
        }[self]

    @property
    def public_numbers(self) -> str:
        """What a release does not hide, as a sentence; empty if there is nothing."""
        return {
            Neighbors.ADD_REMOVE: "",
            Neighbors.REPLACE_USER: "The number of users is public.",
            Neighbors.REPLACE_VALUES: "The number of users and the number of records of each user are public.",
        }[self]


DEFAULT_NEIGHBORS = "add-remove"
"""The default relation of releases, plans, audits and budgets."""


Per = Literal["record", "user"]


PLANNED_USERS = 3_000
"""The number of users that predictions assume where it is private and no estimate is given."""


class Column(NamedTuple):
    """A value column: its name, and the largest magnitude its encoding can hold."""

    name: str
    limit: Fraction


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be released, with which guarantee. Public.

    Attributes:
        columns: names of the value columns.
        epsilon, delta: the privacy budget of the release.
        neighbors: the neighbor relation that the guarantee is about.
        per: "record" for the mean over records, "user" for the mean of user means.
    """

    columns: tuple[str, ...]
    epsilon: float
    delta: float
    neighbors: Neighbors
    per: Per

    @classmethod
    def checked(
        cls, columns: tuple[str, ...], *, epsilon: float, delta: float, per: str, neighbors: str | Neighbors
    ) -> Request:
        """Make a request, or raise InputError for an argument that is out of range."""
        epsilon, delta = checked_budget(epsilon, delta)
        if not isinstance(per, str) or per not in get_args(Per):
            raise InputError(f"{parameter('per')} must be 'record' or 'user', not {per!r}")
        return cls(
            columns=columns,
            epsilon=epsilon,
            delta=delta,
            neighbors=Neighbors.parse(neighbors),
            per="record" if per == "record" else "user",
        )


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """What the neighbor relation makes public about the data, and nothing else.

    `n_users` is None under `add-remove`; `record_counts` is None unless counts are public. `planned_users` stands in
    for a private number of users where something is tuned or predicted: a public guess, never the true number; so does
    `planned_weight` for a private weight of all users, where there is a better guess than the number of users.
    `max_local_users` says from how many users on they are not on one machine; None if they always are.
    """

    columns: tuple[Column, ...]
    n_users: int | None
    record_counts: IntArray | None
    planned_users: int = PLANNED_USERS
    planned_weight: float | None = None
    max_local_users: int | None = None

    @classmethod
    def declared(
        cls,
        columns: Sequence[str],
        limits: Sequence[Fraction],
        *,
        n_users: int | None = None,
        max_local_users: int | None = None,
    ) -> PublicFacts:
        """What a schema and the caller say, before any record is read."""
        named = zip(columns, limits, strict=True)
        made = tuple(map(tuple.__new__, repeat(Column), named))  # no call of Python's for each of many
        return cls(columns=made, n_users=n_users, record_counts=None, max_local_users=max_local_users)

    @classmethod
    def of(cls, table: PrivateTable, neighbors: Neighbors) -> PublicFacts:
        """InputError where users are in parts and their counts would be public: these are as many as the users."""
        if neighbors.counts_are_public and not isinstance(table, UserTable):
            raise InputError(
                f"{neighbors.value!r} takes users on one machine; use "
                f"{parameter('neighbors', 'replace-user')} or 'add-remove'"
            )
        n_users = table.n_users if neighbors.users_are_public else None
        facts = cls.declared(
            table.columns, table.limits, n_users=n_users, max_local_users=table.max_local_users
        )
        if neighbors.counts_are_public and isinstance(table, UserTable):
            return replace(facts, record_counts=table.records)
        return facts


def column_names(given: str | Sequence[str], what: str) -> list[str]:
    """Return the names of the columns that the argument `what` lists; InputError where they cannot be names."""
    try:
        names = [given] if isinstance(given, str) else list(given)
    except TypeError:
        names = []
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{parameter(what)} must be a column name or a list of column names")
    if len(set(names)) != len(names):
        raise InputError(f"{parameter(what)} names a column twice; name each column once")
    return names
