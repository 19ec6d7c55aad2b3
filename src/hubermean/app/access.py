"""Who may do what: tokens for two roles, and sessions of browsers that showed one.

An analyst plans and releases within the budgets. A steward may also open data sets and decide which table is charged to
which. Tokens and sessions are compared by digest, so that the time of a comparison says nothing about them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hubermean.errors import InputError
from hubermean.ledger.entries import check_name

Role = Literal["steward", "analyst"]
ROLES: tuple[Role, ...] = ("steward", "analyst")
_SHORTEST = 32  # characters of a token
_MOST_SESSIONS = 50
"""Of a token; the oldest ends first. Nobody can end the sessions of somebody else."""
_LIFETIME = 12 * 3600.0  # seconds


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Somebody with a token; `name` is what the ledger shows."""

    name: str
    role: Role

    @property
    def is_steward(self) -> bool:
        return self.role == "steward"


@dataclass(frozen=True, kw_only=True)
class Session:
    """A browser that showed a token; `csrf` is part of each of its forms."""

    principal: Principal
    csrf: str
    begun: float


def make_token() -> str:
    """Return 256 random bits of the operating system as text."""
    return os.urandom(32).hex()


class Access:
    """The tokens, and the sessions of this process.

    Args:
        tokens: who has which token.
    """

    def __init__(self, tokens: dict[str, Principal]) -> None:
        self.tokens = tokens
        self._principals = {_digest(token): principal for token, principal in tokens.items()}
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._lock = threading.Lock()

    def enter(self, token: str) -> tuple[str, Session] | None:
        """Return the key of a new session for a token, and the session; None for a wrong token."""
        found, given = None, _digest(token)
        for digest, principal in self._principals.items():
            if hmac.compare_digest(digest, given):
                found = principal
        if found is None:
            return None
        key = make_token()
        session = Session(principal=found, csrf=make_token(), begun=time.monotonic())
        with self._lock:
            self._sessions[_digest(key)] = session
            own = [one for one, kept in self._sessions.items() if kept.principal == found]
            for one in own[:-_MOST_SESSIONS]:
                del self._sessions[one]
        return key, session

    def find(self, key: str) -> Session | None:
        """Return the session of a key, unless it is too old."""
        with self._lock:
            session = self._sessions.get(_digest(key))
        return session if session is not None and time.monotonic() - session.begun < _LIFETIME else None

    def leave(self, key: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(_digest(key), None)


def new_access() -> Access:
    """Return access by new tokens: a steward and an analyst."""
    return Access({make_token(): Principal(name=role, role=role) for role in ROLES})


def read_access(path: Path) -> Access:
    """Return access by the tokens of a file, which is made where there is none.

    Each line is a role, a name and a token.

    Raises:
        InputError: others may read the file, or a line cannot be used.
    """
    if not path.exists():
        _write_new(path)
    try:
        with open(path, encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            lines = file.read(1_000_000).splitlines()
    except (OSError, UnicodeError):
        raise InputError(f"{path} cannot be read; check its permissions") from None
    if os.name == "posix" and (found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or found.st_uid != os.getuid()):
        raise InputError(f"other users may read or change {path}; run chmod 600 {path} as its owner")
    tokens: dict[str, Principal] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or words[0] not in ROLES or len(words[2]) < _SHORTEST or words[2] in tokens:
            raise InputError(
                f"line {number} of {path} must be a role (steward or analyst), a name without spaces and a token of "
                f"its own of at least {_SHORTEST} characters"
            )
        role: Role = "steward" if words[0] == "steward" else "analyst"
        tokens[words[2]] = Principal(name=check_name(words[1], "name"), role=role)
    if not tokens:
        raise InputError(f"{path} has no token; remove it, and a new one is made at the next start")
    return Access(tokens)


def _write_new(path: Path) -> None:
    lines = [f"{role} {role} {make_token()}" for role in ROLES]
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write("# role name token; one line per person\n" + "\n".join(lines) + "\n")
    except OSError:
        raise InputError(f"{path} cannot be written; choose another file for the tokens") from None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).digest()
