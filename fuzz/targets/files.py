"""Files of every kind: raw bytes, and valid files with edits. Refused, or read as docs/reference/input-data.md says."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import hubermean as hm
from fuzz.draw import Draw
from fuzz.oracle import Rule, added, expected, found, total
from fuzz.randomness import CountedNoise, drawn_from
from fuzz.releases import check_release
from fuzz.rows import MARK, VALUES, Rows
from fuzz.surroundings import working_folder
from fuzz.violation import is_foreign, require, result_or_refusal
from hubermean.ingest.groups import read_group_keys
from hubermean.ingest.inspection import unsafe_inspection
from hubermean.ingest.reading import user_table

DICTIONARY = (
    *(
        b"\r\n",
        b'"',
        b'""',
        b",",
        b"\t",
        b"\n",
        b"nan",
        b"inf",
        b"1e400",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\x00",
    ),
    *(b"PAR1", b'{"u":', b'"v":', b"}\n", b"\\ud800", b"null", b"1_0", b"0x1", b"u,v\n", b"\x1f\x8b\x08\x00"),
    *(b"'", b";", b"--", b"{", b"[", b"\\", b"\xe2\x80\xa8", b"true", b"1e-400", b"9" * 30),
)
NAMES = (
    *("data.csv", "data.tsv", "data.jsonl", "data.parquet", "data.csv.gz", "data.tsv.gz", "data.ndjson.gz"),
    *("data.pq", "data.ndjson", "DATA.CSV", "da'ta.csv", 'da"ta.parquet', "da;ta--.jsonl", "data.parquet.gz"),
    *("da ta.csv", "données.csv", "data.txt", "da\nta.csv", "da{ta}.parquet", "data=1.csv", "da[t]a.csv"),
)
_HEADERS = (b"u,v\n", b"u\tv\n", b'"u","v"\r\n', b"", b"u,v,u\n", b"\xef\xbb\xbfu,v\n", b"g,u,v\n")
# What a text stands for as a value; the others are no numbers.
_TEXTS: tuple[tuple[str, float | None], ...] = (
    *(("1", 1.0), ("-2.5", -2.5), ("1e3", 1000.0), (" 7 ", 7.0), ("8e12", 8e12), ("-1e300", -1e300)),
    *(("0.1", 0.1), ("5e-324", 5e-324), ("9007199254740993", 9007199254740992.0), (".5", 0.5), ("2.", 2.0)),
    *((MARK, None), ("nan", None), ("NaN", None), ("--1", None), ("1 2", None), ("0x", None), ("1,5", None)),
    *(("inf", float("inf")), ("-Infinity", float("-inf")), ("", None), ('"', None), ("1\n2", None)),
)
_USERS = (
    *(f"{MARK}{letter}" for letter in "abcä€\"',\n\t;"),
    "1",
    "01",
    "1.0",
    " ",
    "null",
    "NULL",
    "\\N",
    "#",
)


def check(data: bytes) -> None:
    draw = Draw(data)
    made = draw.pick((_raw, _text, _lines, _parquet, _parts))
    with working_folder() as folder:
        made(draw, folder)


# --- raw bytes --------------------------------------------------------------------------------------------------------


def _raw(draw: Draw, folder: Path) -> None:
    """Whatever the bytes are, under any name."""
    path = folder / draw.pick(NAMES)
    zipped, header = draw.below(3), draw.pick(_HEADERS)
    how = draw.below(256)
    content = header + draw.rest()
    if path.name.endswith(".gz") and zipped:
        content = gzip.compress(content, mtime=0)
        if zipped == 2:
            content = content[: -(len(content) // 3)]
    path.write_bytes(content)
    _used(path, how)


def _used(path: Path, how: int, *, hidden: Iterable[str] = ()) -> None:
    """Read in one of the ways there are, with columns that are there."""
    rule = Rule(resolution=(None, 0.5)[how // 8 % 2], clamp=how // 16 % 2 == 1)
    match how % 8:
        case 0 | 1 | 2:
            result_or_refusal(
                lambda: user_table(path, user="u", value="v", threads=1, **rule.arguments), hidden=hidden
            )
        case 3:
            result_or_refusal(lambda: unsafe_inspection(path, user="u", value=["v"]), hidden=hidden)
        case 4:
            result_or_refusal(lambda: read_group_keys(str(path), ["u"]), hidden=hidden)
        case 5:
            query = "select u, try_cast(v as double) as v from t"
            result_or_refusal(
                lambda: user_table(hm.sql(query, files={"t": path}), user="u", value="v"), hidden=hidden
            )
        case 6:
            with drawn_from(CountedNoise()) as noise:
                release = result_or_refusal(
                    lambda: hm.mean(
                        path, user="u", value="v", by="g" if how // 32 % 2 else "u2", epsilon=1, delta=0.01
                    ),
                    hidden=hidden,
                )
            if release is not None:
                check_release(release, noise)
        case _:
            with drawn_from(CountedNoise()) as noise:
                counted = result_or_refusal(lambda: hm.count(path, user="u", epsilon=1), hidden=hidden)
            if counted is not None:
                check_release(counted, noise, hidden=hidden)


def _edited(draw: Draw, content: bytes, *, after: int = 0) -> bytes:
    """A file with a few bytes changed, taken out, put in or said twice; nothing before `after` is touched."""
    kept, edited = content[:after], bytearray(content[after:])
    for _ in range(draw.below(5)):
        place = draw.below(len(edited) + 1)
        match draw.below(5):
            case 0:
                edited[place : place + 1] = draw.take(1)
            case 1:
                edited[place:place] = draw.chunk(12)
            case 2:
                del edited[place : place + draw.below(16)]
            case 3:
                edited[place:place] = edited[place : place + draw.below(64)]
            case _:
                del edited[place:]
    return kept + bytes(edited)


# --- CSV and JSON lines -----------------------------------------------------------------------------------------------


def _records(draw: Draw) -> list[tuple[str | None, tuple[str, float | None]]]:
    records: list[tuple[str | None, tuple[str, float | None]]] = []
    for _ in range(draw.below(12)):
        user = draw.pick((None, *_USERS))
        value = draw.pick((("", None), *_TEXTS))
        if draw.below(3) == 2:
            number = draw.real()
            value = repr(number), number
        records.append((user, value))
    return records


def _text(draw: Draw, folder: Path) -> None:
    """A CSV file as a careful writer makes it, perhaps edited; unedited, its sums are known."""
    path = folder / draw.pick(("data.csv", "data.tsv", "data.csv.gz"))
    rule = Rule(resolution=draw.pick((None, 0.25)), clamp=draw.flag())
    how, end = draw.below(256), draw.pick(("\n", "\r\n"))
    records = _records(draw)
    output = io.StringIO(newline="")
    writer = csv.writer(
        output,
        delimiter="\t" if ".tsv" in path.name else ",",
        lineterminator=end,
        quoting=draw.pick((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)),
    )
    writer.writerow(["u", "v"])
    writer.writerows(("" if user is None else user, value[0]) for user, value in records)
    content = output.getvalue().encode()
    edited = _edited(draw, content, after=content.index(b"\n") + 1)
    path.write_bytes(gzip.compress(edited, mtime=0) if path.suffix == ".gz" else edited)
    if edited != content:
        _used(path, how, hidden=[MARK])
        return
    table = user_table(path, user="u", value="v", **rule.arguments)
    users: list[Hashable | None] = [user or None for user, _ in records]
    values = [rule.real(value[1]) for _, value in records]
    require(found(table) == expected(users, [values]), "a CSV file is summed exactly")


def _lines(draw: Draw, folder: Path) -> None:
    """JSON lines, perhaps edited; unedited, their sums are known."""
    path = folder / draw.pick(("data.jsonl", "data.ndjson.gz"))
    rule = Rule(resolution=draw.pick((None, 0.25)), clamp=draw.flag())
    how, ascii_ = draw.below(256), draw.flag()
    lines, users, values = [], list[Hashable | None](), list[Fraction | None]()
    for user, (text, number) in _records(draw):
        as_number = draw.flag() and number is not None and abs(number) < 1e308
        record: dict[str, Any] = {"u": user, "v": number if as_number else text}
        for key in [key for key in record if draw.below(8) == 7]:
            del record[key]
        lines.append(json.dumps(record, ensure_ascii=ascii_))
        users.append(record.get("u"))
        values.append(rule.real(number) if "v" in record else None)
    content = "".join(f"{line}\n" for line in lines).encode()
    edited = _edited(draw, content)
    path.write_bytes(gzip.compress(edited, mtime=0) if path.suffix == ".gz" else edited)
    if edited != content:
        _used(path, how, hidden=[MARK])
        return
    table = user_table(path, user="u", value="v", **rule.arguments)
    require(found(table) == expected(users, [values]), "JSON lines are summed exactly")


def _parts(draw: Draw, folder: Path) -> None:
    """Records are judged one by one: what two parts of a file hold is what the whole holds."""
    as_json = draw.flag()
    first, second = (draw.chunk(120) for _ in range(2))
    forbidden = (b"\r",) if as_json else (b"\r", b'"')
    for mark in forbidden:  # with quotation marks one record may be written in both parts
        first, second = first.replace(mark, b""), second.replace(mark, b"")
    header = b"" if as_json else b"u,v\n"
    suffix = "jsonl" if as_json else "csv"
    totals = []
    for number, part in enumerate((first + b"\n", second + b"\n", first + b"\n" + second + b"\n")):
        path = folder / f"part{number}.{suffix}"
        path.write_bytes(header + part)
        table = result_or_refusal(lambda path=path: user_table(path, user="u", value="v"))  # type: ignore[misc]
        if table is None:
            return
        totals.append(total(found(table)))
    require(added(*totals[:2]) == added(totals[2]), "every record of a file is judged by itself")


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _parquet(draw: Draw, folder: Path) -> None:
    """A Parquet file of any types, perhaps edited, perhaps two."""
    several, how, compression = draw.below(8) == 7, draw.below(256), draw.pick(("none", "snappy", "gzip"))
    version = draw.pick(("1.0", "2.6"))
    rule = Rule(clamp=draw.flag())
    rows = Rows.drawn(draw, values=VALUES)
    try:
        content = _written(rows.table, compression=compression, data_page_version=version, row_group_size=5)
    except BaseException as error:
        if is_foreign(error):  # some types have no place in such a file
            return
        raise
    path = folder / "data.parquet"
    edited = _edited(draw, content)
    path.write_bytes(edited)
    if edited != content:
        _used(path, how, hidden=[MARK])
        return
    if several:
        other = rows.table.select(draw.pick((["u", "v"], ["v", "u"], ["u"], ["v"])))
        (folder / "other.parquet").write_bytes(_written(other))
        result_or_refusal(lambda: user_table("*data.parquet", user="u", value="v"), hidden=[MARK])
        result_or_refusal(lambda: user_table("[do]*a*.parquet", user="u", value="v"), hidden=[MARK])
        return
    table = result_or_refusal(
        lambda: user_table(path, user="u", value=rows.names, **rule.arguments), hidden=[MARK]
    )
    # Durations of a file come as the intervals of the engine, or as whole numbers.
    clear = not any(pa.types.is_duration(kind.type) for kind in rows.kinds)
    if table is not None and rows.known and clear:
        require(
            found(table) == expected(rows.users, rows.understood(rule)), "a Parquet file is summed exactly"
        )


def _written(table: pa.Table, **options: Any) -> bytes:
    output = io.BytesIO()
    pq.write_table(table, output, **options)
    return output.getvalue()


def seeds() -> Iterable[bytes]:
    """Every kind of input with every name, and some whole files."""
    body = bytes(range(3, 251, 2)) * 2
    raw = b'1,2\n1,"3"\n2,x\n,4\n'
    for number in range(len(NAMES)):
        for how in range(0, 64, 7):
            yield bytes([0, number, 1, number % 7, how]) + raw
    for text in (b'{"u":1,"v":2}\n{"u":"a","v":"3"}\n[1]\nx\n', zlib.compress(raw), _sample_file()):
        for number in (2, 3, 8):
            yield bytes([0, number, 0, 3, 0]) + text
    shift: Callable[[int], bytes] = lambda number: body[number:] + body[:number]  # noqa: E731
    for kind in (1, 2, 3, 4):
        for number in range(40):
            yield bytes([kind, number % 3, number]) + shift(3 * number)


def _sample_file() -> bytes:
    return _written(pa.table({"u": [1, 2], "v": [0.5, 1.5]}), compression="none", write_statistics=False)
