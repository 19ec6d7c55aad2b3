"""`hubermean app` as a process of its own, and a plain client that behaves as a browser does."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

LINK = re.compile(r"\b(https?://\S+/enter\?token=\w+)")


@dataclass
class AppServer:
    """A running server. `links` are those that it printed, the steward's first."""

    process: subprocess.Popen[str]
    address: str
    links: list[str]
    printed: str

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port is not None
        return port

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def stop(self, how: signal.Signals = signal.SIGINT) -> str:
        """Ask it to end, and return what it wrote on standard error."""
        if self.process.stdout is None or self.process.stdout.closed:
            return ""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.communicate(timeout=60)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def start_app(*options: str, environment: Mapping[str, str] | None = None, program: str = "") -> AppServer:
    """Start the program on a free port; `program` is Python code to run in its place."""
    command = ["-c", program] if program else ["-m", "hubermean"]
    kept = {name: one for name, one in os.environ.items() if not name.startswith("HUBERMEAN_")}
    process = subprocess.Popen(
        [sys.executable, *command, "app", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**kept, "PYTHONUNBUFFERED": "1", "COLUMNS": "200", **(environment or {})},
    )
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if line.startswith("Press"):
            break
    else:
        raise AssertionError(process.communicate()[1])
    found = re.search(r"https?://[^\s/]+:\d+", printed)
    assert found is not None
    return AppServer(process=process, address=found[0], links=LINK.findall(printed), printed=printed)


@contextlib.contextmanager
def running_app(*options: str, environment: Mapping[str, str] | None = None) -> Iterator[AppServer]:
    server = start_app(*options, environment=environment)
    try:
        yield server
    finally:
        server.stop()


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def location(self) -> str:
        return self.headers.get("location", "")

    def field(self, name: str) -> str:
        """The value of a hidden field."""
        found = re.search(rf'name="{name}" value="([^"]*)"', self.text)
        assert found is not None, f"no field {name}"
        return unescape(found[1])

    def hidden(self) -> list[tuple[str, str]]:
        """All hidden fields of the last form."""
        form = self.text.rpartition("<form")[2]
        return [
            (unescape(name), unescape(value))
            for name, value in re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form)
        ]


@dataclass
class Client:
    """Somebody with a cookie."""

    server: AppServer
    cookie: str = ""
    csrf: str = field(default="")

    @classmethod
    def enter(cls, server: AppServer, link: str) -> Client:
        client = cls(server)
        parts = urlsplit(link)
        answer = client.request("GET", f"{parts.path}?{parts.query}")
        assert answer.status == 303, answer.text
        client.cookie = answer.headers["set-cookie"].partition(";")[0]
        client.csrf = client.get("/ledger").field("csrf")
        return client

    def get(self, path: str, pairs: Sequence[tuple[str, str]] = ()) -> Answer:
        return self.request("GET", f"{path}?{urlencode(pairs)}" if pairs else path)

    def post(self, path: str, pairs: Sequence[tuple[str, str]], **headers: str) -> Answer:
        return self.request("POST", path, urlencode(pairs).encode(), **headers)

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        own = {"Cookie": self.cookie} if self.cookie else {}
        if method == "POST":
            own |= {
                "Origin": self.server.address,
                "Content-Type": "application/x-www-form-urlencoded",
            }
        own |= {name.replace("_", "-"): one for name, one in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers={n: o for n, o in own.items() if o != ""})
            answer = connection.getresponse()
            return Answer(
                status=answer.status,
                headers={name.lower(): one for name, one in answer.getheaders()},
                body=answer.read(),
            )
        finally:
            connection.close()

    def review(self, **fields: str | Sequence[str]) -> Answer:
        """The last page before a release."""
        pairs = [
            (name, one)
            for name, given in fields.items()
            for one in ([given] if isinstance(given, str) else given)
        ]
        return self.get("/review", pairs)

    def ask(self, review: Answer) -> Answer:
        """Send the form of that page."""
        return self.post("/releases", review.hidden())

    def wait(self, location: str) -> Answer:
        """Wait until a release is over, and return its page."""
        import json
        import time

        for _ in range(600):
            if json.loads(self.get(f"{location}/status").text)["over"]:
                return self.get(location)
            time.sleep(0.1)
        raise AssertionError("the release does not end")


def query_of(location: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(location).query))


def make_folder(place: Path) -> Path:
    """A folder with made-up trips."""
    import pyarrow.parquet as pq

    from hubermean.cli.example_trips import example_trips

    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(example_trips(), place / "trips.parquet")
    return place
