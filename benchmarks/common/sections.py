"""What a part of the suite hands to the terminal and to the page: a title, sentences and tables of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from common.page import table_heading, table_line

_WIDTH = 118


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells of text; the columns of `left` are words, all others numbers, which stand on the right."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[str]

    def text(self) -> str:
        lines = [list(self.headings), *map(list, self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rule = ["-" * width for width in widths]
        return "\n".join(
            [self.title, "", *(self._line(line, widths) for line in [lines[0], rule, *lines[1:]])]
        )

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        return "  ".join(
            cell.ljust(width) if heading in self.left else cell.rjust(width)
            for cell, width, heading in zip(cells, widths, self.headings, strict=True)
        ).rstrip()

    def markdown(self) -> str:
        lines = [*table_heading(self.headings, left=self.left), *map(table_line, self.rows)]
        return "\n".join([f"**{self.title}**", "", *lines])


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the suite, measured in one run.

    Attributes:
        command: by which it was measured.
        setting: the machine and the versions, in one sentence.
        says: what the tables mean, a sentence or two each.
    """

    title: str
    command: str
    setting: str
    says: Sequence[str]
    tables: Sequence[Table] = field(default=())

    def text(self) -> str:
        return "\n\n".join(
            [
                self.title.upper(),
                _filled(self.setting),
                *(table.text() for table in self.tables),
                _listed(self.says),
            ]
        )

    def markdown(self) -> str:
        command = f"```\n{self.command}\n```"
        tables = (table.markdown() for table in self.tables)
        return "\n\n".join([f"## {self.title}", command, _filled(self.setting), *tables, _listed(self.says)])


def seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"


def megabytes(value: float) -> str:
    return f"{value / 1e6:,.0f}"


def _listed(sentences: Iterable[str]) -> str:
    return "\n".join(
        textwrap.fill(
            f"- {sentence}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
        )
        for sentence in sentences
    )


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_on_hyphens=False, break_long_words=False)
