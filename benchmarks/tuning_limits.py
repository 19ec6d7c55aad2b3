"""The tuning benchmark's part `limits`: hard cases, beside mechanisms whose threshold was tuned on the law itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from accuracy import NOISE_SEED, Tuning
from contestants import Contestant, Drawn, OfExact, OfWinsorized
from draws import LAWS, RADIUS, Case
from page import number, with_error
from ratios import adjusted, median_ratio
from tuning_part import Column, Effort, Part
from tuning_runs import CASE_COLUMNS, HEAVY, LIGHT, RELEASED, Asked, Series, run_case

_SEED, _TUNING_SEED = 9, 10


def _cases() -> Iterator[tuple[Case, float]]:
    for users in (1_000, 10_000):
        for records in (1, 10, 100):
            yield Case(law="log-normal(2)", users=users, records=records, columns=1), 1.0
    for users in (3_000, 10_000):
        for law in ("Gaussian", *HEAVY):
            yield Case(law=law, users=users, records=10, columns=1), 0.1
    for law in (*LIGHT, *HEAVY):
        for records in (1, 10):
            yield Case(law=law, users=300, records=records, columns=1), 1.0


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A hard case.

    Attributes:
        ratio: mean squared error over sigma^2/(n m), with the luck of the draws taken out.
        median: the median squared error over the plain mean's.
        best: the least `ratio` of a mechanism that was told a radius and a threshold tuned on other draws.
        told: its name, and `factor` its threshold in deviations of a user mean.
    """

    law: str
    users: int
    records: int
    epsilon: float
    runs: int
    released: float
    refusal: str
    ratio: float
    error: float
    median: float
    median_error: float
    best: float
    best_error: float
    told: str
    factor: float


def limits(effort: Effort) -> Iterator[Limit]:
    for case, epsilon in _cases():
        series = Series(asked=Asked(epsilon=epsilon))
        run_case(case, [series], runs=effort.runs, seed=_SEED)
        errors, plain = series.of("error") ** 2, series.plain**2
        ratio, error = adjusted(errors, plain, 1.0, np.ones(len(errors)))
        median, median_error = median_ratio(errors, plain)
        best, best_error, told, factor = _best(case, epsilon, effort)
        yield Limit(
            law=case.law,
            users=case.users,
            records=case.records,
            epsilon=epsilon,
            runs=len(series.answers),
            released=series.released,
            refusal=series.refusal,
            ratio=ratio,
            error=error,
            median=median,
            median_error=median_error,
            best=best,
            best_error=best_error,
            told=told,
            factor=factor,
        )


def _best(case: Case, epsilon: float, effort: Effort) -> tuple[float, float, str, float]:
    """The least error of a tuned mechanism, with its standard error, its name and its threshold."""
    generator = np.random.default_rng([_TUNING_SEED, case.users, case.records, list(LAWS).index(case.law)])
    data = [Drawn.of(*case.draw(generator)) for _ in range(effort.tuning)]
    contestants: list[Contestant] = [
        kind(data[0], case.spread, delta=0.0, seed=NOISE_SEED, epsilon=epsilon)
        for kind in (OfWinsorized, OfExact)
    ]
    tuned = [(contestant, Tuning(contestant, data).best()) for contestant in contestants]
    fresh = [Drawn.of(*case.draw(generator)) for _ in range(max(effort.runs // 2, 2))]
    plain = np.array([one.plain_error for one in fresh])
    unit = case.spread**2 / case.users
    found = []
    for contestant, choices in tuned:
        errors = np.array([contestant.judge(choices, one).error for one in fresh])
        ratio, error = adjusted(errors, plain, unit, np.ones(len(errors)))
        found.append((ratio, error, contestant.name, choices.factor))
    return min(found)


def _says(found: Sequence[Limit]) -> Iterable[str]:
    for what, group in (
        ("log-normal(2)", [one for one in found if one.law == "log-normal(2)"]),
        ("epsilon = 0.1", [one for one in found if one.epsilon == 0.1]),
        ("300 users", [one for one in found if one.users == 300]),
    ):
        answered = [one for one in group if math.isfinite(one.ratio)]
        if not answered:
            yield f"{what}: nothing was released."
            continue
        worst = max(answered, key=lambda one: one.ratio / one.best)
        yield (
            f"{what}: {number(min(one.ratio for one in answered))} to {number(max(one.ratio for one in answered))} "
            f"times the plain mean's error, at most {number(worst.ratio / worst.best)} times that of a threshold "
            f"tuned on the law itself; {len(group) - len(answered)} of {len(group)} cases are refused."
        )


LIMITS = Part(
    name="limits",
    title="Hard cases",
    notes=f"""
Without target: tails of which even the plain mean of a thousand users tells little, a tenth of the budget, few users.
`best` is the lesser error of `winsorized` and `exact` with a threshold tuned on separate draws of the very law, as on
the page [accuracy.md](accuracy.md), and the radius {RADIUS:g} told: what nobody can know beforehand. `T` is that
threshold in deviations of a user mean.""",
    columns=[
        *CASE_COLUMNS,
        Column(heading="epsilon", cell=lambda row: f"{row.epsilon:g}"),
        Column(heading="ratio", cell=lambda row: with_error(row.ratio, row.error), width=15),
        Column(heading="best", cell=lambda row: with_error(row.best, row.best_error), width=14),
        Column(heading="by", cell=lambda row: row.told, width=10, left=True),
        Column(heading="T", cell=lambda row: f"{row.factor:.2g}", width=4),
        Column(heading="medians", cell=lambda row: with_error(row.median, row.median_error), width=14),
        RELEASED,
    ],
    rows=limits,
    says=_says,
)
