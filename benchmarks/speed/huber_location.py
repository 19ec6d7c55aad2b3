"""Cost of the certified Huber location in units of one `points.mean(axis=0)`, in the same process.

    python -m speed.huber_location

Prints the best of several runs for the two targets (everyone inside the threshold: at most 10 means; 20%
outliers: at most 60 means), the iterations, the peak of temporary memory, and the integer solver's time.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from hubermean.huber.integer import integer_huber_location
from hubermean.huber.solver import huber_location

N_USERS, N_COLUMNS, REPEATS = 1_000_000, 10, 5


def best_seconds(run: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def peak_megabytes(run: Callable[[], object]) -> float:
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def main() -> None:
    rng = np.random.default_rng(0)
    clean = rng.normal(size=(N_USERS, N_COLUMNS))
    dirty = clean.copy()
    outliers = rng.random(N_USERS) < 0.2
    dirty[outliers] = 5.0 * dirty[outliers] + 30.0
    mean_seconds = best_seconds(lambda: clean.mean(axis=0))
    print(
        f"{N_USERS:,} x {N_COLUMNS}: one mean {1e3 * mean_seconds:.1f} ms, data {clean.nbytes / 1e6:.0f} MB"
    )
    cases = [
        ("everyone inside, T = 50", clean, 50.0, 10),
        ("20% outliers, T = 6.3", dirty, 6.3, 60),
        ("20% outliers, T = 1.6 (nearly all outside)", dirty, 1.6, 60),
    ]
    for name, points, threshold, target in cases:

        def run(points: np.ndarray = points, threshold: float = threshold) -> object:
            return huber_location(points, thresholds=threshold)

        seconds = best_seconds(run)
        found = huber_location(points, thresholds=threshold)
        print(
            f"{name:44s} {seconds / mean_seconds:5.1f} means (target {target}), "
            f"{found.iterations} iterations, "
            f"error <= {found.error_bound:.1e}, temporaries {peak_megabytes(run):.1f} MB"
        )
    column = np.round(1e9 * dirty[:, 0]).astype(np.int64)
    seconds = best_seconds(lambda: integer_huber_location(column, thresholds=2 * 10**9))
    print(f"{'integers, one column, exact':44s} {1e3 * seconds:5.1f} ms")


if __name__ == "__main__":
    main()
