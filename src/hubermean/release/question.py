"""Questions in public terms: which releases count as the same.

A digest covers parameters and names, never data: whether a question was answered before must not depend on what a file
holds. A file that changed under its name is therefore the same question. A data frame has no name: it is the same as
long as it is the same object, or if the caller names the question. The names inside a digest stay as they are, so that
existing ledgers recognise their questions.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hubermean.errors import printable
from hubermean.ingest.locations import without_credentials
from hubermean.ingest.reading import ReadRequest
from hubermean.ingest.sql import SqlQuery, identify_connection
from hubermean.ingest.vectors import VectorFile
from hubermean.ledger.entries import LONGEST_NAME, Question, check_name, compute_digest, name_asker
from hubermean.mechanisms.base import Mechanism
from hubermean.release.grouped import Grouping
from hubermean.types.options import PublicParameters, TextOptions
from hubermean.types.request import Request

_NAMES: dict[int, tuple[weakref.ref[Any], str]] = {}
"""Names of objects of this process, by id; removed with the object."""

MOST_COLUMNS, COLUMNS_LISTED = 8, 3
"""So many columns are listed in full; of more, so many."""
_SHORT = 8  # characters of a digest that tells paths, queries or lists of columns apart

_SHOWN_IN_FULL = (bool, int, float, str, Fraction, Decimal, datetime.date, uuid.UUID)
_NEVER_THE_SAME = "never the same"
_HIDDEN = object()


def describe_question(
    data: Any,
    *,
    statistic: str,
    request: Request,
    mechanism: str | Mechanism,
    known: PublicParameters,
    reading: ReadRequest | None = None,
    grouping: Grouping | None = None,
    counts: Any = None,
    name: str | None = None,
    by_whom: str | None = None,
) -> Question:
    """Return the question that the arguments of `mean`, `count` or `mean_of_user_means` ask.

    Args:
        data: what is read; only its name or identity is used.
        statistic: "mean" or "count".
        request, mechanism, known, reading, grouping: the public arguments.
        counts: the second data argument of `mean_of_user_means`.
        name: the caller's name of the question, in place of that of the data.
        by_whom: who asks; None for the system's user. It is not part of the question.
    """
    mechanism_name = mechanism if isinstance(mechanism, str) else mechanism.name
    by = [] if grouping is None else list(grouping.by)
    shown = {
        "statistic": statistic,
        "columns": list(request.columns),
        "by": by,
        "per": request.per,
        "epsilon": request.epsilon,
        "delta": request.delta,
        "neighbors": request.neighbors.value,
        "mechanism": mechanism_name,
        "source": _label_data(data) if name is None else check_name(name, "question"),
    }
    source: Any = None if name is not None else _identify_data(data)
    identity = {
        "shown": shown,
        "known": _write_in_full(sorted(known.to_dict().items())),
        "object": None if isinstance(mechanism, str) else _identify_mechanism(mechanism),
        "reading": None if reading is None else _identify_reading(reading),
        "keys": None if grouping is None or grouping.keys is None else _write_in_full(list(grouping.keys)),
        "max_groups": None if grouping is None else grouping.max_groups,
        "data": source if name is None else name,
        "named": name is not None,
    }
    if grouping is not None and grouping.rollup:  # without it, digests are those of older ledgers
        identity["rollup"] = True
    if counts is not None and name is None:
        identity["counts"] = _identify_data(counts)
    users = () if reading is None else tuple(reading.user)
    return Question(
        digest=compute_digest(identity),
        description=_describe(shown, source),
        user_columns=users,
        by_whom=name_asker(by_whom),
        lasting=source is None or source[0] != "object",
    )


def _describe(shown: Mapping[str, Any], source: Any) -> dict[str, Any]:
    """Return what a ledger keeps of a question, of limited size.

    Many columns are listed in part. A short digest tells one path or query from another of the same name; the path
    itself may reveal people or machines.
    """
    description = dict(shown)
    columns = shown["columns"]
    if len(columns) > MOST_COLUMNS:
        description["columns"] = columns[:COLUMNS_LISTED]
        description["more_columns"] = len(columns) - COLUMNS_LISTED
        description["columns_digest"] = compute_digest(columns)[:_SHORT]
    if source is not None and source[0] != "object":
        description["path"] = compute_digest(source)[:_SHORT]
    return description


def _identify_reading(reading: ReadRequest) -> dict[str, Any]:
    # Only what differs from the default: ledgers know questions from before there were such options.
    text = {
        field.name: _write_in_full(given if isinstance(given, str) else list(given))
        for field in fields(TextOptions)
        if (given := getattr(reading, field.name)) != field.default
    }
    return {
        **({"text": text} if text else {}),
        "user": list(reading.user),
        "value": list(reading.value),
        "resolution": repr(reading.resolution),
        "non_finite": reading.non_finite,
    }


def _identify_mechanism(mechanism: Any) -> str:
    """Identify a mechanism: one of this package by its fields, a custom one, whose code may change, by the object."""
    kind = type(mechanism)
    if kind.__module__.partition(".")[0] == "hubermean" and is_dataclass(mechanism):
        shown = _write_in_full(
            [getattr(mechanism, one.name) if one.repr else _HIDDEN for one in fields(mechanism)]
        )
        if not shown.startswith(_NEVER_THE_SAME):
            return f"{kind.__module__}.{kind.__qualname__} {mechanism!r}"
    return _name_object(mechanism)


def _write_in_full(given: Any) -> str:
    """Return a text that differs whenever values differ; an array, for example, shows only some of its digits."""
    return repr(given) if _is_written_in_full(given) else f"{_NEVER_THE_SAME} {uuid.uuid4().hex}"


def _is_written_in_full(given: Any) -> bool:
    if type(given) in (list, tuple):
        return all(map(_is_written_in_full, given))
    return given is None or type(given) in _SHOWN_IN_FULL


def _identify_data(data: Any) -> Any:
    """Identify data by path or query, otherwise by the object."""
    if isinstance(data, str | os.PathLike):
        name = os.fsdecode(data)
        return ["file", without_credentials(name) if "://" in name else os.path.abspath(name)]
    if isinstance(data, SqlQuery) and data.connection is not None:
        return ["database", data.query, identify_connection(data.connection)]
    if isinstance(data, SqlQuery):
        return [
            "sql",
            data.query,
            [[name, list(map(files.shown, files.paths))] for name, files in data.files],
        ]
    if isinstance(data, VectorFile):
        return ["vectors", list(data.files.paths), data.length]
    return ["object", _name_object(data)]


def _name_object(data: Any) -> str:
    held = _NAMES.get(id(data))
    if held is not None and held[0]() is data:
        return held[1]
    name, key = uuid.uuid4().hex, id(data)
    with contextlib.suppress(TypeError):  # a list, for example: never the same question
        _NAMES[key] = (weakref.ref(data, lambda _: _NAMES.pop(key, None)), name)
    return name


def _label_data(data: Any) -> str:
    """Return the public label of data: the file name without its folders, which may reveal people or machines."""
    if isinstance(data, str | os.PathLike):
        name = without_credentials(os.fsdecode(data))
        return printable(os.path.basename(name))[:LONGEST_NAME]
    if isinstance(data, SqlQuery):
        return "a query" if data.connection is None else "a query of a database"
    if isinstance(data, VectorFile):
        return _label_data(data.files.paths[0])
    return f"a {type(data).__name__}"
