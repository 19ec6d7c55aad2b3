"""What was asked, in public words: two questions are the same if their digests are.

A digest is made of parameters and of names, never of data: whether a question was asked before must not depend on what
a file holds. A file that changed under its name is therefore the same question; a data frame, which has no name, is the
same as long as it is the same object, or if the caller gives it a name.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hubermean.errors import InputError
from hubermean.ingest import Reading, SqlQuery, VectorFile
from hubermean.ledger.entries import digest_of
from hubermean.mechanisms import Known, Mechanism, Request
from hubermean.readable import printable
from hubermean.releasing import Grouping

_NAMES: dict[int, tuple[weakref.ref[Any], str]] = {}
"""Names of data frames of this process, by their id; they die with the frame."""

LONGEST_NAME = 200

_SHOWN_IN_FULL = (bool, int, float, str, Fraction, Decimal, datetime.date, uuid.UUID)
_NEVER_THE_SAME = "never the same"
_HIDDEN = object()


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a data set.

    Attributes:
        users: the columns that identify a user; none where user means are held already.
        shown: what a ledger says of it.
        digest: what tells it apart.
    """

    users: tuple[str, ...]
    shown: Mapping[str, Any]
    digest: str


def question_of(
    data: Any,
    *,
    statistic: str,
    request: Request,
    mechanism: str | Mechanism,
    known: Known,
    reading: Reading | None = None,
    grouping: Grouping | None = None,
    counts: Any = None,
    name: str | None = None,
) -> Question:
    """The question behind the arguments of `mean`, `count` or `mean_of_user_means`; `counts` are data of the last."""
    named = mechanism if isinstance(mechanism, str) else mechanism.name
    by = [] if grouping is None else list(grouping.by)
    shown = {
        "statistic": statistic,
        "columns": list(request.columns),
        "by": by,
        "per": request.per,
        "epsilon": request.epsilon,
        "delta": request.delta,
        "neighbors": request.neighbors.value,
        "mechanism": named,
        "source": _label(data) if name is None else checked_name(name, "question"),
    }
    told = {
        "shown": shown,
        "known": _in_full(sorted(known.given_ones().items())),
        "object": None if isinstance(mechanism, str) else _of_object(mechanism),
        "reading": None if reading is None else _of_reading(reading),
        "keys": None if grouping is None or grouping.keys is None else _in_full(list(grouping.keys)),
        "max_groups": None if grouping is None else grouping.max_groups,
        "data": _identity(data) if name is None else name,
        "named": name is not None,
    }
    if counts is not None and name is None:
        told["counts"] = _identity(counts)
    users = () if reading is None else tuple(reading.user)
    return Question(users=users, shown=shown, digest=digest_of(told))


def checked_name(name: object, what: str) -> str:
    """A name that can be shown to people as it is."""
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or printable(name) != name:
        raise InputError(f"{what} must be a text of 1 to {LONGEST_NAME} printable characters")
    return name


def _of_reading(reading: Reading) -> dict[str, Any]:
    return {
        "user": list(reading.user),
        "value": list(reading.value),
        "resolution": repr(reading.resolution),
        "non_finite": reading.non_finite,
    }


def _of_object(mechanism: Any) -> str:
    """One of ours says all there is to it; of one of the caller's own, the code may change: it is this very object."""
    kind = type(mechanism)
    if kind.__module__.partition(".")[0] == "hubermean" and is_dataclass(mechanism):
        told = _in_full([getattr(mechanism, one.name) if one.repr else _HIDDEN for one in fields(mechanism)])
        if not told.startswith(_NEVER_THE_SAME):
            return f"{kind.__module__}.{kind.__qualname__} {mechanism!r}"
    return _name_of(mechanism)


def _in_full(given: Any) -> str:
    """What tells apart all values that differ. A list of numbers, say, may show only some digits of some of them."""
    return repr(given) if _shows_all(given) else f"{_NEVER_THE_SAME} {uuid.uuid4().hex}"


def _shows_all(given: Any) -> bool:
    if type(given) in (list, tuple):
        return all(map(_shows_all, given))
    return given is None or type(given) in _SHOWN_IN_FULL


def _identity(data: Any) -> Any:
    """What names the data: a path or a query; else this very object."""
    if isinstance(data, str | os.PathLike):
        return ["file", os.path.abspath(os.fsdecode(data))]
    if isinstance(data, SqlQuery):
        return ["sql", data.query, [[name, list(files.paths)] for name, files in data.files]]
    if isinstance(data, VectorFile):
        return ["vectors", list(data.files.paths), data.length]
    return ["object", _name_of(data)]


def _name_of(data: Any) -> str:
    held = _NAMES.get(id(data))
    if held is not None and held[0]() is data:
        return held[1]
    name, key = uuid.uuid4().hex, id(data)
    with contextlib.suppress(TypeError):  # a list, say: never the same question
        _NAMES[key] = (weakref.ref(data, lambda _: _NAMES.pop(key, None)), name)
    return name


def _label(data: Any) -> str:
    """For people: of a path only the file name, since folders may tell about people and machines."""
    if isinstance(data, str | os.PathLike):
        return printable(os.path.basename(os.fsdecode(data)))[:LONGEST_NAME]
    if isinstance(data, SqlQuery):
        return "a query"
    if isinstance(data, VectorFile):
        return _label(data.files.paths[0])
    return f"a {type(data).__name__}"
