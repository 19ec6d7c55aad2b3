"""Releases by group: the law is that of one release per group, for every mechanism and with nothing known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubermean as hm
from helpers.group_records import RELATIONS, records
from hubermean.data.group_table import Membership, Totals
from hubermean.ingest.reading import group_table
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.mechanisms.groups.resolution import prepare_groups
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity
from hubermean.types.request import Neighbors, PublicFacts, Request


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(("per", "cap"), [("user", None), ("record", 4)])
def test_all_groups_at_once_have_the_law_of_one_release_each(
    neighbors: str, per: str, cap: int | None
) -> None:
    """The same integers with the same noise: clipped under add-remove with the budget of one group."""
    table = group_table(records(), user=["user"], value=["value"], by=["group"], keys=None, max_groups=2)
    asked = Request.checked(("value",), epsilon=1, delta=0, per=per, neighbors=neighbors)
    group_split = GroupBudgetSplit.of(asked, max_groups=2, groups=5)
    facts = PublicFacts.of(table.members, Neighbors.ADD_REMOVE)
    mechanism = Clipped(bounds=(0, 20), max_records=cap)
    distribution: Any = prepare_groups(mechanism, group_split, facts, None).distribution(table)
    single = mechanism.prepare(group_split.one_group(), facts)
    for number, own in enumerate(table.tables()):
        alone = single.distribution(own)
        assert list(distribution.position[number :: len(table.keys)]) == list(alone.position)
        for together, apart in zip(
            distribution.distributions()[number :: len(table.keys)], alone.distributions(), strict=True
        ):
            assert together.kind == apart.kind
            assert together.scale == pytest.approx(apart.scale, rel=1e-12)


@pytest.mark.usefixtures("seeded_releases")
@pytest.mark.slow
def test_groups_and_one_by_one_releases_agree_in_distribution() -> None:
    """Values of one group, 400 releases each way, Kolmogorov-Smirnov."""
    from scipy import stats

    data = records(400, 3, seed=5)
    table = group_table(data, user=["user"], value=["value"], by=["group"], keys=None, max_groups=1)
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
    for name, delta in (("inverse-sensitivity", 0.0), ("propose-test-release", 1e-4), ("winsorized", 0.0)):
        try:
            made = hm.mean(
                data,
                per="user",
                mechanism=name,
                delta=delta,
                keys=["g0", "g1", "g2"],
                max_groups=1,
                **options,
            )
        except hm.InputError:
            assert name == "winsorized", "which has no add-remove"
            continue
        assert made.mechanism == name
        for row in made:
            assert isinstance(row, hm.Refusal) or row.value == pytest.approx(10, abs=3)
    own = hm.mean(
        data,
        per="user",
        mechanism=InverseSensitivity(threshold=6, radius=100),
        keys=["g0"],
        max_groups=1,
        user="user",
        value="value",
        by="group",
        epsilon=4,
    )
    assert own.mechanism == "inverse-sensitivity"


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
        mechanism="propose-test-release",
        max_groups=1,
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
    assert made.keys == (("0",), ("1",), ("2",))
    assert made.mechanism == "adaptive"
    assert np.abs(made.values[:, 0] - (1e6 + 100 * np.arange(3))).max() < 40
    low, high = made.interval_at(0.999)  # type: ignore[misc]
    assert (low < high).all()
    few = data.slice(0, 90)
    refusal = hm.NotReleased if neighbors == "add-remove" else hm.InputError
    with pytest.raises(refusal, match=r"users|too far apart for their number"):
        hm.mean(few, user="user", value="value", by="group", keys=[0, 1], epsilon=1, neighbors=neighbors)


def test_groups_that_lie_apart_have_their_own_centers() -> None:
    """One user in ten is in a group far from the others: a bound around a common center would cut it off."""
    rng = np.random.default_rng(10)
    places = np.where(rng.random(20_000) < 0.1, 1, 0)
    data = pa.table(
        {"user": np.arange(20_000), "group": places, "value": 8.0 * places + rng.normal(0, 1, 20_000)}
    )
    made = hm.mean(data, user="user", value="value", by="group", keys=[0, 1], epsilon=1, per="user")
    assert made.values[:, 0] == pytest.approx([0, 8], abs=0.3)


def test_hostile_users_cannot_make_bounds_much_wider() -> None:
    rng = np.random.default_rng(11)
    values = rng.normal(0, 1, 20_000)
    data = pa.table({"user": np.arange(20_000), "group": np.arange(20_000) % 2, "value": values})
    bounds = []
    for hostile in (0, 1_000):
        values[:hostile] = 1e9
        data = data.set_column(2, "value", pa.array(values))
        made = hm.mean(
            data, user="user", value="value", by="group", keys=[0, 1], epsilon=1, per="user", hostile=0.05
        )
        bounds.append(made.parameters["norm_bound"])
    assert bounds[1] < 6 * bounds[0]


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "group"}, "delta"),
        ({"by": "nowhere", "delta": 1e-6}, "no column 'nowhere'"),
        ({"by": "value", "delta": 1e-6}, "both value and by"),
        ({"by": "user", "delta": 1e-6}, "both user and by"),
        ({"by": "group", "keys": []}, "keys is empty"),
        ({"by": "group", "keys": ["a", "a"]}, "twice"),
        ({"by": "group", "keys": [("a", "b")]}, "1 entries"),
        ({"by": "group", "keys": [1.5j]}, "numbers, text"),
        ({"by": "group", "keys": [None]}, "numbers, text"),
        ({"by": "group", "keys": ["1", 1]}, "twice"),
        ({"by": "whole", "keys": ["x"]}, "group 1 of keys cannot be a value of column 'whole'"),
        ({"by": "whole", "keys": ["1.4"]}, "cannot be a value of column 'whole'"),
        ({"by": "float", "delta": 1e-6}, "cannot name groups"),
        ({"by": "group", "keys": 5}, "list the groups"),
        ({"by": "group", "keys": "a"}, "list the groups"),
        ({"by": "group", "keys": pl.DataFrame({"group": ["a"]})}, "list the groups"),
        ({"by": "group", "keys": pa.table({"group": ["a"]})}, "list the groups"),
        ({"by": "group", "keys": {"other": ["a"]}}, "map each of group"),
        ({"by": "group", "keys": ["a"], "max_groups": 0}, "max_groups"),
        ({"by": "group", "keys": ["a"], "max_groups": True}, "max_groups"),
        ({"keys": ["a"]}, "give by"),
        ({"max_groups": 2}, "give by"),
        ({"by": [], "delta": 1e-6}, "by must be"),
    ],
)
def test_bad_groups_get_one_sentence(options: dict[str, Any], words: str) -> None:
    data = pa.table({"user": [1], "group": ["a"], "value": [1.0], "whole": [1], "float": [1.5]})
    with pytest.raises(hm.InputError, match=words) as refusal:
        hm.mean(data, user="user", value="value", epsilon=1, bounds=(0, 1), per="user", **options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_all_but_the_values_is_the_same_for_neighbors(neighbors: str) -> None:
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
            max_records=2,
            max_groups=1,
            neighbors=neighbors,
        )
        shown.append((made.keys, made.parameters, made.details, made.to_arrow().schema))
    assert shown[0] == shown[1]


def test_only_what_is_usable_is_counted_under_every_relation() -> None:
    values = [1.0, None, None, None, None, 3.0]
    data = pa.table({"user": [1, 1, 1, 1, 2, 3], "value": pa.array(values, pa.float64())})
    for neighbors in RELATIONS:
        options: dict[str, Any] = {"user": "user", "epsilon": 1000, "neighbors": neighbors}
        assert hm.count(data, value="value", **options).value == 2
        assert hm.count(data, value="value", of="records", max_records=9, **options).value == 2
        assert hm.count(data, **options).value == 3
        assert hm.count(data, of="records", max_records=9, **options).value == 6


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
                max_groups=1,
                mechanism=Spy(),  # type: ignore[arg-type]
            )
        assert told == [Neighbors.ADD_REMOVE, (None, None, Neighbors.ADD_REMOVE)]
