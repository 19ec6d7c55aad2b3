"""The modules that a release passes through, in the order in which each is entered first.

`python scripts/trace_calls.py` traces `hm.mean("file.parquet", user=..., value=..., epsilon=1)`, the default call. A
reader who follows that call through the source visits these modules in this order.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import hubermean as hm

_PACKAGE = "hubermean."


def example_file(folder: Path) -> Path:
    """Write 5,000 users with one to nine records each, made up."""
    draws = np.random.default_rng(1)
    users = np.repeat(np.arange(5_000), draws.integers(1, 10, 5_000))
    place = folder / "trips.parquet"
    pq.write_table(pa.table({"rider": users, "fare": draws.lognormal(2.0, 0.5, len(users))}), place)
    return place


def trace_default_call() -> list[str]:
    """Return the modules whose functions the default call runs, in the order of their first call."""
    modules: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        module = frame.f_globals.get("__name__", "")
        # Generated methods of dataclasses are no place to read.
        if module.startswith(_PACKAGE) and frame.f_code.co_filename.endswith(".py"):
            modules.setdefault(module.removeprefix(_PACKAGE))

    with tempfile.TemporaryDirectory() as folder:
        place = str(example_file(Path(folder)))
        hm.mean(place, user="rider", value="fare", epsilon=1.0)  # imports are no part of the trace
        sys.setprofile(note)
        try:
            hm.mean(place, user="rider", value="fare", epsilon=1.0)
        finally:
            sys.setprofile(None)
    return list(modules)


def package_of(module: str) -> str:
    """Return the package that holds a module, two levels deep for mechanisms and engines."""
    parts = module.split(".")[:-1]
    return ".".join(parts[:2]) if parts else module


def count_returns(modules: list[str]) -> Counter[frozenset[str]]:
    """Count, for every two packages, how often the trace leaves one for the other and returns."""
    crossings = Counter(
        frozenset((package_of(one), package_of(other)))
        for one, other in pairwise(modules)
        if package_of(one) != package_of(other)
    )
    return Counter({pair: count // 2 for pair, count in crossings.items() if count > 1})


def main() -> int:
    """Print the trace; with --most, fail if it is longer than that or returns between two packages twice."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=int, help="fail if the trace has more modules")
    most = parser.parse_args().most
    modules = trace_default_call()
    for number, module in enumerate(modules, 1):
        print(f"{number:3} {module}")
    returns = count_returns(modules)
    print(f"{len(modules)} modules")
    for pair, times in returns.most_common():
        print(f"{times} return{'' if times == 1 else 's'} between {' and '.join(sorted(pair))}")
    return int(most is not None and (len(modules) > most or any(times > 1 for times in returns.values())))


if __name__ == "__main__":
    sys.exit(main())
