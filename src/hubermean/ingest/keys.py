"""Public groups as the caller names them, in the type of the column that holds them."""

from __future__ import annotations

import datetime
import decimal
import itertools
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hubermean.errors import InputError
from hubermean.ingest.columns import Schema
from hubermean.ingest.duckdb_source import open_source
from hubermean.ingest.engine import Limits, PublicKeys, Roles
from hubermean.ingest.files import identifier, is_text, literal
from hubermean.ingest.session import open_session, quietly
from hubermean.ingest.text_bytes import holds_stand_ins

Key = tuple[Any, ...]
MOST_KEYS = 1_000_000
_SEPARATOR = "\x1f"  # the control character that stands between the units of a list


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


def keys_from_file(path: str, by: Sequence[str]) -> list[Key]:
    """The groups that a file of public keys names, each once."""
    with open_source(path, Roles(users=(), groups=by), Limits(threads=1)) as source:
        try:
            for name in by:
                source.schema.group(name)
        except InputError as refusal:
            raise InputError(f"in {path}, {refusal}") from None
        columns = ", ".join(identifier(name) for name in by)

        def rows() -> list[Key]:
            return source.run(f"SELECT {columns} FROM {source.name}").fetchall()

        found = quietly(rows, f"{path} could not be read to the end; check that it is complete")
        names = (tuple(decoded(one, source.schema) for one in row) for row in found)
        return list(dict.fromkeys(name for name in names if None not in name))


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


def checked_keys(keys: Sequence[Key], by: Sequence[str], schema: Schema) -> PublicKeys:
    """The keys as values of their columns' types; refused where one is none, or two are one."""
    query = keys_query(keys, by, schema)
    with open_session((), memory_limit=None, threads=1) as connection:
        rows = connection.sql(f"SELECT * FROM ({query}) ORDER BY code").fetchall()
    typed = [row[1:] for row in rows]
    for given, row in zip(keys, typed, strict=True):
        for name, key, found in zip(by, given, row, strict=True):
            # The engine would take 1.4 for 1, and a date for one at its own end of time.
            inexact = type(found) in (int, datetime.date) and str(found) != str(key)
            if found is None or (inexact and found != key):
                kind = str(schema.types[name])
                raise InputError(
                    f"{key!r} in keys is no value of column {name!r}, whose type is {kind}; "
                    "write keys as they stand in the data"
                )
    if len(set(typed)) != len(typed):
        raise InputError("keys names a group twice; name each once")
    return PublicKeys(query=query, typed=typed)


def keys_query(keys: Sequence[Key], by: Sequence[str], schema: Schema) -> str:
    """DuckDB's query for the keys in the types of their columns, with a number each; nothing of the data is in it."""
    typed = []
    for place, column in enumerate(by):
        texts = [_text(key[place], schema) for key in keys]
        # One long text in place of one per key, which the engine would take much longer to read.
        listed = f"string_split({literal(_SEPARATOR.join(texts))}, {literal(_SEPARATOR)})"
        typed.append(f"try_cast(unnest({listed}) AS {schema.types[column]}) AS group_{place}")
    return f"SELECT unnest(range({len(keys)})) AS code, {', '.join(typed)}"


def decoded(key: Any, schema: Schema) -> Any:
    """A key as people write it; None for text that stands for bytes that are no UTF-8.

    Different keys stay different: a letter in place of what cannot be read would make one of many.
    """
    return None if schema.byte_text and isinstance(key, str) and holds_stand_ins(key) else key


def _text(key: Any, schema: Schema) -> str:
    if type(key) is int:
        return str(key)
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, datetime.datetime | float) or not isinstance(
        key, str | int | decimal.Decimal | datetime.date | uuid.UUID
    ):
        raise InputError(
            "keys must be integers, text, booleans or dates, as in the column that names the groups"
        )
    text = str(key)
    if "\0" in text or _SEPARATOR in text:
        raise InputError("keys may not hold the characters zero and 31, which no text needs")
    if not is_text(text):
        raise InputError("keys must be text that can be written as UTF-8")
    if schema.byte_text and holds_stand_ins(text):
        raise InputError("keys may not hold the last 128 characters of Unicode, which no text needs")
    return text
