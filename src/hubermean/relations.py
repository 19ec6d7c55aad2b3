"""Neighbour relations: the change of the data that a release hides, and what is public under each.

Every result carries the guarantee of its relation as a sentence. Mechanisms read from the relation what is public; they
never decide that themselves.
"""

from __future__ import annotations

from enum import Enum

from hubermean.errors import InputError


class Neighbors(Enum):
    """A neighbour relation between data sets.

    >>> Neighbors.parse("add-remove").users_are_public
    False
    >>> Neighbors.REPLACE_VALUES.counts_are_public
    True
    """

    REPLACE_USER = "replace-user"
    REPLACE_VALUES = "replace-values"
    ADD_REMOVE = "add-remove"

    @classmethod
    def parse(cls, name: str | Neighbors) -> Neighbors:
        try:
            return cls(name)
        except ValueError:
            known = ", ".join(repr(relation.value) for relation in cls)
            raise InputError(f"neighbors must be one of {known}, not {name!r}") from None

    @property
    def users_are_public(self) -> bool:
        """Whether the number of users is the same in every neighbour, hence public."""
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
        """The same for a table of groups, where the groups of a user are hidden with its records."""
        return {
            Neighbors.ADD_REMOVE: "Adding or removing all of one user's records in all groups",
            Neighbors.REPLACE_USER: "Replacing all of one user's records by any others, more or fewer, in any groups,",
            Neighbors.REPLACE_VALUES: "Replacing all of one user's values by any others in any groups",
        }[self]

    @property
    def public_numbers(self) -> str:
        """What a release does not hide, as a sentence; empty where that is nothing."""
        return {
            Neighbors.ADD_REMOVE: "",
            Neighbors.REPLACE_USER: "The number of users is public.",
            Neighbors.REPLACE_VALUES: "The number of users and the number of records of each user are public.",
        }[self]


DEFAULT_NEIGHBORS = "add-remove"
"""The relation of every release, plan, audit and budget for which none is given."""
