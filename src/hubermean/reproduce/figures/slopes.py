"""Slopes of the measured errors in double logarithms, beside those of the theorems' bounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hubermean.reproduce.figures.curves import Curve, slope_in_users
from hubermean.reproduce.figures.estimate import Estimate
from hubermean.reproduce.figures.panels import SETTINGS
from hubermean.reproduce.figures.results import Results


@dataclass(frozen=True, kw_only=True)
class Slope:
    """A slope in double logarithms beside that of the theorem's bound; curves that have all points only."""

    panel: str
    variable: str
    setting: str
    users: str
    theorem: str
    bound: float
    found: Mapping[str, Estimate]


def slopes(results: Results) -> Iterator[Slope]:
    """Of every panel: in m or gamma for each number of users, and in n between two of them."""
    for panel in results.panels:
        for setting in SETTINGS:
            numbers = results.users(panel.name)
            theorem = {users: results.theorem(panel.name, users) for users in numbers}
            found = {
                users: _whole_curves(results, panel.name, setting.name, theorem[users]) for users in numbers
            }
            for users in numbers:
                yield Slope(
                    panel=panel.name,
                    variable="m" if panel.axis == "records" else "gamma",
                    setting=setting.name,
                    users=f"{users:,}",
                    theorem=panel.theorem,
                    bound=theorem[users].slope().value,
                    found={name: curve.slope() for name, curve in found[users].items()},
                )
            for few, many in itertools.pairwise(numbers):
                both = [name for name in found[few] if name in found[many]]
                yield Slope(
                    panel=panel.name,
                    variable="n",
                    setting=setting.name,
                    users=f"{few:,} to {many:,}",
                    theorem=panel.theorem,
                    bound=slope_in_users(theorem[few], theorem[many]).value,
                    found={name: slope_in_users(found[few][name], found[many][name]) for name in both},
                )


def _whole_curves(results: Results, panel: str, setting: str, theorem: Curve) -> dict[str, Curve]:
    """Slopes over different points could not be compared."""
    curves = {name: results.curve(panel, name, setting, theorem.users) for name in results.methods(panel)}
    return {name: curve for name, curve in curves.items() if curve.x == theorem.x}
