"""Where it is cheap, the work of a release is the same for all data with the same public numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hubermean.data.user_table import UserTable
from hubermean.huber.level_sets import GradientByValues, SortedUsers, add_remove_level_set_ends
from hubermean.huber.local_sensitivity import InfluenceLimits, bound_local_sensitivity
from hubermean.mechanisms.propose_test_release.stability import StabilityTest
from hubermean.mechanisms.registry import resolve_mechanism
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request

N_USERS = 300
SHAPES: dict[str, Callable[[np.random.Generator], Any]] = {
    "normal": lambda rng: rng.normal(size=(N_USERS, 2)),
    "all alike": lambda rng: np.full((N_USERS, 2), 0.1),
    "two camps": lambda rng: np.repeat([[-40.0, 0.0], [40.0, 1.0]], N_USERS // 2, axis=0),
    "heavy tails": lambda rng: rng.standard_cauchy((N_USERS, 2)),
    "far away": lambda rng: rng.normal(1e9, 1.0, (N_USERS, 2)),
    "nobody usable": lambda rng: np.full((N_USERS, 2), np.nan),
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str], list[str]]:
    """Counts the calls of a method."""

    def count(owner: type, name: str) -> list[str]:
        made: list[str] = []
        original = getattr(owner, name)

        def counted(*given: Any, **named: Any) -> Any:
            made.append(name)
            return original(*given, **named)

        monkeypatch.setattr(owner, name, counted)
        return made

    return count


def all_the_same(calls: list[str], work: Callable[[Any], object], shapes: dict[str, Any] = SHAPES) -> bool:
    found = {}
    for shape, values in shapes.items():
        calls.clear()
        work(values(np.random.default_rng(5)))
        found[shape] = len(calls)
    assert max(found.values()) > 1
    return len(set(found.values())) == 1


def test_the_distance_to_instability_is_found_in_as_many_turns(
    calls: Callable[[type, str], list[str]],
) -> None:
    counted = calls(StabilityTest, "_is_stable")
    known = PublicParameters(threshold=3.0, radius=100.0)
    request = Request.checked(("v", "w"), epsilon=1.5, delta=1e-3, per="user", neighbors="replace-user")

    def distribution(means: Any) -> object:
        table = UserTable.from_means(means)
        facts = PublicFacts.of(table, Neighbors.REPLACE_USER)
        return resolve_mechanism("propose-test-release", known).prepare(request, facts).distribution(table)

    # Where nobody has a usable record there is no center to look around.
    assert all_the_same(
        counted, distribution, {name: made for name, made in SHAPES.items() if name != "nobody usable"}
    )


def test_shells_begin_with_as_many_turns(calls: Callable[[type, str], list[str]]) -> None:
    counted = calls(GradientByValues, "at")

    def ends(means: Any) -> object:
        values = np.clip(np.nan_to_num(means[:, 0] * 1e3), -1e9, 1e9).astype(np.int64)
        users = SortedUsers.build(
            values, None, inactive=np.zeros(0, dtype=np.int64), threshold=500, max_influence=500
        )
        return add_remove_level_set_ends(users, radius=10**6, n_levels=40, influence_cap=500)

    assert all_the_same(counted, ends)


def test_certified_bounds_take_as_many_turns(calls: Callable[[type, str], list[str]]) -> None:
    counted = calls(InfluenceLimits, "influence_after")
    caps = InfluenceLimits(weight=1, influence=4.0, gradient_rate=1e-9, depth_step=1e-9)

    def bounds(means: Any) -> object:
        return bound_local_sensitivity(2.0 - np.abs(means[:, 0]), None, caps=caps, reach=100)

    assert all_the_same(counted, bounds)
