"""Peers: other libraries and hubermean on the same Parquet file, each in its own environment and process.

Sizes are asked for in order; a library that does not end within its time and memory is not asked for larger ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.measured import Limits, Measured, measure_engine, measure_peer
from common.page import number
from common.rows_file import AMOUNT, USER, RowsFile, Truth, make_file, truth_of
from common.sections import Table, megabytes, seconds
from peers.runners.make_environments import is_ready
from peers.runners.whole_file import Work
from speed.engines import EPSILON
from speed.suite_growth import ROWS_OF_A_USER

USER_MEANS, RECORDS = "user means", "records"

SAYS = (
    "Every library but hubermean gets the true bounds of its values, the true largest number of records "
    "of a user and, where needed, the true number of rows. No data owner knows these without looking, and "
    "looking is not private. hubermean gets only epsilon, except on the line that shows the effect of the "
    "same bounds.",
    "start: imports and, on Spark, a session. load: the file in the library's own form, where that is a "
    "separate step; otherwise every query reads the file. first, again: the first query and the best of "
    "the others, from file (or from what was loaded) to a number.",
    "MB is the peak resident memory of the library and all processes it started, Java included.",
    "error: root mean squared error of the releases at epsilon = 1 and delta = 0, with its standard error "
    "in parentheses, against the true mean that the library estimates: of user means, or over records, "
    "which is nearly the same here (the title has the difference).",
    "Guarantees differ: diffprivlib protects one user's mean and makes the number of users public; "
    "hubermean protects all records of a user and their number (replace-user); the others protect whether "
    "a user is there, with all records (add-remove).",
    "OpenDP computes user means as its own contribution bound; for diffprivlib and PipelineDP on user "
    "means, Polars or Spark computes them first. PipelineDP and Tumult on records bound contributions "
    "themselves.",
)


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A library in one way of use; without an environment, one of our own engines."""

    title: str
    estimates: str
    environment: str | None = None
    runner: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    on_spark: bool = False


def _pipelinedp(backend: str, unit: str, estimates: str) -> Contestant:
    return Contestant(
        title=f"PipelineDP, {'Spark' if backend == 'spark' else 'local'}",
        estimates=estimates,
        environment="pipelinedp",
        runner="file_pipelinedp",
        options={"backend": backend, "unit": unit},
        on_spark=backend == "spark",
    )


