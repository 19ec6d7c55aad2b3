"""`user_table`: any supported data, grouped by user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hubermean.errors import InputError
from hubermean.ingest.columns import Schema, ValueColumn
from hubermean.ingest.engine import Limits, Roles
from hubermean.ingest.engines import engine_for
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
        memory_limit: what reading and grouping may hold in memory, such as "2GB": three quarters are for the engine,
            which uses disk beyond that, the rest is for what it hands over.
        threads: how many threads the engine may use.
        progress: show a progress bar on a terminal after one second.
        records: also count the records that are not usable, which `replace-values` needs.
        engine: "duckdb" or "spark"; that which the data belongs to, if left out.

    Formal guarantees:
    - sums and counts are exact integers, the same for every order of rows, thread count and container;
    - each record is judged by itself: its values and the declared types of its columns, nothing else;
    - no user id is kept, and no error message quotes data.
    """
    users, values = column_names(user, "user"), [] if value is None else column_names(value, "value")
    require_apart(user=users, value=values)
    rule = ValueRule.checked(resolution, non_finite)
    limits = Limits(memory_limit=memory_limit, threads=threads, progress=progress)
    roles = Roles(users=users, values=values)
    with engine_for(data, engine).open(data, roles, limits) as source:
        for name in users:
            source.schema.key(name)
        return source.users(rule.readers(source.schema, values), records=records)


def column_names(given: str | Sequence[str], what: str) -> list[str]:
    try:
        names = [given] if isinstance(given, str) else list(given)
    except TypeError:
        names = []
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{what} must be a column name or a list of column names")
    if len(set(names)) != len(names):
        raise InputError(f"{what} names a column twice; name each column once")
    return names


def require_apart(**roles: Sequence[str]) -> None:
    """Refuse a column that plays two roles."""
    seen: dict[str, str] = {}
    for role, names in roles.items():
        for name in names:
            if name in seen:
                raise InputError(
                    f"column {name!r} is both {seen[name]} and {role}; name two different columns"
                )
            seen[name] = role


@dataclass(frozen=True, kw_only=True)
class ValueRule:
    """How values are read: the public step they are rounded to, and whether infinite ones are clamped."""

    step: Fraction | None
    clamp_infinities: bool

    @classmethod
    def checked(cls, resolution: float | Decimal | Fraction | None, non_finite: str) -> ValueRule:
        step = _resolution(resolution)
        if not isinstance(non_finite, str) or non_finite not in ("drop", "clamp"):
            raise InputError(f"non_finite must be 'drop' or 'clamp', not {non_finite!r}")
        return cls(step=step, clamp_infinities=non_finite == "clamp")

    def readers(self, schema: Schema, values: Sequence[str]) -> list[ValueColumn]:
        return [
            schema.value(name, resolution=self.step, clamp_infinities=self.clamp_infinities)
            for name in values
        ]


def _resolution(given: float | Decimal | Fraction | None) -> Fraction | None:
    if given is None:
        return None
    try:
        # A float is meant as it is written: 0.01 is one hundredth, not its nearest binary fraction.
        step = Fraction(repr(given)) if isinstance(given, float) else Fraction(given)
    except (TypeError, ValueError, OverflowError):
        step = Fraction(0)
    if isinstance(given, bool) or not Fraction(1, 10**18) <= step <= 10**18:
        raise InputError(f"resolution must be a positive number from 1e-18 to 1e18, not {given!r}")
    return step
