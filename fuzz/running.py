"""Fuzzing in a process of its own, which may crash or hang without taking the count with it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fuzz import places, targets
from fuzz.tally import Tally

LONGEST_INPUT = 2048
_GRACE = (
    120  # seconds beyond the limit of an execution after which a process is given up; it also has to begin
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds in all, seconds of one execution, megabytes."""

    seconds: int
    execution: int
    megabytes: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """What fuzzing a target came to."""

    target: str
    executions: int
    seconds: float
    findings: int

    def __str__(self) -> str:
        return (
            f"{self.target}: {self.executions:,} executions, {self.seconds:,.0f} s, {self.findings} findings"
        )


def fuzz_all(names: Sequence[str], limits: Limits, *, at_once: int) -> list[Run]:
    def one(name: str) -> Run:
        run = fuzz(name, limits)
        print(run, flush=True)
        return run

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, names))


def fuzz(name: str, limits: Limits) -> Run:
    """Fuzz a target until its time is up; after a crash or a hang, go on in a new process."""
    for folder in (places.grown(name), places.committed(name), places.findings()):
        folder.mkdir(parents=True, exist_ok=True)
    before = _findings(name)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hubermean-fuzzing-") as scratch, Tally(Path(scratch)) as tally:
        words = Path(scratch) / "words"
        words.write_text(_dictionary(targets.load(name).DICTIONARY))
        while (left := limits.seconds - (time.monotonic() - started)) > 1:
            executed = tally.count
            _process(name, limits, int(left), words, tally, scratch)
            if tally.count == executed:
                raise RuntimeError(f"fuzzing {name} does not begin; see {name}.log among the findings")
        executions = tally.count
    return Run(
        target=name,
        executions=executions,
        seconds=time.monotonic() - started,
        findings=len(_findings(name) - before),
    )


def _process(name: str, limits: Limits, left: int, words: Path, tally: Tally, scratch: str) -> None:
    options = [
        f"-max_total_time={left}",
        f"-timeout={limits.execution}",
        f"-rss_limit_mb={limits.megabytes}",
        f"-max_len={LONGEST_INPUT}",
        f"-artifact_prefix={places.findings()}/{name}-",
        *([f"-dict={words}"] if words.stat().st_size else []),
        "-len_control=20",
        "-report_slow_units=100000",
    ]
    folders = [str(places.grown(name)), str(places.committed(name))]
    # Temporary folders of a process that was ended go with the scratch folder.
    surroundings = {**os.environ, "TMPDIR": scratch, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    log = places.findings() / f"{name}.log"
    with log.open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "fuzz.guided", name, str(Tally.path(Path(scratch))), *options, *folders],
            cwd=places.HERE.parent,
            env=surroundings,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            if not _goes_on(child, tally, limits):
                (places.findings() / f"{name}-stuck-{int(time.time())}").write_bytes(b"")
        finally:
            child.kill()
            child.wait()


def _goes_on(child: subprocess.Popen[bytes], tally: Tally, limits: Limits) -> bool:
    """Wait for a process to end; False where it has long been at one execution, and libFuzzer did not notice."""
    seen, since = tally.count, time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(2.0)
            return True
        if tally.count != seen:
            seen, since = tally.count, time.monotonic()
        elif time.monotonic() - since > limits.execution + _GRACE:
            return False


def _findings(name: str) -> set[str]:
    return {path.name for path in places.findings().glob(f"{name}-*") if path.suffix != ".txt"}


def _dictionary(words: Sequence[bytes]) -> str:
    escaped = ("".join(f"\\x{byte:02x}" for byte in word) for word in words)
    return "".join(f'"{word}"\n' for word in escaped)
