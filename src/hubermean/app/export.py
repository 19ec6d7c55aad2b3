"""A release as a command, a Python script and a notebook, and its numbers as CSV.

All of them are meant to run in the folder of the data. They ask the question that the page asked, of the same ledger:
its latest answer is returned, and nothing is charged again.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
from collections.abc import Sequence
from typing import Any

from hubermean.app.runner import Released
from hubermean.app.state import Run
from hubermean.app.tables import Table
from hubermean.ingest.locations import without_credentials
from hubermean.ingest.sql import SqlQuery

_FORMULA = re.compile(r"(?:^(?=[\t\r])|(?:^|(?<=[;,\t\r\n]))(?=\s*[=+\-@]))")
"""Where a formula may begin: in a cell, or after what a spreadsheet may take for the end of one."""


class Export:
    """The exports of one run.

    Args:
        run: what was released.
        table: what it was released from.
        folder: the folder of the data, which locations are relative to.
        ledger: file or URL of the ledger.
    """

    def __init__(self, run: Run, table: Table, *, folder: str, ledger: str) -> None:
        self._words = run.draft.keywords(neighbors=run.neighbors, text=run.text)
        self._run, self._table = run, table
        self._ledger = without_credentials(ledger) if "://" in ledger else os.path.relpath(ledger, folder)

    def command(self) -> str:
        """Return the command line, one option per line."""
        data, words = self._table.data, [f"hubermean {'release' if self._is_mean else 'count'}"]
        words[0] += f" {shlex.quote(data.query if isinstance(data, SqlQuery) else self._path())}"
        if self._table.connection is not None:
            words.append(f"--connection {shlex.quote(without_credentials(self._table.connection))}")
        for name, given in self._words.items():
            option = "--" + ("key" if name == "keys" else name.replace("_", "-"))
            if name == "bounds":
                words.append(" ".join([option, *("none" if end is None else _plain(end) for end in given)]))
                continue
            for one in given if isinstance(given, list) else [given]:
                words.append(f"{option} {shlex.quote(_plain(one))}")
        words.append(f"--ledger {shlex.quote(self._ledger)}")
        words.append(f"--dataset {shlex.quote(self._run.dataset)}")
        return " \\\n  ".join(words) + "\n"

    def script(self) -> str:
        """Return a Python script."""
        return f"{self._import()}\n\n{self._call()}\nprint(release)\n"

    def notebook(self) -> str:
        """Return a notebook of three cells, without output."""
        title = f"# Release\n\n{_as_code(self._run.draft.title)}\n\nRun this in the folder of the data. The ledger "
        title += "returns the latest answer to this question, and nothing is charged again."
        cells = [
            _cell("markdown", title),
            _cell("code", f"{self._import()}\n\n{self._call()}\nrelease"),
            _cell("code", "release.details"),
        ]
        for number, cell in enumerate(cells):
            cell["id"] = f"cell-{number}"
        language = {"name": "python"}
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        content = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": kernel, "language_info": language},
            "cells": cells,
        }
        return json.dumps(content, indent=1) + "\n"

    def _path(self) -> str:
        """The path of the file, which is no option whatever its name is."""
        return f"./{self._table.label}" if self._table.label.startswith("-") else self._table.label

    @property
    def _is_mean(self) -> bool:
        return self._run.draft.statistic == "mean"

    def _import(self) -> str:
        return "import hubermean as hm"

    def _call(self) -> str:
        data = self._table.data
        if isinstance(data, SqlQuery):
            connection = without_credentials(self._table.connection or "")
            source = f"hm.sql({_write(data.query)}, connection={_write(connection)})"
        else:
            source = _write(self._path())
        words = {**self._words, "ledger": self._ledger, "dataset": self._run.dataset}
        lines = [source, *(f"{name}={_write(given)}" for name, given in words.items())]
        listed = "".join(f"    {line},\n" for line in lines)
        return f"release = hm.{'mean' if self._is_mean else 'count'}(\n{listed})"


def to_csv(release: Released) -> str:
    """Return a release as CSV; text that a spreadsheet would take for a formula begins with an apostrophe."""
    table = release.to_arrow()
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(map(_defuse, table.column_names))
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        writer.writerow(map(_defuse, row))
    return out.getvalue()


def _defuse(cell: Any) -> Any:
    return _FORMULA.sub("'", cell) if isinstance(cell, str) else cell


def _as_code(text: str) -> str:
    """Return a text as code in Markdown, so that nothing of it is a link or a picture.

    >>> print(_as_code("Mean of `x`"))
    `` Mean of `x` ``
    """
    marks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{marks}{text}{marks}" if marks == "`" else f"{marks} {text} {marks}"


def _plain(given: Any) -> str:
    """Return a text, or a number with all its digits and no more."""
    return given if isinstance(given, str) else repr(given).removesuffix(".0")


def _write(given: Any) -> str:
    """Return Python for a text, a number, or several of them.

    >>> _write("fare"), _write([1.0, 'a "b"']), _write((None, 0.5))
    ('"fare"', '[1, "a \\\\"b\\\\""]', '(None, 0.5)')
    """
    if isinstance(given, str):
        return json.dumps(given, ensure_ascii=False) if given.isprintable() else repr(given)
    if isinstance(given, list):
        return f"[{', '.join(map(_write, given))}]"
    if isinstance(given, tuple):
        return f"({', '.join(map(_write, given))})"
    return repr(given) if given is None else _plain(given)


def _cell(kind: str, source: str) -> dict[str, Any]:
    lines: Sequence[str] = source.splitlines(keepends=True)
    cell: dict[str, Any] = {"cell_type": kind, "id": "", "metadata": {}, "source": list(lines)}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})
