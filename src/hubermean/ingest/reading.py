"""Reading: any supported data as exact sums and counts per user (`user_table`) or per user and group (`group_table`).

Data are read in two stages. Opening reads only the schema, so that a wrong column or option is reported before the
privacy budget is charged. Reading the records comes after; all of its failures have the same message
(`engine.READ_FAILED`), because their cause may depend on one user.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Unpack

from hubermean.data.group_table import GroupKey, GroupTable
from hubermean.data.user_table import PrivateTable
from hubermean.errors import InputError, parameter
from hubermean.ingest.engine import (
    READ_FAILED,
    GroupOptions,
    Source,
    check_engine_options,
    mask_engine_errors,
    select_engine,
)
from hubermean.ingest.groups import build_group_table, identify_groups
from hubermean.ingest.schema import ColumnRoles, ValueColumn
from hubermean.types.options import ReadKeywords, ReadOptions, check_keywords, show_keywords
from hubermean.types.request import column_names
from hubermean.types.timings import stage

READING_STAGE = "reading and grouping"


@show_keywords(ReadOptions)
def user_table(
    data: Any,
    *,
    user: str | Sequence[str],
    value: str | Sequence[str] | None,
    records: bool = True,
    **options: Unpack[ReadKeywords],
) -> PrivateTable:
    """Group `data` by user in exact integers.

    Args:
        data: a path, glob or URI (Parquet, Arrow, CSV, JSON lines, a Delta table), `hubermean.sql(...)`, a pandas,
            Polars, PyArrow, DuckDB or PySpark frame, or numpy arrays by name.
        user: the column or columns that identify a user.
        value: the column or columns to sum; None counts records only.
        records: also count unusable records, which `replace-values` needs.
        options: how to read; see `ReadOptions`.

    Returns:
        A `UserTable` with `counts` and `means`, one row per user in no particular order; a partitioned table for Spark.
        It holds private data.

    Raises:
        InputError: a column is missing or has a type that does not fit its role, an option is out of range, or the data
            could not be read completely.

    Formal guarantees:
    - sums and counts are exact integers, the same for every order of rows, thread count and container;
    - how a record is read depends on its own cells and the declared types of its columns, and on nothing else; types
      that a container infers from content decide nothing (`ingest.identity`, `ingest.pandas_frames`);
    - no user id is kept, and no error message quotes data.

    >>> import pyarrow as pa
    >>> trips = pa.table({"rider": [1, 1, 2], "fare": [10.0, 14.0, 30.0]})
    >>> users = user_table(trips, user="rider", value="fare")
    >>> sorted(zip(users.counts.tolist(), users.means.ravel().tolist()))
    [(1, 30.0), (2, 12.0)]
    """
    check_keywords(user_table, options, ReadOptions)
    request = ReadRequest(
        user=column_names(user, "user"),
        value=[] if value is None else column_names(value, "value"),
        **options,
    )
    with request.open(data) as opened:
        return opened.read_users(records=records)


def group_table(
    data: Any,
    *,
    user: Sequence[str],
    value: Sequence[str],
    by: Sequence[str],
    keys: Sequence[GroupKey] | None,
    max_groups: int | None,
    **options: Unpack[ReadKeywords],
) -> GroupTable:
    """Group `data` by user and group in exact integers, in one pass.

    Each user counts in at most `max_groups` groups, or in all of its groups if that is None. A record without a group,
    or in a group that is not among the public `keys`, is in no group. The other arguments are those of `user_table`.

    Formal guarantees: those of `user_table`; which groups a user counts in follows from that user's records alone; and
    entries have the same owner if and only if they are of the same user.
    """
    with ReadRequest(user=user, value=value, **options).open(data, by=by) as opened:
        return opened.read_groups(keys=keys, max_groups=max_groups)


@dataclass(frozen=True, kw_only=True)
class ReadRequest(ReadOptions):
    """The columns to read, and how to read them."""

    user: Sequence[str]
    value: Sequence[str]

    @contextlib.contextmanager
    def open(self, data: Any, *, by: Sequence[str] = ()) -> Iterator[OpenedData]:
        """Open data and check its schema.

        Raises:
            InputError: a column is missing or has a type that does not fit its role, or an option is out of range.
        """
        roles = ColumnRoles(users=self.user, values=self.value, groups=by)
        roles.check_distinct()
        resolution = _parse_resolution(self.resolution)
        if not isinstance(self.non_finite, str) or self.non_finite not in ("drop", "clamp"):
            raise InputError(f"{parameter('non_finite')} must be 'drop' or 'clamp', not {self.non_finite!r}")
        clamp_infinities = self.non_finite == "clamp"
        check_engine_options(self)
        with select_engine(data, self.engine).open(data, roles, self) as source:
            schema = source.schema
            for name in self.user:
                schema.check_user(name)
            values = [
                schema.value_column(name, resolution=resolution, clamp_infinities=clamp_infinities)
                for name in self.value
            ]
            for name in by:
                schema.check_group(name)
            yield OpenedData(source=source, values=tuple(values), by=tuple(by))


@dataclass(frozen=True, kw_only=True, repr=False)
class OpenedData:
    """Data of which only the schema has been read."""

    source: Source
    values: tuple[ValueColumn, ...]
    by: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the value columns."""
        return tuple(value.name for value in self.values)

    @property
    def limits(self) -> tuple[Fraction, ...]:
        """Per value column, the largest magnitude that its encoding can hold."""
        return tuple(value.encoding.limit for value in self.values)

    @property
    def advice(self) -> str:
        """What to check where too few values are usable; empty where types are declared."""
        if self.source.schema.text is None or not self.values:
            return ""
        return f"check the number format ({parameter('decimal')}, {parameter('thousands')}, {parameter('currency')})"

    @property
    def countable(self) -> bool:
        """Whether users may be counted under relations that make their number public; see `Source`."""
        return self.source.countable

    def max_local_users(self, *, records: bool) -> int | None:
        """Return `PrivateTable.max_local_users` of the table that `read_users` will return."""
        return self.source.max_local_users(self.values, records=records)

    def check_group_keys(self, keys: Sequence[GroupKey]) -> None:
        """Raise InputError for public groups that no value of the declared types can belong to."""
        for number, texts in enumerate(identify_groups(keys).texts, 1):
            for name, text in zip(self.by, texts, strict=True):
                self.source.schema.check_group_key(name, text, number)

    @stage(READING_STAGE)
    def read_users(self, *, records: bool) -> PrivateTable:
        """Return exact sums and counts per user; with `records`, also the number of all records."""
        return self.source.read_users(self.values, records=records)

    @stage(READING_STAGE)
    def read_groups(self, *, keys: Sequence[GroupKey] | None, max_groups: int | None) -> GroupTable:
        """Return exact sums and counts per user and group; see `group_table`."""
        public = None if keys is None else identify_groups(keys)
        if max_groups is not None and keys is not None and len(keys) <= max_groups:
            max_groups = None  # nobody can be in more
        entries = self.source.read_group_entries(
            self.values, GroupOptions(public=public, max_groups=max_groups)
        )
        return mask_engine_errors(lambda: build_group_table(entries, self.by, public), READ_FAILED)


def _parse_resolution(given: float | Decimal | Fraction | None) -> Fraction | None:
    if given is None:
        return None
    try:
        # A float means its decimal notation: 0.01 is one hundredth, not the nearest binary fraction.
        resolution = Fraction(repr(given)) if isinstance(given, float) else Fraction(given)
    except (TypeError, ValueError, OverflowError):
        resolution = Fraction(0)
    if isinstance(given, bool) or not Fraction(1, 10**18) <= resolution <= 10**18:
        raise InputError(
            f"{parameter('resolution')} must be a positive number from 1e-18 to 1e18, not {given!r}"
        )
    return resolution
