"""PipelineDP's and OpenDP's means by group, with value bounds and contribution bounds that are given.

Both libraries keep a random choice of at most `max_groups` groups of a user and of at most `max_records` records of a
user in a group, clamp values, and add noise to a count and a sum per group, each with half of the budget. Their steps
are computed here in NumPy, over all runs at once; noise comes from a seeded generator, so nothing here is a release.

- PipelineDP 0.3.1 (`DPEngine.aggregate`, `Metrics.MEAN`, `NaiveBudgetAccountant`, public partitions): the sum is of
  distances from the middle of the bounds, divided by max(1, count). Laplace noise, or Gaussian with half of delta.
- OpenDP 0.16 (Polars `group_by(...).agg(dp.len(), ...dp.sum(bounds))` with `truncate_num_groups` and
  `truncate_per_group`): the sum is of the values as they are; the caller divides. Laplace noise, or Gaussian under
  zero-concentrated differential privacy, converted at delta.

In favor of both, means are clamped to the bounds afterwards, and the contribution bounds called right, and the kind of
noise, are those with the least error in hindsight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from groups.measures import Measured, Released, large_groups, summarize
from groups.tables import Floats, GroupTable, Indices
from hubermean.accounting import gaussian_alpha

Generator = np.random.Generator
PIPELINEDP, OPENDP = "PipelineDP", "OpenDP"
RIGHT, WIDE_BOUNDS, WIDE_CONTRIBUTIONS, WIDE = (
    "right bounds",
    "bounds x 10",
    "contributions x 10",
    "all x 10",
)
TENFOLD = 10
_TRIED = (1, 2, 3, 5, 8, 12, 20, 35, 60, 100, 200, 500)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What the caller gives: bounds of a value, how much of a user counts, and the kind of noise."""

    low: float
    high: float
    max_groups: int
    max_records: int
    gaussian: bool

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2.0

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2.0

    def wider(self, table: GroupTable, *, values: bool, contributions: bool) -> Bounds:
        """Ten times as much; of groups, no more than there are, which is public."""
        times, more = TENFOLD if values else 1, TENFOLD if contributions else 1
        return replace(
            self,
            low=self.middle - times * self.half,
            high=self.middle + times * self.half,
            max_groups=min(more * self.max_groups, table.n_groups),
            max_records=more * self.max_records,
        )


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Standard deviations of the noise on each group's count and sum."""

    count: float
    sum: float


def _draw(generator: Generator, bounds: Bounds, stddev: float, shape: tuple[int, ...]) -> Floats:
    if bounds.gaussian:
        return generator.normal(0.0, stddev, shape)
    return generator.laplace(0.0, stddev / math.sqrt(2.0), shape)


def pipelinedp_noise(bounds: Bounds, epsilon: float, delta: float) -> Noise:
    """Half of epsilon and of delta for the count, half for the sum around the middle of the bounds."""
    if bounds.gaussian:
        unit = math.sqrt(bounds.max_groups) * bounds.max_records / gaussian_alpha(epsilon / 2.0, delta / 2.0)
    else:
        unit = math.sqrt(2.0) * bounds.max_groups * bounds.max_records / (epsilon / 2.0)
    return Noise(count=unit, sum=unit * bounds.half)


def opendp_noise(bounds: Bounds, epsilon: float, delta: float) -> Noise:
    """Half of epsilon, or of rho, for the count, half for the sum of values up to the larger bound."""
    if bounds.gaussian:
        rho = concentrated(epsilon, delta) / 2.0
        unit = math.sqrt(bounds.max_groups) * bounds.max_records / math.sqrt(2.0 * rho)
    else:
        unit = math.sqrt(2.0) * bounds.max_groups * bounds.max_records / (epsilon / 2.0)
    return Noise(count=unit, sum=unit * max(abs(bounds.low), abs(bounds.high)))


def concentrated(epsilon: float, delta: float) -> float:
    """The largest rho that implies (epsilon, delta): Canonne, Kamath & Steinke (2020), Proposition 7."""
    low, high = 0.0, epsilon
    for _ in range(100):
        rho = (low + high) / 2.0
        low, high = (rho, high) if _concentrated_delta(rho, epsilon) <= delta else (low, rho)
    return low


