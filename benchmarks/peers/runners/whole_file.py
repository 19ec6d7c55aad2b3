"""How a runner releases the mean of a whole Parquet file and says what it took; nothing of hubermean in it.

The work comes as one JSON object, the only argument. Every step is a line of JSON on standard output, written as soon
as it is done, so that what a runner did before its time was up is known: `started` (imports, a session), `loaded` (the
file in the library's own form, where that is a step of its own), then a `released` for every release.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Work:
    """A file, the question, and what is true of the data: libraries that must be given bounds are given these.

    Attributes:
        path: of the file, or a pattern of several.
        low, high: bounds of the values.
        mean_low, mean_high: bounds of the user means.
        most_records: of one user.
        releases, seconds: how many releases to make, and after how long to begin no other.
        options: what only one runner knows.
    """

    path: str
    user: str
    value: str
    epsilon: float
    threads: int
    releases: int
    seconds: float
    rows: int
    low: float | None = None
    high: float | None = None
    mean_low: float | None = None
    mean_high: float | None = None
    most_records: int | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(vars(self))


Load = Callable[[], Any]
Release = Callable[[Any], float]
Start = Callable[[Work], tuple[Load, Release]]
"""Imports the library; what it gives is how to load the file, and how to release from what was loaded."""


def nothing_to_load() -> None:
    """For libraries that read the file at every release."""


def serve(start: Start, *, packages: tuple[str, ...]) -> None:
    work = Work(**json.loads(sys.argv[1]))
    begun = time.perf_counter()
    load, release = start(work)
    _say("started", begun, versions={package: metadata.version(package) for package in packages})
    loading = time.perf_counter()
    loaded = load()
    if load is not nothing_to_load:
        _say("loaded", loading)
    for _ in range(work.releases):
        releasing = time.perf_counter()
        value = release(loaded)
        _say("released", releasing, value=value)
        if time.perf_counter() - begun > work.seconds:
            break


def _say(step: str, since: float, **more: object) -> None:
    said = {"step": step, "seconds": time.perf_counter() - since, "peak_bytes": _own_peak_bytes(), **more}
    print(json.dumps(said), flush=True)


def _own_peak_bytes() -> int:
    """The most resident memory that this process has held so far."""
    (kilobytes,) = re.findall(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kilobytes) * 1024
