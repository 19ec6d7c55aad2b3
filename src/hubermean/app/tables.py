"""The tables that can be chosen: files below one folder, and the tables of the operator's databases.

A request names a table by its id, which is compared with the ids of a fresh listing and never used as a path. Symbolic
links are not followed. So no request can lead out of the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hubermean.errors import HubermeanError, InputError, printable
from hubermean.ingest.catalog import list_tables, select_table
from hubermean.ingest.locations import without_credentials
from hubermean.ingest.sql import SqlQuery, identify_connection

ENDINGS = (".parquet", ".pq", ".arrow", ".feather", ".ipc", ".csv", ".tsv", ".jsonl", ".ndjson")
_TEXT = (".csv", ".tsv", ".jsonl", ".ndjson")
_MOST_TABLES, _MOST_ENTRIES, _DEEPEST = 1000, 20_000, 8


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that can be chosen.

    Attributes:
        id: names it in requests.
        label: names it on pages.
        place: the folder or database that it is in.
        data: what a release reads.
        connection: of a table in a database.
        is_text, has_header: whether it is a text file, and one whose first line should name its columns.
    """

    id: str
    label: str
    place: str = ""
    data: str | SqlQuery = field(repr=False)
    connection: str | None = field(default=None, repr=False)
    is_text: bool = False
    has_header: bool = False


class Tables:
    """The tables below a folder and in databases."""

    def __init__(self, folder: Path, connections: Sequence[str] = ()) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.connections = tuple(connections)

    def listed(self) -> tuple[list[Table], list[str]]:
        """Return all tables, and a sentence for each database that cannot be reached."""
        tables, problems = list(self._files()), []
        if len(tables) >= _MOST_TABLES:
            problems.append(f"Only the first {_MOST_TABLES:,} files are listed. Start with a smaller folder.")
        for connection in self.connections:
            try:
                tables += self._stored(connection)
            except HubermeanError as error:
                problems.append(str(error))
        return tables, problems

    def find(self, table_id: str) -> Table | None:
        """Return the table of that id, if it is listed."""
        of_files = table_id.startswith("file:")
        listed = self._files() if of_files else self.listed()[0]
        return next((table for table in listed if table.id == table_id), None)

    def _stored(self, connection: str) -> Iterator[Table]:
        source = identify_connection(connection)
        for name in list_tables(connection):
            if all(part == printable(part) for part in name):
                yield Table(
                    id=f"db:{source}:{':'.join(f'{len(part)}:{part}' for part in name)}",
                    label=".".join(name),
                    place=without_credentials(connection),
                    data=select_table(name, connection),
                    connection=connection,
                )

    def _files(self) -> Iterator[Table]:
        found = 0
        for path in self._walk(self.folder, 0, [_MOST_ENTRIES]):
            name = path.lower().removesuffix(".gz")
            if not name.endswith(ENDINGS) or (path.lower().endswith(".gz") and not name.endswith(_TEXT)):
                continue
            found += 1
            if found > _MOST_TABLES:
                return
            yield Table(
                id=f"file:{path}",
                label=path,
                data=str(self.folder / path),
                is_text=name.endswith(_TEXT),
                has_header=name.endswith((".csv", ".tsv")),
            )

    def _walk(self, folder: Path, depth: int, left: list[int]) -> Iterator[str]:
        """Iterate over relative names of regular files, folder by folder, without following links."""
        try:
            with os.scandir(folder) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            left[0] -= 1
            if left[0] < 0:
                return
            if entry.name.startswith(".") or not _is_plain(entry.name):
                continue
            if entry.is_file(follow_symlinks=False):
                yield Path(entry.path).relative_to(self.folder).as_posix()
            elif depth < _DEEPEST and entry.is_dir(follow_symlinks=False):
                yield from self._walk(Path(entry.path), depth + 1, left)


def _is_plain(name: str) -> bool:
    """Whether a name is text, and no character of it would be read as a pattern."""
    return name == printable(name) and not any(letter in name for letter in "*?[")


def require(table: Table | None) -> Table:
    """Return the table; InputError where there is none."""
    if table is None:
        raise InputError("this table is not among those that can be chosen; go back to the list of tables")
    return table