def _concentrated_delta(rho: float, epsilon: float) -> float:
    if rho == 0.0:
        return 0.0
    order = 1.0 + np.geomspace(1e-3, 1e5, 20_000)
    logs = (order - 1.0) * (order * rho - epsilon) + (order - 1.0) * np.log1p(-1.0 / order) - np.log(order)
    return float(np.exp(min(0.0, logs.min())))


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Records, or user means of a group, with their places in a random order.

    Attributes:
        groups, values: one entry per record.
        group_rank: the place of the record's group among its user's groups, from 0.
        record_rank: the place of the record among those of its user in its group, from 0.
    """

    groups: Indices
    values: Floats
    group_rank: Indices
    record_rank: Indices

    @classmethod
    def of(cls, table: GroupTable, per: str, generator: Generator) -> Ranked:
        group_rank = _rank_within(table.users, generator)
        if per == "user":
            means = table.sums / table.counts
            return cls(
                groups=table.groups,
                values=means,
                group_rank=group_rank,
                record_rank=np.zeros_like(group_rank),
            )
        width = table.n_groups
        cells = np.searchsorted(
            table.users * width + table.groups, table.record_users * width + table.record_groups
        )
        return cls(
            groups=table.record_groups,
            values=table.record_values,
            group_rank=group_rank[cells],
            record_rank=_rank_within(cells, generator),
        )

    def sums(self, bounds: Bounds, n_groups: int, *, around: float) -> tuple[Floats, Floats]:
        """Counts and sums per group, within the bounds."""
        kept = (self.group_rank < bounds.max_groups) & (self.record_rank < bounds.max_records)
        values = np.clip(self.values[kept], bounds.low, bounds.high) - around
        groups = self.groups[kept]
        return np.bincount(groups, minlength=n_groups).astype(float), np.bincount(groups, values, n_groups)

    def sums_by_limits(
        self, group_limits: list[int], record_limits: list[int], n_groups: int
    ) -> tuple[Floats, Floats]:
        """Counts and sums per group for each pair of contribution bounds, without clamping."""
        shape = len(group_limits) + 1, len(record_limits) + 1, n_groups
        # The first limit that keeps a record; those that none keeps go into a place of their own.
        first = (
            np.searchsorted(group_limits, self.group_rank, side="right"),
            np.searchsorted(record_limits, self.record_rank, side="right"),
            self.groups,
        )
        places = np.ravel_multi_index(first, shape)
        counts, sums = (
            np.bincount(places, weights, math.prod(shape)).reshape(shape).cumsum(axis=0).cumsum(axis=1)
            for weights in (None, self.values)
        )
        return counts.astype(float), sums


def _rank_within(owners: Indices, generator: Generator) -> Indices:
    """Each entry's place, from 0, among those with the same owner, in a random order."""
    order = np.lexsort((generator.random(len(owners)), owners))
    ordered = owners[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.append(starts, len(owners)))
    ranks = np.empty(len(owners), dtype=np.int64)
    ranks[order] = np.arange(len(owners)) - np.repeat(starts, lengths)
    return ranks


_LIBRARIES = {PIPELINEDP: pipelinedp_noise, OPENDP: opendp_noise}


def noise_of(library: str, bounds: Bounds, epsilon: float, delta: float) -> Noise:
    """The noise that a library adds to the count and the sum of each group."""
    return _LIBRARIES[library](bounds, epsilon, delta)


def center_of(library: str, bounds: Bounds) -> float:
    """What is subtracted from each value before it is summed."""
    return bounds.middle if library == PIPELINEDP else 0.0


def release_often(
    library: str, samples: list[Ranked], bounds: Bounds, n_groups: int, generator: Generator, **budget: float
) -> Released:
    """Ten releases of each of the samples of records."""
    noise = noise_of(library, bounds, **budget)
    center, shape = center_of(library, bounds), (10, n_groups)
    found = []
    for sample in samples:
        counts, sums = sample.sums(bounds, n_groups, around=center)
        counts = counts + _draw(generator, bounds, noise.count, shape)
        sums = sums + _draw(generator, bounds, noise.sum, shape)
        found.append(np.clip(center + sums / np.maximum(counts, 1.0), bounds.low, bounds.high))
    return Released.without_intervals(np.concatenate(found))


def right_bounds(table: GroupTable, per: str, library: str, sample: Ranked, **budget: float) -> Bounds:
    """The smallest and the largest value; contribution bounds and kind of noise with the least error in hindsight."""
    low, high = float(sample.values.min()), float(sample.values.max())
    truth = table.plain_means(per)
    large = large_groups(table) & (truth != 0.0)
    group_limits = _up_to(int(table.groups_per_user.max()))
    record_limits = _up_to(int(table.counts.max())) if per == "record" else [1]
    counts, sums = sample.sums_by_limits(group_limits, record_limits, table.n_groups)

    def error(bounds: Bounds) -> float:
        """To first order in the noise."""
        noise = noise_of(library, bounds, **budget)
        center = center_of(library, bounds)
        place = group_limits.index(bounds.max_groups), record_limits.index(bounds.max_records)
        kept = np.maximum(counts[place], 1.0)[large]
        means = (sums[place][large] - center * counts[place][large]) / kept
        spread = np.hypot(noise.sum, means * noise.count) / kept
        return float(np.median(np.hypot(center + means - truth[large], spread) / np.abs(truth[large])))

    tried = [
        Bounds(low=low, high=high, max_groups=max_groups, max_records=max_records, gaussian=gaussian)
        for gaussian in ([True, False] if budget["delta"] > 0.0 else [False])
        for max_groups in group_limits
        for max_records in record_limits
    ]
    return min(tried, key=error)


def _up_to(most: int) -> list[int]:
    return sorted({min(number, most) for number in _TRIED})


def measure_libraries(
    table: GroupTable, *, per: str, epsilon: float, delta: float, runs: int, seed: int
) -> Iterator[Measured]:
    generator = np.random.default_rng(seed)
    budget = {"epsilon": epsilon, "delta": delta}
    samples = [Ranked.of(table, per, generator) for _ in range(max(1, runs // 10))]
    for library in _LIBRARIES:
        right = right_bounds(table, per, library, Ranked.of(table, per, generator), **budget)
        for name, values, contributions in (
            (RIGHT, False, False),
            (WIDE_BOUNDS, True, False),
            (WIDE_CONTRIBUTIONS, False, True),
            (WIDE, True, True),
        ):
            # Of user means there is one per user and group, whatever the caller allows.
            bounds = right.wider(table, values=values, contributions=contributions)
            if per == "user":
                bounds = replace(bounds, max_records=1)
            yield summarize(
                table,
                release_often(library, samples, bounds, table.n_groups, generator, **budget),
                contestant=f"{library}, {name}",
                setting=f"[{bounds.low:.3g}, {bounds.high:.3g}], max_groups = {bounds.max_groups}, "
                f"max_records = {bounds.max_records}, {'Gaussian' if bounds.gaussian else 'Laplace'}",
                per=per,
                epsilon=epsilon,
                delta=delta,
            )
