"""All rows of a run, by panel, and the curves through them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hubermean.reproduce.figures.curves import Curve, theorem_curve
from hubermean.reproduce.figures.panels import PANELS, Panel
from hubermean.reproduce.figures.point import Row


@dataclass(frozen=True, kw_only=True)
class Results:
    """What was found. `moment_orders` holds p of Theorem heavytail for each law."""

    rows: Mapping[str, Sequence[Row]] = field(repr=False)
    moment_orders: Mapping[str, float]

    @property
    def panels(self) -> list[Panel]:
        """Those that were run, in the paper's order."""
        return [panel for name, panel in PANELS.items() if self.rows.get(name)]

    def has(self, *names: str) -> bool:
        return all(self.rows.get(name) for name in names)

    def users(self, panel: str) -> list[int]:
        return sorted({row.users for row in self.rows[panel]})

    def methods(self, panel: str) -> list[str]:
        """In the order of the rows."""
        return list(dict.fromkeys(row.method for row in self.rows[panel]))

    def curve(self, panel: str, method: str, setting: str, users: int) -> Curve:
        return Curve.of(self.rows[panel], method=method, setting=setting, users=users)

    def theorem(self, panel: str, users: int) -> Curve:
        xs = sorted({row.x for row in self.rows[panel] if row.users == users})
        one = PANELS[panel]
        return theorem_curve(one, users, xs, moment_order=self.moment_orders[one.law])

    def all_rows(self) -> Iterator[Row]:
        for panel in self.panels:
            yield from self.rows[panel.name]
