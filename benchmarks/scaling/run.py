"""Time and memory of a release against the number of users and of columns, beside numpy's mean in the same run.

    python -m scaling.run [--quick] [--widest] [--markdown docs/evidence/scaling.md] [--plot docs/img/scaling.svg]

What is timed is the release itself, from a table of users on, noise included: public decisions, the private law, the
draw. Reading and grouping are in benchmarks/speed/suite.py. Seconds are the best of several runs,
interleaved with numpy's
mean of the same array; ratios come with the least and largest of the runs. Memory is the peak beyond the table.
At the end `inverse-sensitivity` runs beside DuckDB's grouping of twenty million rows into the same million users.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import numpy as np

from common.rows_file import make_file
from hubermean.data.user_table import UserTable
from hubermean.ingest.reading import user_table
from hubermean.mechanisms.base import Mechanism
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity
from hubermean.mechanisms.propose_test_release.mechanism import ProposeTestRelease
from hubermean.mechanisms.smooth_sensitivity.mechanism import SmoothSensitivity
from hubermean.mechanisms.winsorized.mechanism import Winsorized
from hubermean.noise.system import SystemNoise
from hubermean.release.path import release_user_table
from hubermean.types.request import Neighbors, Per, Request
from scaling.report import print_beside_grouping, print_header, print_row, write_markdown

EPSILON, DELTA, RADIUS = 1.0, 1e-5, 1_000.0
CAP = 50
REPEATS = 3
MOST_REPEATS = 15
SHORT = 1.0  # seconds: until then what is short is repeated further
SLOW = 20.0  # seconds: what takes longer is not repeated
WIDE_USERS = 5_000
GROUPING_TARGET = 0.3


@dataclass(frozen=True, kw_only=True)
class Row:
    """One mechanism on one table. `beside` is the ratio to numpy's mean: of the best runs, the least, the largest."""

    mechanism: str
    users: int
    columns: int
    seconds: float
    mean_seconds: float
    beside: tuple[float, float, float]
    extra_bytes: int
    array_bytes: int


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """`inverse-sensitivity` beside DuckDB's grouping: best seconds of both, ratio of the best runs, the
    least, the largest."""

    per: str
    seconds: float
    grouping_seconds: float
    ratio: tuple[float, float, float]

    @property
    def met(self) -> bool:
        return self.ratio[0] <= GROUPING_TARGET


def threshold_of(columns: int) -> float:
    """Wide enough for Gaussian users of deviation 1: they lie sqrt(d) from their center, give or take 1."""
    return 2.0 * columns**0.5 + 3.0


def mechanism_of(name: str, columns: int) -> tuple[Mechanism, Per, float]:
    """(mechanism, per, delta)"""
    threshold = threshold_of(columns)
    if name == "inverse-sensitivity":
        return InverseSensitivity(threshold=threshold, radius=RADIUS), "user", 0.0
    if name == "inverse-sensitivity, weights to 50":
        return InverseSensitivity(threshold=threshold, radius=RADIUS, max_records=CAP), "record", 0.0
    if name == "winsorized":
        return Winsorized(threshold=threshold, radius=RADIUS), "user", DELTA
    kind = {"smooth-sensitivity": SmoothSensitivity, "propose-test-release": ProposeTestRelease}[name]
    return kind(threshold=threshold, radius=RADIUS), "user", DELTA


