"""Where a ledger is said to lie: any text as a file name or a URL. Refused in words, and no password is ever shown.

Nothing is connected to but the loopback address, on a port where nobody listens.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import hubermean as hm
from fuzz.draw import Draw
from fuzz.surroundings import working_folder
from fuzz.violation import require, result_or_refusal

DICTIONARY = (
    b"postgresql://",
    b"postgres://",
    b"@127.0.0.1:1/",
    b"?sslmode=",
    b"sqlite:///",
    b"%00",
    b"[::1]",
)

_PASSWORD = "Zq7word"
_SCHEMES = (
    *(
        "postgresql",
        "postgres",
        "postgresql+psycopg",
        "PostgreSQL",
        "postgresql+asyncpg",
        "sqlite",
        "mysql",
        "file",
    ),
    *("http", "postgresql+psycopg2", "postgre%73ql", "p", "C", "duckdb"),
)
_PIECES = (
    *(
        "/",
        "//",
        ":",
        "@",
        "?",
        "&",
        "=",
        "#",
        "%00",
        "%2F",
        "%",
        "..",
        ".",
        "[",
        "]",
        "[::1]",
        "127.0.0.1",
        ":1",
        ":x",
    ),
    *(
        "db",
        "user",
        "sslmode=require",
        "host=127.0.0.1",
        "port=1",
        "options=-c",
        "passfile=x",
        "service=x",
        ",",
        " ",
        "\t",
    ),
    *("\u202e", "\0", "\ud800", "a" * 300, ":99999", ":-1", "é", "'", '"', "\\", "application_name=x"),
)


def check(data: bytes) -> None:
    draw = Draw(data)
    match draw.below(4):
        case 0:
            text = draw.rest().decode("utf-8", errors="surrogateescape")
        case 1:
            text = draw.pick(_SCHEMES) + "://"
            while not draw.ended and len(text) < 500:
                text += draw.pick(_PIECES)
        case 2:
            text = f"{draw.pick(_SCHEMES)}://user:{_PASSWORD}@" + "".join(
                draw.pick(_PIECES) for _ in range(draw.below(6))
            )
        case _:
            _connect(draw)
            return
    with working_folder() as folder:
        ledger = result_or_refusal(lambda: hm.Ledger(text), hidden=[_PASSWORD])
        if ledger is None:
            return
        shown = f"{ledger!r} {ledger.location}"
        require(_PASSWORD not in shown or "://" not in text, "a password is not shown")
        if "://" not in text:
            _use_file(ledger, text, folder)


def _use_file(ledger: hm.Ledger, text: str, folder: Path) -> None:
    """A file name: nothing is there, so nothing is shown; what is made lies where the name says."""
    result_or_refusal(ledger.datasets)
    inside = not os.path.isabs(text) and ".." not in Path(text).parts
    if not inside or "canary" in text:
        return
    made = result_or_refusal(lambda: ledger.init("d", epsilon=1) or True)
    if made:
        require((folder / text).is_file(), "a ledger lies where its name says")
        require(ledger.verify().sound, "a new ledger is sound")
    ledger.close()


def _connect(draw: Draw) -> None:
    """Any user, password and database of a server that does not answer."""
    parts = [
        draw.text(12).replace("?", "").replace("/", "").replace("@", "").replace("#", "") for _ in range(3)
    ]
    url = f"postgresql://{parts[0]}:{_PASSWORD}{parts[1]}@127.0.0.1:1/{parts[2]}"
    with working_folder():
        result_or_refusal(lambda: hm.Ledger(url).datasets(), hidden=[_PASSWORD])


def seeds() -> Iterable[bytes]:
    texts = (
        *(
            "l.sqlite",
            "a/b.sqlite",
            "/",
            ".",
            "",
            "postgresql://127.0.0.1:1/db",
            "sqlite:///x",
            "C:\\l.sqlite",
        ),
        *(
            "postgresql://u:p@[::1]:1/db?sslmode=require",
            "postgresql:///db",
            "postgresql://",
            "x://y",
            "nested",
            "é.sqlite",
        ),
    )
    for text in texts:
        yield b"\0" + text.encode()
    for scheme in range(len(_SCHEMES)):
        yield bytes([1, scheme, 16, 3, 17, 0, 19])
        yield bytes([2, scheme, 4, 16, 17, 0, 19])
    for piece in range(len(_PIECES)):
        yield bytes([1, 0, piece, 17, 0, piece])
        yield bytes([2, 0, 3, 16, piece, 19])
    yield bytes([3, 4]) + b"user" + bytes([2]) + b"pw" + bytes([2]) + b"db"
