"""The way in: how records are read, what is said of them and what it costs must not depend on one user's record.

Each test is one way in which it once did.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import hubermean as hm
from helpers.container_entries import GROUP, USER, VALUE, Look, Refusal
from hubermean.auditing.containers import CONTAINERS
from hubermean.cli.app import app

USERS = 400
SECRET = "rare-disease-7F3A"


def everybody(group: Callable[[int], Any] = lambda place: place % 7) -> dict[str, list[Any]]:
    """Users with three records each, in different groups."""
    places = range(3 * USERS)
    return {
        USER: [place // 3 for place in places],
        GROUP: [group(place) for place in places],
        VALUE: [float(place % 11) for place in places],
    }


def with_one_more(columns: dict[str, list[Any]], **cells: Any) -> dict[str, list[Any]]:
    record = {USER: 10**6, GROUP: 0, VALUE: 1.0, **cells}
    return {name: [*held, record[name]] for name, held in columns.items()}


def others_stay(before: Any, after: Any, look: Look) -> None:
    first, second = look.at(before), look.at(after)
    assert not isinstance(first, Refusal)
    assert not isinstance(second, Refusal)
    assert not first - second, "somebody else's entry has changed"
    assert (second - first).total() <= look.of_one_user(1)


# --- 1. dtypes of pandas ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", ["x", 2.5, None, True])
@pytest.mark.parametrize("role", [USER, GROUP])
def test_one_odd_key_in_a_pandas_column_moves_nobody_and_changes_no_type(role: str, odd: Any) -> None:
    columns = everybody()
    for look in (Look(max_groups=1), Look(max_groups=2), Look(by_group=True)):
        others_stay(pd.DataFrame(columns), pd.DataFrame(with_one_more(columns, **{role: odd})), look)


def test_the_type_of_a_shown_key_is_text_whatever_the_dtype() -> None:
    columns = everybody()
    for held in (columns, with_one_more(columns, **{GROUP: "x"})):
        table = hm.count(pd.DataFrame(held), user=USER, by=GROUP, epsilon=50, delta=1e-3, max_groups=3)
        assert {(type(key), key) for (key,) in table.keys} == {(str, str(g)) for g in range(7)}


def test_text_ids_of_pandas_stay_the_same_when_one_is_no_text() -> None:
    columns = everybody()
    columns[USER] = [f"user {user}" for user in columns[USER]]
    before, after = pd.DataFrame(columns), pd.DataFrame(with_one_more(columns))
    assert (before[USER].dtype, after[USER].dtype) == ("str", object)
    others_stay(before, after, Look(max_groups=1))


# --- 2. enums ---------------------------------------------------------------------------------------------------------


def diagnoses(place: int) -> str:
    return ("flu", "cough", "sprain", "zoster")[place % 4]


@pytest.mark.parametrize("role", [USER, GROUP])
@pytest.mark.parametrize(
    "name", ["duckdb-enum", "polars-categorical", "arrow-dictionary", "pandas-categorical"]
)
def test_a_new_member_of_an_enum_moves_nobody(name: str, role: str, tmp_path: Path) -> None:
    columns = everybody(diagnoses)
    columns[USER] = [f"user {user}" for user in columns[USER]]
    more = with_one_more(columns, **{USER: "another", GROUP: "a first diagnosis"})
    make = CONTAINERS[name].make
    others_stay(make(columns, tmp_path), make(more, tmp_path), Look(max_groups=1))


@pytest.mark.parametrize(
    "asked",
    [
        {"user": USER, "value": GROUP},
        {
            "user": USER,
            "value": VALUE,
            "by": GROUP,
            "keys": ["flu", "no such diagnosis"],
            "bounds": (0, 1),
            "max_records": 3,
        },
        {"user": USER, "value": VALUE, "by": GROUP, "keys": [1, 2], "bounds": (0, 1), "max_records": 3},
        {"user": "nobody", "value": VALUE},
    ],
)
@pytest.mark.parametrize(
    "name", ["duckdb-enum", "polars-categorical", "arrow-dictionary", "pandas-categorical"]
)
def test_no_message_prints_the_members_of_an_enum(name: str, asked: dict[str, Any], tmp_path: Path) -> None:
    """Whether there is an answer at all, or why not, is the same for neighbors, too."""
    columns = everybody(diagnoses)
    more = with_one_more(columns, **{GROUP: SECRET})
    said = []
    for held in (columns, more):
        try:
            hm.mean(CONTAINERS[name].make(held, tmp_path), epsilon=1, delta=1e-6, **asked)
            said.append("")
        except hm.NotReleased:
            said.append("")
        except hm.InputError as error:
            said.append(str(error))
    assert said[0] == said[1]
    assert SECRET not in said[1]
    assert "sprain" not in said[1]


# --- 3. categories of numbers -----------------------------------------------------------------------------------------


def test_one_half_among_categories_of_integers_changes_nobodys_value() -> None:
    columns = everybody()
    columns[VALUE] = [10**13, 1, 2] * USERS
    before = pd.DataFrame(columns).astype({VALUE: "category"})
    after = pd.DataFrame(with_one_more(columns, **{VALUE: 2.5})).astype({VALUE: "category"})
    others_stay(before, after, Look())
    others_stay(before, after, Look(max_groups=2))


def test_one_half_among_categories_of_integers_decides_no_refusal() -> None:
    columns = everybody()
    columns[VALUE] = [1, 2, 3] * USERS
    said = []
    for held in (columns, with_one_more(columns, **{VALUE: 2.5}), with_one_more(columns, **{VALUE: "x"})):
        frame = pd.DataFrame(held).astype({VALUE: "category"})
        try:
            hm.mean(frame, user=USER, value=VALUE, epsilon=1, bounds=(0, 9e12), max_records=3)
            said.append("")
        except hm.InputError as error:
            said.append(str(error))
    assert len(set(said)) == 1


# --- 4. queries are queries -------------------------------------------------------------------------------------------


def filtered(kind: str, folder: Path) -> Any:
    columns = everybody()
    match kind:
        case "polars":
            return pl.LazyFrame(columns).filter(pl.col(USER) < 17)
        case "dataset":
            return ds.dataset(CONTAINERS["parquet"].make(columns, folder)).filter(ds.field(USER) < 17)
        case "reader":
            found = ds.dataset(CONTAINERS["parquet"].make(columns, folder))
            return found.scanner(filter=ds.field(USER) < 17).to_reader()
        case "scanner":
            return ds.dataset(pa.table(columns)).scanner(filter=ds.field(USER) < 17)
    return CONTAINERS[kind].make(columns, folder)


@pytest.mark.parametrize("relation", ["replace-user", "replace-values"])
@pytest.mark.parametrize("with_ledger", [True, False])
@pytest.mark.parametrize("kind", ["polars", "dataset", "reader", "duckdb", "sql", "csv", "jsonl"])
def test_how_many_users_a_query_finds_is_not_printed(
    kind: str, with_ledger: bool, relation: str, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"user": USER, "value": VALUE, "epsilon": 0.001, "neighbors": relation}
    asked |= {"bounds": (0, 10), "max_records": 3}
    if with_ledger:
        with hm.Ledger(tmp_path / "ledger.sqlite") as ledger:
            ledger.init("trips", epsilon=1.0, neighbors=relation)
        asked |= {"ledger": tmp_path / "ledger.sqlite", "dataset": "trips", "question": "few"}
    remedy = "give n_users" if relation == "replace-user" else "add-remove"
    with pytest.raises(hm.InputError, match=remedy):
        hm.mean(filtered(kind, tmp_path), **asked)


@pytest.mark.parametrize("kind", ["polars", "dataset", "reader", "duckdb", "sql", "csv", "jsonl", "parquet"])
def test_the_number_of_users_that_is_stated_is_the_one_that_is_shown(kind: str, tmp_path: Path) -> None:
    for stated in (USERS, 10 * USERS):
        release = hm.mean(
            filtered(kind, tmp_path),
            user=USER,
            value=VALUE,
            epsilon=1,
            neighbors="replace-user",
            n_users=stated,
            bounds=(0, 10),
            max_records=3,
        )
        assert release.n_users == stated


def test_nothing_exact_is_printed_unless_it_is_asked_for(tmp_path: Path) -> None:
    path = CONTAINERS["parquet"].make(everybody(), tmp_path)
    release = hm.mean(path, user=USER, value=VALUE, epsilon=1, bounds=(0, 10), max_records=3)
    means = hm.mean_of_user_means([1.0, 2.0, 3.0], epsilon=1, bounds=(0, 10))
    assert (release.neighbors.value, release.n_users) == ("add-remove", None)
    assert (means.neighbors.value, means.n_users) == ("add-remove", None)
    printed = json.loads(
        _released(path, "--bounds", "0", "10", "--max-records", "3", "--json", check=0).stdout
    )
    assert (printed["neighbors"], printed["n_users"]) == ("add-remove", None)


# --- 5. no record vanishes --------------------------------------------------------------------------------------------

RECORD = {USER: "500", GROUP: "a", VALUE: 1.0, "note": "fine"}


@pytest.mark.parametrize(
    "odd",
    [
        r'{"u": "500", "g": "a", "v": 1.0, "note": "\ud800"}',
        r'{"u": "500", "g": "a", "v": 1.0, "\ud800": 1}',
        r'{"u": "500", "g": "\udfff", "v": 1.0}',
        r'{"u": "500", "g": "a", "v": 1.0, "note": {"deep": ["\ud800 \ud800"]}}',
        b'{"u": "500", "g": "a", "v": 1.0, "note": "\xff\xfe"}',
    ],
)
def test_odd_text_in_a_json_line_does_not_delete_its_record(odd: str | bytes, tmp_path: Path) -> None:
    lines = [json.dumps({**RECORD, USER: str(user)}).encode() for user in range(50)]
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"\n".join([*lines[:20], odd if isinstance(odd, bytes) else odd.encode(), *lines[20:]]))
    found = Look().at(path)
    assert found == {("user", 1, 1, 1): 51}


@pytest.mark.parametrize("odd", [r'"\ud800"', r'"\ud801 é"'])
def test_a_user_whose_id_is_half_a_surrogate_pair_is_a_user(odd: str, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(f'{{"u": {user}, "v": 1}}\n' for user in ('"a"', '"\\ufffd"', odd, odd)))
    assert Look().at(path) == {("user", 1, 1, 1): 2, ("user", 2, 2, 2): 1}


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_csv_record_of_any_length_is_kept(ending: str, tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {USER: [1, 2, 3], VALUE: [1, 1, 1], "note": ["", "x" * 65_000_000, ""]}
    kind = {".csv": "csv", ".csv.gz": "csv-gz"}[ending]
    assert Look().at(CONTAINERS[kind].make(columns, tmp_path)) == {("user", 1, 1, 1): 3}


# --- 6. refusals that cost nothing and depend on one user -------------------------------------------------------------


def limited(path: Any, **asked: Any) -> str:
    """What becomes of a release whose reader chose how much memory there is."""
    try:
        hm.mean(path, user=USER, value=VALUE, epsilon=1, memory_limit="20MB", threads=1, **asked)
        return "released"
    except hm.HubermeanError as error:
        return f"{type(error).__name__}: {error}"


KNOWN: dict[str, Any] = {"neighbors": "add-remove", "bounds": (0, 10), "max_records": 3}


def test_a_user_in_very_many_groups_does_not_decide_whether_there_is_an_answer(tmp_path: Path) -> None:
    columns = everybody(str)
    many = 300_000
    odd = {
        USER: [10**6] * many,
        GROUP: [f"group {place} of many" for place in range(many)],
        VALUE: [1.0] * many,
    }
    whole = {name: columns[name] + odd[name] for name in columns}
    said = []
    for held in (columns, whole):
        path = CONTAINERS["parquet"].make(held, tmp_path)
        said.append(limited(path, by=GROUP, delta=1e-6, **KNOWN))
    assert said == ["released", "released"]


def test_a_very_long_id_does_not_decide_whether_there_is_an_answer(tmp_path: Path) -> None:
    columns = {
        name: [str(cell) if name == USER else cell for cell in held] for name, held in everybody().items()
    }
    said = []
    for held in (columns, with_one_more(columns, **{USER: "x" * 30_000_000})):
        said.append(limited(CONTAINERS["parquet"].make(held, tmp_path), **KNOWN))
    assert said == ["released", "released"]


@pytest.mark.slow
def test_a_json_line_of_any_length_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    with path.open("w") as file:
        file.write('{"u": 1, "v": 1}\n{"u": 2, "v": 1, "note": "')
        for _ in range(270):
            file.write("x" * 1_000_000)
        file.write('"}\n{"u": 3, "v": 1}\n')
    assert Look().at(path) == {("user", 1, 1, 1): 3}


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("name", ["parquet", "arrow", "polars"])
def test_a_point_in_time_out_of_range_stops_no_release(name: str, unit: str, tmp_path: Path) -> None:
    for odd in (0, 2**60, 2**63 - 1, -(2**63) + 1):
        times = pa.array([*range(50), odd], pa.int64()).cast(pa.timestamp(unit))
        data: Any = pa.table({USER: times, VALUE: [1.0] * 51})
        if name == "polars":
            data = pl.DataFrame(data)
        elif name == "parquet":
            pq.write_table(data, tmp_path / "records.parquet")
            data = tmp_path / "records.parquet"
        with pytest.raises(
            hm.InputError, match="has type TIMESTAMP"
        ):  # by the declared type, whatever the records
            hm.mean(data, user=USER, value=VALUE, epsilon=1, **KNOWN)


def broken_parquet(folder: Path) -> Path:
    """Schema and sizes are whole, the records are not."""
    path = folder / "records.parquet"
    pq.write_table(pa.table(everybody()), path, compression="snappy", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[200:2000] = b"\xff" * 1800
    path.write_bytes(bytes(content))
    return path


def test_what_fails_while_records_are_read_costs_what_was_asked_for(tmp_path: Path) -> None:
    place = tmp_path / "ledger.sqlite"
    with hm.Ledger(place) as ledger:
        ledger.init("trips", epsilon=1.0)
    asked = {"user": USER, "value": VALUE, "epsilon": 0.25, "ledger": place, "dataset": "trips", **KNOWN}
    with pytest.raises(hm.NotReleased) as caught:
        hm.mean(broken_parquet(tmp_path), **asked)
    assert caught.value.epsilon == 0.25
    with hm.Ledger(place) as ledger:
        assert ledger.dataset("trips").spent.loss == Decimal("0.25")


def test_what_the_schema_already_tells_costs_nothing(tmp_path: Path) -> None:
    place = tmp_path / "ledger.sqlite"
    with hm.Ledger(place) as ledger:
        ledger.init("trips", epsilon=1.0)
    asked: dict[str, Any] = {"user": USER, "epsilon": 0.25, "ledger": place, "dataset": "trips", **KNOWN}
    data = CONTAINERS["parquet"].make(everybody(diagnoses), tmp_path)
    for value in ("nothing", GROUP):
        with pytest.raises(hm.InputError):
            hm.mean(data, value=value, **asked)
    with hm.Ledger(place) as ledger:
        assert ledger.dataset("trips").spent.loss == 0


# --- 7. public keys are public ----------------------------------------------------------------------------------------


def _released(file: Any, *more: str, check: int | None = None) -> Result:
    options = ["--user", USER, "--value", VALUE, "--epsilon", "1"]
    result = CliRunner().invoke(app, ["release", str(file), *options, *more])
    if check is not None:
        assert result.exit_code == check, result.output
    return result


@pytest.mark.parametrize("way", ["glob of the data", "glob of keys", "copy", "hard link", "symbolic link"])
def test_the_data_cannot_serve_as_public_keys(way: str, tmp_path: Path) -> None:
    columns = with_one_more(everybody(diagnoses), **{GROUP: SECRET})
    data = tmp_path / "data-1.parquet"
    pq.write_table(pa.table({name: columns[name] for name in (GROUP, USER, VALUE)}), data)
    file, keys = str(data), str(tmp_path / "keys.parquet")
    if way == "glob of the data":
        pq.write_table(pq.read_table(data), tmp_path / "data-2.parquet")
        file, keys = str(tmp_path / "data-*.parquet"), str(tmp_path / "data-2.parquet")
    elif way == "glob of keys":
        keys = str(tmp_path / "data-?.parquet")
    elif way == "copy":
        shutil.copy(data, keys)
    elif way == "hard link":
        os.link(data, keys)
    else:
        os.symlink(data, keys)
    result = _released(file, "--by", GROUP, "--keys", keys, "--bounds", "0", "10", "--max-records", "3")
    said = result.output + str(result.exception)
    assert result.exit_code != 0
    assert isinstance(result.exception, hm.InputError)
    assert SECRET not in said
    assert "sprain" not in said


def test_a_copy_of_the_data_names_no_public_groups_though_each_occurs_once(tmp_path: Path) -> None:
    """Only its columns show then that it is no list of groups."""
    data, keys = tmp_path / "data.parquet", tmp_path / "keys.parquet"
    pq.write_table(pa.table({GROUP: ["flu", SECRET], USER: [1, 2], VALUE: [3.0, 4.0]}), data)
    shutil.copy(data, keys)
    result = _released(data, "--by", GROUP, "--keys", str(keys), "--bounds", "0", "10", "--max-records", "3")
    assert isinstance(result.exception, hm.InputError)
    assert "and no other" in str(result.exception)
    assert SECRET not in result.output + str(result.exception)


def test_a_file_of_keys_beside_the_data_is_refused_where_the_glob_takes_it_in(tmp_path: Path) -> None:
    """It has the columns of --by alone, and is one of the data's files."""
    for number in range(2):
        pq.write_table(pa.table({GROUP: ["flu", SECRET]}), tmp_path / f"part-{number}.parquet")
    result = _released(
        tmp_path / "part-*.parquet",
        "--by",
        GROUP,
        "--keys",
        str(tmp_path / "part-1.parquet"),
        "--bounds",
        "0",
        "1",
    )
    assert isinstance(result.exception, hm.InputError)
    assert "keys" in str(result.exception)
    assert SECRET not in str(result.exception)


