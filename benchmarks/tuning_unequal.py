"""The tuning benchmark's part `unequal`: a few users hold most of the records, and users differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from draws import RADIUS, Floats
from page import number, with_error
from ratios import adjusted, mean_and_error, median_ratio, paired_ratio
from tuning_part import Column, Effort, Part
from tuning_runs import COVERAGE, RELEASED, Asked, Series

USERS = (2_000, 10_000)
LARGEST_SHARE = 0.2  # of all records, with one user
CORRELATIONS = (0.0, 0.2, 0.8)
WAYS = (
    ("record, private counts", Asked(per="record")),
    ("record, public counts", Asked(per="record", neighbors="replace-values")),
    ("user", Asked(per="user")),
)
_SEED = 13


def zipf_counts(users: int) -> np.ndarray:
    """Records by rank, rank^-a, from one record upward, with the power at which the first holds its share of all."""
    ranks = np.arange(1.0, users + 1.0)
    power = brentq(lambda a: float(np.sum(ranks**-a)) - 1.0 / LARGEST_SHARE, 0.1, 5.0)
    counts: np.ndarray = np.rint((users / ranks) ** power).astype(np.int64)
    return counts


@dataclass(frozen=True, kw_only=True)
class Unequal:
    """One way of asking; squared errors against the true mean, ratios with their standard errors.

    Attributes:
        correlation: of two records of one user; a record is a user's effect and noise, together of deviation 1.
        distance: the root mean squared error, in deviations of a record.
        same_kind: over the non-private mean with the same weights, capped where the release says so.
        same_kind_median: the same of medians.
        plain: over the plain mean of all records.
        from_plain: the root mean squared distance from that plain mean, in deviations of a record.
        cap: the median of the records a user counted for at most; infinite where the release tells none.
    """

    users: int
    correlation: float
    way: str
    runs: int
    released: float
    refusal: str
    distance: float
    distance_error: float
    same_kind: float
    same_kind_error: float
    same_kind_median: float
    same_kind_median_error: float
    plain: float
    plain_error: float
    from_plain: float
    from_plain_error: float
    cap: float
    coverage: float
    coverage_error: float


def unequal(effort: Effort) -> Iterator[Unequal]:
    for users in USERS:
        counts = zipf_counts(users)
        for correlation in CORRELATIONS:
            yield from _run(counts, correlation, effort.runs)


def _run(counts: np.ndarray, correlation: float, runs: int) -> Iterator[Unequal]:
    generator = np.random.default_rng([_SEED, len(counts), round(100 * correlation)])
    variances = correlation + (1.0 - correlation) / counts
    series = [Series(asked=asked) for _, asked in WAYS]
    same_kind: list[list[float]] = [[] for _ in WAYS]
    for _ in range(runs):
        truth = generator.uniform(-RADIUS / 2, RADIUS / 2)
        deviations = np.sqrt(variances) * generator.standard_normal(len(counts))
        plain = float(np.average(deviations, weights=counts))
        for one, theirs in zip(series, same_kind, strict=True):
            answer = one.ask(truth + deviations, counts, truth, unit=1.0, plain=plain)
            if answer is not None:
                weights = np.minimum(counts, answer.record_cap if one.asked.per == "record" else 1)
                theirs.append(float(np.average(deviations, weights=weights)))
    plain_variance = float(np.sum(counts**2 * variances) / np.sum(counts) ** 2)
    for (way, _), one, theirs in zip(WAYS, series, same_kind, strict=True):
        yield _row(len(counts), correlation, way, one, np.array(theirs), plain_variance)


def _row(
    users: int, correlation: float, way: str, series: Series, same_kind: Floats, plain_variance: float
) -> Unequal:
    errors, plain = series.of("error"), series.plain
    even, nothing = np.ones(len(errors)), (math.nan, math.nan)
    answered = len(errors) > 1
    distance, distance_error = _root_mean_square(errors) if answered else nothing
    from_plain, from_plain_error = _root_mean_square(errors - plain) if answered else nothing
    ratio, ratio_error = paired_ratio(errors**2, same_kind**2, even) if answered else nothing
    median, median_error = median_ratio(errors**2, same_kind**2)
    over_plain, over_plain_error = adjusted(errors**2, plain**2, plain_variance, even)
    coverage, coverage_error = series.coverage
    return Unequal(
        users=users,
        correlation=correlation,
        way=way,
        runs=len(series.answers),
        released=series.released,
        refusal=series.refusal,
        distance=distance,
        distance_error=distance_error,
        same_kind=ratio,
        same_kind_error=ratio_error,
        same_kind_median=median,
        same_kind_median_error=median_error,
        plain=over_plain,
        plain_error=over_plain_error,
        from_plain=from_plain,
        from_plain_error=from_plain_error,
        cap=float(np.median(series.of("record_cap"))) if answered else math.nan,
        coverage=coverage,
        coverage_error=coverage_error,
    )


def _root_mean_square(values: Floats) -> tuple[float, float]:
    square, error = mean_and_error(values**2, np.ones(len(values)))
    root = math.sqrt(square)
    return root, error / (2.0 * root)


def _says(found: Sequence[Unequal]) -> Iterable[str]:
    for way, _ in WAYS:
        group = [one for one in found if one.way == way and math.isfinite(one.same_kind)]
        if not group:
            yield f"Per {way}: nothing was released where one user holds a fifth of all records."
            continue
        same, plain = ([getattr(one, name) for one in group] for name in ("same_kind", "plain"))
        yield (
            f"Per {way}, where one user holds a fifth of all records: {number(min(same))} to {number(max(same))} times "
            f"the error of the same mean without privacy, {number(min(plain))} to {number(max(plain))} times that of "
            f"the plain mean over all records."
        )


def _cap(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "-"


UNEQUAL = Part(
    name="unequal",
    title="Unequal users",
    notes="""
Records by rank follow a power law in which one user holds a fifth of them and the last has one; records are Gaussian of
deviation 1, a user's effect plus noise, so that two records of a user are correlated. How many records a user has tells
nothing about the values, so every kind of mean has the same truth. `error` is the root mean squared one against it, in
deviations of a record; `same kind` the mean squared one over that of the non-private mean with the same, capped,
weights; `over plain` over that of the plain mean of all records; `from plain` the root mean squared distance from that
mean.""",
    columns=[
        Column(heading="n", cell=lambda row: f"{row.users:,}", width=6),
        Column(heading="correlation", cell=lambda row: f"{row.correlation:g}"),
        Column(heading="per", cell=lambda row: row.way, width=22, left=True),
        Column(heading="cap", cell=lambda row: _cap(row.cap), width=5),
        Column(heading="error", cell=lambda row: with_error(row.distance, row.distance_error), width=17),
        Column(
            heading="same kind", cell=lambda row: with_error(row.same_kind, row.same_kind_error), width=17
        ),
        Column(
            heading="medians",
            cell=lambda row: with_error(row.same_kind_median, row.same_kind_median_error),
            width=17,
        ),
        Column(heading="over plain", cell=lambda row: with_error(row.plain, row.plain_error), width=17),
        Column(
            heading="from plain", cell=lambda row: with_error(row.from_plain, row.from_plain_error), width=17
        ),
        COVERAGE,
        RELEASED,
    ],
    rows=unequal,
    says=_says,
)
