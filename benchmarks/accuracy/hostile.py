"""How far hostile users move a mean: the released value beside the plain and the clipped mean, and the stated bound.

    python -m accuracy.hostile [--plot docs/img/hostile.svg]

Gaussian users, a share of whom is replaced by values at +1e9, at -1e9, or just beyond the threshold. Printed, and
plotted, is the largest distance of what comes out from the Huber location of the honest users, over all these places
and several releases. Bounds: proofs/robustness.md. Noise is seeded: this is a simulation, not a release.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from accuracy.hostile_bounds import Honest, gaussian_length, gradient_of_exact, gradient_of_tested
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.base import Mechanism, Prepared
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity, PreparedInverseSensitivity
from hubermean.mechanisms.propose_test_release.mechanism import PreparedProposeTestRelease, ProposeTestRelease
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.request import Neighbors, PublicFacts, Request

USERS, THRESHOLD, RADIUS, CENTER = 2_000, 6.0, 10_000.0, 12.3
EPSILON, DELTA = 1.0, 1e-5
SHARES = (0.0, 0.01, 0.02, 0.05, 0.10, 0.15, 0.20)
FAILURE = 0.001
# What `propose-test-release` is given: so many users lie within the threshold, hostile ones not among them.
SHARE_WITHIN = 0.7


@dataclass(kw_only=True)
class Panel:
    """One mechanism in one number of columns; distances by hostile share."""

    title: str
    mechanism: str
    columns: int
    robust: list[float] = field(default_factory=list)
    center_bound: list[float] = field(default_factory=list)
    bound: list[float] = field(default_factory=list)
    clipped: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)


def attacks(means: np.ndarray, hostile: int) -> Iterator[np.ndarray]:
    """The honest users with the first so many replaced: far up, far down, and just far enough for full influence."""
    upward = np.full(means.shape[1], 1.0)
    for place in (1e9 * upward, -1e9 * upward, CENTER + 1.01 * (THRESHOLD + 2.0) * upward):
        attacked = means.copy()
        attacked[:hostile] = place
        yield attacked
        if not hostile:
            return


def prepare(mechanism: Mechanism, table: UserTable, delta: float) -> Prepared:
    request = Request(
        columns=table.columns, epsilon=EPSILON, delta=delta, neighbors=Neighbors.REPLACE_USER, per="user"
    )
    return mechanism.prepare(request, PublicFacts.of(table, request.neighbors))


def bounds_of_exact(prepared: Prepared, honest: Honest, hostile: int) -> tuple[float, float]:
    """(of the center, of the release)"""
    assert isinstance(prepared, PreparedInverseSensitivity)
    gradient = gradient_of_exact(prepared, users=USERS, hostile=hostile, failure=FAILURE)
    return honest.shift(2 * hostile * THRESHOLD), honest.shift(gradient)


def bounds_of_tested(prepared: Prepared, honest: Honest, hostile: int) -> tuple[float, float]:
    assert isinstance(prepared, PreparedProposeTestRelease)
    plan = prepared._public_plan()
    assert plan is not None
    center = honest.shift(gradient_of_tested(prepared, total_weight=USERS, hostile=hostile))
    return center, center + gaussian_length(plan.noise_stddev, prepared.geometry.dimension, FAILURE)


def fill(
    panel: Panel,
    mechanism: Mechanism,
    delta: float,
    bounds: Callable[[Prepared, Honest, int], tuple[float, float]],
    releases: int,
) -> None:
    means = CENTER + np.random.default_rng(7).standard_normal((USERS, panel.columns))
    honest = Honest.of(means, threshold=THRESHOLD)
    table = UserTable.from_means(means)
    noise = InsecureSeededNoise(11)
    robust = prepare(mechanism, table, delta)
    clipped = prepare(Clipped(bounds=(-RADIUS, RADIUS)), table, delta)
    for share in SHARES:
        hostile = round(share * USERS)
        center_bound, bound = bounds(robust, honest, hostile)
        panel.center_bound.append(center_bound)
        panel.bound.append(bound)
        for name, prepared in (("robust", robust), ("clipped", clipped)):
            distances = [
                honest.distance(prepared.run(attacked_table, noise).values)
                for attacked_table in map(UserTable.from_means, attacks(means, hostile))
                for _ in range(releases)
            ]
            getattr(panel, name).append(max(distances))
        panel.plain.append(
            max(honest.distance(attacked.mean(axis=0)) for attacked in attacks(means, hostile))
        )


def print_panel(panel: Panel) -> None:
    print(f"\n{panel.title}: {panel.mechanism}")
    print(
        f"{'hostile':>8}{'released':>11}{'bound, center':>15}{'bound, release':>16}{'clipped':>11}{'plain':>11}"
    )
    rows = zip(SHARES, panel.robust, panel.center_bound, panel.bound, panel.clipped, panel.plain, strict=True)
    for share, *numbers in rows:
        released, center, bound, clipped, plain = numbers
        print(f"{share:>8.0%}{released:>11.3f}{center:>15.3f}{bound:>16.3f}{clipped:>11.1f}{plain:>11.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--releases", type=int, default=100, help="releases per share and place")
    parser.add_argument("--plot", type=Path, help="draw the figure into this file")
    options = parser.parse_args()
    print(
        f"{USERS:,} Gaussian users of deviation 1, threshold {THRESHOLD:g}, radius {RADIUS:,.0f}, "
        f"epsilon = {EPSILON:g} (tested: delta = {DELTA:g}); largest distance from the honest Huber location "
        f"over three places and {options.releases} releases each.\n"
        f"The bound of a release holds with probability {1 - FAILURE:.1%}."
    )
    one = Panel(title="One column", mechanism="inverse-sensitivity", columns=1)
    fill(one, InverseSensitivity(threshold=THRESHOLD, radius=RADIUS), 0.0, bounds_of_exact, options.releases)
    print_panel(one)
    three = Panel(title="Three columns", mechanism="propose-test-release", columns=3)
    tested = ProposeTestRelease(threshold=THRESHOLD, radius=RADIUS, share=SHARE_WITHIN)
    fill(three, tested, DELTA, bounds_of_tested, options.releases)
    print_panel(three)
    if options.plot:
        from accuracy.hostile_plot import draw  # matplotlib is an extra

        draw([one, three], SHARES, options.plot)


if __name__ == "__main__":
    main()
