"""Two jobs timed in turns in one process, so that both see the same machine."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Job = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plain job, and the private one beside it, with the ratio that it should not exceed."""

    name: str
    plain: Job
    private: Job
    target: float


def compare(cases: Sequence[Case], repeats: int) -> None:
    """Print the best times of each case, and the median of its ratios with quartiles."""
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats):
        for case in cases:
            for label, job in (("plain", case.plain), ("private", case.private)):
                start = time.perf_counter()
                job()
                times.setdefault((case.name, label), []).append(time.perf_counter() - start)
    heads = (
        f"{'plain s':>9}{'release s':>11}{'best/best':>11}{'median ratio':>14}{'quartiles':>14}{'target':>8}"
    )
    print(f"{'':<30}{heads}")
    for case in cases:
        base, private = times[case.name, "plain"], times[case.name, "private"]
        low, middle, high = statistics.quantiles(
            [mine / theirs for mine, theirs in zip(private, base, strict=True)], n=4
        )
        print(
            f"{case.name:<30}{min(base):>9.2f}{min(private):>11.2f}{min(private) / min(base):>11.2f}"
            f"{middle:>14.2f}{f'{low:.2f}-{high:.2f}':>14}{case.target:>8}"
        )
