"""Neighboring data sets for the black-box check, one table for all mechanisms; no test here.

To have one more mechanism checked, add an entry or more to `PAIRS`. A pair that is `tight` is one on which half the
noise breaks the guarantee visibly: a test demands that it is caught.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import nan
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.black_box import Output
from hubermean import NotReleased
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.base import Mechanism, Outcome, Prepared
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity
from hubermean.mechanisms.propose_test_release.mechanism import ProposeTestRelease
from hubermean.mechanisms.smooth_sensitivity.mechanism import SmoothSensitivity
from hubermean.mechanisms.winsorized.mechanism import Winsorized
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.noise.source import NoiseSource
from hubermean.types.request import Neighbors, Per, PublicFacts, Request

# At this epsilon samples tell best between a kept guarantee and half the noise: an event that ought to be
# e^2 times rarer
# is e^4 times rarer, and it is still seen. A larger one would need more samples, a smaller one differs less.
EPSILON = 2.0
DELTA = 0.02  # large enough to be seen
# Where `clipped` and `winsorized` find that Gaussian noise is less than Laplace noise, also for one column.
GAUSSIAN = {"epsilon": 1.0, "delta": 0.1}
LAPLACE = {"epsilon": EPSILON, "delta": 0.0}
LAWS: tuple[tuple[str, dict[str, Any]], ...] = (("Laplace", LAPLACE), ("Gaussian", GAUSSIAN))
Value = float | tuple[float, ...]
User = Value | tuple[list[float], int]
"""A mean (several columns: a tuple) of one record; or a list of means and the number of records behind them."""


def dataset(*users: User, dimension: int = 1) -> UserTable:
    partitioned = [
        user if isinstance(user, tuple) and isinstance(user[0], list) else (user, 1) for user in users
    ]
    means = np.array([np.ravel(mean) for mean, _ in partitioned], dtype=np.float64).reshape(-1, dimension)
    return UserTable.from_means(means, np.array([count for _, count in partitioned], dtype=np.int64))


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two neighbors, what is asked of the mechanism, and how many outputs of each to draw.

    Attributes:
        tight: half the noise breaks the guarantee by enough to be seen with this many samples.
        slow: slow to draw from, or much like another pair (of users with one record each, `replace-values` has the
            same law as `replace-user`); left to the slow tests.
        remembered: methods of the prepared mechanism that are functions of the table alone; they are called once.
    """

    name: str
    mechanism: Mechanism
    neighbors: Neighbors
    first: UserTable
    second: UserTable
    epsilon: float = EPSILON
    delta: float = 0.0
    per: Per = "user"
    tight: bool = False
    remembered: tuple[str, ...] = ()
    samples: int = 1_000
    slow: bool = False

    def prepared(self, table: UserTable) -> Prepared:
        """From the public facts of this very table, as a release makes them: neighbors must agree on them."""
        request = Request(
            columns=table.columns,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbors=self.neighbors,
            per=self.per,
        )
        return self.mechanism.prepare(request, PublicFacts.of(table, self.neighbors))

    def release(self) -> Callable[[int, NoiseSource], Output]:
        """What leaves the mechanism, by number of the data set."""
        tables = (self.first, self.second)
        prepared = [self.prepared(table) for table in tables]
        for one in prepared:
            for name in self.remembered:
                vars(one)[name] = cache(getattr(one, name))

        def released(number: int, noise: NoiseSource) -> Output:
            try:
                return published(prepared[number].run(tables[number], noise))
            except NotReleased:
                return None

        return released

    def outputs(self, sources: Sequence[NoiseSource], times: int = 1) -> tuple[list[Output], list[Output]]:
        """Independent outputs of both, each with a noise source of its own."""
        release = self.release()
        first, second = (
            [release(number, noise) for _ in range(times * self.samples)]
            for number, noise in enumerate(sources)
        )
        return first, second


