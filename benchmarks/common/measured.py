"""A runner of a whole file (`peers/runners/whole_file.py`), started, watched, and what it said and held."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.watched import watch
from peers.runners.make_environments import HERE as RUNNERS
from peers.runners.make_environments import python_of
from peers.runners.whole_file import Work

_HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Limits:
    seconds: float
    bytes: float

    @classmethod
    def of_this_machine(cls, seconds: float) -> Limits:
        """Four fifths of the memory: what takes more would be stopped by the system, or stop others."""
        return cls(seconds=seconds, bytes=0.8 * machine_bytes())

    def exceeded(self, stopped: str | None) -> str:
        """Which limit it was, in short; "" if it was none."""
        return {
            None: "",
            "time": f"> {self.seconds:,.0f} s",
            "memory": f"> {self.bytes / 1e9:,.0f} GB",
        }[stopped]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one runner did.

    Attributes:
        start_seconds, load_seconds: None where it did not come so far; zero where there is nothing to load.
        seconds, values: of every release.
        held_bytes: the most that its own process held before it began to load or release.
        ended: "" where it did all it should, or why it did not.
    """

    versions: Mapping[str, str]
    start_seconds: float | None
    load_seconds: float | None
    seconds: Sequence[float]
    values: Sequence[float]
    held_bytes: int
    peak_bytes: int
    ended: str

    @property
    def best_seconds(self) -> float | None:
        """Of the warm releases: all but the first, if there are others."""
        return min(self.seconds[1:] or self.seconds, default=None)

    @property
    def extra_bytes(self) -> int:
        return max(self.peak_bytes - self.held_bytes, 0)


def measure_engine(work: Work, limits: Limits) -> Measured:
    return _measure([sys.executable, str(_HERE.parent / "speed" / "file_engine.py")], work, limits)


def measure_peer(environment: str, runner: str, work: Work, limits: Limits) -> Measured:
    return _measure([str(python_of(environment)), str(RUNNERS / f"{runner}.py")], work, limits)


def machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _measure(command: Sequence[str], work: Work, limits: Limits) -> Measured:
    watched = watch([*command, work.to_json()], most_seconds=limits.seconds, most_bytes=limits.bytes)
    ended = limits.exceeded(watched.stopped)
    if not watched.done and not ended:
        ended = "failed"
        print(watched.complaints, file=sys.stderr)
    return parsed(watched.output, peak_bytes=watched.peak_bytes, ended=ended)


def parsed(output: str, *, peak_bytes: int, ended: str) -> Measured:
    """Libraries may print, too: only lines of JSON with a step are the runner's."""
    steps = [json.loads(line) for line in output.splitlines() if line.startswith('{"step"')]
    said = {step["step"]: step for step in steps}
    started, released = said.get("started"), [step for step in steps if step["step"] == "released"]
    loaded = said["loaded"]["seconds"] if "loaded" in said else 0.0 if released else None
    return Measured(
        versions=started["versions"] if started else {},
        start_seconds=started["seconds"] if started else None,
        load_seconds=loaded,
        seconds=[step["seconds"] for step in released],
        values=[step["value"] for step in released],
        held_bytes=started["peak_bytes"] if started else 0,
        peak_bytes=max([peak_bytes, *(step["peak_bytes"] for step in steps)]),
        ended=ended,
    )
