"""Exact noise for many columns: draws that are made together beside draws one after another, in turns.

python -m speed.noise
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from common.interleaved import Ratio, in_turns
from hubermean.noise.system import MANY, SystemNoise

DRAWS, REPEATS = 100_000, 7
SCALE = 2.0**44 / 3.0  # in grid units: that of `propose-test-release`


def main() -> None:
    noise = SystemNoise()
    for name, draw in (
        ("discrete Gaussian", noise.discrete_gaussian),
        ("discrete Laplace", noise.discrete_laplace),
    ):
        times = in_turns({"together": _together(draw), "one by one": _one_by_one(draw)}, REPEATS)
        each = {way: statistics.median(taken) / DRAWS * 1e6 for way, taken in times.items()}
        ratio = Ratio.of(times["one by one"], times["together"])
        print(
            f"{name}, {DRAWS:,} draws, one thread: {each['together']:.2f} microseconds a draw together, "
            f"{each['one by one']:.1f} one by one; {ratio} times as fast"
        )


Draw = Callable[[float, int], list[int]]


def _together(draw: Draw) -> Callable[[], object]:
    return lambda: draw(SCALE, DRAWS)


def _one_by_one(draw: Draw) -> Callable[[], object]:
    """As many, in numbers so small that OpenDP's sampler makes them."""
    few = MANY - 1
    return lambda: [draw(SCALE, min(few, DRAWS - start)) for start in range(0, DRAWS, few)]


if __name__ == "__main__":
    main()
