"""`ReleaseTable` and its renderings, `hm.count`, and denominators."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hubermean as hm
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.counts.mechanism import Count
from hubermean.types.request import Neighbors, PublicFacts, Request

RELATIONS = [one.value for one in Neighbors]


def trips(n_users: int = 3_000) -> pa.Table:
    rng = np.random.default_rng(1)
    users = np.repeat(np.arange(n_users), rng.integers(1, 6, n_users))
    return pa.table(
        {
            "rider": users,
            "city": rng.choice(["Bern", "Genf", "Zug"], len(users)),
            "fare": rng.uniform(5, 25, len(users)),
            "tip": rng.uniform(0, 3, len(users)),
        }
    )


def table(**options: Any) -> hm.ReleaseTable:
    given: dict[str, Any] = {
        "user": "rider",
        "value": "fare",
        "by": "city",
        "keys": ["Zug", "Bern"],
        "epsilon": 1,
        "bounds": (0, 30),
        "max_groups": 1,
        "per": "user",
    }
    return hm.mean(trips(), **{**given, **options})


def test_a_table_is_a_sequence_of_releases() -> None:
    made = table()
    assert len(made) == 2
    first = made[0]
    assert isinstance(first, hm.Release)
    assert first.group == {"city": "Zug"}
    assert first.value == made.values[0, 0]
    low, high = first.interval(0.9)  # type: ignore[misc]
    assert low < first.value < high  # type: ignore[operator]
    assert made[-1].group == {"city": "Bern"}
    assert [row.group for row in made[::-1]] == [{"city": "Bern"}, {"city": "Zug"}]
    assert made.group("Bern").group == made.group(made.keys[1]).group == {"city": "Bern"}
    assert "city = Zug" in repr(first)
    assert "more than 1 group are not covered" in first.interval_details().covers  # type: ignore[union-attr]
    with pytest.raises(IndexError):
        made[2]
    with pytest.raises(hm.InputError, match="no group Paris"):
        made.group("Paris")
    ends = made.interval_at(0.9)
    assert ends is not None
    assert (low, high) == (ends[0][0, 0], ends[1][0, 0])
    with pytest.raises(hm.InputError, match="level"):
        made.interval_at(1.0)


def test_json_has_the_rows_with_their_groups_and_the_fields_of_a_release() -> None:
    made = json.loads(table(value=["fare", "tip"], bounds=[(0, 30), (0, 5)]).to_json())
    assert made["released"] is True
    assert made["by"] == ["city"]
    for row, city in zip(made["rows"], ("Zug", "Bern"), strict=True):
        assert row["city"] == city
        assert row["released"] is True
        assert len(row["value"]) == len(row["interval"]["low"]) == 2
        for name in (
            "columns",
            "epsilon",
            "delta",
            "neighbors",
            "mechanism",
            "per",
            "parameters",
            "denominator",
        ):
            assert name in row
        assert row["n_users"] is None, "the size of a group is private"


def test_a_group_column_cannot_overwrite_a_field() -> None:
    data = trips().rename_columns(["rider", "value", "fare", "tip"])
    made = hm.mean(
        data, user="rider", value="fare", by="value", keys=["Zug"], epsilon=1, bounds=(0, 30), per="user"
    )
    row = made.to_dict()["rows"][0]
    assert row["group"] == {"value": "Zug"}
    assert isinstance(row["value"], float)
    data = trips().rename_columns(["rider", "fare_interval_low", "fare", "tip"])
    frame = hm.mean(
        data,
        user="rider",
        value="fare",
        by="fare_interval_low",
        keys=["Zug"],
        epsilon=1,
        bounds=(0, 30),
        per="user",
    ).to_arrow()
    assert frame.column_names == [
        "fare_interval_low",
        "fare",
        "fare_interval_low_",
        "fare_interval_high",
        "users",
        "may_be_empty",
    ]


def test_data_frames_agree() -> None:
    made = table()
    arrow, pandas, polars = made.to_arrow(), made.to_pandas(), made.to_polars()
    assert arrow.column_names == [
        "city",
        "fare",
        "fare_interval_low",
        "fare_interval_high",
        "users",
        "may_be_empty",
    ]
    assert (
        arrow["fare"].to_pylist()
        == pandas["fare"].tolist()
        == polars["fare"].to_list()
        == made.values[:, 0].tolist()
    )
    assert made.to_arrow(0.5)["fare_interval_low"][0].as_py() > arrow["fare_interval_low"][0].as_py()


def test_keys_keep_their_types() -> None:
    days = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
    data = pa.table(
        {
            "rider": [1, 2, 3],
            "day": [days[0], days[1], days[1]],
            "fare": [1.0, 2.0, 3.0],
            "paid": [True, False, True],
        }
    )
    options: dict[str, Any] = {
        "user": "rider",
        "value": "fare",
        "epsilon": 1,
        "bounds": (0, 5),
        "per": "user",
        "max_groups": 1,
    }
    made = hm.mean(data, by="day", keys=days, **options)
    assert made.keys == ((days[0],), (days[1],))
    assert made.to_arrow().schema.field("day").type == pa.date32()
    assert json.loads(made.to_json())["rows"][0]["day"] == "2024-01-01"
    flags = hm.mean(data, by="paid", keys=[True, False], **options)
    assert json.loads(flags.to_json())["rows"][0]["paid"] is True


def test_a_long_table_shows_some_rows_and_says_how_many_there_are() -> None:
    data = pa.table({"rider": np.arange(500), "city": np.arange(500) % 50, "fare": np.ones(500)})
    made = hm.mean(
        data,
        user="rider",
        value="fare",
        by="city",
        keys=range(50),
        epsilon=1,
        bounds=(0, 5),
        per="user",
        max_groups=1,
    )
    text = repr(made)
    assert "and 42 more groups" in text
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 24
    assert "all of one user's records in all groups" in made.guarantee
    assert "and 42 more groups" in made._repr_html_()


def test_a_wide_table_shows_some_columns_and_says_how_many_there_are() -> None:
    names = [f"v{number}" for number in range(9)]
    data = pa.table(
        {"rider": np.arange(300), "city": np.arange(300) % 6, **{name: np.ones(300) for name in names}}
    )
    known = {"keys": range(6), "epsilon": 1, "bounds": [(0, 5)] * 9, "per": "user", "max_groups": 1}
    text = repr(hm.mean(data, user="rider", value=names, by="city", **known))
    assert "and 5 more columns" in text
    assert text.count("and 4 more groups") == 4
    assert len(text.splitlines()) <= 24


@pytest.mark.usefixtures("seeded_releases")
def test_a_value_that_is_all_noise_is_marked() -> None:
    made = table(keys=["Bern", "Atlantis"], epsilon=0.2)
    text = repr(made)
    assert "(noise)" in next(line for line in text.splitlines() if line.startswith("Atlantis"))
    assert "(noise)" not in next(line for line in text.splitlines() if line.startswith("Bern"))
    two = table(keys=["Atlantis"], value=["fare", "tip"], bounds=[(0, 30), (0, 5)], epsilon=0.2)
    assert repr(two).count("(noise)") == 2


def test_hostile_names_stay_text() -> None:
    data = pa.table({"rider": [1, 2], "<b>city": ["<script>", "a\x1b[31m"], "fare": [1.0, 2.0]})
    made = hm.mean(
        data,
        user="rider",
        value="fare",
        by="<b>city",
        keys=["<script>", "a\x1b[31m"],
        epsilon=1,
        bounds=(0, 5),
        per="user",
        max_groups=1,
    )
    assert "\x1b" not in repr(made)
    page = made._repr_html_()
    assert "<script>" not in page
    assert "<b>" not in page


# --- denominators -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("per", ["user", "record"])
def test_a_mean_tells_what_it_was_divided_by(neighbors: str, per: str) -> None:
    data = trips()
    counts = np.bincount(data["rider"].to_numpy())
    true = len(counts) if per == "user" else np.minimum(counts, 3).sum()
    cap = 3 if per == "record" else None
    made = hm.mean(
        data,
        user="rider",
        value="fare",
        epsilon=20,
        bounds=(0, 30),
        per=per,
        max_records=cap,
        neighbors=neighbors,
    )
    found = made.denominator
    assert found is not None
    assert found.value == pytest.approx(true, rel=0.01)
    assert found.low <= found.value <= found.high
    assert found.exact == (neighbors == "replace-values")
    assert made.total == pytest.approx(made.value * found.value)
    assert made.to_dict()["denominator"]["value"] == found.value
    assert (f"{per}s behind it" in dict(made.details)) != found.exact
    assert "Based on" in repr(made)


@pytest.mark.usefixtures("seeded_releases")
def test_the_interval_of_a_denominator_holds_it() -> None:
    means = np.random.default_rng(2).uniform(0, 10, 300)
    for neighbors in ("add-remove", "replace-user"):
        held = []
        for _ in range(400):
            made = hm.mean_of_user_means(means, epsilon=1, bounds=(0, 10), neighbors=neighbors)
            assert made.denominator is not None
            held.append(made.denominator.low <= 300 <= made.denominator.high)
        assert 0.93 <= np.mean(held) <= 0.995


def test_mechanisms_that_do_not_measure_it_have_none() -> None:
    made = hm.mean_of_user_means(
        np.zeros(100), epsilon=1, threshold=1, radius=10, mechanism="inverse-sensitivity"
    )
    assert made.denominator is None
    assert made.total is None
    assert made.to_dict()["denominator"] is None


# --- counts -------------------------------------------------------------------------------------------------------


def test_counts_of_users_and_records() -> None:
    data = trips()
    counts = np.bincount(data["rider"].to_numpy())
    users = hm.count(data, user="rider", epsilon=1)
    assert users.statistic == "count"
    assert abs(users.value - 3_000) < 40
    assert users.value == int(users.value)  # type: ignore[arg-type]
    low, high = users.interval(0.95)  # type: ignore[misc]
    assert low <= users.value <= high  # type: ignore[operator]
    records = hm.count(data, user="rider", of="records", max_records=3, epsilon=1)
    assert abs(records.value - np.minimum(counts, 3).sum()) < 120
    assert records.parameters["max_records"] == 3
    found = hm.count(data, user="rider", of="records", epsilon=1)
    assert found.parameters["max_records"] in (3, 4, 5, 6)
    assert f"{users.value:,}" in repr(users)
    assert users.to_dict()["columns"] == ["users"]


def test_what_the_relation_makes_public_is_given_as_it_is() -> None:
    data = trips()
    counts = np.bincount(data["rider"].to_numpy())
    for neighbors in ("replace-user", "replace-values"):
        made = hm.count(data, user="rider", epsilon=1, neighbors=neighbors)
        assert made.value == 3_000
        assert made.interval() == (3_000, 3_000)
    capped = hm.count(data, user="rider", of="records", max_records=2, epsilon=1, neighbors="replace-values")
    assert capped.value == np.minimum(counts, 2).sum()
    # Whether a value is usable is private under replace-user.
    usable = hm.count(data, user="rider", value="fare", epsilon=1, neighbors="replace-user")
    assert usable.parameters["noise"] == "discrete Laplace"


def test_only_usable_values_count_where_a_value_is_named() -> None:
    data = pa.table(
        {"rider": np.arange(1_000), "fare": [None if number % 2 else 1.0 for number in range(1_000)]}
    )
    assert abs(hm.count(data, user="rider", epsilon=5).value - 1_000) < 20
    assert abs(hm.count(data, user="rider", value="fare", epsilon=5).value - 500) < 20


def test_counts_by_group() -> None:
    data = trips()
    made = hm.count(
        data, user="rider", by="city", keys=["Bern", "Genf", "Zug", "Rom"], epsilon=3, max_groups=3
    )
    frame = data.to_pandas().groupby("city")["rider"].nunique()
    assert np.abs(made.values[:3, 0] - frame.to_numpy()).max() < 30
    assert made.values[3, 0] < 30
    private = hm.count(data, user="rider", of="records", by="city", epsilon=2, delta=1e-6)
    assert private.keys == (("Bern",), ("Genf",), ("Zug",))
    assert private.parameters["norm_bound"] >= 1


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(("per", "cap"), [("user", None), ("record", 4)])
def test_counts_of_neighbors_are_no_further_apart_than_the_noise_allows(
    neighbors: str, per: str, cap: int | None
) -> None:
    rng = np.random.default_rng(3)
    relation = Neighbors(neighbors)
    request = Request.checked(("count",), epsilon=0.7, delta=0, per=per, neighbors=neighbors)
    worst = 0.0
    for _ in range(300):
        base = rng.integers(0, 8, 5)
        one, two = rng.integers(0, 9, 2)
        first, second = np.append(base, one), np.append(base, two)
        if relation is Neighbors.ADD_REMOVE:
            first = base
        if relation is Neighbors.REPLACE_VALUES:
            second = first
        positions = []
        for counts in (first, second):
            users = UserTable.from_means(np.zeros(len(counts)), counts)
            made = Count(max_records=cap).prepare(request, PublicFacts.of(users, relation))
            positions.append(made.distribution(users).position)
        gap = sum(abs(a - b) for a, b in zip(*positions, strict=True))
        worst = max(worst, gap / made.noise.scale)
    assert worst <= 0.7
    assert worst > 0.6 or relation is Neighbors.REPLACE_VALUES


@pytest.mark.usefixtures("seeded_releases")
def test_intervals_of_counts_hold_the_number() -> None:
    data = pa.table({"rider": np.arange(50)})
    held = [
        made.interval(0.9)[0] <= 50 <= made.interval(0.9)[1]  # type: ignore[index,operator]
        for made in (hm.count(data, user="rider", epsilon=0.5) for _ in range(300))
    ]
    assert 0.86 <= np.mean(held) <= 0.98


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"of": "rows"}, "users' or 'records"),
        ({"max_records": 3}, "leave it out"),
        ({"of": "records", "max_records": 0}, "max_records"),
        ({"epsilon": 0}, "epsilon"),
        ({"by": "city"}, "delta"),
        ({"value": []}, "value"),
    ],
)
def test_bad_counts_get_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(hm.InputError, match=words):
        hm.count(trips(50), **{"user": "rider", "epsilon": 1, **options})


def test_an_empty_table_has_a_count() -> None:
    nobody = pa.table({"rider": pa.array([], pa.int64())})
    made = hm.count(nobody, user="rider", epsilon=1)
    assert 0 <= made.value < 60  # type: ignore[operator]
    assert not math.isnan(made.interval()[1])  # type: ignore[index,arg-type]
