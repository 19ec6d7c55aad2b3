"""Growth: seconds and memory of a private mean, and of plain DuckDB's, in rows, in users and in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from common.measured import Limits, Measured
from common.rows_file import AMOUNT, RowsFile, make_file, make_wide_file
from common.sections import Table, megabytes, seconds
from speed.growth import fitted_exponent, last_exponent
from speed.suite_machine import SMALL_ROWS, SMALL_USERS, Case, alone

ROWS_OF_A_USER = 20
ENGINES = ("hubermean", "DuckDB")

SAYS = (
    "Each line is a process of its own that first answers the same query on a small file. Seconds are the "
    "best of its later answers; MB is the peak beyond what it held when idle.",
    "The exponent is p in size^p, fitted by least squares to the logarithms of all lines; in parentheses, "
    "between the last two, where constant costs matter least. A p of 1 is proportional growth.",
)


def in_rows(sizes: Iterable[int], **given: Any) -> Table:
    files = [make_file(rows, rows // ROWS_OF_A_USER) for rows in sizes]
    title = f"Rows, {ROWS_OF_A_USER} to a user"
    small = make_file(SMALL_ROWS, SMALL_USERS)
    return _grown(title, "rows", [(file.rows, file, [AMOUNT]) for file in files], small, **given)


def in_users(sizes: Iterable[int], rows: int, **given: Any) -> Table:
    files = [make_file(rows, users) for users in sizes]
    small = make_file(SMALL_ROWS, SMALL_USERS)
    points = [(file.users, file, [AMOUNT]) for file in files]
    return _grown(f"Users, {rows:,} rows", "users", points, small, **given)


def in_columns(sizes: Sequence[int], rows: int, **given: Any) -> Table:
    file, names = make_wide_file(rows, rows // ROWS_OF_A_USER, max(sizes))
    title = f"Columns, {rows:,} rows, {rows // ROWS_OF_A_USER:,} users"
    small, _ = make_wide_file(SMALL_ROWS, SMALL_USERS, max(sizes))
    return _grown(title, "columns", [(size, file, names[:size]) for size in sizes], small, **given)


def _grown(
    title: str,
    what: str,
    points: Sequence[tuple[int, RowsFile, Sequence[str]]],
    small: RowsFile,
    *,
    threads: int,
    repeats: int,
    limits: Limits,
) -> Table:
    found: dict[str, list[Measured]] = {engine: [] for engine in ENGINES}
    for _, file, names in points:
        for engine in ENGINES:
            found[engine].append(
                alone(
                    engine,
                    file,
                    small,
                    Case(title="", column=names[0], stated={"columns": list(names)}),
                    threads=threads,
                    limits=limits,
                    releases=repeats + 1,
                )
            )
    sizes = [size for size, *_ in points]
    rows = [
        [f"{size:,}", *(cell for engine in ENGINES for cell in _cells(found[engine][place]))]
        for place, size in enumerate(sizes)
    ]
    rows.append(["exponent", *(cell for engine in ENGINES for cell in _exponents(sizes, found[engine]))])
    headings = [what, *(f"{engine} {unit}" for engine in ENGINES for unit in ("s", "MB"))]
    return Table(title=title, headings=headings, rows=rows, left=[])


def _cells(found: Measured) -> list[str]:
    return [found.ended or seconds(found.best_seconds), megabytes(found.extra_bytes)]


def _exponents(sizes: Sequence[int], found: Sequence[Measured]) -> list[str]:
    done = [(size, one) for size, one in zip(sizes, found, strict=True) if not one.ended]
    of = [size for size, _ in done]
    curves = [one.best_seconds or 0.0 for _, one in done], [float(one.extra_bytes) for _, one in done]
    return [f"{fitted_exponent(of, curve):.2f} ({last_exponent(of, curve):.2f})" for curve in curves]
