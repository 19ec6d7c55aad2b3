"""Slopes of the measured errors in double logarithms, beside those of the theorems' bounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hubermean.reproduce.figures.curves import slope_in_users
from hubermean.reproduce.figures.estimate import Estimate
from hubermean.reproduce.figures.panels import SETTINGS
from hubermean.reproduce.figures.results import Results

HLM = "HLM as printed"
_ROUGHLY = 0.05  # slopes that differ by less are alike


@dataclass(frozen=True, kw_only=True)
class Slope:
    """A slope in double logarithms beside the theorem's; `within` whether the error falls at least as fast."""

    panel: str
    variable: str
    setting: str
    users: str
    theorem: str
    bound: float
    found: Mapping[str, Estimate]
    within: bool


def slopes(results: Results) -> Iterator[Slope]:
    """Of every panel: in m or gamma for each number of users, and in n between two of them."""
    for panel in results.panels:
        for setting in SETTINGS:
            numbers = results.users(panel.name)
            found = {
                users: {
                    name: results.curve(panel.name, name, setting.name, users)
                    for name in results.methods(panel.name)
                }
                for users in numbers
            }
            theorem = {users: results.theorem(panel.name, users) for users in numbers}
            variable = "m" if panel.axis == "records" else "gamma"
            for users in numbers:
                yield _slope(
                    panel.name,
                    panel.theorem,
                    variable,
                    setting.name,
                    f"{users:,}",
                    theorem[users].slope().value,
                    {name: curve.slope() for name, curve in found[users].items()},
                )
            for few, many in itertools.pairwise(numbers):
                yield _slope(
                    panel.name,
                    panel.theorem,
                    "n",
                    setting.name,
                    f"{few:,} to {many:,}",
                    slope_in_users(theorem[few], theorem[many]).value,
                    {name: slope_in_users(found[few][name], found[many][name]) for name in found[few]},
                )


def _slope(
    panel: str,
    theorem: str,
    variable: str,
    setting: str,
    users: str,
    bound: float,
    found: Mapping[str, Estimate],
) -> Slope:
    printed = found[HLM]
    return Slope(
        panel=panel,
        variable=variable,
        setting=setting,
        users=users,
        theorem=theorem,
        bound=bound,
        found=found,
        within=printed.value - 2.0 * printed.error <= bound + _ROUGHLY,
    )
