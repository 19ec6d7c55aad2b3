"""All small datasets of `inverse-sensitivity` and all pairs of neighbors among them, in integers; no test here.

A dataset is a multiset of users; the setting lists what a user may hold. Every dataset goes through the mechanism
itself, from a table of users to the points it samples from, on a grid small enough to check each point.

With x = exp(-epsilon / 2) = a / b rational, every law is rational: P(s) = x^score(s) / sum of x^score. So the guarantee
P(s) x^2 <= Q(s) is a comparison of integers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.data.user_table import UserTable
from hubermean.mechanisms.inverse_sensitivity.grid import LocationGrid
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity, PreparedInverseSensitivity
from hubermean.types.request import Neighbors, PublicFacts, Request

IntArray = NDArray[np.int64]
Pairs = tuple[IntArray, IntArray]  # ranks of datasets, side by side
Contents = tuple[float, int]  # a user's mean, NaN where no record is usable, and its number of records


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A small grid and what a user may hold; `records` is None where all users weigh one.

    `power` is theta, one of 0, 1/2 and 1. `capped` says whether the mechanism is told the most records where counts are
    private.
    """

    radius: int
    threshold: int
    values: tuple[int, ...]
    records: tuple[int, ...] | None
    power: float = 0.0
    capped: bool = True

    def influence(self, weight: int) -> int:
        """The integer part of T weight^(1 - power), in integers."""
        return {
            0.0: self.threshold * weight,
            0.5: math.isqrt(self.threshold**2 * weight),
            1.0: self.threshold,
        }[self.power]

    @property
    def cap(self) -> int:
        return 1 if self.records is None else max(self.records)

    def contents(self, relation: Neighbors) -> list[Contents]:
        """Idle users differ in their number of records only where that is public and weighs."""
        records = self.records or (1,)
        idle = records if relation.counts_are_public else (1,)
        active = [(float(value), number) for number in records for value in self.values]
        return active + [(math.nan, number) for number in idle]


