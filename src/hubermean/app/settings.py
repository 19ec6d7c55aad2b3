"""What the operator decides when the page is started, and the limits that hold for everybody."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from hubermean.errors import InputError, parameter
from hubermean.ingest.locations import require_clear

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8732
DEFAULT_STATE = "hubermean-app"
"""The folder for the ledger and for what the page keeps, where none is named."""

MOST_WAITING = 20
"""Releases that wait for their turn; more are refused, and nothing is charged."""

_CONNECTION = re.compile(r"(?:(?:postgresql|postgres)(?:\+[a-z0-9]+)?://|sqlite:///)")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the operator decides.

    Attributes:
        folder: the folder whose tables can be chosen; nothing outside of it is opened.
        ledger: file or PostgreSQL URL of the ledger.
        state: the folder for what the page keeps between two starts.
        connections: databases whose tables can be chosen.
        host, port: the address to listen at; port 0 is any free one.
        names: names under which browsers reach the page, where they differ from the address.
        tokens: the file of the access tokens; None for new ones at each start.
    """

    folder: Path
    ledger: str
    state: Path
    connections: tuple[str, ...] = ()
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    names: tuple[str, ...] = ()
    tokens: Path | None = None

    def checked(self) -> Settings:
        """Return the settings; InputError where one cannot be used."""
        if not self.folder.is_dir():
            raise InputError(f"there is no folder {self.folder}; give the folder of your tables")
        if not all(map(_CONNECTION.match, self.connections)):  # what else it may be could hold a password
            raise InputError(
                f"{parameter('connection')} must begin with postgresql://, postgres:// or sqlite:///"
            )
        for one in self.connections:
            require_clear(one)
        if not 0 <= self.port <= 65535:
            raise InputError(f"{parameter('port')} must be a number from 0 to 65535")
        if not self.is_local and not self.names:
            raise InputError(
                f"{parameter('host', self.host)} lets other machines connect; state the names by which browsers reach "
                f"this page with {parameter('name')}, so that others are refused"
            )
        return self

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def hosts(self, port: int) -> frozenset[str]:
        """Return the values of the Host header that are accepted: a page elsewhere may resolve its name to this one."""
        own = ("localhost", "127.0.0.1", "[::1]") if self.is_local else ()
        names = {name.lower() for name in self.names}
        return frozenset({f"{name}:{port}" for name in own} | names | {f"{name}:{port}" for name in names})
