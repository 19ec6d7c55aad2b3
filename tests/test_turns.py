"""Where it is cheap, the work of a release is the same for all data with the same public numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hubermean.mechanisms import PublicFacts, Request, choose
from hubermean.mechanisms.certified_bounds import Caps, certified_bounds
from hubermean.mechanisms.margin import MarginPlan
from hubermean.mechanisms.protocol import Known
from hubermean.mechanisms.shells import GradientByValues, Users, flat_shell_ends
from hubermean.relations import Neighbors
from hubermean.user_table import UserTable

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


def test_the_margin_of_tested_is_sought_in_as_many_turns(calls: Callable[[type, str], list[str]]) -> None:
    counted = calls(MarginPlan, "_holds")
    known = Known(threshold=3.0, radius=100.0)
    request = Request.checked(("v", "w"), epsilon=1.5, delta=1e-3, per="user", neighbors="replace-user")

    def law(means: Any) -> object:
        table = UserTable.from_means(means)
        facts = PublicFacts.of(table, Neighbors.REPLACE_USER)
        return choose("tested", known).prepare(request, facts).law(table)

    # Where nobody has a usable record there is no centre to look around.
    assert all_the_same(
        counted, law, {name: made for name, made in SHAPES.items() if name != "nobody usable"}
    )


def test_shells_begin_with_as_many_turns(calls: Callable[[type, str], list[str]]) -> None:
    counted = calls(GradientByValues, "at")

    def ends(means: Any) -> object:
        values = np.clip(np.nan_to_num(means[:, 0] * 1e3), -1e9, 1e9).astype(np.int64)
        users = Users.build(values, None, idle=np.zeros(0, dtype=np.int64), threshold=500, reach=500)
        return flat_shell_ends(users, radius=10**6, depth=40, pull_cap=500)

    assert all_the_same(counted, ends)


def test_certified_bounds_take_as_many_turns(calls: Callable[[type, str], list[str]]) -> None:
    counted = calls(Caps, "pull_after")
    caps = Caps(weight=1, pull=4.0, gradient_rate=1e-9, depth_step=1e-9)

    def bounds(means: Any) -> object:
        return certified_bounds(2.0 - np.abs(means[:, 0]), None, caps=caps, reach=100)

    assert all_the_same(counted, bounds)
