"""Where results are kept: a file for each point, written whole or not at all, so that a killed run goes on.

A folder holds the results of one run: one seed, one effort, one set of incomes. Another run is refused; more panels of
the same one are not.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from hubermean._version import __version__
from hubermean.errors import InputError
from hubermean.reproduce.figures.panels import Effort, Point
from hubermean.reproduce.figures.point import Row

FORMAT = "1"
"""Raised between versions whenever points of older runs may not stand beside new ones."""

_RUN, _POINTS = "run.json", "points"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What decides every number of a run.

    `incomes` tells data sets apart, `versions` the code that draws and computes.
    """

    seed: int
    effort: Effort
    incomes: Mapping[str, str]
    versions: Mapping[str, str] = field(
        default_factory=lambda: {"hubermean": __version__, "numpy": np.__version__, "format": FORMAT}
    )


class Store:
    """The folder of a run."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder, self.run = folder, run
        try:
            (folder / _POINTS).mkdir(parents=True, exist_ok=True)
            self._claim()
        except OSError:
            raise InputError(f"{folder} cannot be written; name another folder with --out") from None

    def _claim(self) -> None:
        known = _read(self.folder / _RUN)
        mine = json.loads(json.dumps(asdict(self.run)))
        if known is None and any((self.folder / _POINTS).iterdir()):
            raise self._another()  # whose points these are cannot be told
        if known is not None:
            others = known.get("incomes", {}) if isinstance(known, dict) else None
            incomes = mine["incomes"]
            if (
                not isinstance(others, dict)
                or known != mine | {"incomes": others}
                or any(others.get(name, mark) != mark for name, mark in incomes.items())
            ):
                raise self._another()
            mine["incomes"] = others | incomes
        self.incomes: dict[str, str] = mine["incomes"]
        write_whole(self.folder / _RUN, json.dumps(mine, indent=1) + "\n")

    def _another(self) -> InputError:
        return InputError(
            f"{self.folder} holds another run, with its own seed, effort, incomes or version; "
            "name another folder with --out, or remove this one"
        )

    def rows(self, point: Point) -> list[Row] | None:
        """What was found at a point; None if it has not been run, or is not readable."""
        found = _read(self._path(point))
        names = {one.name for one in fields(Row)}
        if not isinstance(found, list) or not all(
            isinstance(one, dict) and set(one) == names for one in found
        ):
            return None
        return [Row(**one) for one in found]

    def keep(self, point: Point, rows: Iterable[Row]) -> None:
        try:
            write_whole(self._path(point), json.dumps([asdict(row) for row in rows], indent=0) + "\n")
        except OSError:
            raise InputError(
                f"{self.folder} cannot be written any more, for want of space perhaps; what was found before is kept: "
                "make room and give the same command again"
            ) from None

    def _path(self, point: Point) -> Path:
        return self.folder / _POINTS / f"{point.key}.json"


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that whoever looks sees the old one or all of the new one."""
    data = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def table(rows: Sequence[Row]) -> str:
    """The CSV file of a panel; nine digits, which do not depend on the order of a sum."""
    names = [one.name for one in fields(Row)]
    names[names.index("non_private") : names.index("non_private")] = ["ratio", "ratio_error"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(getattr(row, name)) for name in names] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else value


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return ""  # neither a run nor rows
