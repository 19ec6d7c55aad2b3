"""Jobs timed in turns in one process, so that all see the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Job = Callable[[], object]
Name = TypeVar("Name")


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Of the times of two jobs: of their best, and the quartiles of what the turns gave."""

    best: float
    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
        each = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        low, middle, high = statistics.quantiles(each, n=4) if len(each) > 1 else each * 3
        return cls(best=min(ours) / min(theirs), low=low, middle=middle, high=high)

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f} to {self.high:.2f})"


def in_turns(jobs: Mapping[Name, Job], repeats: int) -> dict[Name, list[float]]:
    """Seconds of every run, after one that is not counted: caches fill, libraries load."""
    times: dict[Name, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - start)
    return times


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plain job, and the private one beside it, with the ratio that it should not exceed."""

    name: str
    plain: Job
    private: Job
    target: float


def compare(cases: Sequence[Case], repeats: int) -> None:
    """Print the best times of each case, and the median of its ratios with quartiles."""
    jobs = {(case.name, which): getattr(case, which) for case in cases for which in ("plain", "private")}
    times = in_turns(jobs, repeats)
    heads = (
        f"{'plain s':>9}{'release s':>11}{'best/best':>11}{'median ratio':>14}{'quartiles':>14}{'target':>8}"
    )
    print(f"{'':<30}{heads}")
    for case in cases:
        base, private = times[case.name, "plain"], times[case.name, "private"]
        ratio = Ratio.of(private, base)
        print(
            f"{case.name:<30}{min(base):>9.2f}{min(private):>11.2f}{ratio.best:>11.2f}"
            f"{ratio.middle:>14.2f}{f'{ratio.low:.2f}-{ratio.high:.2f}':>14}{case.target:>8}"
        )
