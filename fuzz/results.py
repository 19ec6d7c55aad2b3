"""The table of executions."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from collections.abc import Sequence

import hubermean
from fuzz import places
from fuzz.running import Run


def page(runs: Sequence[Run]) -> str:
    """What was run, with what, and what came of it."""
    made = datetime.datetime.now(datetime.UTC).date().isoformat()
    with_ = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("atheris", "duckdb", "pyarrow")
    )
    lines = [
        "# Executions",
        "",
        f"`make fuzz-all`, {made}: hubermean {hubermean.__version__}, Python {platform.python_version()}, {with_}.",
        "",
        "| target | executions | seconds | findings | committed inputs |",
        "|---|---|---|---|---|",
    ]
    for run in runs:
        held = len(list(places.committed(run.target).iterdir()))
        lines.append(f"| {run.target} | {run.executions:,} | {run.seconds:,.0f} | {run.findings} | {held} |")
    return "\n".join(lines) + "\n"
