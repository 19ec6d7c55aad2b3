"""Vectors: `hubermean` on model updates in a memory-mapped file, with nothing but a budget and with
`propose-test-release`, beside numpy's plain mean of the file; and on the same updates as a column of lists in Parquet.

Each size runs in a process of its own (`vector_turns.py`), so that the memory it takes is its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.interleaved import Ratio
from common.measured import Limits
from common.rows_file import DATA
from common.sections import Table, megabytes, seconds
from common.watched import watch

_ROW_GROUP_BYTES = 10**8

SAYS = (
    "One Gaussian row of float32 per user, in a warm memory-mapped file. `propose-test-release` gets a "
    "threshold and a radius and releases a mean that is private for whole users at epsilon = 1, delta = "
    "1e-6.",
    "plain: numpy's mean over users in double precision, one thread. read: the sum of all numbers, the "
    "least that one thread can do with a file. These alternate in one process after a warm-up; `over "
    "plain` is the median of the runs, with quartiles in parentheses.",
    "from Parquet: a release of `hm.vectors`, the best of as many runs, after the others: the same rows "
    "as lists of fixed size in row groups of about 100 MB, as pyarrow writes them.",
    "Defaults only: `norm-clipping`, which `auto` takes for wide data; no threshold, no radius. `over "
    "single`: the same over numpy's mean in single precision, its default for such an array, which is exact "
    "to four digits or so. mean far away: all numbers are 3 larger, so that the center is moved and users are "
    "read around it once more or twice.",
    "hostile: one user in twenty is thirty times as far away, all on one side, alternating with the others.",
    "Where the time goes: seconds of each part, the best of as many releases as there are runs. What is "
    "not named is work per column in Python.",
    "GB/s: twice the size of the file, which a release of honest users reads twice, divided by its "
    "seconds. MB: the peak anonymous memory of the process, without the mapped file, beyond that of an "
    "idle one.",
)


def of_sizes(columns: Iterable[int], users: int, *, repeats: int, limits: Limits) -> list[Table]:
    """Of all sizes, and where the time of the last of them goes."""
    parts: dict[str, dict[str, float]] = {}
    headings = [
        *("columns", "read s", "plain s", "hubermean s", "over plain", "GB/s", "MB"),
        *("hostile s", "over plain, hostile", "from Parquet s"),
    ]
    rows, defaults = [], []
    for dimension in columns:
        path = _made(users, dimension)
        command = [
            sys.executable,
            str(Path(__file__).with_name("vector_turns.py")),
            json.dumps({"path": str(path), "lists": str(_as_lists(path)), "repeats": repeats}),
        ]
        watched = watch(command, most_seconds=limits.seconds, most_bytes=limits.bytes)
        if not watched.done:
            print(watched.complaints, file=sys.stderr)
            rows.append([f"{dimension:,}", limits.exceeded(watched.stopped) or "failed", *["-"] * 8])
            continue
        said = json.loads(watched.output.splitlines()[-1])
        times, parts = said["seconds"], said["parts"]
        defaults.append(
            [
                f"{dimension:,}",
                *(seconds(min(times[name])) for name in ("plain", "defaults")),
                *(str(Ratio.of(times["defaults"], times[name])) for name in ("plain", "single")),
                megabytes(said["extra_bytes_by_default"]),
                seconds(min(times["shifted"])),
            ]
        )
        moved = 2.0 * path.stat().st_size
        rows.append(
            [
                f"{dimension:,}",
                *(seconds(min(times[name])) for name in ("read", "plain", "hubermean")),
                str(Ratio.of(times["hubermean"], times["plain"])),
                f"{moved / min(times['hubermean']) / 1e9:.1f}",
                megabytes(said["extra_bytes"]),
                seconds(min(times["hostile"])),
                str(Ratio.of(times["hostile"], times["plain"])),
                seconds(min(times["lists"])),
            ]
        )
    title = f"{users:,} users, `propose-test-release`, {repeats} turns"
    tables = [
        Table(
            title=f"{users:,} users, defaults only, {repeats} turns",
            headings=[
                "columns",
                "plain s",
                "hubermean s",
                "over plain",
                "over single",
                "MB",
                "mean far away s",
            ],
            rows=defaults,
            left=[],
        ),
        Table(title=title, headings=headings, rows=rows, left=[]),
    ]
    if parts:
        tables.append(
            Table(
                title=f"Where the time of a release with {dimension:,} columns goes",
                headings=["part", "honest users, s", "one in twenty hostile, s"],
                rows=[
                    [name, seconds(taken), seconds(parts["hostile"][name])]
                    for name, taken in parts["honest"].items()
                ],
                left=["part"],
            )
        )
    return tables


def _made(users: int, dimension: int) -> Path:
    path = DATA / f"vectors-{users}-{dimension}.npy"
    if not path.exists():
        DATA.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        rng = np.random.default_rng(dimension)
        array = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.float32, shape=(users, dimension))
        for row in array:
            rng.standard_normal(dtype=np.float32, out=row)
        array.flush()
        unfinished.replace(path)
    return path


def _as_lists(array: Path) -> Path:
    """The rows of a file of one array, as a column of lists in Parquet."""
    path = array.with_suffix(".parquet")
    if not path.exists():
        rows = np.load(array, mmap_mode="r")
        kind = pa.list_(pa.float32(), rows.shape[1])
        at_a_time = max(1, _ROW_GROUP_BYTES // (4 * rows.shape[1]))
        unfinished = path.with_suffix(".unfinished")
        with pq.ParquetWriter(unfinished, pa.schema({"user": pa.int64(), "update": kind})) as file:
            for start in range(0, len(rows), at_a_time):
                block = rows[start : start + at_a_time]
                lists = pa.FixedSizeListArray.from_arrays(np.ravel(block), type=kind)
                users = np.arange(start, start + len(block))
                file.write_table(pa.table({"user": users, "update": lists}))
        unfinished.replace(path)
    return path
