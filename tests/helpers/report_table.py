"""A table of group releases as reports expect it, made of plain releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hubermean.accounting.budget import BudgetEntry, whole_budget
from hubermean.types.release import Interval, Release
from hubermean.types.release_info import ReleaseInfo
from hubermean.types.request import Neighbors
from hubermean.types.screen import Lines, Screen


@dataclass(frozen=True)
class Around:
    """Intervals of a given half width at 95%, narrower at lower levels."""

    values: tuple[float, ...]
    half: float

    def at(self, level: float) -> Interval:
        half = self.half * level / 0.95
        return Interval(
            level=level,
            low=tuple(value - half for value in self.values),
            high=tuple(value + half for value in self.values),
            covers="noise and sampling",
        )


@dataclass(frozen=True)
class Refusal:
    group: Mapping[str, Any]
    reason: str


def made(
    *values: float,
    columns: Sequence[str] | None = None,
    half: float | None = 0.5,
    group: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Release:
    """A release of these values."""
    fields: dict[str, Any] = {
        "values": values,
        "columns": tuple(columns or (f"column {number}" for number in range(len(values)))),
        "epsilon": 1.0,
        "delta": 0.0,
        "neighbors": Neighbors.REPLACE_USER,
        "mechanism": "clipped",
        "per": "record",
        "n_users": 1234,
        "parameters": {"bounds": [0.0, 10.0]},
        "budget_breakdown": whole_budget(1.0, 0.0),
        "interval_rule": None if half is None else Around(values, half),
    }
    return Release(**(fields | changes), group=group)


@dataclass(frozen=True, kw_only=True)
class StandIn(ReleaseInfo, Sequence[Any]):
    """A table of releases with arbitrary rows."""

    items: Sequence[Any]
    by: tuple[str, ...] = ("city",)
    columns: tuple[str, ...] = ("fare",)
    epsilon: float = 1.0
    delta: float = 0.0
    neighbors: Neighbors = Neighbors.REPLACE_USER
    mechanism: str = "clipped"
    per: str = "record"
    max_groups: int = 2
    public_keys: bool = True
    guarantee: str = "every possible outcome stays as likely."
    parameters: Mapping[str, Any] = field(default_factory=dict)
    budget_breakdown: tuple[BudgetEntry, ...] = field(default_factory=lambda: whole_budget(1.0, 0.0))

    @property
    def screen(self) -> Screen:
        return Screen(lines=self.details)

    @property
    def details(self) -> Lines:
        return Lines(())

    def to_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    def to_arrow(self, level: float = 0.95) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: Any) -> Any:
        return self.items[number]
