"""What the time of a release tells about the data: two data sets, released in turns many times, and compared.

Each row takes two data sets that agree in everything public. `neighbors` differ in one user; `another shape` differ
in everybody: what the time of one release tells of the data at large. The last rows compare a data set with itself,
which shows what the measurement cannot see, and split draws of noise by their size. Times are those of the processor,
which other programs on the machine disturb least; who watches from outside sees more noise than this.

    python -m speed.timing [--pairs 200] [--markdown docs/evidence/timing.md]
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import hubermean as hm
from hubermean.noise.system import SystemNoise

Job = Callable[[], object]
BEGIN, END = "<!-- measured -->\n", "<!-- end of what was measured -->"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two jobs whose times are compared."""

    what: str
    difference: str
    first: Job
    second: Job


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What their times say.

    `guesses` is the share of single releases that the best threshold on the time assigns to the right data set.
    """

    pair: Pair
    milliseconds: float
    ratio: float
    low: float
    high: float
    guesses: float


def compare(pair: Pair, pairs: int) -> Difference:
    """Both in turns, the order swapped every time, after two rounds that do not count."""
    times: tuple[list[float], list[float]] = ([], [])
    jobs = (pair.first, pair.second)
    for turn in range(pairs + 2):
        for which in (0, 1) if turn % 2 else (1, 0):
            start = time.process_time()
            jobs[which]()
            if turn >= 2:
                times[which].append(time.process_time() - start)
    return difference(pair, *times)


def difference(pair: Pair, first: Sequence[float], second: Sequence[float]) -> Difference:
    rng = np.random.default_rng(0)
    one, other = np.array(first), np.array(second)
    resampled = [
        np.median(rng.choice(other, len(other))) / np.median(rng.choice(one, len(one))) for _ in range(2000)
    ]
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Difference(
        pair=pair,
        milliseconds=1e3 * float(np.median(one)),
        ratio=float(np.median(other) / np.median(one)),
        low=float(low),
        high=float(high),
        guesses=0.5 + 0.5 * largest_gap(one, other),
    )


def largest_gap(one: Any, other: Any) -> float:
    """The largest difference of the two distribution functions."""
    everything = np.concatenate([one, other])
    below = [np.searchsorted(np.sort(times), everything, side="right") / len(times) for times in (one, other)]
    return float(np.abs(below[0] - below[1]).max())


def means(mechanism: str, values: Any, **options: Any) -> Job:
    return lambda: hm.mean_of_user_means(values, epsilon=1.0, mechanism=mechanism, **options)


def mechanism_pairs(n_users: int) -> list[Pair]:
    rng = np.random.default_rng(1)
    spread = {"threshold": 3.0, "radius": 1e3}
    vector = {**spread, "threshold": 6.0, "delta": 1e-6}
    asked: list[tuple[str, int, dict[str, Any]]] = [
        ("clipped", 1, {"bounds": (-10.0, 10.0)}),
        ("inverse-sensitivity", 1, spread),
        ("adaptive", 1, {}),
        ("winsorized", 1, spread),
        ("smooth-sensitivity", 3, vector),
        ("propose-test-release", 3, vector),
    ]
    pairs = []
    for mechanism, columns, options in asked:
        usual = rng.normal(size=(n_users, columns))
        far = usual.copy()
        far[0] = 1e12
        apart = 0.5 * rng.standard_t(1.5, size=(n_users, columns))
        name = f"`{mechanism}`, {columns} column{'s' * (columns > 1)}"
        base = means(mechanism, usual, **options)
        pairs += [
            Pair(what=name, difference="neighbors", first=base, second=means(mechanism, far, **options)),
            Pair(
                what=name, difference="another shape", first=base, second=means(mechanism, apart, **options)
            ),
        ]
    return pairs


def reading_pairs(rows: int) -> list[Pair]:
    """Reading and grouping, by a release that does little else."""
    rng = np.random.default_rng(2)
    users = rng.integers(0, rows // 10, rows)
    values = rng.normal(size=rows)

    def job(users: Any, values: Any) -> Job:
        table = pa.table({"u": users, "v": values})
        known = {"bounds": (-10.0, 10.0), "max_records": 20}
        return lambda: hm.mean(table, user="u", value="v", epsilon=1.0, threads=1, **known)

    base = job(users, values)
    many = np.concatenate([users, np.zeros(rows // 10, dtype=users.dtype)])
    more = np.concatenate([values, np.zeros(rows // 10)])
    broken = values.copy()
    broken[users == users[0]] = np.nan
    name = f"reading {rows:,} rows"
    return [
        Pair(what=name, difference="neighbors: other values", first=base, second=job(users, broken)),
        Pair(what=name, difference="neighbors: a tenth more records", first=base, second=job(many, more)),
        Pair(
            what=name, difference="another shape: huge values", first=base, second=job(users, values * 1e11)
        ),
        Pair(
            what=name,
            difference="another shape: half as many users",
            first=base,
            second=job(users // 2, values),
        ),
    ]


def noise_differences(draws: int) -> list[Difference]:
    """Single draws of noise: those larger than the median in size, beside the others."""
    source = SystemNoise()
    found = []
    kinds: list[tuple[str, Callable[[float, int], list[int]]]] = [
        ("discrete Laplace", source.discrete_laplace),
        ("discrete Gaussian", source.discrete_gaussian),
    ]
    for kind, draw in kinds:
        taken = []
        for turn in range(draws + 50):
            start = time.process_time()
            (number,) = draw(2.0**30, 1)
            if turn >= 50:
                taken.append((abs(number), time.process_time() - start))
        middle = statistics.median(size for size, _ in taken)
        small = [seconds for size, seconds in taken if size <= middle]
        large = [seconds for size, seconds in taken if size > middle]
        pair = Pair(
            what=f"one draw of {kind} noise", difference="small or large noise", first=_idle, second=_idle
        )
        found.append(difference(pair, small, large))
    return found


def _idle() -> None: ...


def table(rows: Sequence[Difference]) -> str:
    lines = [
        "| release | what differs | median, ms | ratio of medians (95% range) | right guesses from one time |",
        "|---|---|--:|--:|--:|",
    ]
    for row in rows:
        lines.append(
            f"| {row.pair.what} | {row.pair.difference} | {row.milliseconds:.3g} | "
            f"{row.ratio:.3f} ({row.low:.3f} to {row.high:.3f}) | {row.guesses:.0%} |"
        )
    return "\n".join(lines) + "\n"


def summary(rows: Sequence[tuple[str, str, float]], pairs: int) -> str:
    """Return what the table shows in words: (release, what differs, share of right guesses) per row.

    A difference shows if guesses are right more often than in 95% of comparisons of equal distributions.
    """
    by_chance = round(0.5 + 0.68 * math.sqrt(2.0 / pairs), 2)  # Kolmogorov-Smirnov, two samples
    lines = []
    for kind, words in (("neighbors", "One user"), ("another shape", "The shape of the data")):
        chosen = [
            (what + difference.removeprefix(kind).replace(":", ","), guesses)
            for what, difference, guesses in rows
            if difference.startswith(kind)
        ]
        seen = [f"{what} ({guesses:.0%} right guesses)" for what, guesses in chosen if guesses > by_chance]
        unseen = [what for what, guesses in chosen if guesses <= by_chance]
        lines.append(
            f"- **{words}** showed in the time of: {'; '.join(seen) or 'none'}. "
            f"It did not show in: {'; '.join(unseen) or 'none'}."
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--markdown", type=Path, help="the page whose table is replaced")
    options = parser.parse_args()
    made = [*mechanism_pairs(options.users), *reading_pairs(options.rows)]
    itself = Pair(
        what=made[0].what, difference="nothing (a check)", first=made[0].first, second=made[0].first
    )
    found = [compare(pair, options.pairs) for pair in [*made, itself]]
    rows = [*found, *noise_differences(20 * options.pairs)]
    text = (
        table(rows)
        + "\n"
        + summary([(row.pair.what, row.pair.difference, row.guesses) for row in rows], options.pairs)
    )
    print(text)
    if options.markdown is not None:
        page = options.markdown.read_text()
        before, rest = page.split(BEGIN)
        options.markdown.write_text(before + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
