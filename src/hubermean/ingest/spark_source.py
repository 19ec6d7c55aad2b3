"""Spark, for data frames and tables of a cluster: the same integers as on one machine.

Rows are grouped where they lie. Up to a public number of users their sums and counts come to the driver; beyond, they
stay on the executors, and mechanisms ask for a few small aggregates (`SparkTable`).
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hubermean.errors import InputError
from hubermean.ingest.columns import ColumnType, Schema, ValueColumn
from hubermean.ingest.engine import SEPARATOR, GroupsAsked, Limits, PublicKeys, Roles
from hubermean.ingest.grouping import all_present
from hubermean.ingest.grouping import renamed as _renamed
from hubermean.ingest.session import quietly
from hubermean.ingest.spark_answers import answer_of
from hubermean.ingest.spark_frame import NOT_TO_BE_HAD, declared_type, looks_like_files, quiet, spark_frame
from hubermean.ingest.spark_sql import SparkSql
from hubermean.ingest.spark_table import SparkTable, let_go
from hubermean.ingest.spark_unsigned import unsigned_columns
from hubermean.user_table import PrivateTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

DRIVER_CELLS = 40_000_000
"""So many integers come to the driver at most: four a user for one column, more for several. Public."""

DRIVER_USERS_SETTING = "spark.hubermean.driverUsers"
"""The setting of a session that says how many users may come to the driver, in place of the limit above."""

_PIECES_PER_CORE = 4
_SQL = SparkSql()


class SparkSource:
    """A data frame of Spark's."""

    def __init__(self, frame: DataFrame, roles: Roles, schema: Schema, *, countable: bool) -> None:
        self.schema = schema
        self.countable = countable
        self._frame = frame
        self._roles = roles
        self._users_by = _renamed([schema.key(name) for name in roles.users], "user")

    def held_up_to(self, values: Sequence[ValueColumn], *, records: bool) -> int | None:
        # Counts of records are asked for where they are public, and then needed here.
        return None if records else _driver_users(self._frame.sparkSession, values)

    def users(self, values: Sequence[ValueColumn], *, records: bool) -> PrivateTable:
        return answer_of(lambda: self._users(values, records=records))

    def _users(self, values: Sequence[ValueColumn], *, records: bool) -> PrivateTable:
        grouped, n_users = self._held(self._users_by[1], values, records=records, keep_keys=False)
        most = self.held_up_to(values, records=records)
        table = SparkTable(grouped, values, n_users, held_up_to=most)
        if most is None or n_users <= most:
            try:
                return table.collected()
            finally:  # an error that is kept keeps the table
                let_go(grouped)
        return table

    def entries(self, values: Sequence[ValueColumn], asked: GroupsAsked) -> pa.Table:
        return answer_of(lambda: self._entries(values, asked))

    def _entries(self, values: Sequence[ValueColumn], asked: GroupsAsked) -> pa.Table:
        _, users = self._users_by
        _, groups = self._groups_by
        shares, _ = self._held([*users, *groups], values, records=False, keep_keys=True)
        try:
            return self._chosen(shares, values, asked)
        finally:
            shares.unpersist()

    @property
    def _groups_by(self) -> tuple[list[str], list[str]]:
        return _renamed([self.schema.key(name) for name in self._roles.groups], "group")

    def _chosen(self, shares: DataFrame, values: Sequence[ValueColumn], asked: GroupsAsked) -> pa.Table:
        """Of each user no more groups than it may count in."""
        from pyspark.sql import Window, functions

        (_, users), (_, groups) = self._users_by, self._groups_by
        n_users = self._by(users, shares.select(*users)).distinct().count() if asked.pooled else None
        keys = [self.schema.key(name) for name in self._roles.groups]
        kept = shares.where(" AND ".join(key.present(group) for key, group in zip(keys, groups, strict=True)))
        named = {group: functions.expr(key.identity(group)) for key, group in zip(keys, groups, strict=True)}
        kept = kept.withColumns(named)
        names = groups
        if asked.keys is not None:
            kept = kept.join(functions.broadcast(self._public_groups(asked.keys, groups)), on=groups)
            names = ["code"]
        if asked.pooled or asked.max_groups is not None:
            own = [self.schema.key(name) for name in self._roles.users]
            texts = [key.identity(user) for key, user in zip(own, users, strict=True)]
            number = functions.expr(f"md5(concat_ws(char({SEPARATOR}), {', '.join([*texts, *groups])}))")
            order = Window.partitionBy(*users).orderBy(number, *groups)
            kept = self._by(users, kept).withColumn("place", functions.row_number().over(order))
        if asked.max_groups is not None:
            kept = kept.where(f"place <= {asked.max_groups}")
        wanted: list[Column] = [functions.col(name) for name in [*names, *_sum_names(values)]]
        if asked.pooled:
            wanted.append((functions.col("place") == 1).alias("first"))
        table = kept.select(*wanted).toArrow()
        return table if n_users is None else _with_number(table, n_users)

    def _public_groups(self, keys: PublicKeys, groups: Sequence[str]) -> DataFrame:
        """The texts of the public groups and their numbers."""
        import pyarrow as pa

        columns = zip(groups, zip(*keys.texts, strict=True), strict=True)
        arrays = {"code": pa.array(range(len(keys.texts)), type=pa.int64())}
        arrays |= {name: pa.array(texts, type=pa.string()) for name, texts in columns}
        return self._frame.sparkSession.createDataFrame(pa.table(arrays))

    def _held(
        self, keys: Sequence[str], values: Sequence[ValueColumn], *, records: bool, keep_keys: bool
    ) -> tuple[DataFrame, int]:
        """Sums per key, kept by the executors with the keys or without, and how many keys there are.

        Sums are added in 64 bits; where one of them overflows, which shows, all are added in decimals.
        """
        for wide in (False, True):
            grouped = self._grouped(keys, values, records=records, wide=wide)
            if not keep_keys:
                grouped = grouped.drop(*keys)
            # What is kept stays in as many pieces as Spark shuffles into, often hundreds, however small they are.
            grouped = grouped.coalesce(self._pieces())
            lost = " OR ".join(f"{name} IS NULL" for name in _sum_names(values)[1:]) or "false"
            try:
                found = grouped.persist().selectExpr("count(*)", f"count_if(usable > 0 AND ({lost}))").first()
            except BaseException:  # an interrupt, say: what was made until then may not stay either
                let_go(grouped)
                raise
            assert found is not None
            if not found[1]:
                return grouped, int(found[0])
            grouped.unpersist()
        raise InputError("the values are too large to be added up; give resolution= (a coarser step)")

    def _by(self, users: Sequence[str], shares: DataFrame) -> DataFrame:
        """With all of a user in one piece; left to itself, Spark makes hundreds of them, however small they are."""
        return shares.repartition(self._pieces(), *users)

    def _pieces(self) -> int:
        return _PIECES_PER_CORE * self._frame.sparkSession.sparkContext.defaultParallelism

    def _grouped(
        self, keys: Sequence[str], values: Sequence[ValueColumn], *, records: bool, wide: bool
    ) -> DataFrame:
        from pyspark.sql import functions

        selected = [*self._users_by[0], *self._groups_by[0]]
        has_user = all_present([self.schema.key(name) for name in self._roles.users])
        sums = []
        firsts = []
        for number, value in enumerate(values):
            firsts.append(f"value_{number}_0 IS NOT NULL")
            for place, part in enumerate(value.parts):
                name = f"value_{number}_{place}"
                selected.append(f"{part.expression} AS {name}")
                sums.append((name, f"CAST({name} AS DECIMAL(20, 0))" if wide else name))
        # With one column a sum passes over unusable records by itself. Of several, it is found out once a record: said
        # anew for every sum, it makes a plan of the square of their number, which the driver cannot hold.
        only = " FILTER (WHERE all_usable)" if len(values) > 1 else ""
        usable = "count(value_0_0)" if values else "count(*)"
        wanted = [f"{usable}{only} AS usable"]
        wanted += [f"try_sum({number}){only} AS {name}" for name, number in sums]
        if records:
            wanted.append("count(*) AS records")
        # Spark takes equal plans for equal data and would hand out sums that another table still keeps, though files
        # may have changed since: a condition that is like no other, and always true, tells them apart.
        unlike = f"'{uuid.uuid4().hex}' IS NOT NULL"
        rows = self._frame.where(f"{has_user} AND {unlike}").selectExpr(*selected)
        if only:
            rows = rows.selectExpr("*", f"{' AND '.join(firsts)} AS all_usable")
        return rows.groupBy(*keys).agg(*map(functions.expr, wanted))