def published(outcome: Outcome) -> tuple[float, ...]:
    """All that a release shows, in numbers: values, the ends of the interval, parameters."""
    shown = [*outcome.values]
    if outcome.interval_rule is not None:
        interval = outcome.interval_rule.at(0.95)
        shown += [*interval.low, *interval.high]
    for _, value in sorted(outcome.parameters.items()):
        shown.append(float(value) if isinstance(value, Real) else float(zlib.crc32(repr(value).encode())))
    return tuple(shown)


def seeded(seed: int) -> tuple[NoiseSource, NoiseSource]:
    return InsecureSeededNoise(2 * seed), InsecureSeededNoise(2 * seed + 1)


def halved(seed: int) -> tuple[NoiseSource, NoiseSource]:
    first, second = seeded(seed)
    return HalfNoise(first), HalfNoise(second)


class HalfNoise:
    """A noise source that breaks guarantees on purpose: half the scale, or twice the rate."""

    secure = False

    def __init__(self, source: NoiseSource) -> None:
        self._source = source

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        return self._source.discrete_laplace(scale / 2.0, size)

    def discrete_gaussian(self, stddev: float, size: int) -> list[int]:
        return self._source.discrete_gaussian(stddev / 2.0, size)

    def below(self, limit: int) -> int:
        return self._source.below(limit)

    def choose(self, costs: NDArray[np.int64], sizes: NDArray[np.int64], rate: Fraction) -> int:
        return self._source.choose(costs, sizes, 2 * rate)


REPLACE_USER, REPLACE_VALUES, ADD_REMOVE = (
    Neighbors.REPLACE_USER,
    Neighbors.REPLACE_VALUES,
    Neighbors.ADD_REMOVE,
)
REPLACE = (REPLACE_USER, REPLACE_VALUES)
FAR = 1e6


def _neighbors(relation: Neighbors, others: tuple[User, ...], one: User, two: User) -> dict[str, UserTable]:
    """`others` and one more user, who is replaced by another or, under `add-remove`, leaves."""
    dimension = len(one) if isinstance(one, tuple) and not isinstance(one[0], list) else 1
    rest = others if relation is ADD_REMOVE else (*others, two)
    return {
        "first": dataset(*others, one, dimension=dimension),
        "second": dataset(*rest, dimension=dimension),
    }


def _clipped() -> Iterator[Pair]:
    # Sixty users in the middle keep both noisy sums above zero, so that value and interval show them in full.
    population: tuple[User, ...] = (0.5,) * 60
    populations: tuple[User, ...] = ((0.5, 0.5),) * 60
    for relation in Neighbors:
        for distribution, budget in LAWS:
            shared: dict[str, Any] = {"neighbors": relation, "remembered": ("statistic",), **budget}
            yield Pair(
                name=f"clipped {distribution}: from one bound to the other",
                mechanism=Clipped(bounds=(0.0, 1.0)),
                tight=True,
                samples=2_000 if relation is not ADD_REMOVE else 6_000,
                slow=relation is REPLACE_VALUES or (relation is ADD_REMOVE and distribution == "Laplace"),
                **_neighbors(relation, population, 1.0, 0.0),
                **shared,
            )
            few = 9 if relation is REPLACE_VALUES else 1  # else the number of records changes as well
            yield Pair(
                name=f"clipped {distribution}: many records for few",
                mechanism=Clipped(bounds=(0.0, 1.0), max_records=5),
                per="record",
                slow=relation is not ADD_REMOVE and distribution == "Laplace",
                **_neighbors(relation, population, ([FAR], 9), ([-FAR], few)),
                **shared,
            )
            yield Pair(
                name=f"clipped {distribution}: two columns at their worst",
                mechanism=Clipped(bounds=(0.0, 1.0)),
                # Several Laplace noises, each with a part of the loss, hide it in corners that are hardly ever seen.
                tight=relation is REPLACE_VALUES or distribution == "Gaussian",
                samples=2_000,
                slow=relation is not REPLACE_USER or distribution == "Laplace",
                **_neighbors(relation, populations, (1.0, 1.0), (0.0, 0.0)),
                **shared,
            )
        yield Pair(
            name="clipped Laplace: a user without usable records",
            mechanism=Clipped(bounds=(0.0, 1.0)),
            remembered=("statistic",),
            neighbors=relation,
            **_neighbors(relation, (0.5, 0.2), 1.0, nan),
        )


