"""Releases by group: which shares count, what they cost, and that the law is that of one release per group."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import itertools
import math
import uuid
from collections import Counter
from dataclasses import replace
from fractions import Fraction
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
from hypothesis import given, settings
from hypothesis import strategies as st

import hubermean as hm
from hubermean.auditing.group_worlds import GROUP, USER, VALUE
from hubermean.exact.adding import Membership, Totals
from hubermean.groups import Division, prepare_groups
from hubermean.groups.selection import KeySelection
from hubermean.ingest import group_table
from hubermean.ingest.group_query import GroupQuery
from hubermean.mechanisms import Clipped, Exact, PublicFacts, Request
from hubermean.relations import Neighbors

RELATIONS = [one.value for one in Neighbors]


def records(n_users: int = 300, groups: int = 5, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), rng.integers(1, 9, n_users))
    return pa.table(
        {
            "user": users,
            "group": rng.choice([f"g{number}" for number in range(groups)], len(users)),
            "value": rng.normal(10, 3, len(users)),
        }
    )


def shares(data: Any, **options: Any) -> dict[tuple[Any, ...], list[tuple[float, int]]]:
    given = {"by": ["group"], "keys": None, "max_groups": 2, "pooled": False, **options}
    table = group_table(data, user=["user"], value=["value"], **given)
    return {
        key: sorted(zip(own.means.tolist(), own.counts.tolist(), strict=True))
        for key, own in zip(table.keys, table.tables(), strict=True)
    }


# --- which shares count ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("max_groups", [1, 2, 3, 5])
def test_a_user_counts_in_no_more_groups_than_it_may(max_groups: int, pooled: bool, public: bool) -> None:
    data = records()
    keys = [(f"g{number}",) for number in range(4)] if public else None
    table = group_table(
        data, user=["user"], value=["value"], by=["group"], keys=keys, max_groups=max_groups, pooled=pooled
    )
    frame = data.to_pandas()
    if public:
        frame = frame[frame["group"] != "g4"]
    held = frame.groupby("user")["group"].nunique()
    assert len(table.members.counts) == np.minimum(held, max_groups).sum()
    # Each share is whole: all records of the user in the group, and nothing else.
    sums = frame.groupby(["user", "group"])["value"].agg(["mean", "count"])
    whole = {(round(mean, 9), count) for mean, count in sums.itertuples(index=False)}
    means = np.round(table.members.means, 9).tolist()
    assert {*zip(means, table.members.counts.tolist(), strict=True)} <= whole
    if pooled:
        assert table.pool is not None
        assert table.pool.n_users == len(set(data["user"].to_pylist()))
        assert (table.pool.counts > 0).sum() == len(held)


@pytest.mark.parametrize("max_groups", [1, 2])
def test_which_shares_count_depends_on_that_user_alone(max_groups: int) -> None:
    data = records(60)
    alone: Counter[Any] = Counter()
    for user in range(60):
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


@pytest.mark.parametrize("pooled", [True, False])
def test_equal_numbers_are_told_apart_by_the_names(monkeypatch: pytest.MonkeyPatch, pooled: bool) -> None:
    """Should all hashes collide, a user still counts in one group: the first by name."""
    text = GroupQuery.text
    monkeypatch.setattr(
        GroupQuery, "text", lambda self, **how: text(self, **how).replace("hash(", "0 * hash(")
    )
    found = shares(records(50), max_groups=1, pooled=pooled)
    monkeypatch.undo()
    frame = records(50).to_pandas()
    first = frame.groupby("user")["group"].min().value_counts()
    assert {key[0]: len(holders) for key, holders in found.items()} == first.to_dict()


def test_the_quick_query_agrees_with_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = shares(records(), max_groups=1)
    text = GroupQuery.text
    monkeypatch.setattr(GroupQuery, "text", lambda self, split, quick: text(self, split=split, quick=False))
    assert shares(records(), max_groups=1) == quick


def test_records_without_a_group_count_in_none() -> None:
    data = pa.table({"user": [1, 1, 2], "group": ["a", None, None], "value": [1.0, 100.0, 5.0]})
    assert shares(data) == {("a",): [(1.0, 1)]}
    table = group_table(
        data, user=["user"], value=["value"], by=["group"], keys=None, max_groups=1, pooled=True
    )
    assert table.pool is not None
    assert sorted(table.pool.counts.tolist()) == [0, 1], "the second user has no group, but is there"


def test_nobody_in_any_group_is_no_accident() -> None:
    data = pa.table({"user": [1, 2], "group": ["x", "y"], "value": [1.0, 2.0]})
    made = hm.mean(
        data, user="user", value="value", by="group", keys=["a", "b"], epsilon=1, bounds=(0, 10), per="user"
    )
    assert [row.group for row in made] == [{"group": "a"}, {"group": "b"}]
    none = hm.mean(
        data, user="user", value="value", by="group", epsilon=1, delta=1e-9, bounds=(0, 10), per="user"
    )
    assert len(none) == 0
    assert "0, chosen privately" in repr(none)
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
    assert set(private.keys) <= {(2000, "a"), (2000, "b"), (2001, "a")}


# --- what it costs -----------------------------------------------------------------------------------------------


def request(neighbors: str, *, epsilon: float = 1.0, delta: float = 0.0) -> Request:
    return Request.checked(("value",), epsilon=epsilon, delta=delta, per="user", neighbors=neighbors)


@pytest.mark.parametrize(
    ("neighbors", "changes"), [("add-remove", 3), ("replace-user", 6), ("replace-values", 6)]
)
def test_the_budget_pays_for_every_change_that_one_user_can_make(neighbors: str, changes: int) -> None:
    division = Division.of(request(neighbors, delta=1e-6), max_groups=3, public_keys=True)
    assert division.changes == changes
    one = division.one_group()
    assert one.neighbors is Neighbors.ADD_REMOVE
    assert Fraction(one.epsilon) * changes <= 1
    if neighbors == "add-remove":
        assert one.delta * changes <= 1e-6
    else:
        assert changes / 2 * (1 + math.exp(one.epsilon)) * one.delta <= 1e-6
    private = Division.of(request(neighbors, delta=1e-6), max_groups=3, public_keys=False)
    assert private.selection is not None
    assert private.selection.epsilon * changes + Fraction(private.means.epsilon) <= 1
    assert private.selection.delta * changes + Fraction(private.means.delta) <= Fraction(1e-6)


@settings(max_examples=60, deadline=None)
@given(epsilon=st.floats(1e-3, 50), delta=st.floats(1e-15, 0.4))
def test_chances_to_appear_satisfy_both_inequalities_exactly(epsilon: float, delta: float) -> None:
    """In whole numbers, with a rational number below e^epsilon from its series."""
    rule = KeySelection(epsilon=Fraction(epsilon), delta=Fraction(delta))
    whole, passes = 1 << rule.bits, rule.passes
    term = growth = Fraction(1)
    for power in range(1, 200):
        term = (term * Fraction(epsilon).limit_denominator(10**9) / power).limit_denominator(10**30)
        growth += term
    growth *= 1 + Fraction(1, 10**6)  # above e^epsilon: what the rule keeps for less, it keeps for this
    allowed = Fraction(delta) * whole
    assert passes[0] == 0
    assert passes[1] <= allowed
    for before, after in itertools.pairwise(passes):
        assert before <= after <= whole
        assert after <= growth * before + allowed
        assert whole - before <= growth * (whole - after) + allowed


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("max_groups", [1, 3])
def test_small_groups_hardly_ever_appear_and_large_ones_do(neighbors: str, max_groups: int) -> None:
    for delta in (1e-4, 1e-6, 1e-9):
        division = Division.of(request(neighbors, delta=delta), max_groups=max_groups, public_keys=False)
        assert division.selection is not None
        assert 0 < division.selection.chance(1) <= delta
        assert division.selection.chance(0) == 0
        assert division.selection.chance(1_000) > 0.99


def test_groups_appear_in_releases_as_often_as_they_should() -> None:
    """Groups of one user at delta = 0.3, of 15 and of 1,000 at epsilon = 1; chances as in the rule, at 1e-6."""
    from scipy import stats

    sizes = (
        {f"one {number}": 1 for number in range(40)}
        | {f"some {number}": 15 for number in range(40)}
        | {"many": 1_000}
    )
    names = [name for name, size in sizes.items() for _ in range(size)]
    data = pa.table({"user": np.arange(len(names)), "group": names, "value": np.ones(len(names))})
    asked = request("add-remove", delta=0.3)
    rule = Division.of(asked, max_groups=1, public_keys=False, delta_for="keys").selection
    assert rule is not None
    seen: Counter[str] = Counter()
    for _ in range(25):
        made = hm.count(data, user="user", by="group", epsilon=1, delta=0.3)
        seen.update(key[0].split()[0] for key in made.keys)
    assert seen["many"] == 25
    for kind, size in (("one", 1), ("some", 15)):
        assert stats.binomtest(seen[kind], 1_000, rule.chance(size)).pvalue > 1e-6
    assert rule.chance(1) <= 0.3


# --- the law ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(("per", "cap"), [("user", None), ("record", 4)])
def test_all_groups_at_once_have_the_law_of_one_release_each(
    neighbors: str, per: str, cap: int | None
) -> None:
    """The same integers with the same noise: clipped under add-remove with the budget of one group."""
    table = group_table(
        records(), user=["user"], value=["value"], by=["group"], keys=None, max_groups=2, pooled=False
    )
    asked = Request.checked(("value",), epsilon=1, delta=0, per=per, neighbors=neighbors)
    division = Division.of(asked, max_groups=2, public_keys=True)
    facts = PublicFacts.of(table.members, Neighbors.ADD_REMOVE)
    mechanism = Clipped(bounds=(0, 20), record_cap=cap)
    law: Any = prepare_groups(mechanism, division, facts, None).law(table)
    single = mechanism.prepare(division.one_group(), facts)
    for number, own in enumerate(table.tables()):
        alone = single.law(own)
        assert list(law.position[number :: len(table.keys)]) == list(alone.position)
        for together, apart in zip(law.laws()[number :: len(table.keys)], alone.laws(), strict=True):
            assert together.kind == apart.kind
            assert together.scale == pytest.approx(apart.scale, rel=1e-12)


@pytest.mark.usefixtures("seeded_releases")
def test_groups_and_one_by_one_releases_agree_in_distribution() -> None:
    """Values of one group, 400 releases each way, Kolmogorov-Smirnov."""
    from scipy import stats

    data = records(400, 3, seed=5)
    table = group_table(
        data, user=["user"], value=["value"], by=["group"], keys=None, max_groups=1, pooled=False
    )
    own = dict(zip(table.keys, table.tables(), strict=True))[("g1",)]
    together, alone = [], []
    for _ in range(400):
        made = hm.mean(
            data,
            user="user",
            value="value",
            by="group",
            keys=["g0", "g1", "g2"],
            epsilon=1,
            bounds=(0, 20),
            per="user",
        )
        together.append(made.group("g1").value)
        one = hm.mean_of_user_means(
            own.means, own.counts, per="user", epsilon=0.5, neighbors="add-remove", bounds=(0, 20)
        )
        alone.append(one.value)
    assert stats.ks_2samp(together, alone).pvalue > 1e-3


def test_any_mechanism_works_group_by_group() -> None:
    data = records(900, 3, seed=6)
    options: dict[str, Any] = {
        "user": "user",
        "value": "value",
        "by": "group",
        "epsilon": 4,
        "threshold": 6,
        "radius": 100,
    }
    for name, delta in (("exact", 0.0), ("tested", 1e-4), ("winsorized", 0.0)):
        try:
            made = hm.mean(data, per="user", mechanism=name, delta=delta, keys=["g0", "g1", "g2"], **options)
        except hm.InputError:
            assert name == "winsorized", "which has no add-remove"
            continue
        assert made.mechanism == name
        for row in made:
            assert isinstance(row, hm.Refusal) or row.value == pytest.approx(10, abs=3)
    own = hm.mean(
        data,
        per="user",
        mechanism=Exact(threshold=6, radius=100),
        keys=["g0"],
        user="user",
        value="value",
        by="group",
        epsilon=4,
    )
    assert own.mechanism == "exact"


def test_a_group_that_fails_its_own_test_is_a_row_that_says_so() -> None:
    rng = np.random.default_rng(7)
    values = np.concatenate([rng.normal(10, 0.1, 3_000), rng.uniform(-1000, 1000, 3_000)])
    data = pa.table({"user": np.arange(6_000), "group": ["calm"] * 3_000 + ["wild"] * 3_000, "value": values})
    made = hm.mean(
        data,
        user="user",
        value="value",
        by="group",
        keys=["calm", "wild"],
        epsilon=4,
        delta=1e-5,
        threshold=1,
        radius=2000,
        per="user",
        mechanism="tested",
    )
    calm, wild = made
    assert isinstance(calm, hm.Release)
    assert calm.value == pytest.approx(10, abs=0.1)
    assert isinstance(wild, hm.Refusal)
    assert made.to_dict()["rows"][1]["released"] is False
    assert math.isnan(made.values[1, 0])
    assert "not released" in repr(made)
    assert "epsilon" not in wild.reason, "the cost is that of the whole table"


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_nothing_need_be_known(neighbors: str) -> None:
    rng = np.random.default_rng(8)
    users = np.repeat(np.arange(8_000), 3)
    places = rng.integers(0, 3, len(users))
    data = pa.table(
        {"user": users, "group": places, "value": 1e6 + 100 * places + rng.normal(0, 50, len(users))}
    )
    made = hm.mean(
        data, user="user", value="value", by="group", epsilon=2, delta=1e-6, neighbors=neighbors, max_groups=3
    )
    assert made.keys == ((0,), (1,), (2,))
    assert made.mechanism == "tuned"
    assert np.abs(made.values[:, 0] - (1e6 + 100 * np.arange(3))).max() < 40
    low, high = made.interval_at(0.999)  # type: ignore[misc]
    assert (low < high).all()
    with pytest.raises(hm.InputError, match="users"):
        hm.mean(data.slice(0, 90), user="user", value="value", by="group", keys=[0, 1], epsilon=1)


def test_bounds_suit_groups_that_lie_apart() -> None:
    """One user in ten is in a group far from the others: bounds from the spread of most would cut it off."""
    rng = np.random.default_rng(10)
    places = np.where(rng.random(20_000) < 0.1, 1, 0)
    data = pa.table(
        {"user": np.arange(20_000), "group": places, "value": 8.0 * places + rng.normal(0, 1, 20_000)}
    )
    made = hm.mean(data, user="user", value="value", by="group", keys=[0, 1], epsilon=1, per="user")
    assert made.values[:, 0] == pytest.approx([0, 8], abs=0.3)
    assert made.parameters["bounds"][1] > 8


def test_hostile_users_cannot_make_bounds_much_wider() -> None:
    rng = np.random.default_rng(11)
    values = rng.normal(0, 1, 20_000)
    data = pa.table({"user": np.arange(20_000), "group": np.arange(20_000) % 2, "value": values})
    told = []
    for hostile in (0, 1_000):
        values[:hostile] = 1e9
        data = data.set_column(2, "value", pa.array(values))
        made = hm.mean(data, user="user", value="value", by="group", keys=[0, 1], epsilon=1, per="user")
        low, high = made.parameters["bounds"]
        told.append(high - low)
    assert told[1] < 6 * told[0]


def test_a_thousand_groups_hold_what_plain_grouping_says() -> None:
    rng = np.random.default_rng(9)
    data = pa.table(
        {
            "user": np.arange(50_000),
            "group": rng.integers(0, 1_000, 50_000),
            "value": rng.uniform(0, 10, 50_000),
        }
    )
    made = hm.mean(
        data,
        user="user",
        value="value",
        by="group",
        keys=range(1_000),
        epsilon=1e6,
        bounds=(0, 10),
        per="user",
    )
    frame = data.to_pandas().groupby("group")["value"]
    assert np.abs(made.values[:, 0] - frame.mean().to_numpy()).max() < 1e-3
    assert np.abs(np.array([one.value for one in made.denominators]) - frame.size().to_numpy()).max() < 0.01


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-(2**60), 2**60), st.integers(0, 6)), max_size=50),
)
def test_totals_are_exact(entries: list[tuple[int, int]]) -> None:
    numbers = np.array([number for number, _ in entries], dtype=np.int64)
    owners = np.array([owner for _, owner in entries], dtype=np.int64)
    totals = Totals(Membership(groups=owners, size=7))
    for start in range(0, len(entries), 20):
        totals.add(numbers[start : start + 20], start)
    assert totals.integers() == [sum(n for n, own in entries if own == group) for group in range(7)]


# --- audits -------------------------------------------------------------------------------------------------------

CLIPPED: dict[str, Any] = {"mechanism": "clipped", "bounds": (0, 10)}


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(
    "options",
    [
        {**CLIPPED, "max_groups": 2, "per": "record", "record_cap": 3},
        {**CLIPPED, "max_groups": 2, "delta": 0.05},
        {**CLIPPED, "max_groups": 1, "delta": 1e-3, "private_keys": True},
        {"mechanism": "exact", "threshold": 1, "radius": 20, "max_groups": 2},
    ],
    ids=["record", "gaussian", "private keys", "exact"],
)
def test_no_move_between_groups_beats_the_promise(neighbors: str, options: dict[str, Any]) -> None:
    found = hm.audit(epsilon=1, groups=4, neighbors=neighbors, pairs=40, **options)
    assert found.kept, repr(found)
    assert found.loss > 0.5 or found.delta_found > 0.1 * found.delta, "the search came close"


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("max_groups", [1, 2, 3])
@pytest.mark.parametrize("private_keys", [True, False])
def test_no_move_between_groups_beats_the_promise_however_long_one_looks(
    neighbors: str, max_groups: int, private_keys: bool
) -> None:
    for more in ({}, {"per": "record", "record_cap": 3}):
        found = hm.audit(
            epsilon=1,
            delta=1e-4,
            groups=5,
            neighbors=neighbors,
            max_groups=max_groups,
            private_keys=private_keys,
            pairs=400,
            **CLIPPED,
            **more,
        )
        assert found.kept, repr(found)


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_no_move_beats_the_promise_of_tuned_groups(neighbors: str) -> None:
    found = hm.audit("tuned", epsilon=4, groups=3, neighbors=neighbors, users=900, pairs=25)
    assert found.kept, repr(found)


def undivided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parallel composition where it does not hold."""
    made = Division.of.__func__  # type: ignore[attr-defined]
    broken = classmethod(lambda cls, *given, **more: replace(made(cls, *given, **more), changes=1))
    monkeypatch.setattr(Division, "of", broken)