def _sum_names(values: Sequence[ValueColumn]) -> list[str]:
    """The columns of a grouping: the number of usable records, and the sums of all parts."""
    return [
        "usable",
        *(f"value_{number}_{place}" for number, one in enumerate(values) for place in range(len(one.parts))),
    ]


def _with_number(table: pa.Table, n_users: int) -> pa.Table:
    """With the number of all users in a column; one row at least."""
    import pyarrow as pa

    if table.num_rows == 0:
        table = pa.Table.from_pylist([{}], schema=table.schema)
    return table.append_column("n_users", pa.array([n_users] * table.num_rows, type=pa.int64()))


def _driver_users(session: SparkSession, values: Sequence[ValueColumn]) -> int:
    given = session.conf.get(DRIVER_USERS_SETTING, None)
    if given is not None and given.isascii() and given.isdigit():
        return int(given)
    return DRIVER_CELLS // (2 + len(_sum_names(values)))


class SparkEngine:
    """Reads Spark's data frames; tables by their names, and Parquet files, in the session that is active."""

    name = "spark"

    @contextlib.contextmanager
    def open(self, data: Any, roles: Roles, limits: Limits) -> Iterator[SparkSource]:
        if limits.memory_limit is not None or limits.threads is not None:
            raise InputError("Spark has its own settings for memory and threads; set them in its session")
        with quiet():
            frame = quietly(lambda: spark_frame(data), NOT_TO_BE_HAD, foreign=True)
            types = {field.name: declared_type(field.dataType) for field in frame.schema.fields}
            read = [*roles.values, *roles.groups]  # users are told apart as well by decimals
            unsigned = quietly(lambda: unsigned_columns(frame, read), NOT_TO_BE_HAD, foreign=True)
            types |= dict.fromkeys(unsigned, ColumnType(id="ubigint", name="UBIGINT"))
            durations = [name for name in roles.values if name in types and types[name].id == "interval"]
            if durations:
                frame = quietly(lambda: _in_microseconds(frame, durations), NOT_TO_BE_HAD, foreign=True)
                types |= dict.fromkeys(durations, ColumnType(id="bigint", name="BIGINT"))
            units = dict.fromkeys(durations, Fraction(1, 10**6))
            schema = Schema(types=types, dialect=_SQL, units=units, names_declared=True)
            for name in roles.columns:
                schema.require(name)
            # A table may be a view, and a data frame any query; files that are named by their path are neither.
            files = isinstance(data, str | os.PathLike) and looks_like_files(os.fspath(data))
            yield SparkSource(frame, roles, schema, countable=files)


def _in_microseconds(frame: DataFrame, durations: Sequence[str]) -> DataFrame:
    """Durations as integers, as DuckDB has those of data frames."""
    from pyspark.sql import functions

    return frame.withColumns(
        {name: functions.expr(_SQL.microseconds(_SQL.identifier(name))) for name in durations}
    )


ENGINE = SparkEngine()
