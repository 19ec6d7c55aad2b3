"""Errors of `hubermean.mean_of_user_means` with defaults only, over those of the best threshold in hindsight.

    python -m vectors [--quick] [--releases 4] [--means 0.03 0.3 3] [--markdown docs/evidence/vectors.md]

Every cell draws users once, finds the best threshold against the true mean, and makes releases with nothing but a
budget. A ratio is the root mean square error of the releases over the error in hindsight. One process.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hubermean as hm
from common.sections import Table
from vectors.hindsight import Hindsight, find_best
from vectors.laws import ATTACKS, LAWS, TUNED_ON, draw

DELTA = 1e-6
GOAL = 1.3
BEGIN, END = "<!-- measured by python -m vectors -->", "<!-- end of measured -->"


@dataclass(frozen=True, kw_only=True)
class Setting:
    users: int
    columns: int
    epsilon: float

    @property
    def title(self) -> str:
        return f"{self.users:,} users, {self.columns:,} columns, epsilon = {self.epsilon:g}"


@dataclass(frozen=True, kw_only=True)
class Cell:
    law: str
    attack: str
    mean: float
    ratio: float
    hindsight: Hindsight


SETTINGS = (
    Setting(users=500, columns=10_000, epsilon=8.0),
    Setting(users=10_000, columns=1_000, epsilon=1.0),
    Setting(users=2_000, columns=500, epsilon=2.0),
    Setting(users=20_000, columns=64, epsilon=1.0),
)
QUICK = (Setting(users=500, columns=2_000, epsilon=8.0),)
MEANS = (0.03, 0.3, 3.0)


def measure(setting: Setting, *, releases: int, means: Sequence[float]) -> Iterator[Cell]:
    for number, (law, attack, mean) in enumerate(
        (law, attack, mean) for law in LAWS for attack in ATTACKS for mean in means
    ):
        rng = np.random.default_rng([number, setting.users, setting.columns])
        drawn = draw(rng, law, attack, users=setting.users, columns=setting.columns, mean=mean)
        best = find_best(drawn, epsilon=setting.epsilon, delta=DELTA)
        squares = []
        for _ in range(releases):
            release = hm.mean_of_user_means(drawn.users, epsilon=setting.epsilon, delta=DELTA)
            squares.append(float(np.sum((np.array(release.values) - drawn.target) ** 2)))
        ratio = math.sqrt(sum(squares) / releases) / best.error
        print(f"{setting.title}: {law}, {attack}, mean {mean:g}: {ratio:.2f}", file=sys.stderr)
        yield Cell(law=law, attack=attack, mean=mean, ratio=ratio, hindsight=best)


def tabulate(setting: Setting, cells: list[Cell]) -> Table:
    rows = []
    for law in LAWS:
        for attack in ATTACKS:
            own = [cell for cell in cells if (cell.law, cell.attack) == (law, attack)]
            ways = {cell.hindsight.way for cell in own}
            rows.append(
                [
                    law if law in TUNED_ON else f"{law} *",
                    attack,
                    *(f"{cell.ratio:.2f}" for cell in own),
                    ways.pop() if len(ways) == 1 else "either",
                ]
            )
    headings = [
        "honest users",
        "hostile users",
        *(f"mean {mean:g}" for mean in sorted({c.mean for c in cells})),
    ]
    return Table(
        title=setting.title,
        headings=[*headings, "best in hindsight"],
        rows=rows,
        left=["honest users", "hostile users", "best in hindsight"],
    )


def summarize(settings: dict[Setting, list[Cell]]) -> Table:
    rows = []
    for setting, cells in settings.items():
        for name, own in (
            ("tuned on", [cell for cell in cells if cell.law in TUNED_ON]),
            ("others", [cell for cell in cells if cell.law not in TUNED_ON]),
        ):
            ratios = np.array([cell.ratio for cell in own])
            rows.append(
                [
                    setting.title,
                    name,
                    f"{np.median(ratios):.2f}",
                    f"{np.quantile(ratios, 0.9):.2f}",
                    f"{ratios.max():.2f}",
                    f"{np.mean(ratios <= GOAL):.0%}",
                ]
            )
    return Table(
        title="Error with defaults only, over the best threshold in hindsight",
        headings=["setting", "distributions", "median", "nine in ten", "worst", f"at most {GOAL:g}"],
        rows=rows,
        left=["setting", "distributions"],
    )


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--quick", action="store_true", help="one small setting, two releases per cell")
    given.add_argument("--releases", type=int, default=4)
    given.add_argument("--means", type=float, nargs="+", default=MEANS, help="lengths of the mean per column")
    given.add_argument("--markdown", type=Path, help="page whose measured part is written anew")
    options = given.parse_args()
    settings = QUICK if options.quick else SETTINGS
    releases = 2 if options.quick else options.releases
    found = {setting: list(measure(setting, releases=releases, means=options.means)) for setting in settings}
    tables = [summarize(found), *(tabulate(setting, cells) for setting, cells in found.items())]
    for table in tables:
        print(table.text(), end="\n\n")
    if options.markdown is not None:
        before, rest = options.markdown.read_text().split(BEGIN)
        lengths = ", ".join(f"{mean:g}" for mean in options.means)
        effort = f"Measured with {releases} releases per cell, at means of {lengths} per column."
        measured = "\n\n".join([effort, *(table.markdown() for table in tables)])
        options.markdown.write_text(f"{before}{BEGIN}\n\n{measured}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
