"""Running the points of a panel in parallel processes, and the folder that stores their results.

A folder holds the results of one run: one seed, one effort, one set of incomes. Each point has a file that is written
atomically as soon as it is computed, so that an interrupted run can continue. Another run in the same folder is
refused; more panels of the same run are added.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from hubermean._version import __version__
from hubermean.errors import InputError
from hubermean_experiments.figures.panels import Effort, PanelPoint
from hubermean_experiments.figures.records import RecordDistribution
from hubermean_experiments.figures.rows import ResultRow
from hubermean_experiments.figures.simulation import run_point

FORMAT = "1"
"""Incremented when points of older runs must not be mixed with new ones."""

_RUN, _POINTS = "run.json", "points"


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Everything that determines the numbers of a run.

    `incomes` identifies the data sets, `versions` the code that draws and computes.
    """

    seed: int
    effort: Effort
    incomes: Mapping[str, str]
    versions: Mapping[str, str] = field(
        default_factory=lambda: {"hubermean": __version__, "numpy": np.__version__, "format": FORMAT}
    )


class ResultStore:
    """The folder of a run; refuses a folder that holds another run."""

    def __init__(self, folder: Path, run: RunSettings) -> None:
        self.folder, self.run = folder, run
        try:
            (folder / _POINTS).mkdir(parents=True, exist_ok=True)
            self._open()
        except OSError:
            raise InputError(f"{folder} cannot be written; name another folder with --out") from None

    def _open(self) -> None:
        known = _read(self.folder / _RUN)
        mine = json.loads(json.dumps(asdict(self.run)))
        if known is None and any((self.folder / _POINTS).iterdir()):
            raise self._refusal()  # points of an unknown run
        if known is not None:
            others = known.get("incomes", {}) if isinstance(known, dict) else None
            incomes = mine["incomes"]
            if (
                not isinstance(others, dict)
                or known != mine | {"incomes": others}
                or any(others.get(name, mark) != mark for name, mark in incomes.items())
            ):
                raise self._refusal()
            mine["incomes"] = others | incomes
        self.incomes: dict[str, str] = mine["incomes"]
        write_atomically(self.folder / _RUN, json.dumps(mine, indent=1) + "\n")

    def _refusal(self) -> InputError:
        return InputError(
            f"{self.folder} holds another run, with a different seed, effort, incomes or version; "
            "name another folder with --out, or remove this one"
        )

    def rows(self, point: PanelPoint) -> list[ResultRow] | None:
        """The rows of a point; None if it has not been computed or its file is unreadable."""
        found = _read(self._path(point))
        names = {one.name for one in fields(ResultRow)}
        if not isinstance(found, list) or not all(
            isinstance(one, dict) and set(one) == names for one in found
        ):
            return None
        return [ResultRow(**one) for one in found]

    def keep(self, point: PanelPoint, rows: Iterable[ResultRow]) -> None:
        try:
            write_atomically(self._path(point), json.dumps([asdict(row) for row in rows], indent=0) + "\n")
        except OSError:
            raise InputError(
                f"{self.folder} cannot be written any more (is the disk full?); finished points are kept: "
                "free some space and run the same command again"
            ) from None

    def _path(self, point: PanelPoint) -> Path:
        return self.folder / _POINTS / f"{point.key}.json"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically: readers see the old content or the whole new content."""
    data = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return ""  # unreadable: neither a run nor rows


# Sums in a BLAS depend on its number of threads. One thread makes them reproducible, and processes do not compete.
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

_distributions: dict[str, RecordDistribution] = {}
"""The record distributions of this process, set once when it starts."""


def run_points(
    points: Iterable[PanelPoint],
    distributions: Mapping[str, RecordDistribution],
    effort: Effort,
    store: ResultStore,
    *,
    jobs: int,
    done: Callable[[PanelPoint], None],
) -> None:
    """Run the points that the store lacks; `done` is called for every point, stored or computed."""
    missing = []
    for point in points:
        if store.rows(point) is None:
            missing.append(point)
        else:
            done(point)
    if not missing:
        return
    missing.sort(key=estimate_seconds, reverse=True)  # the longest first, so that none is left for the end
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    with (
        _single_threads(),
        ProcessPoolExecutor(jobs, context, _start, (dict(distributions), os.getpid())) as pool,
    ):
        try:
            running = {pool.submit(_run, point, effort, store.run.seed): point for point in missing}
            for one in as_completed(running):
                store.keep(running[one], one.result())
                done(running[one])
        except BrokenProcessPool:
            raise InputError(
                "a worker process was killed (out of memory?); finished points are kept: run the same command again, "
                "with fewer --jobs"
            ) from None
        except BaseException:
            # After an interrupt, do not wait for points that take minutes.
            for child in multiprocessing.active_children():
                if child not in others:
                    child.terminate()
            raise


def estimate_seconds(point: PanelPoint) -> float:
    """Roughly how long a point takes, in seconds; for the progress bar and the order of points."""
    thousands = point.users / 1_000.0
    if point.panel.axis == "gamma":
        return 25.0 + 2.0 * thousands
    return point.panel.columns * (7.0 + 0.7 * thousands + 0.0025 * thousands * point.x)


def _start(distributions: dict[str, RecordDistribution], parent: int) -> None:
    _distributions.update(distributions)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it as well, and stops the workers

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)  # the parent was killed and cannot stop the workers

    threading.Thread(target=watch, daemon=True).start()


def _run(point: PanelPoint, effort: Effort, seed: int) -> list[ResultRow]:
    return run_point(point, _distributions[point.panel.distribution], effort, seed=seed)


@contextmanager
def _single_threads() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
