"""Numbers and files as people write them: what the options say is read, and nothing else; nothing is guessed."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubermean as hm
from hubermean.ingest.duckdb.dialect import parse_numbers
from hubermean.ingest.reading import group_table, user_table
from hubermean.ingest.text_format import NumberFormat, TextFormat
from hubermean.types.options import ReadOptions

SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"


def numbers(**options: Any) -> NumberFormat:
    return TextFormat.checked(ReadOptions(**options)).numbers


def parse(texts: list[str], **options: Any) -> list[float | None]:
    return [None if one != one else one for one in parse_numbers(texts, numbers(**options)).tolist()]


def oracle(text: str, decimal: str, thousands: str, currency: tuple[str, ...]) -> float | None:
    """The number of a text, found letter by letter and not by a pattern."""
    text = text.strip(SPACES)
    plain = text.lower().lstrip("+-")
    if not any(letter.isascii() and letter.isdigit() for letter in text):
        flags = {"true": 1.0, "false": 0.0}
        return flags.get(text.lower(), float(text) if plain in ("inf", "infinity") else None)
    sign, rest = take_sign(text)
    for one in sorted(currency, key=len, reverse=True):
        if rest.startswith(one):
            rest = rest.removeprefix(one).lstrip(SPACES)
            break
    for one in sorted(currency, key=len, reverse=True):
        if rest.endswith(one):
            rest = rest.removesuffix(one).rstrip(SPACES)
            break
    if not sign:
        sign, rest = take_sign(rest, blanks=False)
    mantissa, mark, exponent = rest.replace("E", "e").partition("e")
    if mark and not re.fullmatch("[+-]?[0-9]+", exponent):
        return None
    whole, _, part = mantissa.partition(decimal)
    if not (whole or part) or not all(letter in "0123456789" for letter in part):
        return None
    groups = re.split("[" + re.escape(thousands) + "]", whole) if thousands else [whole]
    if not all(all(letter in "0123456789" for letter in group) for group in groups):
        return None
    if len(groups) > 1 and not (
        1 <= len(groups[0]) <= 3
        and all(2 <= len(group) <= 3 for group in groups[1:])
        and len(groups[-1]) == 3
    ):
        return None
    return float(f"{sign}{''.join(groups) or '0'}.{part or '0'}e{exponent or '0'}")


def take_sign(text: str, *, blanks: bool = True) -> tuple[str, str]:
    if text[:1] in ("+", "-"):
        return text[0], text[1:].lstrip(SPACES) if blanks else text[1:]
    return "", text


@pytest.mark.parametrize(
    ("text", "decimal", "thousands", "currency", "wanted"),
    [
        ("1.234,56", ",", ".", None, 1234.56),
        ("1,234.56", ",", ".", None, None),
        ("1,234.56", ".", ",", None, 1234.56),
        ("1.234,56", ".", ",", None, None),
        ("1,5", ",", None, None, 1.5),
        ("1.5", ",", None, None, None),
        ("1.5", ",", ".", None, None),
        ("1.500", ",", ".", None, 1500.0),
        ("12.34.567", ",", ".", None, 1234567.0),
        ("1234.567", ",", ".", None, None),
        ("1.2345", ",", ".", None, None),
        ("1 234 567,8", ",", " ", None, 1234567.8),
        ("1\N{NARROW NO-BREAK SPACE}234,5", ",", " ", None, 1234.5),
        ("1\N{RIGHT SINGLE QUOTATION MARK}234.5", ".", "'", None, 1234.5),
        ("€ 12", ".", None, "€", 12.0),
        ("12€", ".", None, "€", 12.0),
        ("-€12", ".", None, "€", -12.0),
        ("€-12", ".", None, "€", -12.0),
        ("--12", ".", None, "€", None),
        ("12 EUR", ".", None, ["€", "EUR"], 12.0),
        ("EUR 12 EUR", ".", None, "EUR", 12.0),
        ("$12", ".", None, "€", None),
        ("12%", ".", None, "€", None),
        ("(12)", ",", ".", "€", None),
        ("12-", ",", ".", "€", None),
        ("1e3", ",", ".", None, 1000.0),
        ("1,5e-3", ",", None, None, 0.0015),
        (",5", ",", None, None, 0.5),
        ("5,", ",", None, None, 5.0),
        (",", ",", None, None, None),
        ("", ",", None, None, None),
        ("1_000", ",", None, None, None),
        ("١٢", ",", None, None, None),
        ("true", ",", ".", None, 1.0),
        ("nan", ",", ".", None, None),
        ("1,5\n", ",", None, None, None),
        ("1.234,56\0", ",", ".", None, None),
    ],
)
def test_a_number_is_read_as_it_is_written(
    text: str, decimal: str, thousands: str | None, currency: Any, wanted: float | None
) -> None:
    assert parse([text], decimal=decimal, thousands=thousands, currency=currency) == [wanted]


written = st.text(alphabet="0123456789.,' -+eE€R()x" + SPACES, max_size=12)


@given(
    texts=st.lists(written, min_size=1, max_size=40),
    marks=st.sampled_from([(",", None), (",", "."), (".", ","), (".", " "), (",", "'")]),
    currency=st.sampled_from([(), ("€",), ("€", "R")]),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_numbers_are_those_of_an_oracle(
    texts: list[str], marks: tuple[str, str | None], currency: tuple[str, ...]
) -> None:
    decimal, thousands = marks
    if not currency and thousands is None and decimal == ".":
        return
    form = numbers(decimal=decimal, thousands=thousands, currency=currency)
    found = parse_numbers(texts, form).tolist()
    wanted = [oracle(text, decimal, form.thousands, currency) for text in texts]
    assert [None if one != one else one for one in found] == wanted


# --- files ------------------------------------------------------------------------------------------------------------


def entries(path: Path, **options: Any) -> list[tuple[Fraction, int, int]]:
    table = user_table(path, user="u", value="v", **options).collect()
    return sorted(
        (table.sums[0].fraction(place), table.counts.tolist()[place], table.records.tolist()[place])
        for place in range(table.n_users)
    )


def store(folder: Path, text: str, *, encoding: str = "utf-8", name: str = "records.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding, errors="surrogatepass"))
    return path


HOSTILE = [
    "1.234,56",
    "1,234.56",
    '"1,5"',
    "'1,5'",
    "1;5",
    "€ 12",
    "(12)",
    "12-",
    "NA",
    "",
    "\ufeff7",
    "\0",
    "1e999",
    "\x1f",
    "two\\nlines",
    "\ud800",
    "1,5\r",
]


@pytest.mark.fair_sample(0.34)
@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize(
    "options",
    [
        {"decimal": ",", "delimiter": ";"},
        {"decimal": ",", "thousands": ".", "currency": "€", "null": "NA", "delimiter": ";"},
        {"delimiter": ";", "thousands": ",", "quote": ""},
        {"decimal": ",", "delimiter": ";", "quote": "'", "encoding": "utf-16"},
        {"decimal": ",", "delimiter": ";", "encoding": "cp1252"},
    ],
)
def test_how_a_record_is_read_depends_on_no_other(
    tmp_path: Path, options: dict[str, Any], hostile: str
) -> None:
    """Whatever one user writes, first or last: the sums of everybody else stay as they are."""
    others = [f"{user};{text}" for user, text in enumerate(["1,5", "2", "3,25", "1000", "1.000", "1,000"])]
    encoding = options.get("encoding", "utf-8")
    if encoding == "cp1252":
        hostile = hostile.encode("cp1252", errors="ignore").decode("cp1252")
    base = entries(store(tmp_path, "\n".join(["u;v", *others]) + "\n", encoding=encoding), **options)
    for lines in (
        [f"odd;{hostile}", *others],
        [*others, f"odd;{hostile}"],
        [*others[:3], f"odd;{hostile}", *others[3:]],
    ):
        found = entries(store(tmp_path, "\n".join(["u;v", *lines]) + "\n", encoding=encoding), **options)
        left = list(found)
        for one in base:
            left.remove(one)
        assert len(left) == 1, "the record of the odd user has vanished, or changed another"


ENCODINGS = ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252", "gb18030", "mac-roman"]


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_file_in_another_encoding_is_the_same_table(tmp_path: Path, encoding: str, ending: str) -> None:
    import gzip

    text = 'u;v\n"Zoë;1";1,5\nZoë;2\nÅ\u00a0b;3\n'
    path = store(tmp_path, text, encoding=encoding)
    if ending:
        packed = tmp_path / "packed.csv.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path = packed
    found = entries(path, delimiter=";", decimal=",", encoding=encoding)
    assert found == [(Fraction(3, 2), 1, 1), (Fraction(2), 1, 1), (Fraction(3), 1, 1)]
    table = group_table(
        path,
        user=["v"],
        value=[],
        by=["u"],
        keys=None,
        max_groups=9,
        delimiter=";",
        encoding=encoding,
    )
    assert sorted(key for (key,) in table.keys) == ["Zoë", "Zoë;1", "Å\u00a0b"]


@pytest.mark.parametrize(
    ("encoding", "invalid"),
    [
        ("utf-8", [b"\xff", b"\xfe", b"\xc3"]),
        ("cp1252", [b"\x81", b"\x8d", b"\x90"]),
        ("gb18030", [b"\xff", b"\x81", b"\xfe"]),
        ("shift_jis", [b"\xff", b"\x81", b"\xfd"]),
        ("utf-16-le", [b"\x00\xd8", b"\x01\xd8", b"\x0a\xd8"]),
    ],
)
def test_invalid_bytes_take_nothing_of_other_records_with_them(
    tmp_path: Path, encoding: str, invalid: list[bytes]
) -> None:
    path = tmp_path / "records.csv"
    rows = [odd + f",{2**place}\n".encode(encoding) for place, odd in enumerate([*invalid, *invalid])]
    plain = "".join(f"user{place},{2 ** (place + 8)}\n" for place in range(3)).encode(encoding)
    path.write_bytes("u,v\n".encode(encoding) + b"".join(rows) + plain)
    found = [int(total) for total, _, _ in entries(path, encoding=encoding)]
    assert found == [9, 18, 36, 256, 512, 1024]


def test_only_the_first_line_of_a_file_is_its_header(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_bytes(b"u,v\n" + b"\xff\xfe,1\n" * 5000)
    assert entries(path) == [(Fraction(5000), 5000, 5000)]
    path.write_bytes(b"\xff\xfe,v\n1,2\n")
    with pytest.raises(hm.InputError, match="set encoding"):
        entries(path)
    path.write_bytes(b"u,v\n1,2\n")
    with pytest.raises(hm.InputError, match="set encoding"):
        entries(path, encoding="utf-16")


# --- words for missing cells ------------------------------------------------------------------------------------------


def test_null_words_are_missing_in_every_role_and_container(tmp_path: Path) -> None:
    path = store(tmp_path, "u,g,v\nNA,a,1\n1,NA,2\n1,a,NA\n1,a,-999\n1,a,-99\n2,-999,4\n")
    frame = pd.read_csv(path, dtype=object, keep_default_na=False)
    numbers = frame.assign(v=pd.to_numeric(frame["v"], errors="coerce"))
    lines = store(
        tmp_path,
        '{"u": "NA", "g": "a", "v": 1}\n{"u": 1, "g": "NA", "v": 2}\n{"u": 1, "g": "a", "v": "NA"}\n'
        '{"u": 1, "g": "a", "v": -999}\n{"u": 1, "g": "a", "v": -99}\n{"u": 2, "g": -999, "v": 4}\n',
        name="records.jsonl",
    )
    parquet = tmp_path / "records.parquet"
    numbers.to_parquet(parquet)
    for data in (path, frame, numbers, lines, parquet):
        assert entries(data, null=["NA", "-999"]) == [(Fraction(-97), 2, 4), (Fraction(4), 1, 1)]
        table = group_table(
            data,
            user=["u"],
            value=["v"],
            by=["g"],
            keys=None,
            max_groups=9,
            null=["NA", "-999"],
        )
        assert table.keys == (("a",),)
        assert len(entries(data)) == 3


# --- options ----------------------------------------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], str]] = [
    ({"decimal": ";"}, "decimal must be"),
    ({"decimal": None}, "decimal must be"),
    ({"thousands": "."}, "must be different"),
    ({"thousands": "''"}, "thousands must be one character"),
    ({"thousands": "0"}, "thousands must be one character"),
    ({"thousands": "-"}, "thousands must be one character"),
    ({"currency": "1"}, "currency must be signs"),
    ({"currency": "E"}, "currency must be signs"),
    ({"currency": 5}, "currency must be"),
    ({"null": ["a", 5]}, "null must be"),
    ({"null": " a"}, "null must be"),
    ({"null": "\ud800"}, "null must be text"),
    ({"delimiter": "a"}, "delimiter must be"),
    ({"delimiter": "\n"}, "delimiter must be"),
    ({"delimiter": ""}, "delimiter must be"),
    ({"quote": "ab"}, "quote must be"),
    ({"quote": "|", "delimiter": "|"}, "must be different"),
    ({"encoding": "utf-7"}, "encoding must be"),
    ({"encoding": "iso-2022-jp"}, "encoding must be"),
    ({"encoding": "rot13"}, "encoding must be"),
    ({"encoding": "no such"}, "encoding must be"),
    ({"encoding": "utf-8\0"}, "encoding must be"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_options_are_refused_before_anything_is_read(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(hm.InputError, match=words):
        entries(store(tmp_path, "u,v\n1,2\n"), **options)


@pytest.mark.parametrize("name", ["decimal", "thousands", "currency", "delimiter", "quote", "encoding"])
def test_options_that_would_do_nothing_are_refused(tmp_path: Path, name: str) -> None:
    given_option = {
        "decimal": ",",
        "thousands": ",",
        "currency": "€",
        "delimiter": ";",
        "quote": "'",
        "encoding": "latin-1",
    }
    frame = pd.DataFrame({"u": [1], "v": [2.0]})
    frame.to_parquet(tmp_path / "records.parquet")
    typed = [tmp_path / "records.parquet", hm.sql("SELECT 1 AS u, 2 AS v")]
    lines = store(tmp_path, '{"u": 1, "v": 2}\n', name="records.jsonl")
    for data in typed + ([lines, frame] if name in ("delimiter", "quote", "encoding") else []):
        with pytest.raises(hm.InputError, match=f"{name} does not apply to"):
            entries(data, **{name: given_option[name]})


def test_another_format_is_another_question(tmp_path: Path) -> None:
    """Else a release that was made with the wrong format would be returned for the right one."""
    rows = "".join(f"{user};{user % 9},5\n" for user in range(900))
    path = store(tmp_path, f"u;v\n{rows}")
    ledger = tmp_path / "ledger.sqlite"
    with hm.Ledger(ledger) as made:
        made.init("trips", epsilon=10)

    def ask(**options: Any) -> hm.Release:
        return hm.mean(
            path,
            user="u",
            value="v",
            epsilon=1,
            bounds=(0, 10),
            max_records=1,
            delimiter=";",
            ledger=ledger,
            dataset="trips",
            **options,
        )

    wrong, right, again = ask(), ask(decimal=","), ask(decimal=",")
    assert wrong.value != right.value
    assert again.value == right.value
    assert again.receipt is not None
    assert again.receipt.again


def test_a_file_whose_numbers_cannot_be_read_says_what_to_set(tmp_path: Path) -> None:
    rows = "".join(f'{user},"{user},5"\n' for user in range(3000))
    path = store(tmp_path, f"u,v\n{rows}")
    with pytest.raises(hm.NotReleased, match=r"check the number format \(decimal, thousands, currency\)"):
        hm.mean(path, user="u", value="v", epsilon=1)
    frame = pd.DataFrame({"u": range(2000), "v": [None] * 2000})
    frame["v"] = frame["v"].astype("float64")
    frame.to_parquet(tmp_path / "empty.parquet")
    with pytest.raises(hm.NotReleased) as caught:
        hm.mean(tmp_path / "empty.parquet", user="u", value="v", epsilon=1)
    assert "number format" not in str(caught.value)


def test_users_and_records_of_another_format_are_counted(tmp_path: Path) -> None:
    path = store(tmp_path, "u;v\n1;1,5\n1;n/a\n2;x\nNA;5\n", encoding="latin-1")
    options: dict[str, Any] = {"delimiter": ";", "encoding": "latin-1", "null": "NA", "epsilon": 1000}
    assert hm.count(path, user="u", **options).value == 2
    assert hm.count(path, user="u", value="v", decimal=",", **options).value == 1
    assert hm.count(path, user="u", of="records", max_records=9, **options).value == 3


def test_all_pairs_of_marks_work_together(tmp_path: Path) -> None:
    for decimal, thousands in itertools.product(".,", ".,' _"):
        if decimal == thousands:
            continue
        text = f"u;v\n1;12{thousands}345{decimal}5\n"
        found = entries(store(tmp_path, text), delimiter=";", decimal=decimal, thousands=thousands)
        assert found == [(Fraction(24691, 2), 1, 1)]
