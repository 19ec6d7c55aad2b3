"""Measure, and write the page docs/realdata.md with its plots.

    PYTHONPATH=benchmarks python -m realdata [--quick] [--part tables ...] [--json FILE] [--markdown docs/realdata.md]

One process, one core. Noise comes from a seeded generator, so the page is the same for the same code. Parts that are
not measured are taken from the file of `--json`, where it has them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from realdata.law_runs import PLACES, SIZES, ColumnsResult, LawResult, measure_columns, measure_law
from realdata.laws import LAWS
from realdata.other_methods import Compared, compare
from realdata.releases import EPSILONS, RELATIONS, Measured, measure
from realdata.results import Results, TableFacts
from realdata.tables import load

PARTS = ("tables", "methods", "laws", "places", "columns")
KINDS: dict[str, Any] = {
    "facts": TableFacts,
    "tables": Measured,
    "methods": Compared,
    "laws": LawResult,
    "places": LawResult,
    "columns": ColumnsResult,
}


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How many releases or data sets per case.

    Attributes:
        main: releases of a real table at epsilon = 1.
        other: at any other epsilon.
        laws: data sets of a law.
    """

    main: int = 200
    other: int = 60
    laws: int = 500


QUICK = Effort(main=20, other=10, laws=10)


def measure_part(part: str, effort: Effort, seed: int) -> dict[str, list[Any]]:
    if part in ("tables", "methods"):
        found: dict[str, list[Any]] = {part: []}
        if part == "tables":
            found["facts"] = []
        for table in load():
            if part == "methods":
                found[part] += compare(table, effort.main, seed)
                continue
            found["facts"].append(TableFacts.of(table))
            for per in ("user", "record"):
                found[part] += [
                    measure(
                        table, per, epsilon, "add-remove", effort.main if epsilon == 1 else effort.other, seed
                    )
                    for epsilon in EPSILONS
                ]
                found[part].append(measure(table, per, 1.0, "replace-user", effort.main, seed))
                row = found[part][-6]
                print(f"{table.name:20} {per:6} {row.ratio:5.2f} {row.coverage:.3f}", flush=True)
        return found
    if part == "columns":
        return {part: [measure_columns(neighbors, effort.laws, seed) for neighbors in RELATIONS]}
    return {part: _measure_laws(part, effort, seed)}


def _measure_laws(part: str, effort: Effort, seed: int) -> list[LawResult]:
    places = ("as is",) if part == "laws" else tuple(PLACES)[1:]
    relations = RELATIONS if part == "laws" else RELATIONS[:1]
    rows = []
    for place in places:
        for neighbors in relations:
            for law in LAWS.values():
                sizes = law.sizes or SIZES
                for users in sizes if part == "laws" else sizes[-2:-1]:
                    row = measure_law(law, users, neighbors, place, effort.laws, seed)
                    rows.append(row)
                    print(
                        f"{place:15} {neighbors:13} {users:6} {law.name:25} {row.released:.3f} {row.ratio:6.2f} "
                        f"{row.coverage:.3f} {row.width:.2f}",
                        flush=True,
                    )
    return rows


def _revision() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"


def _read(path: Path | None) -> dict[str, list[Any]]:
    if path is None or not path.exists():
        return {}
    stored = json.loads(path.read_text())
    return {part: [KINDS[part](**row) for row in rows] for part, rows in stored.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", nargs="*", default=list(PARTS), choices=list(PARTS), help="only these")
    parser.add_argument("--quick", action="store_true", help="few runs: about two minutes, rough")
    parser.add_argument("--runs", type=int, default=Effort.main, help="releases per table at epsilon = 1")
    parser.add_argument("--data-sets", type=int, default=Effort.laws, help="data sets per law")
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--json", type=Path, help="keep all results in this file")
    parser.add_argument("--markdown", type=Path, help="write the page to this file")
    parser.add_argument("--revision", help="what was measured; the one checked out, by default")
    parser.add_argument("--images", type=Path, help="write its plots into this folder")
    options = parser.parse_args()
    effort = QUICK if options.quick else Effort(main=options.runs, laws=options.data_sets)
    found = _read(options.json)
    for part in options.part:
        started = time.perf_counter()
        found |= measure_part(part, effort, options.seed)
        print(f"{part}: {(time.perf_counter() - started) / 60.0:.1f} minutes", flush=True)
        if options.json:
            kept = {name: [asdict(row) for row in rows] for name, rows in found.items()}
            options.json.write_text(json.dumps(kept, indent=1) + "\n")
    if options.markdown:
        from realdata.page_text import write_page

        write_page(options.markdown, Results(**found), revision=options.revision or _revision())
    if options.images:
        from realdata.plots import draw_all

        draw_all(options.images, Results(**found))


if __name__ == "__main__":
    main()
