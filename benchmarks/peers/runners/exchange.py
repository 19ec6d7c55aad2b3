"""How the runner of a peer takes its work and hands back what it released: NumPy files, and nothing of hubermean.

A file of work holds `means`, shape (data sets, users), and `low` and `high`, shape (widths, data sets): for each data
set one pair of bounds per width. The answer, a file of the same name, holds `released`, shape (widths, data sets,
releases), and the peer's version.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ReleaseMeans = Callable[[Any, float, float, float, int], Sequence[float]]
"""From user means, bounds, epsilon and a number to so many independent releases."""


def serve(release_means: ReleaseMeans, *, package: str) -> None:
    parser = argparse.ArgumentParser(
        description=f"Release means with {package}, for benchmarks/peers/run.py."
    )
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--releases", type=int, required=True, help="independent releases per data set")
    parser.add_argument("--into", type=Path, required=True, help="folder of the answers")
    parser.add_argument("work", type=Path, nargs="+")
    options = parser.parse_args()
    for path in options.work:
        with np.load(path) as work:
            means, low, high = work["means"], work["low"], work["high"]
        released = np.empty((*low.shape, options.releases))
        for width, which in np.ndindex(low.shape):
            released[width, which] = release_means(
                means[which],
                float(low[width, which]),
                float(high[width, which]),
                options.epsilon,
                options.releases,
            )
        np.savez(options.into / path.name, released=released, version=metadata.version(package))
