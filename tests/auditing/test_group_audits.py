"""Audits of releases by group: no move of a user beats the guarantee, and broken divisions are caught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import hubermean as hm
from helpers.caught import is_caught
from helpers.group_records import RELATIONS
from hubermean.auditing.group_neighbors import GROUP
from hubermean.auditing.neighbors import USER, VALUE
from hubermean.ingest.duckdb.queries import GroupQuery
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.mechanisms.groups.partition_selection import PartitionSelection

CLIPPED: dict[str, Any] = {"mechanism": "clipped", "bounds": (0, 10), "max_groups": 1}


RECORD = {**CLIPPED, "max_groups": 2, "per": "record", "max_records": 3}
GAUSSIAN = {**CLIPPED, "max_groups": 2, "delta": 0.05}
PRIVATE_KEYS = {**CLIPPED, "max_groups": 1, "delta": 1e-3, "private_keys": True}
EXACT = {"mechanism": "inverse-sensitivity", "threshold": 1, "radius": 20, "max_groups": 2}


@pytest.mark.parametrize(
    ("options", "neighbors"),
    [
        # Every way to divide always runs, and so does every relation; all pairs of the two are among the slow tests.
        pytest.param(options, relation, marks=[pytest.mark.slow] if relation not in always else [])
        for options, always in (
            (RECORD, ("add-remove", "replace-user")),
            (GAUSSIAN, ("add-remove",)),
            (PRIVATE_KEYS, ("add-remove", "replace-values")),
            (EXACT, ("replace-user",)),
        )
        for relation in RELATIONS
    ],
)
def test_no_move_between_groups_beats_the_guarantee(neighbors: str, options: dict[str, Any]) -> None:
    found = hm.audit(epsilon=1, groups=4, neighbors=neighbors, pairs=20, **options)
    assert found.kept, repr(found)
    assert found.loss > 0.5 or found.delta_found > 0.1 * found.delta, "the search came close"


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("max_groups", [1, 2, 3])
@pytest.mark.parametrize("private_keys", [True, False])
def test_no_move_between_groups_beats_the_guarantee_however_long_one_looks(
    neighbors: str, max_groups: int, private_keys: bool
) -> None:
    for more in ({}, {"per": "record", "max_records": 3}):
        found = hm.audit(
            epsilon=1,
            delta=1e-4,
            groups=5,
            neighbors=neighbors,
            private_keys=private_keys,
            pairs=400,
            **{**CLIPPED, "max_groups": max_groups},
            **more,
        )
        assert found.kept, repr(found)


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_no_move_beats_the_guarantee_of_tuned_groups(neighbors: str) -> None:
    found = hm.audit("adaptive", epsilon=4, groups=3, neighbors=neighbors, users=900, pairs=25)
    assert found.kept, repr(found)


def undivided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parallel composition where it does not hold."""
    made = GroupBudgetSplit.of.__func__  # type: ignore[attr-defined]
    broken = classmethod(lambda cls, *given, **more: replace(made(cls, *given, **more), changes=1))
    monkeypatch.setattr(GroupBudgetSplit, "of", broken)


def once_for_a_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    made = GroupBudgetSplit.of.__func__  # type: ignore[attr-defined]

    def broken(cls: Any, asked: Any, *, max_groups: int, **more: Any) -> GroupBudgetSplit:
        return replace(made(cls, asked, max_groups=max_groups, **more), changes=max_groups)

    monkeypatch.setattr(GroupBudgetSplit, "of", classmethod(broken))


def groups_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    from hubermean.ingest.duckdb import queries as rows

    monkeypatch.setattr(rows, "GroupQuery", lambda **given: GroupQuery(**{**given, "max_groups": None}))


def generous_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    made = PartitionSelection.passes.func  # type: ignore[attr-defined]
    monkeypatch.setattr(
        PartitionSelection,
        "passes",
        property(lambda self: (0, *(min(100 * one, 1 << self.bits) for one in made(self)[1:]))),
    )


def keys_that_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group that occurs appears."""
    monkeypatch.setattr(PartitionSelection, "passes", property(lambda self: (0, 1 << self.bits)))


@pytest.mark.parametrize(
    ("broken", "options"),
    [
        (undivided, {"max_groups": 2}),
        (once_for_a_replacement, {"max_groups": 1, "neighbors": "replace-user"}),
        (groups_not_limited, {"max_groups": 1}),
        (generous_keys, {"private_keys": True, "delta": 1e-4}),
        (keys_that_leak, {"private_keys": True, "delta": 1e-4}),
    ],
)
def test_a_broken_division_is_caught(
    monkeypatch: pytest.MonkeyPatch, broken: Any, options: dict[str, Any]
) -> None:
    broken(monkeypatch)
    assert is_caught(epsilon=1, groups=4, pairs=12, **{**CLIPPED, **options})


def test_the_datasets_of_an_audit_are_records_like_any_other() -> None:
    found = hm.audit(epsilon=1, groups=3, pairs=12, **CLIPPED)
    one, other = found.worst.records()  # type: ignore[attr-defined]
    assert one.column_names == other.column_names == [USER, GROUP, VALUE]
    assert "Verdict" in repr(found)
    worst = found.to_dict()["worst"]
    assert (worst["before"] or worst["after"])["shares"]
