"""Which shares of a user count: no more than it may, by that user alone, whatever container and odd records."""

from __future__ import annotations

import contextlib
import datetime
import math
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from helpers.group_records import RELATIONS, records, shares
from hubermean.ingest.duckdb.queries import GroupQuery
from hubermean.ingest.reading import group_table


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("max_groups", [1, 2, 3, 5, None])
def test_a_user_counts_in_no_more_groups_than_it_may(max_groups: int | None, public: bool) -> None:
    data = records()
    keys = [(f"g{number}",) for number in range(4)] if public else None
    table = group_table(data, user=["user"], value=["value"], by=["group"], keys=keys, max_groups=max_groups)
    frame = data.to_pandas()
    if public:
        frame = frame[frame["group"] != "g4"]
    held = frame.groupby("user")["group"].nunique()
    assert len(table.members.counts) == np.minimum(held, max_groups or 5).sum()
    # Each share is whole: all records of the user in the group, and nothing else.
    sums = frame.groupby(["user", "group"])["value"].agg(["mean", "count"])
    whole = {(round(mean, 9), count) for mean, count in sums.itertuples(index=False)}
    means = np.round(table.members.means, 9).tolist()
    assert {*zip(means, table.members.counts.tolist(), strict=True)} <= whole
    assert np.bincount(table.owners).max() <= (max_groups or 4 + (not public))
    assert table.n_owners == len(set(data["user"].to_pylist()))
    assert (table.users().counts > 0).sum() == len(held)


@pytest.mark.parametrize("max_groups", [1, 2])
def test_which_shares_count_depends_on_that_user_alone(max_groups: int) -> None:
    data = records(30)
    alone: Counter[Any] = Counter()
    for user in range(30):
        own = data.filter(pa.compute.equal(data["user"], user))
        for key, holders in shares(own, max_groups=max_groups).items():
            alone.update((key, one) for one in holders)
    together: Counter[Any] = Counter()
    for key, holders in shares(data, max_groups=max_groups).items():
        together.update((key, one) for one in holders)
    assert alone == together


def test_the_rule_favours_no_group() -> None:
    users = np.repeat(np.arange(20_000), 4)
    data = pa.table({"user": users, "group": np.tile(np.arange(4), 20_000), "value": np.ones(80_000)})
    sizes = [len(holders) for holders in shares(data, max_groups=1).values()]
    assert sum(sizes) == 20_000
    assert max(abs(size - 5_000) for size in sizes) < 400


