"""The command line with any words: an exit code that means something, and one line where it refuses."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from fuzz.draw import Draw
from fuzz.novelty import notice
from fuzz.pages import Skeleton
from fuzz.randomness import CountedNoise, drawn_from
from fuzz.surroundings import holds_secret
from fuzz.violation import require
from hubermean.cli.app import main
from hubermean.cli.check import WARNING

CELL = "Zq7cell"
ROWS = (60, 1500)

_FLAGS = {
    "release": (
        *(
            "--delta",
            "--by",
            "--key",
            "--keys",
            "--max-groups",
            "--per",
            "--neighbors",
            "--mechanism",
            "--bounds",
        ),
        *(
            "--max-records",
            "--threshold",
            "--scale",
            "--radius",
            "--hostile",
            "--n-users",
            "--resolution",
            "--non-finite",
        ),
        *(
            "--memory-limit",
            "--threads",
            "--engine",
            "--report",
            "--json",
            "--quiet",
            "--value",
            "--user",
            "--epsilon",
            "--help",
        ),
    ),
    "count": (
        *(
            "--delta",
            "--of",
            "--value",
            "--by",
            "--key",
            "--keys",
            "--max-groups",
            "--neighbors",
            "--max-records",
        ),
        *("--memory-limit", "--threads", "--engine", "--report", "--json", "--quiet", "--user", "--epsilon"),
    ),
    "plan": (
        *("--delta", "--columns", "--scale", "--threshold", "--radius", "--bounds", "--per", "--neighbors"),
        *("--max-records", "--json", "--quiet", "--n-users", "--epsilon"),
    ),
    "check": ("--user", "--value", "--json"),
}
_ALONE = {"--json", "--quiet", "--help"}
_WORDS = (
    *(
        "1",
        "0",
        "-1",
        "0.5",
        "1e-6",
        "nan",
        "inf",
        "1e309",
        "x",
        "",
        "u",
        "v",
        "w",
        "g",
        "h",
        "record",
        "user",
        "users",
    ),
    *(
        "records",
        "replace-user",
        "add-remove",
        "clipped",
        "inverse-sensitivity",
        "adaptive",
        "drop",
        "1GB",
        "2",
        "3",
        "100",
        "y",
    ),
    *(
        "page.html",
        "nested/page.html",
        "/nowhere/page.html",
        "page.txt",
        "nested",
        "\x1b[31m.html",
        "[bold]x.html",
    ),
    *(
        "keys.csv",
        "data.csv",
        "data.parquet",
        "d*.parquet",
        "\ud800",
        "a\nb",
        "999999999999999999999",
    ),
    *(
        "--",
        "--json",
        "<b>.html",
        "$(x).html",
        "[/]",
        "[red]",
        ":smile:",
        "%s%n",
        "{}",
        "u'",
        'v"',
        "http://x/y.csv",
    ),
)
_BASE = {
    "release": ("--user", "u", "--value", "v", "--epsilon", "1"),
    "count": ("--user", "u", "--epsilon", "1"),
    "plan": ("--n-users", "1000", "--epsilon", "1"),
    "check": (),
}
_WRITTEN = 74  # released and printed, but the report could not be written


def check_command(draw: Draw, folder: Path) -> None:
    command = draw.pick(tuple(_FLAGS))
    hostile = draw.text(24).replace("\0", "") if draw.below(4) == 3 else "v"
    _write(folder, hostile if hostile not in ("", "u", "g", "h") else "v")
    words = [command]
    if command != "plan":
        words.append(
            draw.pick(("data.parquet", "data.csv", "data.jsonl", "absent.csv", "<i>.csv", "d\x1b[1m.parquet"))
        )
    if draw.below(8) != 7:
        words += [hostile if word == "v" else word for word in _BASE[command]]
    if command == "release" and draw.below(4):
        words += ["--bounds", "-5", "5", "--max-records", "3"]
    for _ in range(draw.below(7)):
        flag = draw.pick(_FLAGS[command])
        words.append(flag)
        if flag not in _ALONE:
            words.append(draw.text(24).replace("\0", "") if draw.below(6) == 5 else draw.pick(_WORDS))
            if flag == "--bounds":
                words.append(draw.pick(_WORDS))
    with drawn_from(CountedNoise(draw.below(256))) as noise:
        code, out, err = _run(words)
    notice(f"{code} {err}")
    allowed = {0, 1, 2, _WRITTEN} if "--report" in words else {0, 1, 2}
    require(code in allowed, f"an exit code means something, and {code} is none of those")
    require("Traceback" not in out + err, "the command line shows no traceback")
    require(not holds_secret(out + err), "the command line shows nothing of a file that was not named")
    if command in ("release", "count"):
        require(CELL not in err, "an error quotes no data")
        shown = out.strip() and code == 0 and "--help" not in words
        public = "public under" in out or "--quiet" in words or noise.draws > 0
        require(not shown or public, "a release draws noise")
    plain = "".join(line for line in out.splitlines(keepends=True) if WARNING not in line)  # which is red
    require("\x1b" not in plain, "what is shown holds no control code")
    if err.startswith("error: "):
        require(len(err.rstrip("\n").splitlines()) == 1, "an error is one line")
        require("\x1b" not in err, "an error holds no control code")
    else:
        require(not err or err.startswith("Usage: "), "an error begins as one")
    if "--json" in words and "--help" not in words and out.strip():
        json.loads(out)
    for page in folder.rglob("*.html"):
        Skeleton(page.read_text(encoding="utf-8"))


def _write(folder: Path, name: str) -> None:
    table = small_table().rename_columns(["u", "v", "w", "g", "h"])
    if _is_text(name):
        table = table.rename_columns(["u", name, "w" if name != "w" else "w2", "g", "h"])
    pq.write_table(table, folder / "data.parquet")
    rows = table.select(["u", "g", "h"]).to_pylist()
    lines = ["u,v,g,h\n", *(f"{row['u']},{row['h']}.5,{row['g']},{row['h']}\n" for row in rows)]
    for file in ("data.csv", "<i>.csv"):
        (folder / file).write_text("".join(lines))
    (folder / "data.jsonl").write_text("".join(json.dumps({**row, "v": row["h"]}) + "\n" for row in rows))
    (folder / "keys.csv").write_text("g,h\nx,1\ny,2\n")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _run(words: list[str]) -> tuple[Any, str, str]:
    """Exit code, standard output and standard error of the command line; control codes pass as on a terminal."""
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors)
        for errors in ("strict", "backslashreplace")
    )
    code: Any = 0
    with (
        mock.patch.object(sys, "argv", ["hubermean", *words]),
        mock.patch.object(sys.modules[typer.echo.__module__], "should_strip_ansi", return_value=False),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8", "replace"))  # type: ignore[attr-defined]
    return code, texts[0], texts[1]


@functools.cache
def small_table(rows: int = ROWS[0]) -> pa.Table:
    numbers = range(rows)
    return pa.table(
        {
            "u": [number % (rows - 5) for number in numbers],
            "v": pa.array([(number * 37 % 19) / 4 - 2 for number in numbers], pa.float64()),
            "w": pa.array([number * 11 % 7 for number in numbers], pa.int64()),
            "g": [CELL if number % 7 == 0 else "xy"[number % 2] for number in numbers],
            "h": [number % 3 for number in numbers],
        }
    )
