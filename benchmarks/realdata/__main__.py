"""Measure, and write the page docs/evidence/realdata.md with its plots.

    PYTHONPATH=benchmarks python -m realdata [--quick] [--part tables ...] [--json FILE] [--markdown PAGE]

One process per core. Noise comes from a seeded generator, so the page is the same for the same code. Parts that are
not measured are taken from the file of `--json`, where it has them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from realdata.law_runs import PLACES, SIZES, ColumnsResult, LawResult, measure_columns, measure_law
from realdata.laws import LAWS, NEVER_TUNED_ON
from realdata.other_methods import Compared, compare
from realdata.releases import EPSILONS, RELATIONS, Measured, measure
from realdata.results import Results, TableFacts
from realdata.tables import UserSums, load

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


def measure_part(part: str, effort: Effort, seed: int, pool: Executor) -> dict[str, list[Any]]:
    tables = list(load()) if part in ("tables", "methods") else []
    if part == "methods":
        compared = pool.map(compare, tables, repeat(effort.main), repeat(seed))
        return {part: [row for rows in compared for row in rows]}
    jobs: list[partial[Any]] = []
    if part == "tables":
        jobs = [_releases(table, per, effort, seed) for table in tables for per in ("user", "record")]
    elif part == "columns":
        jobs = [partial(measure_columns, neighbors, effort.laws, seed) for neighbors in RELATIONS]
    else:
        jobs = list(_law_jobs(part, effort.laws, seed))
    rows = []
    for result in pool.map(_run, jobs):
        rows += result if isinstance(result, list) else [result]
        _show(rows[-1])
    facts = {"facts": [TableFacts.of(table) for table in tables]} if tables else {}
    return {part: rows, **facts}


def _run(job: partial[Any]) -> Any:
    return job()


def _releases(table: UserSums, per: str, effort: Effort, seed: int) -> partial[list[Measured]]:
    """All that is measured of a table: every epsilon, and replace-user at 1."""
    cases = [(epsilon, "add-remove", effort.main if epsilon == 1 else effort.other) for epsilon in EPSILONS]
    return partial(_measure_all, table, per, [*cases, (1.0, "replace-user", effort.main)], seed)


def _measure_all(
    table: UserSums, per: str, cases: Sequence[tuple[float, str, int]], seed: int
) -> list[Measured]:
    return [measure(table, per, epsilon, neighbors, runs, seed) for epsilon, neighbors, runs in cases]


def _law_jobs(part: str, runs: int, seed: int) -> Iterator[partial[LawResult]]:
    """Laws that constants were tuned on are measured under the default relation, where they are."""
    for law in LAWS.values():
        judged = law in NEVER_TUNED_ON
        sizes = law.sizes or SIZES
        if part == "places":
            cases = [(place, RELATIONS[0], sizes[-2]) for place in tuple(PLACES)[1:] if judged]
        else:
            relations = RELATIONS if judged else RELATIONS[:1]
            cases = [("as is", neighbors, users) for neighbors in relations for users in sizes]
        for place, neighbors, users in cases:
            yield partial(_measure_named, law.name, users, neighbors, place, runs, seed)


def _measure_named(name: str, *case: Any) -> LawResult:
    return measure_law(LAWS[name], *case)


def _show(row: Any) -> None:
    words = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in asdict(row).values()]
    print(" ".join(words), flush=True)


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
    with ProcessPoolExecutor() as pool:
        for part in options.part:
            started = time.perf_counter()
            found |= measure_part(part, effort, options.seed, pool)
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
