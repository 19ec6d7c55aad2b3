"""Nothing that is in a cell leaves, by any way, but as the key of a group that was released.

A text that is nowhere else stands in every cell, in every name that may come from the data, and among the members of
enums and categories; then everything that leaves is searched for it: results, output, errors with all that they carry,
warnings, logs, reports, the ledger's file, what is left in the place for temporary files, and what Spark prints.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from helpers.more_containers import ALL_CONTAINERS as CONTAINERS
from helpers.more_containers import NAMED_BY_A_SCHEMA, OPTIONS
from helpers.spark_sessions import SHORT_JOBS
from hubermean.cli.app import main

CANARY = "qzCanary"
NUMBER = 31415926.53589
USERS = 60
ON_DUCKDB = [name for name in CONTAINERS if name != "spark"]


def cells(name: str, *, named: bool) -> dict[str, list[Any]]:
    """Records with a canary in every cell; in values too, where they may be text. `named`: and in a column's name."""
    rows = range(2 * USERS)
    columns: dict[str, list[Any]] = {
        "u": [f"{CANARY}Id{row // 2}" for row in rows],
        "g": [f"{CANARY}Group{row % 3}" for row in rows],
        "v": [NUMBER for _ in rows],
        "note": [f"{CANARY}Note{row}" for row in rows],
    }
    if not CONTAINERS[name].typed:
        columns["v"][5] = f"{CANARY}Value"
    if named:
        columns[f"{CANARY}Column"] = [f"{CANARY}Cell" for _ in rows]
    return columns


