"""Measure means by group on real tables, and write docs/evidence/groups.md with its plot.

    PYTHONPATH=benchmarks python -m groups [--quick] [--epsilon 1 ...] [--json FILE] [--markdown PAGE] [--images FOLDER]

One process. Noise comes from a seeded generator, another seed for every run, so the page is the same for the same code.
What hubermean did before comes from before.json (`python -m groups.before`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from groups.before import DELTAS, kept_results
from groups.hindsight import measure_hindsight
from groups.measures import Measured, summarize
from groups.other_libraries import measure_libraries
from groups.releases import release_often
from groups.results import OURS, Results, TableFacts
from groups.tables import JUDGE, TUNE, GroupTable, load


def measure_table(table: GroupTable, *, epsilon: float, runs: int) -> Iterator[Measured]:
    """Every contestant that is measured here, per user and per record, with and without delta."""
    for per in ("user", "record"):
        for delta in DELTAS:
            case = {"per": per, "epsilon": epsilon, "delta": delta}
            released = release_often(table, per=per, epsilon=epsilon, delta=delta, runs=runs)
            yield summarize(
                table, released, contestant=OURS, setting="nothing", per=per, epsilon=epsilon, delta=delta
            )
            yield measure_hindsight(table, per=per, epsilon=epsilon, delta=delta)
            seed = zlib.crc32(repr((table.name, *case.values())).encode())
            yield from measure_libraries(
                table, per=per, epsilon=epsilon, delta=delta, runs=max(20, runs), seed=seed
            )


def _show(row: Measured) -> None:
    print(
        f"{row.table}, per {row.per}, epsilon = {row.epsilon:g}, delta = {row.delta:g}, {row.contestant} "
        f"({row.setting}): RMSE {row.rmse:.2%}, all groups {row.rmse_all:.2%}, coverage {row.coverage:.1%}, "
        f"width {row.width:.2f}, refused {row.refused:.1%}",
        flush=True,
    )


def _revision() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def _read(path: Path) -> Results:
    stored = json.loads(path.read_text())
    return _with_before(
        [TableFacts(**row) for row in stored["facts"]], [Measured(**row) for row in stored["measured"]]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="four runs per case: about two minutes, rough")
    parser.add_argument("--runs", type=int, default=20, help="releases per case")
    parser.add_argument(
        "--epsilon", type=float, nargs="*", default=[1.0], help="1, and others such as 0.3 and 3"
    )
    parser.add_argument("--tables", nargs="*", help="only tables with these names")
    parser.add_argument("--json", type=Path, help="keep all results in this file")
    parser.add_argument("--from-json", type=Path, help="measure nothing; take what was kept")
    parser.add_argument("--markdown", type=Path, help="write the page to this file")
    parser.add_argument("--images", type=Path, help="write its plot into this folder")
    parser.add_argument("--revision", help="what was measured; the one checked out, by default")
    options = parser.parse_args()
    if options.from_json:
        results = _read(options.from_json)
    else:
        runs = 4 if options.quick else options.runs
        results = _measure(options.tables, options.epsilon, runs, options.json)
    if options.markdown:
        from groups.page_text import write_page

        write_page(options.markdown, results, revision=options.revision or _revision())
    if options.images:
        from groups.plots import draw_all

        draw_all(options.images, results)


def _measure(names: list[str] | None, epsilons: list[float], runs: int, into: Path | None) -> Results:
    """Measure table after table; what there is so far is kept in the file `into`."""
    facts: list[TableFacts] = []
    measured: list[Measured] = []
    started = time.perf_counter()
    for table in load(source for source in TUNE + JUDGE if names is None or source.name in names):
        facts.append(TableFacts.of(table))
        for epsilon in epsilons:
            for row in measure_table(table, epsilon=epsilon, runs=runs):
                _show(row)
                measured.append(row)
        if into is not None:
            kept = {name: [asdict(row) for row in rows] for name, rows in _named(facts, measured).items()}
            into.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{(time.perf_counter() - started) / 60.0:.1f} minutes")
    return _with_before(facts, measured)


def _with_before(facts: list[TableFacts], measured: list[Measured]) -> Results:
    shown = {fact.name for fact in facts}
    before = [row for row in kept_results() if row.table in shown]
    return Results(facts=facts, measured=[*measured, *before])


def _named(facts: list[TableFacts], measured: list[Measured]) -> dict[str, list[Any]]:
    return {"facts": facts, "measured": measured}


if __name__ == "__main__":
    main()
