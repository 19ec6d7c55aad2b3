"""Public groups as the caller names them, and the texts that identify them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hubermean.errors import InputError
from hubermean.ingest.duckdb_source import open_source
from hubermean.ingest.engine import SEPARATOR, Limits, PublicKeys, Roles
from hubermean.ingest.files import FileSet, is_text
from hubermean.ingest.identity import has_name, identity_text
from hubermean.ingest.session import quietly

Key = tuple[Any, ...]
MOST_KEYS = 1_000_000


def listed_keys(given: Any, by: Sequence[str]) -> list[Key]:
    """Keys as tuples, one entry per group column.

    `given` lists the keys, as they are for one column and as tuples for several; or it maps every column to its values,
    which stands for all combinations.
    """
    if isinstance(given, Mapping):
        if set(given) != set(by):
            raise InputError(f"keys must map each of {', '.join(by)} to its values")
        given = list(itertools.product(*(_listed(given[name]) for name in by)))
    else:
        given = _listed(given)
        if len(by) == 1:
            given = [one if isinstance(one, tuple) else (one,) for one in given]
    keys = [tuple([_plain(one) for one in key]) if isinstance(key, tuple | list) else () for key in given]
    if not keys:
        raise InputError("keys names no group; list the groups, or leave keys out and give delta")
    if any(len(key) != len(by) for key in keys):
        raise InputError(f"each of keys must have {len(by)} entries, for {', '.join(by)}")
    if len(keys) > MOST_KEYS:
        raise InputError(f"keys may name at most {MOST_KEYS:,} groups")
    return keys


def keys_from_file(path: str, by: Sequence[str], *, data: str | None = None) -> list[Key]:
    """The groups that a file of public keys names.

    The file must be made for that: with the columns of the groups and no other, each group once. One that holds
    anything else may be a copy of the data, and its groups may be anything but public. `data` names the data, whose own
    files are refused.
    """
    files = FileSet.find(path)
    if files.kind == "json":
        raise InputError(
            "public groups are read from CSV or Parquet files, whose columns are declared; write one"
        )
    if data is not None and _is_among(files, data):
        raise InputError("the data cannot tell which groups are public; give --keys another file, or --delta")
    with open_source(path, Roles(users=(), groups=by), Limits(threads=1)) as source:
        if set(source.schema.types) != set(by):
            raise InputError(
                f"a file of public groups has the columns {', '.join(by)} and no other; write one that lists each "
                "group once"
            )
        for name in by:
            source.schema.check_group(name)

        def rows() -> list[tuple[str | None, ...]]:
            with source.opened() as opened:
                columns = [opened.schema.key(name) for name in by]
                texts = ", ".join(column.identity(column.expression) for column in columns)
                return opened.run(f"SELECT {texts} FROM {opened.name}").fetchall()

        found = quietly(rows, f"{path} could not be read to the end; check that it is complete")
    keys = [row for row in found if all(map(has_name, row))]
    if len(set(keys)) != len(keys):
        raise InputError("the file of public groups names a group twice; list each once")
    return listed_keys(keys, by)


def _is_among(files: FileSet, data: str) -> bool:
    """Whether a file is one of the data's, under whatever name."""
    try:
        found = FileSet.find(data).paths
    except InputError:  # the name of a table, or nothing: whoever reads it says so
        return False
    return any(os.path.samefile(one, other) for one in files.paths for other in found)


def _listed(given: Any) -> list[Any]:
    # A text would be taken for a list of letters, and a frame for a list of its columns.
    table = any(hasattr(given, name) for name in ("columns", "column_names"))
    if not isinstance(given, str | bytes) and not table:
        try:
            return list(given)
        except TypeError:
            pass
    raise InputError(
        "keys must list the groups, such as ['north', 'south'], or [('north', 2024), ...] for several columns"
    )


def _plain(key: Any) -> Any:
    return key.item() if isinstance(key, np.generic) else key


def public_keys(keys: Sequence[Key]) -> PublicKeys:
    """The keys and the texts that identify them; refused where one has none, or two are one."""
    texts = [tuple(map(_text, key)) for key in keys]
    if len(set(texts)) != len(texts):
        raise InputError("keys names a group twice; name each once (1 and '1' are the same)")
    return PublicKeys(given=keys, texts=texts)


def _text(key: Any) -> str:
    if isinstance(key, str) and not is_text(key):
        raise InputError("keys must be text that can be written as UTF-8")
    text = identity_text(key)
    if text is None:
        raise InputError(
            "keys must be numbers, text, booleans or dates, as in the column that names the groups"
        )
    if "\0" in text or chr(SEPARATOR) in text:
        raise InputError("keys may not hold the characters zero and 31, which no text needs")
    if not has_name(text):
        raise InputError("keys may not hold the last 128 characters of Unicode, which no text needs")
    return text
