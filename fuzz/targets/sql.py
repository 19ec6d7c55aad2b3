"""`hubermean.sql`: any text as a query. Refused, or run over the named files and nothing else."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import hubermean as hm
from fuzz.draw import Draw
from fuzz.novelty import notice
from fuzz.oracle import Rule, expected, found
from fuzz.randomness import CountedNoise, drawn_from
from fuzz.releases import check_release
from fuzz.surroundings import SECRET, VARIABLE, holds_secret, working_folder
from fuzz.violation import Violation, require, result_or_refusal
from hubermean.ingest.duckdb.source import open_source
from hubermean.ingest.engine import mask_engine_errors
from hubermean.ingest.reading import user_table
from hubermean.ingest.schema import ColumnRoles
from hubermean.types.options import ReadOptions

CELL = "Zq7cell"
_USERS = ("a", "a", "b", None, CELL)
_VALUES = (1.5, 2.0, -4.0, 9.0, None)
_PATIENCE = 1.0  # seconds a query may run before it is interrupted, as its caller would
_MOST_ROWS = 50

# In an order that stays: inputs name a word by its place, so new ones go to the end.
_WORDS = tuple(Path(__file__).with_name("sql_words.txt").read_text().split())
DICTIONARY = tuple(word.encode() for word in _WORDS if len(word) > 2)

PLAIN = "select u, v from named"
_FILES: tuple[Any, ...] = (
    *(
        (),
        {"named": "named.parquet"},
        {"named": "named.csv"},
        ["named.parquet"],
        {'a b"c': "named.csv"},
        "named.csv",
    ),
    *(
        {"named": "named.parquet", "NAMED": "named.csv"},
        {"hubermean_query": "named.csv"},
        ["absent.csv"],
        5,
        [None],
    ),
    *(
        {"\ud800": "named.csv"},
        {"": "named.csv"},
        ["named.csv", "named.parquet"],
        {"t": "named.*"},
        ["nested"],
    ),
)
# What may stand around a query without changing what it says.
_BEFORE = (
    "",
    " ",
    "\n",
    "/* x */",
    "-- x\n",
    "(",
    "((",
    ";",
    "\t",
    "\ufeff",
    "\u00a0",
    "from (",
    "with x as (",
)
_AFTER = (
    "",
    " ",
    ";",
    ";;",
    "-- x",
    "/* x */",
    ")",
    "))",
    " -- ;",
    "\n;\n",
    ";--",
    "/*",
    ") as x",
    "\0",
    "'",
    '"',
    "\\",
)
_ENDINGS = (
    "",
    " limit 1000",
    " where true",
    " order by all",
    "; select 1",
    " union all select null, null where false",
)


def check(data: bytes) -> None:
    draw = Draw(data)
    made = draw.below(4)
    named = draw.pick(_FILES)
    how = draw.below(4)
    with working_folder() as folder, _patient():
        _write(folder)
        match made:
            case 0:
                _refused_or_run(draw.rest().decode("utf-8", errors="surrogateescape"), named, how)
            case 1 | 2:
                words = []
                while not draw.ended and len(words) < 120:
                    words.append(draw.pick(_WORDS))
                _refused_or_run(("select " if made == 2 else "") + " ".join(words), named, how)
            case _:
                _wrapped(draw)


def _write(folder: Path) -> None:
    table = pa.table({"u": pa.array(_USERS, pa.string()), "v": pa.array(_VALUES, pa.float64())})
    pq.write_table(table, folder / "named.parquet")
    lines = [
        f"{'' if u is None else u},{'' if v is None else v}\n" for u, v in zip(_USERS, _VALUES, strict=True)
    ]
    (folder / "named.csv").write_text("u,v\n" + "".join(lines))


def _wrapped(draw: Draw) -> None:
    """A query that is understood, with more around it: refused, or the sums are the known ones."""
    before = "".join(draw.pick(_BEFORE) for _ in range(draw.below(4)))
    after = "".join(draw.pick(_AFTER) for _ in range(draw.below(4)))
    query = before + PLAIN + draw.pick(_ENDINGS) + after
    table = result_or_refusal(
        lambda: user_table(hm.sql(query, files=["named.parquet"]), user="u", value="v"), hidden=[CELL]
    )
    if table is not None:
        wanted = expected(list(_USERS), [[Rule().real(value) for value in _VALUES]])
        require(found(table) == wanted, "what stands around a query does not change what it gives")


def _refused_or_run(query: str, named: Any, how: int) -> None:
    # What a query itself quotes may be quoted back.
    hidden = [text for text in (CELL, SECRET) if text not in query]
    made = result_or_refusal(lambda: hm.sql(query, files=named), hidden=hidden)
    if made is None:
        return
    names = result_or_refusal(lambda: _looked_at(made), hidden=hidden)
    if not names or len(names) < 2:
        return
    user, value = names[0], names[-1]
    if how == 0:
        with drawn_from(CountedNoise()) as noise:
            release = result_or_refusal(
                lambda: hm.mean(
                    made, user=user, value=value, epsilon=1, bounds=(-9, 9), max_records=2, memory_limit="1GB"
                ),
                hidden=hidden,
            )
        if release is not None:
            check_release(release, noise)
    else:
        result_or_refusal(
            lambda: user_table(made, user=user, value=value, memory_limit="1GB", threads=1), hidden=hidden
        )


def _looked_at(query: Any) -> list[str]:
    """The names of the columns that a query gives; what it gives is searched for what only canaries hold."""
    with open_source(query, ColumnRoles(users=()), ReadOptions(memory_limit="1GB", threads=1)) as source:
        names = list(source.schema.types)
        notice(" ".join(map(str, source.schema.types.values())))

        def found() -> list[tuple[Any, ...]]:
            with source.open() as opened:
                return opened.run(f"SELECT * FROM {opened.name} LIMIT {_MOST_ROWS}").fetchall()

        rows = mask_engine_errors(found, "cannot be run")
    text = repr((names, rows))
    if holds_secret(text) or "root:x:0" in text:
        quoted = SECRET in query.query or "root:x:0" in query.query
        require(quoted, "a query gives nothing of a file that was not named")
    if f"{VARIABLE}=" in text:
        raise Violation("a query gives nothing of the environment")
    return names


def _interrupt(connection: duckdb.DuckDBPyConnection) -> None:
    with contextlib.suppress(duckdb.ConnectionException):  # closed meanwhile
        connection.interrupt()


@contextlib.contextmanager
def _patient() -> Iterator[None]:
    """Queries that go on for long are interrupted, as their caller would; that this ends them is part of the check."""
    connect = duckdb.connect
    timers: list[threading.Timer] = []

    def watched(*given: Any, **options: Any) -> duckdb.DuckDBPyConnection:
        connection = connect(*given, **options)
        timer = threading.Timer(_PATIENCE, lambda: _interrupt(connection))
        timer.daemon = True
        timer.start()
        timers.append(timer)
        return connection

    try:
        with mock.patch.object(duckdb, "connect", watched):
            yield
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()


_QUERIES = (
    PLAIN,
    "select u, try_cast(v as double) v from named",
    "select 1 as u, 2.5 as v",
    "from named",
    "values (1, 2)",
    "with recursive r as (select 1 as u union all select u + 1 from r where u < 5) select u, u as v from r",
    "select * from 'canary.csv'",
    "select * from read_csv('canary.csv')",
    "select * from read_text('canary.txt')",
    "select content as u, size as v from read_blob('*')",
    "select file as u, 1 as v from glob('*')",
    "select name as u, 1 as v from duckdb_settings()",
    "select value as u, 1 as v from duckdb_settings()",
    "select getenv('HUBERMEAN_CANARY') as u, 1 as v",
    "attach 'x.db'",
    "copy named to 'out.csv'",
    "install httpfs",
    "select 1; select 2",
    "select * from read_parquet('http://localhost:1/x.parquet')",
    "pivot named on u using sum(v)",
    "summarize named",
    "select * from query('select 1 as u, 2 as v')",
    "explain select 1",
    "select u, v from named tablesample 50%",
    "select $1 as u, 1 as v",
    "select error(u) as u, v from named",
    "select cast(u as int) as u, v from named",
    "select u, sum(v) over (partition by u) as v from named",
    "set enable_external_access = true",
    "select * from data",
    "select u, v from named order by random() limit 2",
)


def seeds() -> Iterable[bytes]:
    """Whole queries, and each word of the list with some others."""
    for query in _QUERIES:
        for named in range(5):
            yield bytes([0, named, named % 2]) + query.encode()
    count = len(_WORDS)
    size = 2 if count > 256 else 1
    code = {word: number.to_bytes(size, "little") for number, word in enumerate(_WORDS)}
    for query in _QUERIES:
        words = query.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
        if all(word in code for word in words):
            yield bytes([1, 1, 1]) + b"".join(code[word] for word in words)
    for word in _WORDS:
        yield (
            bytes([2, 1, 1])
            + code["*"]
            + code["from"]
            + code[word]
            + code["("]
            + code["'canary.csv'"]
            + code[")"]
        )
    for number in range(60):
        yield bytes(
            [3, 0, 0, number % 4, number, number // 3, number % 6, number % 4, number * 7 % 256, number]
        )
