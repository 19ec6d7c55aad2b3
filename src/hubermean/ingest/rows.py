"""Rows that DuckDB can select from, and the queries that group them in exact integers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hubermean.errors import InputError
from hubermean.ingest.coarse_sums import CoarseSums, NoRoomError, coarse_sums
from hubermean.ingest.columns import KeyColumn, Schema, ValueColumn
from hubermean.ingest.engine import GroupsAsked, Roles
from hubermean.ingest.files import REJECTED, FileSet
from hubermean.ingest.group_query import GroupQuery, keys_query
from hubermean.ingest.grouping import grouping_query, read_user_table
from hubermean.ingest.session import TooLongError, fetch
from hubermean.ingest.sum_and_count import is_known
from hubermean.user_table import UserTable

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Something the engine can select from; `once` if it cannot be read again.

    `schema` has the types that columns are stored in. `relation` is None where `connection` knows it by `name`.
    `statistics`: Parquet files that may say how large values are, where there is room for `CoarseSums`, which take more
    memory. `rejects`: records that are too long are left out, and counted in a table of the engine's.
    """

    name: str
    roles: Roles
    schema: Schema
    connection: duckdb.DuckDBPyConnection | None
    relation: duckdb.DuckDBPyRelation | None = None
    once: bool = False
    progress: bool = False
    statistics: FileSet | None = None
    rejects: bool = False

    def run(self, query: str) -> duckdb.DuckDBPyRelation:
        if self.relation is not None:
            found = self.relation.query(self.name, query)
            if found is None:  # only statements that return no rows give none
                raise InputError("the data must be something to select from")
            return found
        assert self.connection is not None
        return self.connection.sql(query)

    def users(self, values: Sequence[ValueColumn], *, records: bool) -> UserTable:
        joint = is_known(self.run)

        def grouped(split: bool, coarse: CoarseSums | None = None) -> UserTable:
            query = grouping_query(
                self.name,
                users=self._keys(self.roles.users),
                values=values,
                records=records,
                split=split,
                joint=joint,
                coarse=coarse,
            )
            return read_user_table(self._fetched(query), values, coarse=coarse)

        coarse = self._coarse(values) if joint else None
        if coarse is not None:
            with contextlib.suppress(*_does_not_fit()):
                return grouped(False, coarse)
        return self._with_room(grouped)

    def entries(self, values: Sequence[ValueColumn], asked: GroupsAsked) -> pa.Table:
        query = GroupQuery(
            source=self.name,
            users=self._keys(self.roles.users),
            groups=self._keys(self.roles.groups),
            values=values,
            keys=None if asked.keys is None else keys_query(asked.keys.texts),
            max_groups=asked.max_groups,
            pooled=asked.pooled,
        )

        def grouped(split: bool) -> pa.Table:
            table = self._fetched(query.text(split=split, quick=not self.once))
            if "several" in table.column_names and not _fits(table):
                table = self._fetched(query.text(split=split, quick=False))
            return table

        return self._with_room(grouped)

    def _keys(self, names: Sequence[str]) -> list[KeyColumn]:
        return [self.schema.key(name) for name in names]

    def _coarse(self, values: Sequence[ValueColumn]) -> CoarseSums | None:
        """Of several columns the rests would cost more than the narrower steps save."""
        if self.statistics is None or self.connection is None or len(values) != 1 or not values[0].floats:
            return None
        return coarse_sums(self.connection, self.statistics, values[0].name)

    def _fetched(self, query: str) -> pa.Table:
        found = fetch(self.run(query), self.connection, progress=self.progress)
        if self.rejects and self.run(REJECTED).fetchall()[0][0]:
            raise TooLongError
        return found

    def _with_room(self, grouped: Callable[[bool], T]) -> T:
        """Group in one 128-bit sum, or in two parts where that overflows; the integers are the same.

        What can be read only once is grouped in two parts at once.
        """
        import duckdb

        if not self.once:
            with contextlib.suppress(duckdb.OutOfRangeException):
                return grouped(False)
        return grouped(True)


def _does_not_fit() -> tuple[type[Exception], ...]:
    """Of `CoarseSums`: what a value that its statistics leave out, or a very large sum, ends in."""
    import duckdb

    return (duckdb.ConversionException, duckdb.OutOfRangeException, NoRoomError)


def _fits(table: pa.Table) -> bool:
    """Whether every user of several groups was given one."""
    import pyarrow.compute as pc

    return (pc.sum(table.column("chosen")).as_py() or 0) == (pc.max(table.column("several")).as_py() or 0)
