"""A look at the data itself, for `hubermean check`. Nothing here is private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hubermean.ingest.duckdb_source import open_source
from hubermean.ingest.engine import Limits, Roles
from hubermean.ingest.grouping import all_present, renamed
from hubermean.ingest.reading import column_names
from hubermean.ingest.rows import Rows
from hubermean.ingest.session import quietly


@dataclass(frozen=True, kw_only=True)
class UnsafeInspection:
    """Facts about data that no mechanism protects: for the data's owner, never for publication."""

    columns: tuple[tuple[str, str], ...]
    records: int
    records_without_user: int | None
    users: int | None
    records_per_user: tuple[int, ...] | None
    values: tuple[UnsafeColumn, ...]


@dataclass(frozen=True, kw_only=True)
class UnsafeColumn:
    name: str
    unusable: int
    minimum: float | None
    median: float | None
    maximum: float | None
    user_means: tuple[float, ...] | None


def unsafe_inspection(
    data: Any, *, user: str | Sequence[str] | None, value: Sequence[str]
) -> UnsafeInspection:
    """Columns, counts and ranges of `data`; not private."""
    users = [] if user is None else column_names(user, "user")
    with open_source(data, Roles(users=users, values=list(value)), Limits()) as described:
        for name in users:
            described.schema.check_user(name)
        readers = [described.schema.value(name, resolution=None, clamp_infinities=False) for name in value]

        def look() -> UnsafeInspection:
            with described.opened() as source:
                return looked_at(source)

        def looked_at(source: Rows) -> UnsafeInspection:
            own = [source.schema.key(name) for name in users]
            has_user = all_present(own) or "true"
            keys = ", ".join(column.expression for column in own)
            records, without = source.run(
                f"SELECT count(*), count(*) FILTER (NOT ({has_user})) FROM {source.name}"
            ).fetchall()[0]
            spread = None
            if users:
                spread = source.run(
                    f"SELECT count(*), quantile_disc(its_count, [0, 0.5, 0.9, 0.99, 1]) FROM "
                    f"(SELECT count(*) AS its_count FROM {source.name} WHERE {has_user} GROUP BY {keys})"
                ).fetchall()[0]
            columns = []
            for reader in readers:
                number = f"CAST({reader.number} AS DOUBLE)"
                one = source.run(
                    f"SELECT count(*) FILTER (its_value IS NULL OR NOT isfinite(its_value)), "
                    f"min(its_value) FILTER (isfinite(its_value)), median(its_value) FILTER (isfinite(its_value)), "
                    f"max(its_value) FILTER (isfinite(its_value)) "
                    f"FROM (SELECT {number} AS its_value FROM {source.name} WHERE {has_user})"
                ).fetchall()[0]
                means = None
                if users:
                    columns_of_user, names = renamed(own, "user")
                    selected = ", ".join(columns_of_user)
                    means = source.run(
                        f"SELECT quantile_cont(its_mean, [0, 0.01, 0.5, 0.99, 1]) FROM "
                        f"(SELECT avg(its_value) AS its_mean FROM "
                        f"(SELECT {selected}, {number} AS its_value FROM {source.name} WHERE {has_user}) "
                        f"WHERE isfinite(its_value) GROUP BY {', '.join(names)})"
                    ).fetchall()[0][0]
                columns.append(
                    UnsafeColumn(
                        name=reader.name,
                        unusable=one[0],
                        minimum=one[1],
                        median=one[2],
                        maximum=one[3],
                        user_means=None if means is None else tuple(means),
                    )
                )
            return UnsafeInspection(
                columns=tuple((name, str(kind)) for name, kind in described.schema.types.items()),
                records=records,
                records_without_user=without if users else None,
                users=None if spread is None else spread[0],
                records_per_user=None if spread is None or spread[1] is None else tuple(spread[1]),
                values=tuple(columns),
            )

        return quietly(
            look, "the data could not be read to the end; check that it is complete and well formed"
        )
