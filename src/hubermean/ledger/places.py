"""Which store a name stands for: a file, or the URL of a database."""

from __future__ import annotations

import os
import re

from hubermean.errors import InputError
from hubermean.ledger.postgres_store import PostgresStore
from hubermean.ledger.sqlite_store import SqliteStore
from hubermean.ledger.store import Store

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_NEARLY = re.compile(r"^\s*(\w+:)?postgres(ql)?\b[^/]*:|://|\bpassword\s*=", re.ASCII | re.IGNORECASE)
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


def store_at(place: str | os.PathLike[str]) -> Store:
    """The store of a ledger; nothing is opened yet.

    >>> store_at("budget.sqlite").place
    'budget.sqlite'
    """
    text = os.fspath(place) if isinstance(place, str | os.PathLike) else None
    if not isinstance(text, str) or not text.strip() or not text.isprintable():
        raise InputError(
            "a ledger is a file name or a URL such as postgresql://host/database, in printable text"
        )
    url = _URL.match(text)
    if url is None:
        if _NEARLY.search(text):  # taken for a file name, it would be shown, password and all
            raise InputError(
                "the URL of the ledger cannot be read; write postgresql://user:password@host:port/database"
            )
        return SqliteStore(text)
    scheme = url["scheme"].lower()
    if scheme == "sqlite":
        raise InputError("name the file of a ledger as it is, without sqlite://")
    if scheme not in _POSTGRES:
        raise InputError(f"a ledger lies in a file or at postgresql://host/database, not at {scheme}://")
    return PostgresStore(text)