def test_equal_numbers_are_distinguished_by_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should all hashes collide, a user still counts in one group: the first by name."""
    text = GroupQuery.build_limited
    monkeypatch.setattr(
        GroupQuery, "build_limited", lambda self, **how: text(self, **how).replace("md5(", "0 * strlen(")
    )
    found = shares(records(50), max_groups=1)
    monkeypatch.undo()
    frame = records(50).to_pandas()
    first = frame.groupby("user")["group"].min().value_counts()
    assert {key[0]: len(holders) for key, holders in found.items()} == first.to_dict()


def test_the_quick_query_agrees_with_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = shares(records(), max_groups=1)
    text = GroupQuery.build_limited
    monkeypatch.setattr(
        GroupQuery, "build_limited", lambda self, split, quick: text(self, split=split, quick=False)
    )
    assert shares(records(), max_groups=1) == quick


def test_records_without_a_group_count_in_none() -> None:
    data = pa.table({"user": [1, 1, 2], "group": ["a", None, None], "value": [1.0, 100.0, 5.0]})
    assert shares(data) == {("a",): [(1.0, 1)]}
    table = group_table(data, user=["user"], value=["value"], by=["group"], keys=None, max_groups=1)
    assert sorted(table.users().counts.tolist()) == [0, 1], "the second user has no group, but is there"


def test_nobody_in_any_group_is_no_accident() -> None:
    data = pa.table({"user": [1, 2], "group": ["x", "y"], "value": [1.0, 2.0]})
    asked: dict[str, Any] = {
        "user": "user",
        "value": "value",
        "by": "group",
        "keys": ["a", "b"],
        "epsilon": 1,
    }
    made = hm.mean(data, **asked, bounds=(0, 10), per="user", max_groups=1)
    assert [row.group for row in made] == [{"group": "a"}, {"group": "b"}]
    with pytest.raises(hm.NotReleased, match="too few users in these groups") as refused:
        hm.mean(data, **asked, bounds=(0, 10), per="user")
    assert refused.value.epsilon < 0.5
    none = hm.mean(
        data, user="user", value="value", by="group", epsilon=1, delta=1e-9, bounds=(0, 10), per="user"
    )
    assert len(none) == 0
    assert "0 groups, selected privately" in repr(none)
    assert none.to_arrow().num_rows == 0


def test_every_container_gives_the_same_shares(tmp_path: Path) -> None:
    data = records(80).set_column(
        1,
        "group",
        pa.array(
            [name.replace("g1", "Zürich").replace("g2", 'a"b,c') for name in records(80)["group"].to_pylist()]
        ),
    )
    expected = shares(data)
    assert ("Zürich",) in expected
    pq.write_table(data, tmp_path / "a.parquet")
    pyarrow.csv.write_csv(data, tmp_path / "a.csv")
    data.to_pandas().to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame = data.to_pandas()
    containers: list[Any] = [
        frame,
        frame.assign(group=frame["group"].astype("category")),
        frame.assign(group=frame["group"].astype(object)),
        pl.from_arrow(data),
        data.to_reader(),
        duckdb.connect().from_arrow(data),
        str(tmp_path / "a.parquet"),
        hm.sql("select * from a", files=[tmp_path / "a.parquet"]),
        str(tmp_path / "a.csv"),
        str(tmp_path / "a.jsonl"),
    ]
    for container in containers:
        if isinstance(container, pa.RecordBatchReader):  # a stream is read once
            assert shares(container) == expected
            continue
        # Text files name users by text, whose hashes differ: only with all groups kept must they agree.
        assert shares(container, max_groups=5).keys() == expected.keys()
        text = str(container).endswith(("csv", "jsonl"))
        options = {"max_groups": 5, "keys": [("Zürich",), ('a"b,c',)]} if text else {}
        told, right = shares(container, **options), shares(data, **options)
        assert {key: len(one) for key, one in told.items()} == {key: len(one) for key, one in right.items()}


def test_groups_by_several_columns() -> None:
    data = pa.table(
        {"user": [1, 2, 3], "year": [2000, 2000, 2001], "team": ["a", "b", "a"], "value": [1.0, 2.0, 3.0]}
    )
    options: dict[str, Any] = {
        "user": "user",
        "value": "value",
        "by": ["year", "team"],
        "bounds": (0, 9),
        "per": "user",
    }
    listed = hm.mean(data, epsilon=1e6, keys=[(2001, "a"), (2000, "a")], **options)
    assert listed.keys == ((2001, "a"), (2000, "a"))
    assert np.round(listed.values[:, 0], 3).tolist() == [3.0, 1.0]
    crossed = hm.mean(data, epsilon=1e6, keys={"team": ["a", "b"], "year": [2000, 2001]}, **options)
    assert crossed.keys == ((2000, "a"), (2000, "b"), (2001, "a"), (2001, "b"))
    private = hm.mean(data, epsilon=1e6, delta=0.5, neighbors="add-remove", **options)
    assert set(private.keys) <= {("2000", "a"), ("2000", "b"), ("2001", "a")}


def _container(kind: str, users: list[str], groups: list[str], values: list[float], folder: Path) -> Any:
    frame = pd.DataFrame({"user": pd.Series(users, dtype=object), "group": groups, "value": values})
    match kind:
        case "category":
            return frame.assign(user=frame["user"].astype("category"))
        case "polars categories":
            return pl.DataFrame({"user": users, "group": groups, "value": values}).with_columns(
                pl.col("user").cast(pl.Categorical)
            )
        case "arrow dictionary":
            table = pa.table({"user": users, "group": groups, "value": values})
            return table.set_column(0, "user", table["user"].combine_chunks().dictionary_encode())
        case "csv":
            frame.to_csv(folder / "a.csv", index=False)
            return str(folder / "a.csv")
    return frame


@pytest.mark.parametrize("kind", ["object", "category", "polars categories", "arrow dictionary", "csv"])
def test_whoever_goes_the_others_stay_in_their_groups(tmp_path: Path, kind: str) -> None:
    """However ids are held: numbers given to them in order would change for all where one goes."""
    rng = np.random.default_rng(11)
    users = [f"user {number}" for number in np.repeat(np.arange(80), 6).tolist()]
    groups = rng.choice(["a", "b", "c"], len(users)).tolist()
    values = np.repeat(rng.normal(size=80), 6).tolist()
    everyone = shares(_container(kind, users, groups, values, tmp_path), max_groups=1)
    others = shares(_container(kind, users[6:], groups[6:], values[6:], tmp_path), max_groups=1)
    apart = [(key, one) for key, own in everyone.items() for one in own if one not in others.get(key, [])]
    assert len(apart) == 1
    assert sum(map(len, others.values())) == 79


@pytest.mark.parametrize("more", [0.5, math.nan, 2**63, 10**400, "text", True], ids=str)
def test_an_id_of_another_kind_leaves_the_others_in_their_groups(more: Any) -> None:
    """One such id makes floats or objects of a column of integers."""
    rng = np.random.default_rng(12)
    users: list[Any] = [number + 10 for number in np.repeat(np.arange(80), 6).tolist()]
    groups = rng.choice(["a", "b", "c"], len(users)).tolist()
    values = np.repeat(rng.normal(size=80), 6).tolist()
    usual = shares(pd.DataFrame({"user": users, "group": groups, "value": values}), max_groups=1)
    odd = pd.DataFrame({"user": [*users, more], "group": [*groups, "d"], "value": [*values, 1.0]})
    found = shares(odd, max_groups=1)
    found.pop(("d",), None)
    assert found == usual


def test_keys_that_are_no_text_do_not_share_a_name(tmp_path: Path) -> None:
    """Shown alike, the group of one user would stand for that of a thousand."""
    lines = b"user,group,value\n" + b"".join(b"%d,\xff,1\n%d,\xc3\xbc,1\n" % (n, n + 500) for n in range(500))
    for more in (b"", b"5000,\xfe,1\n", b"5000,\xff\xff,1\n"):
        (tmp_path / "a.csv").write_bytes(lines + more)
        made = hm.count(str(tmp_path / "a.csv"), user="user", by="group", epsilon=1, delta=1e-9)
        assert made.keys == (("ü",),)
        own = shares(str(tmp_path / "a.csv"))
        assert {key: len(one) for key, one in own.items()} == {("ü",): 500}


def _invalid_text() -> pa.Array:
    buffers = [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")]
    return pa.Array.from_buffers(pa.string(), 2, buffers)


@pytest.mark.parametrize(
    ("usual", "odd", "named"),
    [
        (pa.array([0, 1], pa.date32()), pa.array([0, 5_000_000], pa.int32()).cast(pa.date32()), 2),
        (pa.array([0, 1], pa.date32()), pa.array([0, -5_000_000], pa.int32()).cast(pa.date32()), 2),
        (pa.array(["a", "b"]), _invalid_text(), 1),
        (pd.Series(["a", "b"], dtype=object), pd.Series(["a", "\ud800"], dtype=object), 1),
        (pd.Series(["a", "b"], dtype=object), pd.Series(["a", 1.5], dtype=object), 2),
        (pd.Series([1, 2]), pd.Series([1, None]), 1),
        (pd.Series([True, False]), pd.Series([True, None]), 1),
        (pd.Series([1, 2], dtype="category"), pd.Series([1, None], dtype="category"), 1),
        (pd.Series([True, False], dtype="category"), pd.Series([True, None], dtype="category"), 1),
    ],
    ids=["late", "early", "bytes", "surrogate", "object", "missing", "flag", "category", "flag category"],
)
def test_one_odd_key_leaves_the_others_as_they_are(usual: Any, odd: Any, named: int) -> None:
    found = []
    for group in (usual, odd):
        columns = {"user": [1, 2], "group": group, "value": [1.0, 2.0]}
        data = pa.table(columns) if isinstance(group, pa.Array) else pd.DataFrame(columns)
        found.append(shares(data))
    assert len(found[0]) == 2
    assert all(isinstance(name, str) for one in found for (name,) in one)
    (key,) = found[0].keys() & found[1].keys()
    assert found[0][key] == found[1][key]
    assert len(found[1]) == named


def test_objects_are_matched_with_public_keys_as_these_are_written() -> None:
    dates = [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)]
    for given_keys in (dates, [True, False], [7, -7]):
        frame = pd.DataFrame(
            {"user": [1, 2], "group": pd.Series(given_keys, dtype=object), "value": [1.0, 2.0]}
        )
        made = hm.count(frame, user="user", by="group", keys=given_keys, epsilon=1e3)
        assert made.values[:, 0].tolist() == [1.0, 1.0]


def test_points_in_time_name_no_groups_where_types_are_declared() -> None:
    times = [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2)]
    with pytest.raises(hm.InputError, match="group by month"):
        shares(pl.DataFrame({"user": [1, 2], "group": times, "value": [1.0, 2.0]}))
    # pandas infers types: there a cell is what it is, whatever the others are.
    frame = pd.DataFrame({"user": [1, 2], "group": pd.to_datetime(times), "value": [1.0, 2.0]})
    assert set(shares(frame)) == {("2020-01-01 00:00:00",), ("2020-01-02 00:00:00",)}
    assert not shares(frame.assign(group=pd.to_timedelta([1, 2])))


@pytest.mark.parametrize(
    "key", [2**64 - 1, 2**100, -(2**100), 2**128 - 1, uuid.UUID(int=7)], ids=lambda key: str(key)[:6]
)
def test_wide_keys_are_what_they_are(key: Any) -> None:
    kind = "UUID" if isinstance(key, uuid.UUID) else "UHUGEINT" if key > 2**127 else "HUGEINT"
    connection = duckdb.connect()
    data = connection.sql(f"SELECT range AS user, '{key}'::{kind} AS \"group\" FROM range(60)")
    private = hm.count(data, user="user", by="group", epsilon=100, delta=0.1)
    public = hm.count(data, user="user", by="group", epsilon=100, keys=[key])
    assert public.keys == ((key,),)
    assert private.keys == ((str(key),),)
    for made in (private, public):
        assert made.to_polars().height == made.to_arrow().num_rows == 1


@pytest.mark.usefixtures("seeded_releases")
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_that_nobody_is_in_any_group_does_not_show(neighbors: str) -> None:
    """Where something is sought first, on the totals of each user: nobody has one, or one user does."""
    users = np.arange(3_000)
    for group in (["elsewhere"] * 3_000, ["here", *["elsewhere"] * 2_999]):
        data = pa.table({"user": users, "group": group, "value": np.ones(3_000)})
        options: dict[str, Any] = {"user": "user", "by": "group", "epsilon": 2, "neighbors": neighbors}
        with pytest.raises(hm.NotReleased, match=r"too few users|most users"):
            hm.mean(data, value="value", keys=["here"], per="user", **options)
        with contextlib.suppress(hm.NotReleased):
            made = hm.count(data, of="records", keys=["here", "there"], **options)
            assert len(made) == 2
