"""The table of mechanisms in docs/reference/mechanisms.md, made from the registry.

python docs/tools/mechanism_table.py             # exit code 1 where the page is out of date
python docs/tools/mechanism_table.py --write     # write the table into the page
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from hubermean.mechanisms.registry import REGISTRY, MechanismEntry
from hubermean.types.request import Neighbors

PAGE = Path(__file__).parents[1] / "reference" / "mechanisms.md"
BEGIN, END = "<!-- mechanisms: made by docs/tools/mechanism_table.py -->\n", "<!-- end of mechanisms -->\n"


def make_table() -> str:
    """Return one row per mechanism, in Markdown."""
    rows = [
        "| `mechanism=` | what it releases | needs | guarantee | columns | `neighbors` |",
        "|---|---|---|---|---|---|",
    ]
    rows += [" | ".join(("", *_cells(entry), "")).strip() for entry in REGISTRY.values()]
    return "\n".join(rows) + "\n"


def insert_table(page: str) -> str:
    """Return the page with the table of today's registry between the two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{make_table()}\n{END}{after}"


def _cells(entry: MechanismEntry) -> Iterable[str]:
    yield f'`"{entry.name}"`'
    yield entry.summary
    needs = " and ".join(f"`{name}`" for name in entry.needs) or "nothing"
    yield f"{needs}; estimated privately if not given" if entry.estimates else needs
    yield f"{entry.guarantee}; needs delta > 0" if entry.needs_delta else entry.guarantee
    yield entry.layout if entry.in_plan else "of the chosen one"
    yield (
        "all"
        if entry.relations == tuple(Neighbors)
        else ", ".join(f'`"{one.value}"`' for one in entry.relations)
    )


def main() -> None:
    """Check the page, or write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    page = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().write:
        PAGE.write_text(insert_table(page), encoding="utf-8")
    elif insert_table(page) != page:
        print(f"{PAGE.name} is out of date: run python docs/tools/mechanism_table.py --write")
        sys.exit(1)


if __name__ == "__main__":
    main()
