"""Who may change between two neighbouring data sets, and what a release therefore promises.

The three relations of the project, each with the sentence that every result carries. A mechanism asks the
relation what is public; it never decides that itself.
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
    def promise(self) -> str:
        """The change that a release hides, as the end of a sentence."""
        return {
            Neighbors.REPLACE_USER: (
                "all records of any one user are replaced by any others, their number included "
                "(how many users there are is public)"
            ),
            Neighbors.REPLACE_VALUES: (
                "all values of any one user are replaced by any others "
                "(how many users there are and how many records each has is public)"
            ),
            Neighbors.ADD_REMOVE: "any one user is added or removed, with all its records",
        }[self]

    @property
    def grouped_promise(self) -> str:
        """The same for a table of groups, where a user's groups are hidden with its records."""
        return {
            Neighbors.REPLACE_USER: (
                "all records of any one user are replaced by any others, their number and their groups included "
                "(how many users there are in all is public)"
            ),
            Neighbors.REPLACE_VALUES: (
                "all values of any one user and the groups they are in are replaced by any others "
                "(how many users there are in all and how many records each has is public)"
            ),
            Neighbors.ADD_REMOVE: "any one user is added or removed, with all its records in all groups",
        }[self]
