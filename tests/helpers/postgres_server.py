"""A real PostgreSQL server for tests: in a folder of its own, on the loopback address, gone when the tests are."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Ends the server when standard input does: with the tests, however they end.
_KEEPER = '"$0" "$@" & server=$!; read -r _; kill -INT $server; wait $server'


def binary(name: str) -> str:
    places = [*sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True), shutil.which(name) or ""]
    found = next((place for place in places if place and os.path.exists(place)), None)
    assert found is not None, f"there is no {name}; run scripts/install-postgres"
    return found


@dataclass(frozen=True, kw_only=True)
class Server:
    port: int
    user: str

    def url(self, database: str = "postgres", port: int | None = None) -> str:
        return f"postgresql://{self.user}@127.0.0.1:{port or self.port}/{database}"

    def new_database(self, name: str) -> str:
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)


@contextlib.contextmanager
def running_server(*, durable: bool = False) -> Iterator[Server]:
    """`durable` writes through to the disk, as a server of a team does."""
    root = os.getuid() == 0  # as whom PostgreSQL refuses to run
    name = "postgres" if root else pwd.getpwuid(os.getuid()).pw_name
    as_user = {"user": name} if root else {}
    folder = Path(tempfile.mkdtemp(prefix="hubermean-postgres-", dir="/tmp"))
    if root:
        owner = pwd.getpwnam(name)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    try:
        data = str(folder / "data")
        made = [binary("initdb"), "-D", data, "-U", name, "--auth=trust", "-E", "UTF8", "--no-locale", "-N"]
        subprocess.run(made, check=True, capture_output=True, cwd=folder, **as_user)  # type: ignore[call-overload]
        port = _free_port()
        settings = [f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}"]
        settings += ["max_connections=60"] + ([] if durable else ["fsync=off", "full_page_writes=off"])
        command = [binary("postgres"), "-D", data, *(word for one in settings for word in ("-c", one))]
        keeper = subprocess.Popen(
            ["sh", "-c", _KEEPER, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
            **as_user,  # type: ignore[call-overload]
        )
        try:
            server = Server(port=port, user=name)
            _wait_for(server)
            yield server
        finally:
            assert keeper.stdin is not None
            keeper.stdin.close()
            keeper.wait(timeout=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(server: Server) -> None:
    import psycopg

    for attempt in range(600):
        try:
            psycopg.connect(server.url(), connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            assert attempt < 599, "the server did not start"
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cable:
    """A proxy on the loopback address between a client and the server, which can be cut.

    `cut_when(message from the client)` says when: before that message is passed on ("before"), or after it was, so that
    its answer never arrives ("after"). Once cut, no new connection gets through until it is mended.
    """

    def __init__(self, server: Server, cut_when: Callable[[bytes], bool], moment: str) -> None:
        self.server, self.cut_when, self.moment = server, cut_when, moment
        self.cuts = 0
        self.mended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self.mended.set()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.cuts and not self.mended.is_set():
                client.close()
                continue
            there = socket.create_connection(("127.0.0.1", self.server.port))
            cut = threading.Event()
            threading.Thread(target=self._pass, args=(client, there, True, cut), daemon=True).start()
            threading.Thread(target=self._pass, args=(there, client, False, cut), daemon=True).start()

    def _pass(
        self, source: socket.socket, target: socket.socket, from_client: bool, cut: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while message := source.recv(65536):
                if from_client and not self.mended.is_set() and self.cut_when(message):
                    self.cuts += 1
                    cut.set()  # no answer gets through any more
                    if self.moment == "after":
                        target.sendall(message)
                        time.sleep(0.3)  # the server does what it was told
                    break
                if cut.is_set():
                    break
                target.sendall(message)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