@dataclass(kw_only=True)
class Found:
    """What going through all datasets and pairs showed."""

    datasets: int = 0
    pairs: int = 0
    misread: int = 0  # datasets whose scores are not what their definition says
    difference: int = 0  # the largest, of two scores of one point
    both_ways: int = 0  # pairs in which some point's score rises and another's falls
    worst: float = 0.0  # the largest loss, as a share of epsilon
    broken: list[tuple[Fraction, list[Contents], list[Contents]]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Level:
    """All datasets of so many users, one row each, with their scores at the points -radius ... radius."""

    contents: list[Contents]
    datasets: IntArray
    scores: IntArray
    steps: int  # the law is x^(steps * score): one step, unless the rate is not epsilon / 2

    def distribution(self, x: Fraction, n_levels: int) -> IntArray:
        """Of each dataset the probabilities, up to a factor, as integers."""
        a, b = x.numerator, x.denominator
        powers = [(a**score * b ** (n_levels - score)) ** self.steps for score in range(n_levels + 1)]
        # Probabilities are brought to a common denominator, then compared with a factor of x^2.
        assert b**2 * self.scores.shape[1] * max(powers) ** 2 < 2**63, "the comparison would not be exact"
        distribution: IntArray = np.array(powers)[self.scores]
        return distribution

    def users(self, dataset: int) -> list[Contents]:
        return [self.contents[number] for number in self.datasets[dataset]]


def enumerate_datasets(
    setting: Setting,
    relation: Neighbors,
    most_users: int,
    *,
    odds: Sequence[Fraction],
    n_levels: int | None = None,
) -> Found:
    """Every dataset of up to so many users and every pair of neighbors, for each x of `odds`.

    `n_levels` is the public number of level sets that are distinguished; by default all are.
    """
    n_levels = most_users if n_levels is None else n_levels
    found = Found()
    before: Level | None = None
    for n_users in range(0 if relation is Neighbors.ADD_REMOVE else 1, most_users + 1):
        now = level(setting, relation, n_users, n_levels)
        found.datasets += len(now.datasets)
        defined = np.minimum(defined_scores(setting, relation, now.datasets), n_levels)
        found.misread += int((now.scores != defined).any(axis=1).sum())
        other = before if relation is Neighbors.ADD_REMOVE else now
        if other is not None:
            chosen = list(pairs(now.contents, relation, n_users))
            assert number_of(chosen) == number_of_pairs(now.contents, relation, n_users)
            compare(found, now, other, chosen, odds, n_levels)
        before = now
    return found


def level(setting: Setting, relation: Neighbors, n_users: int, n_levels: int) -> Level:
    """Run the mechanism, all but its draw, on every dataset."""
    contents = setting.contents(relation)
    datasets = list_datasets(n_users, len(contents))
    means = np.array([mean for mean, _ in contents])
    records = np.array([number for _, number in contents])

    def table(dataset: IntArray) -> UserTable:
        return UserTable.from_means(means[dataset], records[dataset])

    prepared = on_small_grid(setting, relation, table(datasets[0]), n_levels)
    scores = np.array([scores_of(prepared, table(dataset)) for dataset in datasets])
    steps = 2 * prepared.rate / Fraction(prepared.request.epsilon)
    assert steps.denominator == 1
    return Level(contents=contents, datasets=datasets, scores=scores, steps=int(steps))


def on_small_grid(
    setting: Setting, relation: Neighbors, table: UserTable, n_levels: int
) -> PreparedInverseSensitivity:
    """As prepared for a release, but with a grid and a number of level sets that a release would not choose."""
    per: Any = "user" if setting.records is None else "record"
    request = Request(columns=("mean",), epsilon=1.0, delta=0.0, neighbors=relation, per=per)
    asked = InverseSensitivity(
        threshold=1.0,
        radius=9.0,
        max_records=setting.cap
        if setting.records is not None and (setting.capped or relation.counts_are_public)
        else None,
        threshold_power=None if setting.records is None else setting.power,
    )
    prepared = asked.prepare(request, PublicFacts.of(table, relation))
    power = prepared.grid.power
    grid = LocationGrid(exponent=0, threshold=setting.threshold, radius=setting.radius, power=power)
    return replace(prepared, grid=grid, n_levels=min(n_levels, prepared.n_levels))


def scores_of(prepared: PreparedInverseSensitivity, table: UserTable) -> list[int]:
    """The score of each point, read off the runs that the draw chooses among."""
    level_sets = prepared.level_sets(table, 0)
    scores, sizes = level_sets.runs()
    assert sizes.sum() == 2 * level_sets.radius + 1, "not every point is reached once"
    spelled: list[int] = np.repeat(scores, sizes).tolist()
    return spelled


def defined_scores(setting: Setting, relation: Neighbors, datasets: IntArray) -> IntArray:
    """By definition (proofs/inverse-sensitivity.md): try all sets of users to replace; under `add-remove`, divide."""
    contents = setting.contents(relation)
    weights = np.array([1 if setting.records is None else number for _, number in contents])
    values = np.array([0 if math.isnan(mean) else int(mean) for mean, _ in contents])
    active = np.array([0 if math.isnan(mean) else 1 for mean, _ in contents])
    points = np.arange(-setting.radius, setting.radius + 1)
    own = np.array([setting.influence(int(weight)) for weight in weights])
    clipped = np.clip(
        weights[:, np.newaxis] * (points - values[:, np.newaxis]), -own[:, np.newaxis], own[:, np.newaxis]
    )
    influences = (clipped * active[:, np.newaxis])[datasets]
    most, n_users = setting.influence(setting.cap), datasets.shape[1]
    if relation is Neighbors.ADD_REMOVE:
        total = influences.sum(axis=1)
        up, down = -(-np.maximum(total, 0) // most), -(-np.maximum(-total, 0) // most)
    else:
        reaches = (own if relation.counts_are_public else np.full_like(own, most))[datasets]
        up, down = (np.full((len(datasets), len(points)), n_users) for _ in range(2))
        for kept in itertools.product([False, True], repeat=n_users):
            replaced = np.logical_not(kept)
            rest, reach = influences[:, kept].sum(axis=1), reaches[:, replaced].sum(axis=1, keepdims=True)
            up[rest - reach <= 0] = np.minimum(up[rest - reach <= 0], replaced.sum())
            down[rest + reach >= 0] = np.minimum(down[rest + reach >= 0], replaced.sum())
    up[:, 0] = 0
    down[:, -1] = 0
    scores: IntArray = np.maximum(up, down)
    return scores


def list_datasets(n_users: int, n_contents: int) -> IntArray:
    """Every multiset of so many users, once: ascending rows in order of rank."""
    rows = list(itertools.combinations_with_replacement(range(n_contents), n_users))
    datasets = np.array(rows, dtype=np.int64).reshape(len(rows), n_users)
    ordered: IntArray = datasets[np.argsort(rank(datasets))]
    assert (rank(ordered) == np.arange(count_datasets(n_contents, n_users))).all()
    return ordered


def rank(datasets: IntArray) -> IntArray:
    """The number of each multiset among those of its size: the combinatorial number system."""
    ranks = np.zeros(len(datasets), dtype=np.int64)
    for place, numbers in enumerate(datasets.T):
        ranks += np.array([math.comb(number + place, place + 1) for number in range(64)])[numbers]
    return ranks


def count_datasets(n_contents: int, n_users: int) -> int:
    return math.comb(n_contents + n_users - 1, n_users)


def pairs(contents: list[Contents], relation: Neighbors, n_users: int) -> Iterator[Pairs]:
    """All pairs of neighbors, each once: what they share, and one user beside it.

    `add-remove` pairs a dataset of `n_users` with one of a user less, the others two datasets of `n_users`.
    """
    shared = list_datasets(n_users - 1, len(contents))
    beside = [
        rank(np.sort(np.column_stack([shared, np.full(len(shared), number)]), axis=1))
        for number in range(len(contents))
    ]
    if relation is Neighbors.ADD_REMOVE:
        yield from ((joined, np.arange(len(shared))) for joined in beside)
        return
    for one, other in itertools.combinations(range(len(contents)), 2):
        if not relation.counts_are_public or contents[one][1] == contents[other][1]:
            yield beside[one], beside[other]


def number_of_pairs(contents: list[Contents], relation: Neighbors, n_users: int) -> int:
    """By formula: so many datasets to share, times so many ways to hold what is not shared."""
    shared = count_datasets(len(contents), n_users - 1)
    if relation is Neighbors.ADD_REMOVE:
        return shared * len(contents)
    records = [number if relation.counts_are_public else 0 for _, number in contents]
    return shared * sum(math.comb(records.count(number), 2) for number in set(records))


def number_of(chosen: Sequence[Pairs]) -> int:
    """How many different pairs there are, whichever of the two comes first."""
    both = np.sort(np.concatenate([np.column_stack(some) for some in chosen]), axis=1)
    return len(np.unique(both[:, 0] << 32 | both[:, 1]))


def compare(
    found: Found, mine: Level, theirs: Level, chosen: Sequence[Pairs], odds: Sequence[Fraction], n_levels: int
) -> None:
    """Hold the guarantee against these pairs, in both directions."""
    distributions = [(x, mine.distribution(x, n_levels), theirs.distribution(x, n_levels)) for x in odds]
    for left, right in chosen:
        found.pairs += len(left)
        change = mine.scores[left] - theirs.scores[right]
        found.difference = max(found.difference, int(np.abs(change).max()))
        found.both_ways += int(((change > 0).any(axis=1) & (change < 0).any(axis=1)).sum())
        for x, my_law, their_law in distributions:
            p, q = my_law[left], their_law[right]
            p, q = p * q.sum(axis=1, keepdims=True), q * p.sum(axis=1, keepdims=True)
            a, b = x.numerator**2, x.denominator**2
            broken = np.flatnonzero(((a * p > b * q) | (a * q > b * p)).any(axis=1))
            found.broken += [(x, mine.users(left[i]), theirs.users(right[i])) for i in broken]
            found.worst = max(found.worst, float(np.abs(np.log(p / q)).max() / (-2 * math.log(x))))
