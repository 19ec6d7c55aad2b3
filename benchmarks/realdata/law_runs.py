"""MSE over the plain mean's on simulated laws, with defaults only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from common.ratios import paired_ratio
from hubermean.mechanisms.base import Outcome
from hubermean.noise.seeded import InsecureSeededNoise
from realdata.laws import LAWS, SimulatedLaw
from realdata.releases import intervals, release_often, share_warned
from realdata.tables import Floats

SIZES = (300, 1_000, 10_000)
PLACES = {
    "as is": (0.0, 1.0),
    "shifted by 1e6": (1e6, 1.0),
    "scaled by 1e-6": (0.0, 1e-6),
    "scaled by 1e6": (0.0, 1e6),
}
"""Shift, and scale afterwards."""
TRUTH_WITHIN = 50.0
FAR = 20.0


@dataclass(frozen=True, kw_only=True)
class LawResult:
    """What releases of simulated data sets add up to.

    Attributes:
        ratio, ratio_error: mean squared error over the plain mean's on the same data sets, and its standard error.
        medians: the same for median squared errors.
        far: share further than 20 standard errors of the plain mean from the true mean.
        coverage: share of 95% intervals that hold the true mean.
        width: median width over that of an interval of +-1.96 times the RMSE of the releases.
    """

    law: str
    users: int
    neighbors: str
    place: str
    runs: int
    released: float
    ratio: float
    ratio_error: float
    medians: float
    far: float
    coverage: float
    width: float
    warned: float


def measure_law(law: SimulatedLaw, users: int, neighbors: str, place: str, runs: int, seed: int) -> LawResult:
    generator, noise = np.random.default_rng(seed), InsecureSeededNoise(seed)
    shift, scale = PLACES[place]
    outcomes: list[Outcome] = []
    errors, plain, held, widths = [], [], [], []
    for _ in range(runs):
        offset = generator.uniform(-TRUTH_WITHIN, TRUTH_WITHIN) + shift
        means, truth = scale * (law.draw(generator, users) + offset), scale * (law.mean + offset)
        plain.append(means.mean() - truth)
        for outcome in release_often(means, None, 1, noise, epsilon=1.0, neighbors=neighbors):
            outcomes.append(outcome)
            errors.append(outcome.values[0] - truth)
            one_held, half_width = intervals([outcome], truth)
            held.append(one_held[0])
            widths.append(2.0 * half_width[0])
    return _result(
        np.array(errors),
        np.array(plain),
        unit=scale * law.deviation / math.sqrt(users),
        held=np.array(held),
        widths=np.array(widths),
        warned=share_warned(outcomes),
        words={"law": law.name, "users": users, "neighbors": neighbors, "place": place},
    )


def _result(
    errors: Floats,
    plain: Floats,
    *,
    unit: float,
    held: Floats,
    widths: Floats,
    warned: float,
    words: dict[str, object],
) -> LawResult:
    runs = len(plain)
    if len(errors) < 2:
        return LawResult(
            **words,  # type: ignore[arg-type]
            runs=runs,
            released=len(errors) / runs,
            **dict.fromkeys(
                ("ratio", "ratio_error", "medians", "far", "coverage", "width", "warned"), math.nan
            ),
        )
    squares, plain_squares = errors**2, plain**2
    if len(errors) == runs:
        ratio, ratio_error = paired_ratio(squares, plain_squares, np.ones(runs))
    else:
        ratio = float(squares.mean() / plain_squares.mean())
        ratio_error = float(squares.std(ddof=1) / math.sqrt(len(errors)) / plain_squares.mean())
    return LawResult(
        **words,  # type: ignore[arg-type]
        runs=runs,
        released=len(errors) / runs,
        ratio=ratio,
        ratio_error=ratio_error,
        medians=float(np.median(squares) / np.median(plain_squares)),
        far=float((np.abs(errors) > FAR * unit).mean()),
        coverage=float(held.mean()),
        width=float(np.median(widths) / (2.0 * 1.96 * math.sqrt(squares.mean()))),
        warned=warned,
    )


@dataclass(frozen=True, kw_only=True)
class ColumnsResult:
    """Several columns of one law, released together."""

    law: str
    columns: int
    users: int
    delta: float
    neighbors: str
    runs: int
    released: float
    ratio: float
    ratio_error: float


def measure_columns(
    neighbors: str, runs: int, seed: int, *, columns: int = 3, users: int = 10_000, delta: float = 1e-6
) -> ColumnsResult:
    """Mean squared error over all columns over the plain means'."""
    law = LAWS["Lomax(4)"]
    generator, noise = np.random.default_rng(seed), InsecureSeededNoise(seed)
    errors, plain, released = [], [], 0
    for _ in range(runs):
        truth = generator.uniform(-TRUTH_WITHIN, TRUTH_WITHIN, columns)
        means = law.draw(generator, users * columns).reshape(users, columns) - law.mean + truth
        for outcome in release_often(means, None, 1, noise, epsilon=1.0, delta=delta, neighbors=neighbors):
            released += 1
            errors.append(((np.array(outcome.values) - truth) ** 2).sum())
            plain.append(((means.mean(axis=0) - truth) ** 2).sum())
    ratio, ratio_error = (
        paired_ratio(np.array(errors), np.array(plain), np.ones(released))
        if released > 1
        else (math.nan, math.nan)
    )
    return ColumnsResult(
        law=law.name,
        columns=columns,
        users=users,
        delta=delta,
        neighbors=neighbors,
        runs=runs,
        released=released / runs,
        ratio=ratio,
        ratio_error=ratio_error,
    )