class Watch:
    """All that leaves while something is done."""

    def __init__(
        self, folder: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._capfd, self._caplog = capfd, caplog

    def of(self, work: Callable[[], Any]) -> str:
        self._capfd.readouterr()
        self._caplog.clear()
        with warnings.catch_warnings(record=True) as warned, self._caplog.at_level(logging.DEBUG):
            warnings.simplefilter("always")
            try:
                left = [shown(work())]
            except (hm.HubermeanError, SystemExit) as error:  # any other error is a bug, here or there
                left = list(said(error))
        left += self._capfd.readouterr()
        left += [record.getMessage() for record in self._caplog.records] + [self._caplog.text]
        left += [str(one.message) for one in warned]
        return "\n".join([*left, *files_in(self.temporary)])


def shown(result: Any) -> str:
    parts = [str(result), repr(result)]
    if hasattr(result, "to_json"):
        parts += [result.to_json(), repr(result.parameters), repr(result.budget_breakdown)]
    return "\n".join(parts)


def said(error: BaseException) -> Iterator[str]:
    """An error, and all that it carries."""
    yield "".join(traceback.format_exception(error))
    seen: list[BaseException] = []
    queue: list[BaseException | None] = [error]
    while queue:
        one = queue.pop()
        if one is None or any(one is other for other in seen):
            continue
        seen.append(one)
        yield f"{one!r} {one.args!r} {getattr(one, '__notes__', '')} {vars(one)!r}"
        queue += [one.__cause__, one.__context__]


def files_in(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        yield str(path)
        if path.is_file():
            yield path.read_bytes().decode("latin-1")


def holds(text: str, *, besides: str = "") -> list[str]:
    """The lines in which a canary is."""
    found = []
    for line in text.splitlines():
        left = line.replace(besides, "") if besides else line
        if CANARY in left or "31415926" in left.replace(",", ""):
            found.append(line[:300])
    return found


@pytest.fixture
def watch(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> Watch:
    made = Watch(tmp_path, capfd, caplog)
    monkeypatch.setenv("TMPDIR", str(made.temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return made


PUBLIC: dict[str, Any] = {"epsilon": 1.0, "neighbors": "add-remove", "bounds": (0, 10), "max_records": 2}
ASKED: dict[str, dict[str, Any]] = {
    "a release": {"user": "u", "value": "v", **PUBLIC},
    "public groups": {"user": "u", "value": "v", "by": "g", "keys": ["a", "b"], **PUBLIC},
    "groups too small to be chosen": {
        "user": "u",
        "value": "v",
        "by": "g",
        "delta": 1e-12,
        **PUBLIC,
        "epsilon": 0.01,
    },
    "two roles": {"user": "u", "value": "u", **PUBLIC},
    "no such user column": {"user": "nobody", "value": "v", **PUBLIC},
    "no such value column": {"user": "u", "value": "nothing", **PUBLIC},
    "no such group column": {"user": "u", "value": "v", "by": "nowhere", "keys": ["a"], **PUBLIC},
    "text as values": {"user": "u", "value": "note", **PUBLIC},
    "floats as groups": {"user": "u", "value": "note", "by": "v", "keys": ["a"], **PUBLIC},
    "keys of another type": {"user": "u", "value": "v", "by": "g", "keys": [1, 2], **PUBLIC},
    "a bad parameter": {"user": "u", "value": "v", **PUBLIC, "epsilon": -1.0},
    "a bad memory limit": {"user": "u", "value": "v", "memory_limit": "1 potato", **PUBLIC},
    "little memory": {"user": "u", "value": "v", "memory_limit": "10MB", **PUBLIC},
    "too few users": {"user": "u", "value": "v", "epsilon": 0.001, "neighbors": "add-remove"},
    "users counted": {"user": "u", "value": "v", **PUBLIC, "neighbors": "replace-user"},
}


@pytest.mark.fair_sample(0.3)
@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("name", ON_DUCKDB)
def test_no_cell_leaves_a_release_or_its_refusal(name: str, what: str, watch: Watch, tmp_path: Path) -> None:
    # Of files with a schema the names of columns may be listed: a schema is written by somebody, not inferred.
    columns = cells(name, named=name not in NAMED_BY_A_SCHEMA)
    data = CONTAINERS[name].make(columns, tmp_path)
    assert not holds(watch.of(lambda: hm.mean(data, **ASKED[what], **OPTIONS.get(name, {}))))


@pytest.mark.parametrize("name", ON_DUCKDB)
def test_only_keys_of_groups_that_were_released_leave(name: str, watch: Watch, tmp_path: Path) -> None:
    data = CONTAINERS[name].make(cells(name, named=True), tmp_path)
    asked = {**ASKED["groups too small to be chosen"], "epsilon": 40.0, "delta": 1e-3, "max_groups": 2}
    left = watch.of(lambda: hm.mean(data, **asked, **OPTIONS.get(name, {})))
    assert f"{CANARY}Group" in left
    assert not holds(left, besides=f"{CANARY}Group")


@pytest.mark.fair_sample(0.34)
@pytest.mark.parametrize("name", ON_DUCKDB)
def test_the_ledger_holds_no_cell(name: str, watch: Watch, tmp_path: Path) -> None:
    place = tmp_path / "kept" / "ledger.sqlite"
    place.parent.mkdir()
    with hm.Ledger(place) as ledger:
        ledger.init("trips", epsilon=100.0, delta=1e-3, neighbors="add-remove")
    columns = cells(name, named=name not in NAMED_BY_A_SCHEMA)
    left = []
    for number, (what, asked) in enumerate(ASKED.items()):
        if what in ("a bad parameter", "users counted"):
            continue
        data = CONTAINERS[name].make(columns, tmp_path)
        charged = {**asked, "ledger": place, "dataset": "trips", "question": f"question {number}"}
        charged |= OPTIONS.get(name, {})
        left.append(watch.of(lambda data=data, charged=charged: hm.mean(data, **charged)))
    assert not holds("\n".join([*left, *files_in(place.parent)]))


# --- the command line -------------------------------------------------------------------------------------------------

COLUMNS = ["--user", "u", "--value", "v"]
BUDGET = ["--epsilon", "1", "--neighbors", "add-remove"]
KNOWN = ["--bounds", "0", "10", "--max-records", "2"]
COMMANDS = [
    [*COLUMNS, *BUDGET, *KNOWN],
    [*COLUMNS, *BUDGET, *KNOWN, "--json"],
    [*COLUMNS, *BUDGET, *KNOWN, "--json", "--report", "REPORT"],
    [*COLUMNS, *BUDGET, *KNOWN, "--ledger", "LEDGER", "--dataset", "trips", "--json"],
    [*COLUMNS, *BUDGET, *KNOWN, "--by", "g", "--key", "a", "--key", "b", "--report", "REPORT"],
    [*COLUMNS, *BUDGET, *KNOWN, "--by", "g", "--keys", "KEYS"],
    [*COLUMNS, *BUDGET, *KNOWN, "--by", "g", "--keys", "DATA"],
    [*COLUMNS, *BUDGET, *KNOWN, "--by", "g", "--keys", "OTHER KEYS"],
    [*COLUMNS, *BUDGET, *KNOWN, "--memory-limit", "10MB"],
    [*COLUMNS, "--epsilon", "0.001", "--json"],
    ["--user", "u", "--value", "nothing", *BUDGET, "--json"],
    ["--user", "nobody", "--value", "v", *BUDGET],
    ["--user", "u", "--value", "note", *BUDGET, *KNOWN],
    [*COLUMNS, "--epsilon", "-1"],
    [*COLUMNS, *BUDGET, *KNOWN, "--neighbors", "replace-user"],
]


@pytest.mark.parametrize("name", ["parquet", "parquet-two-files", "csv", "csv-gz", "jsonl"])
def test_the_command_line_prints_and_writes_no_cell(
    name: str, watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = CONTAINERS[name].make(cells(name, named=name not in NAMED_BY_A_SCHEMA), tmp_path)
    written = tmp_path / "written"
    written.mkdir()
    pq.write_table(pa.table({"g": ["a", "b"]}), tmp_path / "keys.parquet")
    pq.write_table(pa.table({"g": ["a", f"\x1f{CANARY}Group1"], "more": [1, 2]}), tmp_path / "other.parquet")
    with hm.Ledger(written / "ledger.sqlite") as ledger:
        ledger.init("trips", epsilon=100.0, neighbors="add-remove")
    places = {"LEDGER": written / "ledger.sqlite", "REPORT": written / "report.html", "DATA": data}
    places |= {"KEYS": tmp_path / "keys.parquet", "OTHER KEYS": tmp_path / "other.parquet"}
    found, codes = {}, []
    for command in COMMANDS:
        words = ["hubermean", "release", data, *(str(places.get(word, word)) for word in command)]
        monkeypatch.setattr(sys, "argv", words)

        def run() -> None:
            try:
                main()
            except SystemExit as stop:
                codes.append(stop.code)
                raise

        left = "\n".join([watch.of(run), *files_in(written)])
        found[" ".join(command)] = holds(left)
    assert not {what: lines for what, lines in found.items() if lines}
    assert len(codes) == len(COMMANDS)
    assert 70 not in codes, "an error that is a bug"


# --- names and members that come from the data ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["records.csv", "records.tsv"])
def test_a_first_line_that_is_no_header_is_not_quoted(name: str, watch: Watch, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(
        "".join(f"{CANARY}Id{row},{CANARY}Group,{CANARY}x\n" for row in range(9)).replace(
            ",", "\t" if name.endswith(".tsv") else ","
        )
    )
    left = [watch.of(lambda asked=asked: hm.mean(path, **asked)) for asked in ASKED.values()]
    left.append(
        watch.of(lambda: hm.mean(hm.sql("SELECT u, v FROM records", files=[path]), **ASKED["a release"]))
    )
    left.append(watch.of(lambda: hm.count(path, user="u", epsilon=1)))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / name).write_text("u,v\n1,2\n")
    left.append(watch.of(lambda: hm.mean(str(tmp_path / "**" / name), **ASKED["a release"])))
    assert not holds("\n".join(left))


def enum_of_duckdb() -> Any:
    connection = duckdb.connect()
    connection.execute(f"CREATE TYPE kind AS ENUM ('a', '{CANARY}Member')")
    return connection.sql(
        "SELECT range AS u, CAST('a' AS kind) AS g, CAST('a' AS kind) AS note, 1.0 AS v FROM range(50)"
    )


def enum_of_polars() -> pl.DataFrame:
    kind = pl.Enum(["a", f"{CANARY}Member"])
    texts = pl.Series(["a"] * 50, dtype=kind)
    return pl.DataFrame({"u": range(50), "g": texts, "note": texts, "v": [1.0] * 50})


def categories_of_pandas() -> pd.DataFrame:
    texts = pd.Categorical(["a"] * 50, categories=["a", f"{CANARY}Member"])
    return pd.DataFrame({"u": range(50), "g": texts, "note": texts, "v": [1.0] * 50})


def dictionary_of_arrow() -> pa.Table:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 50, pa.int8()), ["a", f"{CANARY}Member"])
    return pa.table({"u": range(50), "g": texts, "note": texts, "v": [1.0] * 50})


def struct_of_duckdb() -> Any:
    """A nested type names its fields, which may be keys of the data."""
    record = f"{{'{CANARY}Field': 1}}"
    return duckdb.connect().sql(
        f"SELECT range AS u, {record} AS g, {record} AS note, {record} AS v FROM range(50)"
    )


@pytest.mark.parametrize(
    "made", [enum_of_duckdb, enum_of_polars, categories_of_pandas, dictionary_of_arrow, struct_of_duckdb]
)
def test_members_of_a_type_are_not_printed(made: Callable[[], Any], watch: Watch) -> None:
    more = {
        "an odd user": {**ASKED["a release"], "user": "g"},
        "values": {**ASKED["a release"], "value": "g"},
    }
    found = {}
    for what, asked in {**ASKED, **more}.items():
        data = made()
        found[what] = holds(watch.of(lambda data=data, asked=asked: hm.mean(data, **asked)))
    assert not {what: lines for what, lines in found.items() if lines}


# --- files with broken records ----------------------------------------------------------------------------------------


def broken(kind: str, folder: Path) -> Path:
    path = folder / f"broken.{kind}"
    if kind == "parquet":
        pq.write_table(
            pa.table(cells("parquet", named=False)), path, use_dictionary=False, compression="snappy"
        )
        content = bytearray(path.read_bytes())
        content[100:700] = bytes(600)
        path.write_bytes(bytes(content))
    elif kind == "csv":
        lines = [f"{CANARY}Id{row},{NUMBER},{CANARY}Group" for row in range(9)]
        lines[3:3] = [f'"{CANARY}open', f"{CANARY}Id,1,2,3,4,5", f'{CANARY}"stray",{CANARY}', f"{CANARY}\0,1"]
        path.write_bytes("\n".join(["u,v,g", *lines]).encode() + b"\n\xff\xfe" + CANARY.encode())
    else:
        lines = [
            json.dumps({"u": f"{CANARY}Id{row}", "v": NUMBER, "g": f"{CANARY}Group"}) for row in range(9)
        ]
        lines[3:3] = [
            f'{{"u": "{CANARY}',
            f"{CANARY}",
            f'{{"u": "{CANARY}\\ud800", "v": {{}}}}',
            f'["{CANARY}"]',
        ]
        path.write_bytes("\n".join(lines).encode() + b'\n{"u": "\xff' + CANARY.encode() + b'", "v": 1}')
    return path


@pytest.mark.parametrize("with_ledger", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_broken_records_are_not_quoted(kind: str, with_ledger: bool, watch: Watch, tmp_path: Path) -> None:
    path = broken(kind, tmp_path)
    more: dict[str, Any] = {}
    if with_ledger:
        (tmp_path / "kept").mkdir()
        with hm.Ledger(tmp_path / "kept" / "ledger.sqlite") as ledger:
            ledger.init("trips", epsilon=100.0, delta=1e-3, neighbors="add-remove")
        more = {"ledger": tmp_path / "kept" / "ledger.sqlite", "dataset": "trips"}
    left = [
        watch.of(lambda asked=asked: hm.mean(path, **{**asked, **more}))
        for what, asked in ASKED.items()
        if what not in ("a bad parameter", "users counted")
    ]
    kept = files_in(tmp_path / "kept") if with_ledger else []
    assert not holds("\n".join([*left, *kept]))


# --- Spark ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
def test_no_cell_leaves_a_frame_of_sparks(watch: Watch, tmp_path: Path) -> None:
    data = CONTAINERS["spark"].make(cells("spark", named=False), tmp_path)
    asked = ["a release", "no such value column", "text as values", "keys of another type", "too few users"]
    found = {what: holds(watch.of(lambda what=what: hm.mean(data, **ASKED[what]))) for what in asked}
    assert not {what: lines for what, lines in found.items() if lines}


@pytest.mark.parametrize("whole", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_session_of_our_own_prints_and_leaves_no_cell(whole: bool, tmp_path: Path) -> None:
    """In a process of its own, so that everything the Java machine prints is seen."""
    path = (
        CONTAINERS["parquet"].make(cells("parquet", named=False), tmp_path)
        if whole
        else broken("parquet", tmp_path)
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    words = ["release", str(path), *COLUMNS, *BUDGET, *KNOWN, "--engine", "spark", "--json"]
    places = {"TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder)}
    run = subprocess.run(
        [sys.executable, "-c", "from hubermean.cli.app import main; main()", *words],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env={**os.environ, **places, "JAVA_TOOL_OPTIONS": SHORT_JOBS},
        check=False,
    )
    assert (run.returncode == 0) == whole, run.stderr
    assert not holds("\n".join([run.stdout, run.stderr, *files_in(folder)]))


def test_a_canary_that_leaves_is_seen(watch: Watch) -> None:
    """The search is not blind, whichever way it goes."""

    def chained() -> None:
        try:
            raise ValueError(f"{CANARY}Id")
        except ValueError:
            raise hm.InputError("something else") from None

    def left_behind() -> None:
        Path(tempfile.gettempdir(), "left").write_text(f"{CANARY}Id")

    ways: list[Callable[[], Any]] = [
        chained,
        lambda: warnings.warn(f"{CANARY}Id", stacklevel=1),
        lambda: logging.getLogger("hubermean").debug("%sId", CANARY),
        lambda: os.write(2, f"{CANARY}Id".encode()),
        lambda: f"the mean is {NUMBER:,}",
        left_behind,
    ]
    assert all(holds(watch.of(way)) for way in ways)
