"""How good a mean is about whose values nothing is told: accuracy, hard cases, hostile users, wild values, intervals.

    python benchmarks/tuning.py [--quick] [--part NAME ...] [--json FILE] [--markdown docs/tuning.md]

Everything goes through `hubermean.mean_of_user_means` with epsilon alone, as a user would call it; data are drawn from
a seeded generator, noise from the operating system. One process, one core.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuning_accuracy import ACCURACY, INTERVALS
from tuning_hostile import ATTACKS, WILDNESS
from tuning_limits import LIMITS
from tuning_part import Effort
from tuning_report import write_markdown
from tuning_unequal import UNEQUAL

PARTS = {part.name: part for part in (ACCURACY, INTERVALS, LIMITS, ATTACKS, WILDNESS, UNEQUAL)}
QUICK = Effort(runs=20, tuning=10, wild=640)


def _plain(value: Any) -> Any:
    """JSON has no infinities, nor numbers that are none."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=500, help="data sets per case")
    parser.add_argument("--tuning-runs", type=int, default=60, help="separate data sets for tuning, at most")
    parser.add_argument("--wild", type=int, default=20_000, help="releases searched for wild values, in all")
    parser.add_argument("--part", nargs="+", default=list(PARTS), choices=list(PARTS), help="only these")
    parser.add_argument("--quick", action="store_true", help="few draws: about a minute, rough")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--markdown", type=Path, help="write the page docs/tuning.md to this file")
    options = parser.parse_args()
    effort = Effort(runs=options.runs, tuning=options.tuning_runs, wild=options.wild)
    if options.quick:
        effort = QUICK
    parts = [part for name, part in PARTS.items() if name in options.part]
    found = {}
    for part in parts:
        started = time.perf_counter()
        found[part.name] = part.run(effort)
        print(f"{(time.perf_counter() - started) / 60.0:.1f} minutes", flush=True)
    for part in parts:
        print(f"\n{part.title}", *part.says(found[part.name]), sep="\n- ")
    if options.json:
        rows = {
            name: [
                {key: _plain(value) for key, value in asdict(row).items()} | getattr(row, "verdicts", {})
                for row in table
            ]
            for name, table in found.items()
        }
        options.json.write_text(json.dumps(rows, indent=1, allow_nan=False) + "\n")
    if options.markdown:
        write_markdown(options.markdown, found, parts, effort)


if __name__ == "__main__":
    main()
