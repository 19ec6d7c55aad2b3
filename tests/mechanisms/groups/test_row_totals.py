"""Totals over groups agree with their parts, and cost nothing."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import hubermean as hm
from hubermean.mechanisms.groups.row_totals import list_totals

pytestmark = pytest.mark.usefixtures("seeded_releases")
KEYS = [("north", "a"), ("north", "b"), ("south", "c"), ("south", "d"), ("south", "nobody")]


def sales(n_users: int = 6000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), 2)
    frame = pd.DataFrame(
        [KEYS[place] for place in rng.integers(0, 4, len(users))], columns=["region", "shop"]
    )
    level = frame["shop"].map({"a": 10.0, "b": 14.0, "c": 30.0, "d": 22.0})
    return frame.assign(user=users, paid=level + rng.normal(0, 3, len(users)))


def release(frame: pd.DataFrame, **given: object) -> hm.ReleaseTable:
    asked = {
        "user": "user",
        "value": "paid",
        "by": ["region", "shop"],
        "keys": KEYS,
        "epsilon": 2.0,
        "delta": 1e-6,
    }
    return hm.mean(frame, **{"rollup": True, **asked, **given})  # type: ignore[call-overload, no-any-return]


def test_totals_are_averages_of_what_is_released() -> None:
    made = release(sales())
    assert made.keys == (*KEYS, ("north", None), ("south", None), (None, None))
    values = made.values[:, 0]
    weights = np.array([one.value for one in made.denominators])
    assert values[5] == pytest.approx(np.average(values[:2], weights=weights[:2]), rel=1e-12)
    assert values[6] == pytest.approx(np.average(values[2:4], weights=weights[2:4]), rel=1e-12)
    assert values[7] == pytest.approx(np.average(values[5:7], weights=weights[5:7]), rel=1e-12)
    assert weights[7] == pytest.approx(weights[5] + weights[6], rel=1e-12)
    assert made.denominators[4].low == 0.0, "a group too small to see is in no total"


def test_groups_are_those_of_a_release_without_totals() -> None:
    with_totals, without = release(sales()), release(sales(), rollup=False)
    spent = [sum(one.amount for one in made.budget_breakdown) for made in (with_totals, without)]
    assert spent[0] == pytest.approx(spent[1], rel=1e-9)
    assert without.keys == tuple(KEYS)


def test_intervals_of_totals_hold_the_truth() -> None:
    held = []
    for seed in range(6):
        frame = sales(seed=seed)
        made = release(frame)
        low, high = made.interval_at(0.95) or (np.zeros(1), np.zeros(1))
        plain = [*frame.groupby("region")["paid"].mean(), frame["paid"].mean()]
        held += ((low[5:, 0] <= plain) & (plain <= high[5:, 0])).tolist()
    assert np.mean(held) >= 0.9


def test_totals_stand_below_the_groups_on_every_screen() -> None:
    made = release(sales())
    lines = [line.split() for line in repr(made).splitlines()]
    shown = [line[:2] for line in lines if line[:1] in (["north"], ["south"], ["all"])]
    assert shown[-3:] == [["north", "all"], ["south", "all"], ["all", "all"]]
    assert "5 groups and 3 totals" in repr(made)
    assert json.loads(made.to_json())["rows"][-1]["group"] == {"region": None, "shop": None}
    assert made.to_pandas()["shop"].isna().sum() == 3
    page = made.to_html()
    assert page.index(">all<") > page.index(">nobody<")


def test_hierarchies_follow_the_order_of_columns() -> None:
    keys = [("x", 1, "p"), ("x", 1, "q"), ("x", 2, "p"), ("y", 1, "p")]
    totals = {one.key: one.parts.tolist() for one in list_totals(keys, [True, True, True, False])}
    assert totals == {
        ("x", 1, None): [0, 1],
        ("x", 2, None): [2],
        ("x", None, None): [0, 1, 2],
        (None, None, None): [0, 1, 2],
    }
    assert list_totals([], []) == []


def test_private_groups_have_totals_of_those_that_appear() -> None:
    made = release(sales(), keys=None)
    assert made.keys[-1] == (None, None)
    assert len(made) == 4 + 2 + 1


def test_other_mechanisms_have_no_totals() -> None:
    with pytest.raises(hm.InputError, match="rollup"):
        release(sales(100), mechanism="clipped", bounds=(0, 50), per="user", max_groups=2)
    with pytest.raises(hm.InputError, match="rollup"):
        hm.mean(sales(100), user="user", value="paid", epsilon=1, rollup=True)


def test_a_release_with_totals_is_another_question(tmp_path: object) -> None:
    ledger = hm.Ledger(f"{tmp_path}/l.sqlite")
    ledger.init("sales", epsilon=10, delta=1e-5)
    first = release(sales(), ledger=ledger, dataset="sales", question="q")
    again = release(sales(), ledger=ledger, dataset="sales", question="q")
    other = release(sales(), ledger=ledger, dataset="sales", question="q", rollup=False)
    assert first.values.tolist() == again.values.tolist() or np.array_equal(
        first.values, again.values, equal_nan=True
    )
    assert len(other) == len(KEYS)
    assert again.keys == first.keys


def test_totals_of_keys_that_only_look_alike_or_different() -> None:
    """0 and "0" are one group column value, 1 and True are two: a total of 0 once missed half of its groups."""
    keys = [(0, "a"), ("0", "b"), (1, "a"), (True, "a")]
    totals = list_totals(keys, [True] * len(keys))
    assert [(type(one.key[0]), one.key, one.parts.tolist()) for one in totals] == [
        (int, (0, None), [0, 1]),
        (int, (1, None), [2]),
        (bool, (True, None), [3]),
        (type(None), (None, None), [0, 1, 2, 3]),
    ]