def _exact() -> Iterator[Pair]:
    """Where the answer is flat between far users, scores are whole on wide stretches, and one user tips two of them.

    Users at -10 and c, the threshold small: left of c every point has score 0, right of it 1 (`add-remove`: 2).
    With the first user gone to 10 the scores are 1 and 0 (gone altogether: 1 and 1). Both stretches move by
    one in opposite directions, so as the right one outweighs the left the loss comes close to epsilon.
    """
    shared: dict[str, Any] = {"remembered": ("level_sets",)}
    narrow, wide = (
        InverseSensitivity(threshold=0.05, radius=10.0),
        InverseSensitivity(threshold=1.0, radius=10.0),
    )
    for relation in Neighbors:
        center = -9.3 if relation is ADD_REMOVE else -6.7
        yield Pair(
            name="exact: flat between far users",
            mechanism=narrow,
            neighbors=relation,
            tight=True,
            samples=3_000,
            slow=relation is REPLACE_VALUES,
            **_neighbors(relation, (center,), -FAR, FAR),
            **shared,
        )
        yield Pair(
            name="exact: a cluster and one user",
            mechanism=wide,
            neighbors=relation,
            slow=relation is REPLACE_VALUES,
            **_neighbors(relation, (0.0, 0.3, -0.2, 0.9, 5.0), 0.1, FAR),
            **shared,
        )
        yield Pair(
            name="exact: heavy users",
            mechanism=InverseSensitivity(threshold=1.0, radius=10.0, max_records=3),
            neighbors=relation,
            per="record",
            **_neighbors(relation, (([0.0], 2), 0.3, -4.0), ([2.0], 5), ([-FAR], 5)),
            **shared,
        )
    yield Pair(
        name="exact: two columns",
        mechanism=narrow,
        neighbors=REPLACE_USER,
        **_neighbors(REPLACE_USER, ((-6.7, -6.7),), (-FAR, -FAR), (FAR, FAR)),
        **shared,
    )


def _smooth() -> Iterator[Pair]:
    cluster: tuple[User, ...] = tuple(np.linspace(-0.3, 0.3, 40).tolist())
    for relation in Neighbors:
        shared: dict[str, Any] = {
            "neighbors": relation,
            "delta": DELTA,
            "remembered": ("statistic",),
        }
        yield Pair(
            name="smooth: the whole diameter",
            # A public guess of few users spends nothing on changes of the scale, so all of it on this one.
            mechanism=SmoothSensitivity(
                threshold=1.0, radius=5.0, max_records=9, users=1 if relation is ADD_REMOVE else None
            ),
            per="record",
            tight=True,
            samples=4_000,
            # Under `add-remove` the heavier user leaves, and the center goes to the other side all the same.
            **_neighbors(relation, (-FAR,) if relation is ADD_REMOVE else (), ([FAR], 9), ([-FAR], 9)),
            **shared,
        )
        yield Pair(
            name="smooth: a cluster and one user",
            mechanism=SmoothSensitivity(threshold=1.0, radius=5.0),
            **_neighbors(relation, cluster, 0.0, FAR),
            **shared,
        )
        # So few users withstand one change more, and none without this user: noise scaled to what this very data
        # set allows, without the smoothing, would be a hundred times wider on one side.
        # The two hundred without a usable record make a public number of users for which smoothing pays.
        usable: tuple[User, ...] = (0.0,) * (2 if relation is ADD_REMOVE else 3)
        yield Pair(
            name="smooth: the last change withstood",
            mechanism=SmoothSensitivity(threshold=1.0, radius=100.0),
            **_neighbors(relation, (*usable, *(nan,) * 200), 0.0, nan),
            **shared,
        )
        yield Pair(
            name="smooth: two columns",
            mechanism=SmoothSensitivity(threshold=1.0, radius=5.0),
            **_neighbors(relation, ((0.1, 0.2),) * 3, (FAR, FAR), (-FAR, -FAR)),
            **shared,
        )