def test_a_message_about_public_keys_quotes_none_of_their_file(tmp_path: Path) -> None:
    data = CONTAINERS["parquet"].make(everybody(), tmp_path)
    for cells in ([SECRET, "flu"], ["1", "1.0", SECRET], ["\x1f" + SECRET]):
        pq.write_table(pa.table({GROUP: cells}), tmp_path / "keys.parquet")
        result = _released(
            data, "--by", GROUP, "--keys", str(tmp_path / "keys.parquet"), "--bounds", "0", "1"
        )
        if result.exit_code:
            assert SECRET not in result.output + str(result.exception)
        else:  # public keys that nobody has are groups without anybody
            assert isinstance(result.exception, type(None))


# --- 8. a first line that is no header --------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [f"alice,{SECRET},x", f"alice,{SECRET},12.5", f"17,{SECRET},3"])
@pytest.mark.parametrize("name", ["records.csv", "records.tsv"])
def test_a_message_about_a_csv_file_quotes_no_first_line(name: str, first: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(first.replace(",", "\t" if name.endswith("tsv") else ",") + "\nbob,flu,1\n")
    said = []
    for column in ({"user": USER, "value": VALUE}, {"user": "alice", "value": VALUE}):
        with pytest.raises(hm.InputError) as caught:
            hm.mean(path, epsilon=1, **column)
        said.append(str(caught.value))
    assert all(SECRET not in one for one in said)
    assert "alice" not in said[0]


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "duckdb"])
def test_a_message_about_a_frame_lists_no_column_of_it(kind: str, tmp_path: Path) -> None:
    """A frame that was read from a file without a header, or pivoted, has cells for names."""
    frame = CONTAINERS[kind].make({USER: [1], SECRET: [2.0]}, tmp_path)
    with pytest.raises(hm.InputError, match="there is no column 'fare'") as caught:
        hm.mean(frame, user=USER, value="fare", epsilon=1)
    assert SECRET not in str(caught.value)


def test_a_query_says_which_column_is_missing_without_listing_others(tmp_path: Path) -> None:
    relation = duckdb.connect().sql(f'SELECT 1 AS u, 2 AS "{SECRET}"')
    with pytest.raises(hm.InputError) as caught:
        hm.mean(relation, user=USER, value="fare", epsilon=1)
    assert SECRET not in str(caught.value)
