"""Speed and scale: one machine, growth, vectors, other libraries, Spark; tables, and the page benchmarks/RESULTS.md.

    make bench          # a short version of all parts
    make bench-all      # the whole: hours
    python -m speed.suite --parts machine --rows 20000000 --users 1000000 --write benchmarks/RESULTS.md

`--write` puts what a part measured into the page, in place of what that part measured before; the other parts stay as
they are there, every part with the command, the sizes and the versions of its own run.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from common.measured import Limits, machine_bytes
from common.rows_file import make_file
from common.sections import Section, Table
from speed import hot_paths, suite_growth, suite_machine, suite_peers, suite_spark, suite_vectors
from speed.engines import use_threads

PAGE = """# Speed and scale

The cost of a private mean relative to the plain query, its growth, and other libraries on the same file. Seconds depend
on the machine; ratios of alternating runs in one process depend on it less. This command writes the page:

```
make bench-all     # hours; make bench is a short run that writes nothing
```

{sections}
"""


class Run:
    """One run of the suite with its options."""

    def __init__(self, options: argparse.Namespace, arguments: list[str]) -> None:
        self.options = options
        self.command = " ".join(["python -m speed.suite", *without_places(arguments)])
        self.limits = Limits.of_this_machine(options.most_seconds)

    def section(
        self, title: str, says: Sequence[str], tables: Sequence[Table], versions: Sequence[str] = ()
    ) -> Section:
        ours = [f"{name} {metadata.version(name)}" for name in ("hubermean", "duckdb", "polars")]
        setting = (
            f"{os.cpu_count()} cores, {machine_bytes() / 1e9:.0f} GB of memory, {self.options.threads} threads; "
            f"Python {platform.python_version()}, {', '.join([*ours, *versions])}."
        )
        return Section(title=title, command=self.command, setting=setting, says=says, tables=tables)

    def machine(self) -> Section:
        given = self.options
        one = make_file(given.rows, given.users)
        many = make_file(given.many_rows, given.many_users, parts=given.parts_of_many)
        common = {"threads": given.threads, "limits": self.limits}
        tables = [
            suite_machine.beside_plain(one, threads=given.threads, repeats=given.repeats),
            suite_machine.memory(one, **common),
            suite_machine.beside_plain(
                many, threads=given.threads, repeats=given.many_repeats, cases=suite_machine.LARGE
            ),
            suite_machine.within_memory(many, **common),
            suite_machine.stages(many, **common),
        ]
        return self.section(TITLES["machine"], suite_machine.SAYS, tables)

    def steps(self) -> Section:
        given = self.options
        table = hot_paths.where_it_goes(
            make_file(given.rows, given.users), threads=given.threads, repeats=given.repeats
        )
        return self.section(TITLES["steps"], hot_paths.SAYS, [table])

    def growth(self) -> Section:
        given = self.options
        common = {"threads": given.threads, "repeats": given.growth_repeats, "limits": self.limits}
        tables = [
            suite_growth.in_rows(given.growth_rows, **common),
            suite_growth.in_users(given.growth_users, given.growth_users_rows, **common),
            suite_growth.in_columns(given.growth_columns, given.growth_columns_rows, **common),
        ]
        return self.section(TITLES["growth"], suite_growth.SAYS, tables)

    def peers(self) -> Section:
        given = self.options
        found = suite_peers.beside_peers(
            given.peer_rows,
            threads=given.threads,
            releases=given.releases,
            limits=self.limits,
            spark_memory=given.spark_memory,
            libraries=given.libraries,
        )
        return self.section(TITLES["peers"], suite_peers.SAYS, found.tables, found.versions)

    def spark(self) -> Section:
        given = self.options
        table, versions = suite_spark.beside_spark(
            make_file(given.spark_rows, given.spark_rows // suite_growth.ROWS_OF_A_USER),
            threads=given.threads,
            repeats=given.spark_repeats,
            limits=self.limits,
            memory=given.spark_memory,
        )
        return self.section(TITLES["spark"], suite_spark.SAYS, [table], versions)

    def vectors(self) -> Section:
        given = self.options
        tables = suite_vectors.of_sizes(
            given.vector_columns, given.vector_users, repeats=given.vector_repeats, limits=self.limits
        )
        return self.section(
            TITLES["vectors"], suite_vectors.SAYS, tables, [f"numpy {metadata.version('numpy')}"]
        )


TITLES = {
    "machine": "One machine",
    "steps": "Where the time goes",
    "growth": "Growth",
    "vectors": "Vectors",
    "peers": "Other libraries",
    "spark": "Spark",
}
"""Of the parts, in the order of the page."""

PARTS: dict[str, Callable[[Run], Section]] = {
    "machine": Run.machine,
    "steps": Run.steps,
    "growth": Run.growth,
    "vectors": Run.vectors,
    "peers": Run.peers,
    "spark": Run.spark,
}

QUICK = {
    "rows": 2_000_000,
    "users": 100_000,
    "many_rows": 4_000_000,
    "many_users": 200_000,
    "parts_of_many": 4,
    "repeats": 3,
    "many_repeats": 3,
    "growth_rows": [100_000, 1_000_000, 4_000_000],
    "growth_users": [1_000, 10_000, 100_000],
    "growth_users_rows": 1_000_000,
    "growth_columns": [1, 2, 4],
    "growth_columns_rows": 500_000,
    "growth_repeats": 2,
    "vector_columns": [100, 1_000],
    "vector_repeats": 3,
    "peer_rows": [100_000],
    "spark_rows": 200_000,
    "spark_repeats": 3,
    "releases": 3,
    "most_seconds": 240.0,
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="small sizes, a few minutes; options still count")
    made.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    made.add_argument("--write", type=Path, help="make the page of all that was measured")
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--most-seconds", type=float, default=900.0, help="of one process that is measured")
    machine = made.add_argument_group("one machine")
    machine.add_argument("--rows", type=int, default=20_000_000, help="of the one file")
    machine.add_argument("--users", type=int, default=1_000_000)
    machine.add_argument("--many-rows", type=int, default=200_000_000, help="of the many files")
    machine.add_argument("--many-users", type=int, default=10_000_000)
    machine.add_argument("--parts-of-many", type=int, default=40, help="how many files")
    machine.add_argument("--repeats", type=int, default=9, help="turns on the one file")
    machine.add_argument("--many-repeats", type=int, default=5, help="turns on the many files")
    growth = made.add_argument_group("growth")
    growth.add_argument("--growth-rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    growth.add_argument(
        "--growth-users", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6, 4 * 10**6]
    )
    growth.add_argument("--growth-users-rows", type=int, default=20_000_000)
    growth.add_argument("--growth-columns", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    growth.add_argument("--growth-columns-rows", type=int, default=10_000_000)
    growth.add_argument("--growth-repeats", type=int, default=3)
    vectors = made.add_argument_group("vectors")
    vectors.add_argument("--vector-users", type=int, default=5_000)
    vectors.add_argument("--vector-columns", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    vectors.add_argument("--vector-repeats", type=int, default=5)
    peers = made.add_argument_group("other libraries")
    peers.add_argument("--peer-rows", type=int, nargs="+", default=[10**6, 5 * 10**6, 2 * 10**7])
    peers.add_argument(
        "--libraries", nargs="+", default=[], help="titles or their beginnings; all if left out"
    )
    peers.add_argument("--releases", type=int, default=10, help="of each library at each size")
    spark = made.add_argument_group("Spark")
    spark.add_argument("--spark-rows", type=int, default=20_000_000)
    spark.add_argument("--spark-repeats", type=int, default=5)
    spark.add_argument("--spark-memory", default="8g", help="of Java; for other libraries on Spark, too")
    return made


def without_places(arguments: Sequence[str]) -> list[str]:
    """What was asked for, and not where the page went: a page names no folder of the machine."""
    after_write = [False, *(argument == "--write" for argument in arguments)]
    return [
        argument
        for argument, is_place in zip(arguments, after_write, strict=False)
        if not is_place and not argument.startswith("--write")
    ]


def page(before: str, measured: Sequence[Section]) -> str:
    """The page with these sections in place of those of the same title, in the order of the parts."""
    found = {title: f"## {title}{rest}".strip() for title, rest in _SECTION.findall(before)}
    found |= {section.title: section.markdown() for section in measured}
    return PAGE.format(sections="\n\n".join(found[title] for title in TITLES.values() if title in found))


_SECTION = re.compile(r"^## (.+?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def main() -> None:
    made = parser()
    if "--quick" in sys.argv:
        made.set_defaults(**QUICK)
    options = made.parse_args()
    use_threads(options.threads)
    run = Run(options, sys.argv[1:])
    for part in options.parts:
        section = PARTS[part](run)
        print(f"\n{section.text()}\n", flush=True)
        if options.write:
            before = options.write.read_text() if options.write.exists() else ""
            options.write.write_text(page(before, [section]))


if __name__ == "__main__":
    main()
