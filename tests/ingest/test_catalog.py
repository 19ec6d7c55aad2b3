"""Tables and columns that can be chosen from, by schemas alone."""

from __future__ import annotations

import datetime
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from hubermean.ingest.catalog import ColumnChoice, describe_columns, list_tables, select_table
from hubermean.ingest.periods import PERIODS

DAY = datetime.datetime(2024, 1, 1)
TABLE = pa.table(
    {
        "person": [1, 2],
        "amount": [1.5, 2.0],
        "when": pa.array([DAY] * 2, pa.timestamp("us")),
        "city": ["a", "b"],
        "kind": pa.array(["secret1", "secret2"]).dictionary_encode(),
        "raw": [b"x", b"y"],
    }
)
ROLES = {
    "person": (True, True, ["person"]),
    "amount": (True, True, []),
    "when": (False, False, [f"{period}(when)" for period in PERIODS]),
    "city": (True, False, ["city"]),
    "kind": (True, False, ["kind"]),
    "raw": (True, False, []),
}


def roles(columns: list[ColumnChoice] | None) -> dict[str, tuple[bool, bool, list[str]]]:
    assert columns is not None
    return {one.name: (one.is_user, one.is_value, list(one.groups)) for one in columns}


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_roles_follow_declared_types_and_quote_no_value(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    (pq.write_table if name.endswith("parquet") else feather.write_feather)(TABLE, path)
    columns = describe_columns(str(path))
    assert roles(columns) == ROLES
    assert "secret" not in repr(columns)


def test_text_names_its_columns_and_json_lines_do_not(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("person;amount\n1;2\n")
    columns = describe_columns(str(tmp_path / "a.csv"), delimiter=";")
    assert roles(columns) == {
        name: (True, True, [name, *(f"{period}({name})" for period in PERIODS)])
        for name in ("person", "amount")
    }
    (tmp_path / "a.jsonl").write_text('{"person": 1}\n')
    assert describe_columns(str(tmp_path / "a.jsonl")) is None


def test_tables_of_sqlite(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.executescript('CREATE TABLE "my ""trips" (person, amount); CREATE VIEW few AS SELECT 1 AS one')
    connection.close()
    url = f"sqlite:///{tmp_path / 'a.db'}"
    assert list_tables(url) == [("few",), ('my "trips',)]
    assert list(roles(describe_columns(select_table(('my "trips',), url)))) == ["person", "amount"]
    with pytest.raises(hm.InputError, match="there is no file"):
        list_tables("sqlite:///nowhere.db")


def test_tables_of_postgresql(postgres: object) -> None:
    import psycopg

    url = postgres.new_database("catalog")  # type: ignore[attr-defined]
    with psycopg.connect(url.replace("postgresql+psycopg", "postgresql"), autocommit=True) as connection:
        connection.execute(
            'CREATE TABLE "my trips" (person bigint, amount numeric(8, 2), "when" timestamptz, city text, raw bytea, '
            "gone money, line point)"
        )
    assert list_tables(url) == [("public", "my trips")]
    found = roles(describe_columns(select_table(("public", "my trips"), url)))
    expected = {name: one for name, one in ROLES.items() if name != "kind"}
    expected["amount"] = (True, True, ["amount"])  # a decimal can also name groups
    expected |= {"gone": (False, True, []), "line": (False, False, [])}
    assert found == expected
