"""`user_table` and `group_table`: any supported data, grouped by user, or by user and group."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hubermean.group_table import GroupTable, Key
from hubermean.ingest.reading import Reading, column_names
from hubermean.user_table import PrivateTable


def user_table(
    data: Any,
    *,
    user: str | Sequence[str],
    value: str | Sequence[str] | None,
    resolution: float | Decimal | Fraction | None = None,
    non_finite: str = "drop",
    memory_limit: str | None = None,
    threads: int | None = None,
    progress: bool = False,
    records: bool = True,
    engine: str | None = None,
) -> PrivateTable:
    """Group `data` by user in exact integers.

    Args:
        data: a path or glob (Parquet, CSV, JSON lines), `hubermean.sql(...)`, or a pandas, Polars, PyArrow,
            DuckDB or PySpark frame.
        user: the column or columns that identify a user.
        value: the column or columns to sum; None counts records alone.
        resolution: values are rounded to whole multiples of this public step, which is faster than the two
            parts of floating-point columns.
        non_finite: "drop" leaves infinite values out; "clamp" moves them to the largest value representable.
            Null and NaN are always left out.
        memory_limit: what reading and grouping should hold in memory, such as "2GB": three quarters are for the engine,
            which uses disk beyond that, the rest is for what it hands over. Where that does not suffice, data are read
            again without a limit: whether there is an answer must not depend on what one user holds.
        threads: how many threads the engine may use.
        progress: show a progress bar on a terminal after one second.
        records: also count the records that are not usable, which `replace-values` needs.
        engine: "duckdb" or "spark"; that which the data belongs to, if left out.

    Formal guarantees:
    - sums and counts are exact integers, the same for every order of rows, thread count and container;
    - each record is judged by itself: its cells and the declared types of its columns, nothing else; where a container
      infers types from content, they decide nothing (`ingest.identity`, `ingest.pandas_columns`);
    - no user id is kept, and no error message quotes data.
    """
    reading = Reading(
        user=column_names(user, "user"),
        value=[] if value is None else column_names(value, "value"),
        resolution=resolution,
        non_finite=non_finite,
        memory_limit=memory_limit,
        threads=threads,
        progress=progress,
        engine=engine,
    )
    with reading.opened(data) as opened:
        return opened.users(records=records)


def group_table(
    data: Any,
    *,
    user: Sequence[str],
    value: Sequence[str],
    by: Sequence[str],
    keys: Sequence[Key] | None,
    max_groups: int,
    pooled: bool,
    **how: Any,
) -> GroupTable:
    """Group `data` by user and group in exact integers, in one pass, with each user in at most `max_groups` groups.

    A record without a group, or in a group that is not among the public `keys`, counts in none. `pooled` asks for a
    table of one group of each user as well. The other arguments are those of `user_table`.

    Formal guarantees: those of `user_table`; and which groups a user counts in follows from that user's records alone.
    """
    with Reading(user=user, value=value, **how).opened(data, by=by) as opened:
        return opened.groups(keys=keys, max_groups=max_groups, pooled=pooled)