def once_for_a_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Division.of.__func__  # type: ignore[attr-defined]

    def broken(cls: Any, asked: Any, *, max_groups: int, public_keys: bool) -> Division:
        return replace(made(cls, asked, max_groups=max_groups, public_keys=public_keys), changes=max_groups)

    monkeypatch.setattr(Division, "of", classmethod(broken))


def groups_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    from hubermean.ingest import groups

    monkeypatch.setattr(groups, "GroupQuery", lambda **given: GroupQuery(**{**given, "max_groups": None}))


def generous_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    made = KeySelection.passes.func  # type: ignore[attr-defined]
    monkeypatch.setattr(
        KeySelection,
        "passes",
        property(lambda self: (0, *(min(100 * one, 1 << self.bits) for one in made(self)[1:]))),
    )


def keys_that_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group that occurs appears."""
    monkeypatch.setattr(KeySelection, "passes", property(lambda self: (0, 1 << self.bits)))


@pytest.mark.parametrize(
    ("broken", "options"),
    [
        (undivided, {"max_groups": 2}),
        (once_for_a_replacement, {"max_groups": 1}),
        (groups_not_limited, {"max_groups": 1}),
        (generous_keys, {"private_keys": True, "delta": 1e-4}),
        (keys_that_leak, {"private_keys": True, "delta": 1e-4}),
    ],
)
def test_a_broken_division_is_caught(
    monkeypatch: pytest.MonkeyPatch, broken: Any, options: dict[str, Any]
) -> None:
    broken(monkeypatch)
    found = hm.audit(epsilon=1, groups=4, pairs=60, **CLIPPED, **options)
    assert not found.kept


def test_the_worlds_of_an_audit_are_records_like_any_other() -> None:
    found = hm.audit(epsilon=1, groups=3, pairs=12, **CLIPPED)
    one, other = found.worst.records()  # type: ignore[attr-defined]
    assert one.column_names == other.column_names == [USER, GROUP, VALUE]
    assert "verdict" in repr(found)
    assert found.to_dict()["worst"]["before"]["shares"]


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "group"}, "delta"),
        ({"by": "nowhere", "delta": 1e-6}, "no column 'nowhere'"),
        ({"by": "value", "delta": 1e-6}, "both value and by"),
        ({"by": "user", "delta": 1e-6}, "both user and by"),
        ({"by": "group", "keys": []}, "no group"),
        ({"by": "group", "keys": ["a", "a"]}, "twice"),
        ({"by": "group", "keys": [("a", "b")]}, "1 entries"),
        ({"by": "group", "keys": [1.5]}, "integers, text"),
        ({"by": "whole", "keys": ["x"]}, "no value of column 'whole'"),
        ({"by": "whole", "keys": ["1.4"]}, "no value of column 'whole'"),
        ({"by": "float", "delta": 1e-6}, "cannot name groups"),
        ({"by": "group", "keys": 5}, "list the groups"),
        ({"by": "group", "keys": "a"}, "list the groups"),
        ({"by": "group", "keys": pl.DataFrame({"group": ["a"]})}, "list the groups"),
        ({"by": "group", "keys": pa.table({"group": ["a"]})}, "list the groups"),
        ({"by": "group", "keys": {"other": ["a"]}}, "map each of group"),
        ({"by": "group", "keys": ["a"], "max_groups": 0}, "max_groups"),
        ({"by": "group", "keys": ["a"], "max_groups": True}, "max_groups"),
        ({"keys": ["a"]}, "by="),
        ({"max_groups": 2}, "by="),
        ({"by": [], "delta": 1e-6}, "by must be"),
    ],
)
def test_bad_groups_get_one_sentence(options: dict[str, Any], words: str) -> None:
    data = pa.table({"user": [1], "group": ["a"], "value": [1.0], "whole": [1], "float": [1.5]})
    with pytest.raises(hm.InputError, match=words) as refusal:
        hm.mean(data, user="user", value="value", epsilon=1, bounds=(0, 1), per="user", **options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_all_but_the_values_is_the_same_for_neighbours(neighbors: str) -> None:
    """Public keys: nothing but noisy numbers may differ between two tables, however different they are."""
    small = pa.table({"user": [1, 2], "group": ["a", "zzz"], "value": [1.0, math.nan]})
    shown = []
    for data in (records(200), small):
        made = hm.mean(
            data,
            user="user",
            value="value",
            by="group",
            keys=["a", "b"],
            epsilon=1,
            bounds=(0, 9),
            record_cap=2,
            neighbors=neighbors,
        )
        shown.append((made.keys, made.parameters, made.facts(), made.to_arrow().schema))
    assert shown[0] == shown[1]


# --- one user's odd record -----------------------------------------------------------------------------------------


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
@pytest.mark.parametrize("pooled", [True, False])
def test_whoever_goes_the_others_stay_in_their_groups(tmp_path: Path, kind: str, pooled: bool) -> None:
    """However ids are held: numbers given to them in order would change for all where one goes."""
    rng = np.random.default_rng(11)
    users = [f"user {number}" for number in np.repeat(np.arange(80), 6).tolist()]
    groups = rng.choice(["a", "b", "c"], len(users)).tolist()
    values = np.repeat(rng.normal(size=80), 6).tolist()
    everyone = shares(_container(kind, users, groups, values, tmp_path), max_groups=1, pooled=pooled)
    others = shares(
        _container(kind, users[6:], groups[6:], values[6:], tmp_path), max_groups=1, pooled=pooled
    )
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
        own = shares(str(tmp_path / "a.csv"), pooled=True)
        assert {key: len(one) for key, one in own.items()} == {("ü",): 500}


def _invalid_text() -> pa.Array:
    buffers = [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")]
    return pa.Array.from_buffers(pa.string(), 2, buffers)


@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        (pa.array([0, 1], pa.date32()), pa.array([0, 5_000_000], pa.int32()).cast(pa.date32())),
        (pa.array([0, 1], pa.date32()), pa.array([0, -5_000_000], pa.int32()).cast(pa.date32())),
        (pa.array(["a", "b"]), _invalid_text()),
        (pd.Series(["a", "b"], dtype=object), pd.Series(["a", "\ud800"], dtype=object)),
        (pd.Series(["a", "b"], dtype=object), pd.Series(["a", 1.5], dtype=object)),
        (pd.Series([1, 2]), pd.Series([1, None])),
        (pd.Series([True, False]), pd.Series([True, None])),
        (pd.Series([1, 2], dtype="category"), pd.Series([1, None], dtype="category")),
        (pd.Series([True, False], dtype="category"), pd.Series([True, None], dtype="category")),
    ],
    ids=["late", "early", "bytes", "surrogate", "object", "missing", "flag", "category", "flag category"],
)
def test_one_odd_key_leaves_the_others_as_they_are(usual: Any, odd: Any) -> None:
    found = []
    for group in (usual, odd):
        columns = {"user": [1, 2], "group": group, "value": [1.0, 2.0]}
        data = pa.table(columns) if isinstance(group, pa.Array) else pd.DataFrame(columns)
        found.append(shares(data))
    assert len(found[0]) == 2
    assert len(found[1]) == 1
    ((key, own),) = found[1].items()
    assert found[0][key] == own


def test_objects_are_matched_with_public_keys_as_these_are_written() -> None:
    dates = [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)]
    for given_keys in (dates, [True, False], [7, -7]):
        frame = pd.DataFrame(
            {"user": [1, 2], "group": pd.Series(given_keys, dtype=object), "value": [1.0, 2.0]}
        )
        made = hm.count(frame, user="user", by="group", keys=given_keys, epsilon=1e3)
        assert made.values[:, 0].tolist() == [1.0, 1.0]


def test_points_in_time_name_no_groups() -> None:
    times = [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2)]
    for frame in (
        pl.DataFrame({"user": [1, 2], "group": times, "value": [1.0, 2.0]}),
        pd.DataFrame({"user": [1, 2], "group": pd.to_datetime(times), "value": [1.0, 2.0]}),
        pd.DataFrame({"user": [1, 2], "group": pd.to_timedelta([1, 2]), "value": [1.0, 2.0]}),
    ):
        with pytest.raises(hm.InputError, match="cannot name groups"):
            shares(frame)


@pytest.mark.parametrize(
    "key", [2**64 - 1, 2**100, -(2**100), 2**128 - 1, uuid.UUID(int=7)], ids=lambda key: str(key)[:6]
)
def test_wide_keys_are_what_they_are(key: Any) -> None:
    kind = "UUID" if isinstance(key, uuid.UUID) else "UHUGEINT" if key > 2**127 else "HUGEINT"
    connection = duckdb.connect()
    data = connection.sql(f"SELECT range AS user, '{key}'::{kind} AS \"group\" FROM range(60)")
    private = hm.count(data, user="user", by="group", epsilon=100, delta=0.1)
    public = hm.count(data, user="user", by="group", epsilon=100, keys=[key])
    for made in (private, public):
        assert made.keys == ((key,),)
        assert made.to_polars().height == made.to_arrow().num_rows == 1


def test_chances_keep_the_inequality_at_large_epsilon_too() -> None:
    """A float of epsilon is off by up to 2^-48 there; ratios are compared with e^epsilon in 60 digits."""
    with decimal.localcontext(prec=60):
        for epsilon in (164.35919268397632, 123.456, 199.99):
            rule = KeySelection(epsilon=Fraction(epsilon) / 5, delta=Fraction(1e-30))
            exact = (
                decimal.Decimal(rule.epsilon.numerator) / decimal.Decimal(rule.epsilon.denominator)
            ).exp()
            _, one, two, *_ = rule.passes
            assert two - one <= exact * one


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("max_groups", [1, 2])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_what_the_steps_leave_pays_for_the_groups(neighbors: str, max_groups: int, delta: float) -> None:
    """The noise of the means and counts is that of the rest of the account, for every change of one user."""
    rng = np.random.default_rng(13)
    users = np.repeat(np.arange(4_000), 2)
    data = pa.table(
        {
            "user": users,
            "group": rng.integers(0, 2, len(users)),
            "value": rng.normal(5, 1, len(users)),
        }
    )
    options: dict[str, Any] = {"user": "user", "by": "group", "epsilon": 3, "delta": delta}
    options |= {"neighbors": neighbors, "max_groups": max_groups, **({} if delta else {"keys": [0, 1]})}
    changes = max_groups * (1 if neighbors == "add-remove" else 2)

    def rest(made: hm.ReleaseTable, what: str) -> float:
        spent = [one for one in made.spent if one.unit == "epsilon"]
        assert math.fsum(one.amount for one in spent) <= 3 + 1e-9
        assert len(spent) > 1
        assert made.parameters["record_cap"] <= 2
        (left,) = (one.amount for one in spent if one.what == what)
        return left

    counted = hm.count(data, of="records", **options)
    cap = counted.parameters["record_cap"]
    assert counted.parameters["noise_scale"] == pytest.approx(
        cap * changes / rest(counted, "the count"), rel=1e-6
    )
    made = hm.mean(data, value="value", **options)
    asked = Request.checked(
        ("value",),
        epsilon=rest(made, "the mean"),
        delta=delta / 2,
        per="record",
        neighbors="add-remove",
    )
    table = group_table(
        data, user=["user"], value=["value"], by=["group"], keys=None, max_groups=1, pooled=False
    )
    single = Clipped(
        bounds=tuple(made.parameters["bounds"]),
        record_cap=made.parameters["record_cap"],
        centred=True,
        likeness=0.0,
        changes=changes,
    ).prepare(asked, PublicFacts.of(table.members, Neighbors.ADD_REMOVE))
    expected = single.parameters()
    assert made.parameters["noise"] == expected["noise"]
    assert made.parameters["noise_scale_of_sum"] == pytest.approx(expected["noise_scale_of_sum"], rel=0.01)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_that_nobody_is_in_any_group_does_not_show(neighbors: str) -> None:
    """Where something is sought first, on one group of each user: nobody has one, or one user does."""
    users = np.arange(3_000)
    for group in (["elsewhere"] * 3_000, ["here", *["elsewhere"] * 2_999]):
        data = pa.table({"user": users, "group": group, "value": np.ones(3_000)})
        options: dict[str, Any] = {"user": "user", "by": "group", "epsilon": 2, "neighbors": neighbors}
        with pytest.raises(hm.NotReleased, match="too few users"):
            hm.mean(data, value="value", keys=["here"], per="user", **options)
        with contextlib.suppress(hm.NotReleased):
            made = hm.count(data, of="records", keys=["here", "there"], **options)
            assert len(made) == 2


def test_a_refusal_costs_what_choosing_the_groups_did_as_well() -> None:
    data = pa.table({"user": np.arange(3_000), "group": ["a"] * 3_000, "value": np.full(3_000, math.nan)})
    with pytest.raises(hm.NotReleased, match=r"epsilon = 2 and delta = 0\.001 are spent") as refusal:
        hm.mean(data, user="user", value="value", by="group", epsilon=2, delta=1e-3, per="user")
    assert (refusal.value.epsilon, refusal.value.delta) == (2.0, 1e-3)


def test_only_what_is_usable_is_counted_under_every_relation() -> None:
    values = [1.0, None, None, None, None, 3.0]
    data = pa.table({"user": [1, 1, 1, 1, 2, 3], "value": pa.array(values, pa.float64())})
    for neighbors in RELATIONS:
        options: dict[str, Any] = {"user": "user", "epsilon": 1000, "neighbors": neighbors}
        assert hm.count(data, value="value", **options).value == 2
        assert hm.count(data, value="value", of="records", record_cap=9, **options).value == 2
        assert hm.count(data, **options).value == 3
        assert hm.count(data, of="records", record_cap=9, **options).value == 6


def test_a_number_of_records_that_is_public_is_given_without_a_cap() -> None:
    users = np.repeat(np.arange(2_000), np.append(np.ones(1_990, dtype=int), np.full(10, 500)))
    made = hm.count(
        pa.table({"user": users}), user="user", of="records", epsilon=1, neighbors="replace-values"
    )
    assert made.value == len(users)


def test_a_mechanism_is_told_nothing_of_the_size_of_a_group() -> None:
    """Not even under relations that make the number of all users and records public."""
    told = []

    class Spy:
        name = "spy"

        def check(self, request: Request) -> None:
            told.append(request.neighbors)

        def prepare(self, request: Request, facts: PublicFacts) -> Any:
            told.append((facts.n_users, facts.record_counts, request.neighbors))
            raise hm.InputError("seen")

    for neighbors in RELATIONS:
        told.clear()
        with pytest.raises(hm.InputError, match="seen"):
            hm.mean(
                records(50),
                user="user",
                value="value",
                by="group",
                keys=["g0"],
                epsilon=1,
                neighbors=neighbors,
                mechanism=Spy(),  # type: ignore[arg-type]
            )
        assert told == [Neighbors.ADD_REMOVE, (None, None, Neighbors.ADD_REMOVE)]


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_what_is_sought_never_costs_more_than_there_is(neighbors: str, columns: int) -> None:
    """Over sizes and budgets, with the dearest answers: the account of a release adds up to what was asked for."""
    rng = np.random.default_rng(12)
    for n_users, epsilon in ((1_500, 3.0), (4_000, 1.0), (30_000, 0.3), (30_000, 4.0)):
        values = {f"v{number}": rng.standard_cauchy(n_users) for number in range(columns)}
        data = pa.table({"user": np.arange(n_users), "group": np.arange(n_users) % 3, **values})
        try:
            made = hm.mean(
                data,
                user="user",
                value=list(values),
                by="group",
                epsilon=epsilon,
                delta=1e-6,
                neighbors=neighbors,
            )
        except (hm.InputError, hm.NotReleased):
            continue
        assert sum(Fraction(one.amount) for one in made.spent if one.unit == "epsilon") <= Fraction(epsilon)
        assert sum(Fraction(one.amount) for one in made.spent if one.unit == "delta") <= Fraction(1e-6)


def test_nobody_is_in_more_groups_than_there_are() -> None:
    """So that a generous max_groups costs nothing where keys are public and few."""
    options: dict[str, Any] = {"user": "user", "value": "value", "by": "group", "keys": ["g0", "g1"]}
    few, many = (
        hm.mean(records(), epsilon=1, bounds=(0, 20), per="user", max_groups=most, **options)
        for most in (2, 1_000)
    )
    assert few.parameters == many.parameters
    assert many.max_groups == 2


def test_counts_spend_delta_on_nothing_but_keys() -> None:
    made = hm.count(records(2_000), user="user", by="group", epsilon=1, delta=1e-6)
    assert [(one.what, one.unit) for one in made.spent] == [
        ("which groups appear", "epsilon"),
        ("which groups appear", "delta"),
        ("the count", "epsilon"),
    ]
    assert sum(one.amount for one in made.spent if one.unit == "delta") <= 1e-6