CONTESTANTS = (
    Contestant(title="hubermean", estimates=USER_MEANS, options={"engine": "hubermean", "per": "user"}),
    Contestant(title="hubermean", estimates=RECORDS, options={"engine": "hubermean"}),
    Contestant(
        title="hubermean, given bounds",
        estimates=USER_MEANS,
        options={"engine": "hubermean", "per": "user", "given_bounds": True},
    ),
    Contestant(title="OpenDP, Polars", estimates=USER_MEANS, environment="opendp", runner="file_opendp"),
    Contestant(
        title="diffprivlib, Polars",
        estimates=USER_MEANS,
        environment="diffprivlib",
        runner="file_diffprivlib",
    ),
    _pipelinedp("local", "means", USER_MEANS),
    _pipelinedp("local", "records", RECORDS),
    _pipelinedp("spark", "means", USER_MEANS),
    _pipelinedp("spark", "records", RECORDS),
    Contestant(
        title="Tumult Analytics, Spark",
        estimates=RECORDS,
        environment="tumult",
        runner="file_tumult",
        on_spark=True,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Peers:
    tables: Sequence[Table]
    versions: Sequence[str]


def beside_peers(
    sizes: Iterable[int],
    *,
    threads: int,
    releases: int,
    limits: Limits,
    spark_memory: str,
    libraries: Sequence[str] = (),
) -> Peers:
    """`libraries`: beginnings of the titles of those to be measured; none are all."""
    contestants = [one for one in CONTESTANTS if not libraries or one.title.startswith(tuple(libraries))]
    if not contestants:
        titles = "; ".join(dict.fromkeys(one.title for one in CONTESTANTS))
        raise SystemExit(f"no library begins like that; there are: {titles}")
    versions: dict[str, None] = {}  # each once, in order
    tables = []
    remarks = {
        place: "not installed"
        for place, contestant in enumerate(contestants)
        if contestant.environment and not is_ready(contestant.environment)
    }
    for rows in sizes:
        file = make_file(rows, rows // ROWS_OF_A_USER)
        truth = truth_of(file, AMOUNT)
        lines = []
        for place, contestant in enumerate(contestants):
            if place in remarks:
                lines.append([contestant.title, contestant.estimates, *["-"] * 6, remarks[place]])
                continue
            print(f"{rows:,} rows: {contestant.title}, {contestant.estimates}", flush=True)
            work = _work(contestant, file, truth, threads, releases, limits, spark_memory)
            if contestant.environment:
                found = measure_peer(contestant.environment, contestant.runner, work, limits)
            else:
                found = measure_engine(work, limits)
            if contestant.environment and found.versions:
                versions[" with ".join(f"{name} {version}" for name, version in found.versions.items())] = (
                    None
                )
            if found.ended:
                remarks[place] = f"{found.ended} at {rows:,} rows"
            lines.append(_line(contestant, found, truth))
        tables.append(_table(file, truth, lines))
    return Peers(tables=tables, versions=list(versions))


def _work(
    contestant: Contestant,
    file: RowsFile,
    truth: Truth,
    threads: int,
    releases: int,
    limits: Limits,
    spark_memory: str,
) -> Work:
    return Work(
        path=file.path,
        user=USER,
        value=AMOUNT,
        epsilon=EPSILON,
        threads=threads,
        releases=releases,
        seconds=limits.seconds / 2,  # a release that is begun then still ends
        rows=file.rows,
        low=truth.low,
        high=truth.high,
        mean_low=truth.mean_low,
        mean_high=truth.mean_high,
        most_records=truth.most_records,
        options={**contestant.options, **({"memory": spark_memory} if contestant.on_spark else {})},
    )


def _line(contestant: Contestant, found: Measured, truth: Truth) -> list[str]:
    target = truth.mean_of_means if contestant.estimates == USER_MEANS else truth.mean_of_records
    again = found.best_seconds if len(found.seconds) > 1 else None
    return [
        contestant.title,
        contestant.estimates,
        seconds(found.start_seconds),
        seconds(found.load_seconds) if found.load_seconds else "-",
        seconds(found.seconds[0]) if found.seconds else "-",
        seconds(again),
        megabytes(found.peak_bytes),
        error_of_releases(found.values, target),
        found.ended or f"{len(found.values)} releases",
    ]


def error_of_releases(values: Sequence[float], target: float) -> str:
    """The root of the mean squared error; its standard error by the delta method."""
    if not values:
        return "-"
    squares = [(value - target) ** 2 for value in values]
    mean = math.fsum(squares) / len(squares)
    if len(squares) < 2 or mean == 0.0:
        return number(math.sqrt(mean))
    of_mean = math.sqrt(
        math.fsum((square - mean) ** 2 for square in squares) / (len(squares) - 1) / len(squares)
    )
    return f"{number(math.sqrt(mean))} ({number(of_mean / (2 * math.sqrt(mean)))})"


def _table(file: RowsFile, truth: Truth, lines: Sequence[Sequence[str]]) -> Table:
    sampling = truth.deviation_of_means / math.sqrt(truth.users)
    off = abs(truth.mean_of_means - truth.mean_of_records)
    return Table(
        title=f"{file.title}; sampling error of the mean itself {number(sampling)}, both means differ by {number(off)}",
        headings=["library", "averages", "start s", "load s", "first s", "again s", "MB", "error", "remark"],
        rows=lines,
        left=["library", "averages", "remark"],
    )