def _winsorized() -> Iterator[Pair]:
    # Where counts are public, users may weigh differently, and the heaviest is the one that changes.
    lone: tuple[tuple[User, ...], User, User] = (), FAR, -FAR
    heavy: tuple[tuple[User, ...], User, User] = (0.0, 0.5), ([FAR], 5), ([-FAR], 5)
    for relation in REPLACE:
        for distribution, budget in LAWS:
            shared: dict[str, Any] = {"neighbors": relation, **budget}
            weighted = relation is REPLACE_VALUES
            yield Pair(
                name=f"winsorized {distribution}: one bin",
                mechanism=Winsorized(threshold=1.0, radius=1.0, max_records=3 if weighted else None),
                per="record" if weighted else "user",
                tight=True,
                samples=1_500,
                slow=weighted,
                **_neighbors(relation, *(heavy if weighted else lone)),
                **shared,
            )
            yield Pair(
                name=f"winsorized {distribution}: the interval tips",
                mechanism=Winsorized(threshold=1.0, radius=4.0, selection_share=0.5),
                slow=relation is REPLACE_VALUES or distribution == "Gaussian",
                **_neighbors(relation, (-FAR, FAR), FAR, -FAR),
                **shared,
            )
        yield Pair(
            name="winsorized Laplace: four bins and the sum",
            mechanism=Winsorized(threshold=1.0, radius=4.0, selection_share=0.5),
            neighbors=relation,
            tight=True,
            samples=6_000,
            slow=True,
            **_neighbors(relation, (), FAR, -FAR),
        )
    yield Pair(
        name="winsorized: two columns, rotated",
        mechanism=Winsorized(threshold=1.0, radius=2.0),
        neighbors=REPLACE_USER,
        delta=DELTA,
        samples=500,
        **_neighbors(REPLACE_USER, ((0.1, 0.2),) * 3, (FAR, FAR), (-FAR, -FAR)),
    )


def _tested() -> Iterator[Pair]:
    """Just enough users hold the center that the test is passed for sure; the others balance, and one of them flips."""
    for relation in Neighbors:
        shared: dict[str, Any] = {"neighbors": relation, "delta": DELTA, "remembered": ("distribution",)}
        held: tuple[User, ...] = (0.0,) * 270
        yield Pair(
            name="tested: as little as holds",
            mechanism=ProposeTestRelease(threshold=1.0, radius=10.0),
            # Under `add-remove` the number of users is measured with some room, so that more hold than must.
            tight=relation is not ADD_REMOVE,
            samples=2_000,
            slow=relation is REPLACE_VALUES,
            **_neighbors(relation, (*held, *(FAR, -FAR) * 14, FAR), -FAR, FAR),
            **shared,
        )
        yield Pair(
            name="tested: nothing holds",
            mechanism=ProposeTestRelease(threshold=1.0, radius=10.0),
            slow=relation is REPLACE_VALUES,
            **_neighbors(relation, (*(FAR, -FAR) * 150,), FAR, -FAR),
            **shared,
        )
        yield Pair(
            name="tested: heavy users, two columns",
            mechanism=ProposeTestRelease(threshold=1.0, radius=10.0, max_records=3),
            per="record",
            samples=500,
            **_neighbors(relation, ((0.1, 0.0),) * 500, (FAR, 0.0), (-FAR, 0.0)),
            **shared,
        )


PAIRS: tuple[Pair, ...] = (*_clipped(), *_exact(), *_smooth(), *_tested(), *_winsorized())