def clock(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def compared(job: Callable[[], object], other: Callable[[], object]) -> tuple[list[float], list[float]]:
    """Seconds of both, run in turns, so that both see the same machine."""
    ours: list[float] = []
    theirs: list[float] = []
    while len(ours) < REPEATS or (sum(ours) < SHORT and len(ours) < MOST_REPEATS):
        theirs.append(clock(other))
        ours.append(clock(job))
        if ours[-1] > SLOW:
            break
    return ours, theirs


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    each = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return min(ours) / min(theirs), min(each), max(each)


def extra_bytes(job: Callable[[], object]) -> int:
    tracemalloc.start()
    job()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def measure(names: Sequence[str], users: int, columns: int) -> Iterator[Row]:
    generator = np.random.default_rng(users + columns)
    means = generator.standard_normal((users, columns))
    table = UserTable.from_means(means, generator.integers(1, CAP + 1, users))
    for name in names:
        mechanism, per, delta = mechanism_of(name, columns)
        request = Request(
            columns=table.columns, epsilon=EPSILON, delta=delta, neighbors=Neighbors.REPLACE_USER, per=per
        )
        job = partial(release_user_table, table, request, mechanism, SystemNoise())
        job()  # plans and libraries are kept from the first release on
        ours, theirs = compared(job, partial(np.mean, means, axis=0))
        yield Row(
            mechanism=name,
            users=users,
            columns=columns,
            seconds=min(ours),
            mean_seconds=min(theirs),
            beside=ratios(ours, theirs),
            extra_bytes=extra_bytes(job),
            array_bytes=means.nbytes,
        )


def plan(*, quick: bool, widest: bool) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """(mechanisms, users, columns): first more and more users, then more and more columns."""
    for power in range(3, 6 if quick else 8):
        one = ("inverse-sensitivity", "inverse-sensitivity, weights to 50", "winsorized")
        yield (*one, "smooth-sensitivity", "propose-test-release") if power <= 6 else one, 10**power, 1
        if power <= 6:
            yield ("propose-test-release",), 10**power, 3
            yield ("propose-test-release",), 10**power, 10
    for power in range(3 if quick else 5):
        # Rotating and binning thousands of columns is not what winsorized is for.
        yield (
            ("propose-test-release", "smooth-sensitivity", "winsorized")
            if power <= 3
            else ("propose-test-release", "smooth-sensitivity"),
            WIDE_USERS,
            10**power,
        )
    if widest:
        yield ("propose-test-release",), WIDE_USERS, 10**5


def beside_grouping(rows: int, users: int, threads: int) -> Iterator[Grouping]:
    """A release by `inverse-sensitivity` from one million users, and the query that makes them."""
    path = make_file(rows, users).path
    connection = duckdb.connect(config={"threads": str(threads)})
    query = f"SELECT avg(m) FROM (SELECT avg(amount) AS m FROM '{path}' GROUP BY user_id)"
    table = user_table(path, user="user_id", value="amount", threads=threads)
    for per, cap in (("user", None), ("record", CAP)):
        mechanism = InverseSensitivity(threshold=10.0, radius=RADIUS, max_records=cap)
        request = Request.checked(
            table.columns, epsilon=EPSILON, delta=0.0, per=per, neighbors=Neighbors.REPLACE_USER
        )
        job = partial(release_user_table, table, request, mechanism, SystemNoise())
        job()
        ours, theirs = compared(job, lambda: connection.sql(query).fetchall())
        yield Grouping(per=per, seconds=min(ours), grouping_seconds=min(theirs), ratio=ratios(ours, theirs))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="up to 100,000 users and 100 columns, no grouping"
    )
    parser.add_argument("--widest", action="store_true", help="100,000 columns as well; needs tens of GB")
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of the grouping")
    parser.add_argument("--users", type=int, default=1_000_000, help="users of the grouping")
    parser.add_argument("--threads", type=int, default=2, help="threads of DuckDB")
    parser.add_argument("--markdown", type=Path, help="write the page docs/evidence/scaling.md to this file")
    parser.add_argument("--plot", type=Path, help="draw the figure into this file")
    options = parser.parse_args()
    print_header()
    results: list[Row] = []
    for names, users, columns in plan(quick=options.quick, widest=options.widest):
        for row in measure(names, users, columns):
            print_row(row)
            results.append(row)
    groupings = [] if options.quick else list(beside_grouping(options.rows, options.users, options.threads))
    print_beside_grouping(groupings, options.rows, options.users, options.threads)
    if options.markdown:
        write_markdown(options.markdown, results, groupings, rows=options.rows, users=options.users)
    if options.plot:
        from scaling.plot import draw  # matplotlib is an extra

        draw(results, options.plot)


if __name__ == "__main__":
    main()
