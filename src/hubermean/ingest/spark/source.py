"""The Spark engine: data frames and tables of a cluster, with the same integers as on one machine.

Rows are grouped on the executors. Up to a public number of users, their sums and counts are collected on the driver;
beyond it they stay on the executors, and mechanisms run a few small aggregate queries (`SparkTable`).
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from hubermean.data.user_table import PrivateTable
from hubermean.errors import InputError, parameter
from hubermean.ingest.engine import (
    IDENTITY_SEPARATOR,
    GroupEntries,
    GroupOptions,
    PublicGroups,
    build_user_table,
    int64_array,
    mask_engine_errors,
)
from hubermean.ingest.groups import number_groups
from hubermean.ingest.numbering import number_integers
from hubermean.ingest.schema import ColumnRoles, ColumnType, Schema, ValueColumn, alias_keys, require_keys
from hubermean.ingest.spark.column_types import convert_type, find_unsigned_columns
from hubermean.ingest.spark.dialect import SparkSql
from hubermean.ingest.spark.session import (
    UNSUPPORTED_DATA,
    is_file_path,
    open_frame,
    run_spark_job,
    silence_spark,
)
from hubermean.ingest.spark.table import SparkTable, unpersist
from hubermean.ingest.text_format import TextFormat
from hubermean.types.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MAX_DRIVER_CELLS = 40_000_000
"""Most integers that are collected on the driver: four per user for one column, more for several. Public."""

DRIVER_USERS_SETTING = "spark.hubermean.driverUsers"
"""Setting of a session: the most users that are collected on the driver, in place of the limit above."""

_PARTITIONS_PER_CORE = 4
_SQL = SparkSql()


class SparkSource:
    """A data frame of Spark."""

    def __init__(self, frame: DataFrame, roles: ColumnRoles, schema: Schema, *, countable: bool) -> None:
        self.schema = schema
        self.countable = countable
        self._frame = frame
        self._roles = roles
        self._user_keys = alias_keys([schema.key_column(name) for name in roles.users], "user")

    def max_local_users(self, values: Sequence[ValueColumn], *, records: bool) -> int | None:
        # All records are counted only where counts are public, and these are needed on the driver.
        return None if records else _max_driver_users(self._frame.sparkSession, values)

    def read_users(self, values: Sequence[ValueColumn], *, records: bool) -> PrivateTable:
        return run_spark_job(lambda: self._read_users(values, records=records))

    def _read_users(self, values: Sequence[ValueColumn], *, records: bool) -> PrivateTable:
        grouped, n_users = self._persist_sums(self._user_keys[1], values, records=records, keep_keys=False)
        most = self.max_local_users(values, records=records)
        table = SparkTable(grouped, values, n_users, max_local_users=most)
        if most is None or n_users <= most:
            try:
                return table.collect()
            finally:  # a stored error would keep the table
                unpersist(grouped)
        return table

    def read_group_entries(self, values: Sequence[ValueColumn], groups: GroupOptions) -> GroupEntries:
        return run_spark_job(lambda: self._read_group_entries(values, groups))

    def _read_group_entries(self, values: Sequence[ValueColumn], groups: GroupOptions) -> GroupEntries:
        keys = [*self._user_keys[1], *self._group_keys[1]]
        entries, _ = self._persist_sums(keys, values, records=False, keep_keys=True)
        try:
            table = self._select_groups(entries, values, groups).toArrow()
            return _number_entries(table, values, len(self._roles.groups), groups.public)
        finally:
            entries.unpersist()

    @property
    def _group_keys(self) -> tuple[list[str], list[str]]:
        return alias_keys([self.schema.group_column(name) for name in self._roles.groups], "group")

    def _select_groups(
        self, entries: DataFrame, values: Sequence[ValueColumn], options: GroupOptions
    ) -> DataFrame:
        """Keep at most the allowed number of groups of each user, or one entry without a group of who is in none.

        `owner` is the least number of an entry of the user. Entries are numbered in the stage that brings those of a
        user together: were they numbered before, a lost partition could be computed again with other numbers.
        """
        from pyspark.sql import Window, functions

        (_, users), (_, groups) = self._user_keys, self._group_keys
        keys = [self.schema.group_column(name) for name in self._roles.groups]
        pairs = list(zip(keys, groups, strict=True))
        present = functions.expr(" AND ".join(key.present(group) for key, group in pairs))
        named = entries.withColumn("present", present)
        named = named.withColumns({group: functions.expr(key.identity(group)) for key, group in pairs})
        names = groups
        if options.public is not None:
            listed = functions.broadcast(self._public_groups(options.public, groups))
            named = named.join(listed, on=groups, how="left")
            named = named.withColumn("present", functions.expr("present AND code IS NOT NULL"))
            names = ["code"]
        own = Window.partitionBy(*users)
        order = [functions.expr("NOT present")]
        if options.max_groups is not None:
            identifying = [self.schema.key_column(name) for name in self._roles.users]
            texts = [key.identity(user) for key, user in zip(identifying, users, strict=True)]
            number = f"md5(concat_ws(char({IDENTITY_SEPARATOR}), {', '.join([*texts, *groups])}))"
            order += [functions.expr(number), *map(functions.col, groups)]
        named = named.repartition(self._partition_count(), *users)
        named = named.withColumn("entry", functions.monotonically_increasing_id())
        named = named.withColumns(
            {
                "owner": functions.min("entry").over(own),
                "place": functions.row_number().over(own.orderBy(*order)),
            }
        )
        limit = "" if options.max_groups is None else f" AND place <= {options.max_groups}"
        return named.where(f"(present{limit}) OR (NOT present AND place = 1)").select(
            "owner", "present", *names, *_sum_names(values)
        )

    def _public_groups(self, public: PublicGroups, groups: Sequence[str]) -> DataFrame:
        """Return the texts of the public groups and their numbers."""
        import pyarrow as pa

        columns = zip(groups, zip(*public.texts, strict=True), strict=True)
        arrays = {"code": pa.array(range(len(public.texts)), type=pa.int64())}
        arrays |= {name: pa.array(texts, type=pa.string()) for name, texts in columns}
        return self._frame.sparkSession.createDataFrame(pa.table(arrays))

    def _persist_sums(
        self, keys: Sequence[str], values: Sequence[ValueColumn], *, records: bool, keep_keys: bool
    ) -> tuple[DataFrame, int]:
        """Return sums per key, cached on the executors with or without the keys, and the number of keys.

        Sums are added in 64 bits; if one of them overflows and becomes null, all are added again as decimals.
        """
        for wide in (False, True):
            grouped = self._sum_by(keys, values, records=records, wide=wide)
            if not keep_keys:
                grouped = grouped.drop(*keys)
            # A cached frame keeps the partitions that Spark shuffles into, often hundreds, however small.
            grouped = grouped.coalesce(self._partition_count())
            lost = " OR ".join(f"{name} IS NULL" for name in _sum_names(values)[1:]) or "false"
            try:
                found = grouped.persist().selectExpr("count(*)", f"count_if(usable > 0 AND ({lost}))").first()
            except BaseException:  # such as an interrupt: what was cached before must not stay
                unpersist(grouped)
                raise
            assert found is not None
            if not found[1]:
                return grouped, int(found[0])
            grouped.unpersist()
        raise InputError(
            f"the values are too large to be added; set {parameter('resolution')} to a coarser step"
        )

    def _partition_count(self) -> int:
        return _PARTITIONS_PER_CORE * self._frame.sparkSession.sparkContext.defaultParallelism

    def _sum_by(
        self, keys: Sequence[str], values: Sequence[ValueColumn], *, records: bool, wide: bool
    ) -> DataFrame:
        from pyspark.sql import functions

        selected = [*self._user_keys[0], *self._group_keys[0]]
        has_user = require_keys([self.schema.key_column(name) for name in self._roles.users])
        sums = []
        firsts = []
        for number, value in enumerate(values):
            firsts.append(f"value_{number}_0 IS NOT NULL")
            for place, part in enumerate(value.parts):
                name = f"value_{number}_{place}"
                selected.append(f"{part.expression} AS {name}")
                sums.append((name, f"CAST({name} AS DECIMAL(20, 0))" if wide else name))
        # With one column, sums skip unusable records anyway. With several, usability is computed once per record:
        # repeated for every sum, the size of the plan would be quadratic in their number, too large for the driver.
        only = " FILTER (WHERE all_usable)" if len(values) > 1 else ""
        usable = "count(value_0_0)" if values else "count(*)"
        wanted = [f"{usable}{only} AS usable"]
        wanted += [f"try_sum({number}){only} AS {name}" for name, number in sums]
        if records:
            wanted.append("count(*) AS records")
        # Spark treats equal plans as equal data and would return sums that another table has cached, although files
        # may have changed since: a unique condition that is always true makes the plans differ.
        unique = f"'{uuid.uuid4().hex}' IS NOT NULL"
        rows = self._frame.where(f"{has_user} AND {unique}").selectExpr(*selected)
        if only:
            rows = rows.selectExpr("*", f"{' AND '.join(firsts)} AS all_usable")
        return rows.groupBy(*keys).agg(*map(functions.expr, wanted))


def _sum_names(values: Sequence[ValueColumn]) -> list[str]:
    """Return the columns of the sums: the number of usable records, and the sum of each part."""
    return [
        "usable",
        *(f"value_{number}_{place}" for number, one in enumerate(values) for place in range(len(one.parts))),
    ]


def _number_entries(
    table: pa.Table, values: Sequence[ValueColumn], n_columns: int, public: PublicGroups | None
) -> GroupEntries:
    """Number the users of entries from 0, and their groups."""
    owners, distinct = number_integers(table.column("owner"))
    within = table.column("present")
    owners, table = owners[np.asarray(within)], table.filter(within)
    names: Sequence[tuple[str | None, ...]]
    if public is not None:
        groups, names = int64_array(table.column("code")), public.texts
    else:
        groups, names = number_groups([table.column(f"group_{place}") for place in range(n_columns)])
    return GroupEntries(
        entries=build_user_table(table, values),
        owners=owners,
        n_owners=len(distinct),
        groups=groups,
        names=names,
    )


def _max_driver_users(session: SparkSession, values: Sequence[ValueColumn]) -> int:
    given = session.conf.get(DRIVER_USERS_SETTING, None)
    if given is not None and given.isascii() and given.isdigit():
        return int(given)
    return MAX_DRIVER_CELLS // (2 + len(_sum_names(values)))


class SparkEngine:
    """Reads data frames of Spark; tables by name, and Parquet files, in the active session."""

    name = "spark"

    @contextlib.contextmanager
    def open(self, data: Any, roles: ColumnRoles, options: ReadOptions) -> Iterator[SparkSource]:
        if options.memory_limit is not None or options.threads is not None:
            raise InputError(
                f"Spark has its own settings for memory and threads; leave {parameter('memory_limit')} "
                "and threads out"
            )
        text = TextFormat() if options.is_plain else TextFormat.checked(options)
        options.refuse("Spark, whose columns have types")
        with silence_spark():
            frame = mask_engine_errors(lambda: open_frame(data), UNSUPPORTED_DATA, foreign=True)
            types = {field.name: convert_type(field.dataType) for field in frame.schema.fields}
            read = [*roles.values, *roles.group_columns]  # decimals distinguish users just as well
            unsigned = mask_engine_errors(
                lambda: find_unsigned_columns(frame, read), UNSUPPORTED_DATA, foreign=True
            )
            types |= dict.fromkeys(unsigned, ColumnType(id="ubigint", name="UBIGINT"))
            durations = [name for name in roles.values if name in types and types[name].id == "interval"]
            if durations:
                frame = mask_engine_errors(
                    lambda: _to_microseconds(frame, durations), UNSUPPORTED_DATA, foreign=True
                )
                types |= dict.fromkeys(durations, ColumnType(id="bigint", name="BIGINT"))
            units = dict.fromkeys(durations, Fraction(1, 10**6))
            schema = Schema(types=types, dialect=_SQL, units=units, names_declared=True, null=text.null)
            for name in roles.columns:
                schema.require_column(name)
            # A table may be a view, and a data frame any query; files named by their path are neither.
            files = isinstance(data, str | os.PathLike) and is_file_path(os.fspath(data))
            yield SparkSource(frame, roles, schema, countable=files)


def _to_microseconds(frame: DataFrame, durations: Sequence[str]) -> DataFrame:
    """Convert durations to integers, as for data frames in DuckDB."""
    from pyspark.sql import functions

    return frame.withColumns(
        {name: functions.expr(_SQL.microseconds(_SQL.quote(name))) for name in durations}
    )


ENGINE = SparkEngine()
