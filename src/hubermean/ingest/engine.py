"""What reading asks of an engine. To add one, write a file that offers an `Engine` and name it in `engines`.

An engine turns rows into exact integers, one entry per user or per user and group; what the integers mean is decided
here, by `Schema`, for all engines alike. The conformance suite (tests/test_engines.py) holds every engine to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hubermean.group_table import Key
from hubermean.ingest.columns import Schema, ValueColumn
from hubermean.user_table import PrivateTable

if TYPE_CHECKING:
    import pyarrow as pa

UNREADABLE = (
    "the data could not be read to the end; check that the files or the query are complete and well formed, and that "
    "there is enough memory and room for temporary files"
)
"""What is said of every failure after reading has begun, whatever its cause: the cause may depend on one user."""


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Which columns play which role."""

    users: Sequence[str]
    values: Sequence[str] = ()
    groups: Sequence[str] = ()

    @property
    def columns(self) -> list[str]:
        return [*self.users, *self.values, *self.groups]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What an engine may use, and whether it shows how far it is; see `user_table`."""

    memory_limit: str | None = None
    threads: int | None = None
    progress: bool = False


@dataclass(frozen=True, kw_only=True)
class PublicKeys:
    """Groups that are public: as the caller wrote them, and as the texts that identify them (`identity`)."""

    given: Sequence[Key]
    texts: Sequence[tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class GroupsAsked:
    """What is asked of groups.

    Attributes:
        keys: the public groups; None where they are not public.
        max_groups: how many groups a user counts in; None where that needs no enforcing.
        pooled: whether to tell one of each user's groups from its others, and how many users there are.
    """

    keys: PublicKeys | None
    max_groups: int | None
    pooled: bool


class Source(Protocol):
    """Data that an engine has opened: of what they hold, nothing is known before `users` or `entries` is called."""

    @property
    def schema(self) -> Schema: ...

    @property
    def countable(self) -> bool:
        """Whether the number of users may be counted where it is public.

        Not that of a query, which depends on what users hold, and not of text files, where it may be unknown whose a
        record is.
        """

    def held_up_to(self, values: Sequence[ValueColumn], *, records: bool) -> int | None:
        """`PrivateTable.held_up_to` of the table that `users` will make."""

    def users(self, values: Sequence[ValueColumn], *, records: bool) -> PrivateTable:
        """Exact sums and counts per user; with `records`, of unusable records too."""

    def entries(self, values: Sequence[ValueColumn], asked: GroupsAsked) -> pa.Table:
        """Exact sums and counts per user and group, for `read_user_table`, without anything that names a user.

        The groups are in columns `group_0`, ... as the texts that identify them (or by number in `code`, where they are
        public). Which groups a user counts in follows from the identities of the user and of its groups alone
        (the MD5 sum of both). With `pooled`, a column `first` marks one entry of each user, and `n_users` is the number
        of all users; there is one row at least then, all null but for that number, if nobody is in a group.

        Raises:
            InputError: from here on, as in `users`, always with the same sentence.
        """


SEPARATOR = 31
"""The code of the character between the identities of a user and of a group, in what their order follows from."""


class Engine(Protocol):
    """A way to read and group."""

    @property
    def name(self) -> str: ...

    def open(self, data: Any, roles: Roles, limits: Limits) -> AbstractContextManager[Source]:
        """Data ready to be asked.

        Raises:
            InputError: this engine cannot read it, or a column is not there; in words that quote no data.
        """
