"""Partition selection by rows: groups of one user alone, and what one user changes of the others."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest

import hubermean as hm
from helpers.rows import Row, make_table
from hubermean.auditing.claims import measure_share
from hubermean.auditing.compare import compare
from hubermean.mechanisms.groups import row_selection
from hubermean.mechanisms.groups.row_selection import MOST_SELECTING, RowSelection
from hubermean.mechanisms.groups.rows import ROW_UNITS

RHO, DELTA = Fraction(1, 20), Fraction(1, 10**5)


def selection(*, add_remove: bool = True) -> RowSelection:
    return RowSelection(rho=RHO, delta=DELTA, add_remove=add_remove)


def row(groups: range) -> Row:
    return [(group, 1.0, 1) for group in groups]


@pytest.mark.parametrize("add_remove", [True, False])
def test_groups_of_one_user_alone_appear_with_probability_at_most_delta(add_remove: bool) -> None:
    """Whatever their number; and for some number with nearly delta, or the threshold would be too high."""
    rule = selection(add_remove=add_remove)
    found = []
    for k in (1, 2, 3, 10, 100, 500, MOST_SELECTING):
        sums = rule.distribution(make_table([row(range(k))], k))
        chances = [sums.chance((f"g{number}",)) for number in range(k)]
        found.append(-math.expm1(math.fsum(map(math.log1p, [-chance for chance in chances]))))
    assert max(found) <= float(DELTA)
    assert max(found) >= 0.9 * float(DELTA)


def test_a_user_in_too_many_groups_shows_none_of_them() -> None:
    """Noise alone would pass the threshold in some of very many groups."""
    k = MOST_SELECTING + 1
    sums = selection().distribution(make_table([row(range(k)), row(range(2))], k))
    assert set(sums.sums) == {("g0",), ("g1",)}
    assert sums.sums[("g0",)] == pytest.approx(ROW_UNITS / math.sqrt(2.0), rel=1e-5)


@pytest.mark.parametrize("add_remove", [True, False])
def test_a_user_changes_what_appears_by_no_more_than_is_booked(add_remove: bool) -> None:
    """On groups that others are in too: in rho. The worst pair uses all of it."""
    rule, groups = selection(add_remove=add_remove), 5
    others = [row(range(groups))] * 3
    rows = [row(range(1)), row(range(3)), row(range(3, 5)), row(range(5))]
    pairs: list[tuple[Row | None, Row | None]] = [(None, one) for one in rows]
    if not add_remove:
        pairs = [(one, two) for one in rows for two in rows]
    shares = []
    for before, after in pairs:
        first, second = (
            rule.distribution(make_table([*others, *([] if one is None else [one])], groups))
            for one in (before, after)
        )
        shares.append(measure_share(rule.claim(), first, second))
    assert max(shares) == pytest.approx(1.0, rel=1e-6)
    assert max(shares) <= 1.0 + 1e-12


def test_an_audit_sees_groups_of_one_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A threshold that forgets that a user may be in many groups goes above its claim in delta."""
    k = 200
    tables = make_table([row(range(k))], k), make_table([], k)
    first, second = (selection().distribution(table) for table in tables)
    assert measure_share(selection().claim(), first, second) <= 1.0
    assert compare(first, second).delta(1.0) <= float(DELTA)
    monkeypatch.setattr(row_selection, "MOST_SELECTING", 1)
    low = selection().threshold
    monkeypatch.undo()
    broken = selection()
    object.__setattr__(broken, "__dict__", {**broken.__dict__, "threshold": low})
    assert measure_share(broken.claim(), *(broken.distribution(table) for table in tables)) > 1.0


def test_the_threshold_is_the_one_of_the_proof() -> None:
    rule = selection()
    sigma = rule.noise.scale
    assert sigma == pytest.approx(ROW_UNITS / math.sqrt(2.0 * float(RHO)), rel=1e-9)
    wanted = max(
        ROW_UNITS / math.sqrt(k) - sigma * NormalDist().inv_cdf(float(DELTA) / k)
        for k in range(1, MOST_SELECTING + 1)
    )
    assert rule.threshold == pytest.approx(wanted, rel=1e-6)
    assert rule.usual_users == math.ceil(rule.threshold / ROW_UNITS)


@pytest.mark.usefixtures("seeded_releases")
def test_large_groups_appear_and_small_ones_do_not() -> None:
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(3000), 4)
    place = rng.choice(["a", "b", "c", "d", "e"], len(users))
    place[: len(users) // 2] = "a"
    place[0] = "secret"
    import pyarrow as pa

    table = pa.table({"user": users, "value": rng.normal(5.0, 1.0, len(users)), "place": place})
    release = hm.mean(table, user="user", value="value", epsilon=2, delta=1e-6, by="place")
    assert [key for (key,) in release.keys] == ["a", "b", "c", "d", "e"]
    assert release.parameters["users_for_a_group"] > 1
    assert release.max_groups is None
