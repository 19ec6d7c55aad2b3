"""Groups of records: public groups as the caller lists them, and the `GroupTable` of a grouped release."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hubermean.data.arrays import IntArray
from hubermean.data.group_table import GroupKey, GroupTable, Membership
from hubermean.errors import InputError, parameter
from hubermean.ingest.engine import IDENTITY_SEPARATOR, GroupEntries, PublicGroups, mask_engine_errors
from hubermean.ingest.files import FileSet, is_utf8
from hubermean.ingest.identity import identity_text, is_displayable
from hubermean.ingest.numbering import combine_numbers, number_integers, number_texts
from hubermean.ingest.periods import GroupColumn
from hubermean.ingest.schema import ColumnRoles
from hubermean.types.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

MAX_KEYS = 1_000_000


def parse_group_keys(given: Any, by: Sequence[str]) -> list[GroupKey]:
    """Return keys as tuples with one entry per group column.

    Args:
        given: a list of keys, which are single values for one group column and tuples for several; or a mapping from
            each column to its values, which stands for all combinations.
        by: the group columns.
    """
    if isinstance(given, Mapping):
        if set(given) != set(by):
            raise InputError(f"{parameter('keys')} must map each of {', '.join(by)} to its values")
        given = list(itertools.product(*(_to_list(given[name]) for name in by)))
    else:
        given = _to_list(given)
        if len(by) == 1:
            given = [one if isinstance(one, tuple) else (one,) for one in given]
    keys = [tuple([_to_python(one) for one in key]) if isinstance(key, tuple | list) else () for key in given]
    if not keys:
        raise InputError("keys is empty; list the public groups, or leave keys out and set delta")
    if any(len(key) != len(by) for key in keys):
        raise InputError(f"each of keys must have {len(by)} entries, for {', '.join(by)}")
    if len(keys) > MAX_KEYS:
        raise InputError(f"keys may name at most {MAX_KEYS:,} groups")
    return keys


def read_group_keys(path: str, by: Sequence[str], *, data: str | None = None) -> list[GroupKey]:
    """Return the groups that a file of public groups lists.

    The file must have the group columns and no other, and list each group once: any other file may be a copy of the
    data, whose groups are not public. Files of `data`, the path of the data, are refused.
    """
    from hubermean.ingest.duckdb.source import open_source

    files = FileSet.find(path)
    if files.kind == "json":
        raise InputError(
            "public groups are read from CSV or Parquet files, which declare their columns; write one of these"
        )
    if data is not None and _is_among(files, data):
        raise InputError(
            "the data cannot define which groups are public; pass another file to --keys, or set --delta"
        )
    # As users: the column "month(date)" of such a file has the names of months.
    with open_source(path, ColumnRoles(users=by), ReadOptions(threads=1)) as source:
        if set(source.schema.types) != set(by):
            raise InputError(
                f"a file of public groups must have the columns {', '.join(by)} and no other; write one that lists "
                "each group once"
            )
        for name in by:
            source.schema.check_user(name)
            if not GroupColumn.parse(name).period:
                source.schema.check_group(name)

        def read_identities() -> list[tuple[str | None, ...]]:
            with source.open() as rows:
                columns = [rows.schema.key_column(name) for name in by]
                texts = ", ".join(column.identity(column.expression) for column in columns)
                return rows.run(f"SELECT {texts} FROM {rows.name}").fetchall()

        found = mask_engine_errors(
            read_identities, f"{path} could not be read completely; check that it is not damaged"
        )
    keys = [row for row in found if all(map(is_displayable, row))]
    if len(set(keys)) != len(keys):
        raise InputError("the file of public groups lists a group twice; list each group once")
    return parse_group_keys(keys, by)


def _is_among(files: FileSet, data: str) -> bool:
    """Whether one of the files is a file of the data, under any name."""
    try:
        found = FileSet.find(data)
    except InputError:  # the name of a table, or a missing file, which is reported when it is read
        return False
    if files.filesystem is not None or found.filesystem is not None:
        return bool({*map(files.shown, files.paths)} & {*map(found.shown, found.paths)})
    return any(os.path.samefile(one, other) for one in files.paths for other in found.paths)


def _to_list(given: Any) -> list[Any]:
    # A text would be read as a list of characters, and a frame as a list of its columns.
    table = any(hasattr(given, name) for name in ("columns", "column_names"))
    if not isinstance(given, str | bytes) and not table:
        try:
            return list(given)
        except TypeError:
            pass
    raise InputError(
        f"{parameter('keys')} must list the groups, such as ['north', 'south'], or [('north', "
        "2024), ...] for several columns"
    )


def _to_python(key: Any) -> Any:
    return key.item() if isinstance(key, np.generic) else key


def identify_groups(keys: Sequence[GroupKey]) -> PublicGroups:
    """Return the keys with the texts that identify them; InputError if one has none, or two are the same."""
    texts = [tuple(map(_identify, key)) for key in keys]
    if len(set(texts)) != len(texts):
        raise InputError("keys lists a group twice; list each group once (1 and '1' are the same)")
    return PublicGroups(keys=keys, texts=texts)


def _identify(key: Any) -> str:
    if isinstance(key, str) and not is_utf8(key):
        raise InputError(f"{parameter('keys')} must be text that can be encoded as UTF-8")
    text = identity_text(key)
    if text is None:
        raise InputError(
            f"{parameter('keys')} must be numbers, text, booleans or dates, as in the column that "
            "names the groups"
        )
    if "\0" in text or chr(IDENTITY_SEPARATOR) in text:
        raise InputError(f"{parameter('keys')} must not contain the control characters 0 and 31; remove them")
    if not is_displayable(text):
        raise InputError(
            f"{parameter('keys')} must not contain the last 128 code points of Unicode; remove them"
        )
    return text


def build_group_table(found: GroupEntries, by: Sequence[str], public: PublicGroups | None) -> GroupTable:
    """Return the result of `Source.read_group_entries` as a `GroupTable`, without entries in no group of it.

    Groups are the public ones, or those that occur and can be shown.
    """
    if public is None:
        keys: Sequence[Any] = [name for name in found.names if all(map(is_displayable, name))]
        numbers = {name: number for number, name in enumerate(keys)}
    else:
        keys, numbers = public.keys, {texts: number for number, texts in enumerate(public.texts)}
    # One more, which is also the last, for entries in no group.
    codes = np.array([*(numbers.get(name, -1) for name in found.names), -1], dtype=np.int64)[found.groups]
    entries, owners = found.entries, found.owners
    if (codes < 0).any():
        within = np.flatnonzero(codes >= 0)
        codes, owners, entries = codes[within], owners[within], entries.take(within)
    return GroupTable(
        by=tuple(by),
        keys=tuple(keys),
        members=entries,
        membership=Membership(groups=codes, size=len(keys)),
        owners=owners,
        n_owners=found.n_owners,
    )


def number_groups(
    columns: Sequence[pa.ChunkedArray],
    name_integers: Callable[[int, IntArray], Sequence[str]] | None = None,
) -> tuple[IntArray, list[tuple[str | None, ...]]]:
    """Return the group of each row, -1 for none, and the texts that identify each group.

    Args:
        columns: one per group column, texts or integers; null for no group.
        name_integers: returns the texts of integers of the column at a position; None if all columns are texts.
    """
    numbered: list[tuple[IntArray, int]] = []
    texts: list[list[str | None]] = []
    for place, column in enumerate(columns):
        if name_integers is not None and str(column.type).startswith(("int", "uint")):
            codes, integers = number_integers(column)
            texts.append([*name_integers(place, integers)])
        else:
            codes, found = number_texts(column)
            texts.append([*map(_decode, found)])
        numbered.append((codes, len(texts[-1])))
    groups, parts = combine_numbers(numbered)
    names = [[own[number] for number in part.tolist()] for own, part in zip(texts, parts, strict=True)]
    return groups, list(zip(*names, strict=True))


def _decode(key: pa.Scalar) -> str | None:
    """Return a key as text; None if it is no UTF-8, which must not stop the release of other groups."""
    try:
        name: str | None = key.as_py()
    except UnicodeDecodeError:
        return None
    return name
