"""Running points in processes of their own; what is found goes to the store as soon as it is found."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from hubermean.errors import InputError
from hubermean.reproduce.figures.panels import Effort, Point
from hubermean.reproduce.figures.point import Row, run_point
from hubermean.reproduce.figures.records import RecordLaw
from hubermean.reproduce.figures.store import Store

# Sums of a BLAS depend on its threads; with one they depend on nothing, and processes do not compete.
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

_laws: dict[str, RecordLaw] = {}
"""Of this process; set once, when it starts."""


def run_points(
    points: Iterable[Point],
    laws: Mapping[str, RecordLaw],
    effort: Effort,
    store: Store,
    *,
    jobs: int,
    done: Callable[[Point], None],
) -> None:
    """Run what the store does not have yet; `done` hears of every point, whether run or found."""
    missing = []
    for point in points:
        if store.rows(point) is None:
            missing.append(point)
        else:
            done(point)
    if not missing:
        return
    missing.sort(key=cost, reverse=True)  # so that no long one is left for the end
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    with _single_threads(), ProcessPoolExecutor(jobs, context, _start, (dict(laws), os.getpid())) as pool:
        try:
            running = {pool.submit(_run, point, effort, store.run.seed): point for point in missing}
            for one in as_completed(running):
                store.keep(running[one], one.result())
                done(running[one])
        except BrokenProcessPool:
            raise InputError(
                "a process ended before its time, for want of memory perhaps; what was found is kept: give the same "
                "command again, with fewer --jobs"
            ) from None
        except BaseException:
            # Whoever interrupts does not want to wait for points that take minutes.
            for child in multiprocessing.active_children():
                if child not in others:
                    child.terminate()
            raise


def cost(point: Point) -> float:
    """About how long a point takes, in seconds; for progress, and to begin with the longest."""
    thousands = point.users / 1_000.0
    if point.panel.axis == "gamma":
        return 25.0 + 2.0 * thousands
    return point.panel.columns * (7.0 + 0.7 * thousands + 0.0025 * thousands * point.x)


def _start(laws: dict[str, RecordLaw], parent: int) -> None:
    _laws.update(laws)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, too, and says stop

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)  # a parent that was killed cannot say stop

    threading.Thread(target=watch, daemon=True).start()


def _run(point: Point, effort: Effort, seed: int) -> list[Row]:
    return run_point(point, _laws[point.panel.law], effort, seed=seed)


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
