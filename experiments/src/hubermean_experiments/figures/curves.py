"""Error curves of a panel, their slopes in log-log scale, and the bounds of the paper's theorems.

The bounds leave out the theorems' constants: they describe how errors grow, not how large they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hubermean_experiments.figures.panels import DELTA, EPSILON, PANELS, RECORDS_PER_USER, SETTINGS, Panel
from hubermean_experiments.figures.rows import MeanEstimate, ResultRow
from hubermean_experiments.paper.constants import (
    bounded_users_suffice,
    heavy_tail_users_suffice,
    imbalanced_users_suffice,
    printed_constants,
)


def error_bound(panel: Panel, users: int, x: int, *, moment_order: float) -> float:
    """The bound of the panel's theorem on the mean squared error, with every constant and R set to 1.

    >>> from hubermean_experiments.figures.panels import PANELS
    >>> first, last = (error_bound(PANELS["1a"], 10_000, m, moment_order=math.inf) for m in (1, 1000))
    >>> round(math.log(last / first) / math.log(1000), 3)
    -0.999
    """
    match panel.theorem:
        case "mse":
            return bounded(users, x, panel.columns)
        case "heavytail":
            return heavy_tailed(users, x, panel.columns, moment_order)
        case "mseunb":
            return imbalanced(users, RECORDS_PER_USER * users, x, panel.columns)


def bound_over_non_private(panel: Panel, users: int, x: int, *, moment_order: float) -> float:
    """The bound divided by its first term, the non-private error, with every constant set to 1."""
    records = users * (x if panel.axis == "records" else RECORDS_PER_USER)
    return records * error_bound(panel, users, x, moment_order=moment_order)


def enough_users(panel: Panel, users: int, x: int) -> bool:
    """Whether the theorem's condition on n can hold, with R_c = T or T = 1; a larger radius needs more users."""
    beta = printed_constants(EPSILON, DELTA, dimension=panel.columns).beta
    match panel.theorem:
        case "mse":
            return bounded_users_suffice(users, radius=1.0, threshold=1.0, beta=beta)
        case "heavytail":
            return heavy_tail_users_suffice(users, threshold=1.0, beta=beta)
        case "mseunb":
            records = RECORDS_PER_USER * users
            return imbalanced_users_suffice(users, total_records=records, gamma=x, beta=beta)


def bounded(n: int, m: int, d: int) -> float:
    """Zhao et al. (2024), Thm mse, eq. mse."""
    noise = d / (m * n**2 * EPSILON**2) * math.log(m * n * d) * math.log(1.0 / DELTA)
    return 1.0 / (m * n) + noise


def heavy_tailed(n: int, m: int, d: int, p: float) -> float:
    """Zhao et al. (2024), Thm heavytail, eq. msetail."""
    body = d * math.log(n * d) / (m * n**2 * EPSILON**2)
    tail = math.pow(d / (m**2 * n**2 * EPSILON**2), 1.0 - 1.0 / p) * math.log(n * d) ** 2
    return 1.0 / (m * n) + (body + tail) * math.log(1.0 / DELTA)


def imbalanced(n: int, total: int, gamma: float, d: int) -> float:
    """Zhao et al. (2024), Thm mseunb, eq. mseunb."""
    noise = d * gamma / (total * n * EPSILON**2) * math.log(total * n * d) ** 2 * math.log(1.0 / DELTA)
    return 1.0 / total + noise


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The errors of one method in one setting with one number of users; points without a release are left out."""

    method: str
    setting: str
    users: int
    x: tuple[int, ...]
    mse: tuple[float, ...]
    errors: tuple[float, ...]
    ratios: tuple[float, ...]

    @classmethod
    def of(cls, rows: Iterable[ResultRow], *, method: str, setting: str, users: int) -> Curve:
        found = [
            (row.x, row.mse, row.mse_error, row.ratio)
            for row in rows
            if (row.method, row.setting, row.users) == (method, setting, users)
        ]
        kept = [
            (x, mse, error, ratio)
            for x, mse, error, ratio in found
            if mse is not None and error is not None and ratio is not None
        ]
        xs, mses, errors, ratios = zip(*kept, strict=True) if kept else ((), (), (), ())
        return cls(method=method, setting=setting, users=users, x=xs, mse=mses, errors=errors, ratios=ratios)

    def up_to(self, last: int) -> Curve:
        """The part of the curve with x at most `last`."""
        size = sum(x <= last for x in self.x)
        parts = {name: getattr(self, name)[:size] for name in ("x", "mse", "errors", "ratios")}
        return replace(self, **parts)

    def slope(self) -> MeanEstimate:
        """The slope of log error against log x, by least squares; standard error from those of the points."""
        return _slope(
            self.x, self.mse, [error / mse for error, mse in zip(self.errors, self.mse, strict=True)]
        )

    def over(self, other: Curve) -> MeanEstimate:
        """The ratio of errors to the other curve, as a geometric mean over common points."""
        mine = {x: (mse, error) for x, mse, error in zip(self.x, self.mse, self.errors, strict=True)}
        theirs = {x: (mse, error) for x, mse, error in zip(other.x, other.mse, other.errors, strict=True)}
        common = [x for x in self.x if x in theirs]
        if not common:
            return MeanEstimate(value=math.nan, error=math.nan)
        logs = [math.log(mine[x][0] / theirs[x][0]) for x in common]
        squares = [(mine[x][1] / mine[x][0]) ** 2 + (theirs[x][1] / theirs[x][0]) ** 2 for x in common]
        value = math.exp(sum(logs) / len(common))
        return MeanEstimate(value=value, error=value * math.sqrt(sum(squares)) / len(common))

    def growth(self) -> MeanEstimate:
        """The error at the last x divided by the error at the first."""
        if len(self.x) < 2:
            return MeanEstimate(value=math.nan, error=math.nan)
        value = self.mse[-1] / self.mse[0]
        relative = math.hypot(self.errors[-1] / self.mse[-1], self.errors[0] / self.mse[0])
        return MeanEstimate(value=value, error=value * relative)


def theorem_curve(panel: Panel, users: int, xs: Sequence[int], *, moment_order: float) -> Curve:
    """The bound of the theorem as a curve; only its slope has a meaning."""
    heights = tuple(error_bound(panel, users, x, moment_order=moment_order) for x in xs)
    return Curve(
        method="theorem",
        setting="",
        users=users,
        x=tuple(xs),
        mse=heights,
        errors=(0.0,) * len(heights),
        ratios=(math.nan,) * len(heights),
    )


def slope_in_users(few: Curve, many: Curve) -> MeanEstimate:
    """The slope of log error against log n between two numbers of users, averaged over common points."""
    distance = math.log(many.users / few.users)
    over = many.over(few)
    return MeanEstimate(value=math.log(over.value) / distance, error=over.relative / distance)


def _slope(xs: Sequence[float], values: Sequence[float], relative: Sequence[float]) -> MeanEstimate:
    if len(xs) < 2:
        return MeanEstimate(value=math.nan, error=math.nan)
    logs = np.log(np.array(xs, dtype=float))
    centered = logs - logs.mean()
    weights = centered / float(centered @ centered)
    return MeanEstimate(
        value=float(weights @ np.log(values)), error=float(np.sqrt(weights**2 @ np.array(relative) ** 2))
    )


@dataclass(frozen=True, kw_only=True)
class Results:
    """The rows of all panels. `moment_orders` holds p of Theorem heavytail for each distribution."""

    rows: Mapping[str, Sequence[ResultRow]] = field(repr=False)
    moment_orders: Mapping[str, float]

    @property
    def panels(self) -> list[Panel]:
        """The panels that were run, in the paper's order."""
        return [panel for name, panel in PANELS.items() if self.rows.get(name)]

    def has(self, *names: str) -> bool:
        return all(self.rows.get(name) for name in names)

    def users(self, panel: str) -> list[int]:
        return sorted({row.users for row in self.rows[panel]})

    def methods(self, panel: str) -> list[str]:
        """The methods of a panel, in the order of its rows."""
        return list(dict.fromkeys(row.method for row in self.rows[panel]))

    def curve(self, panel: str, method: str, setting: str, users: int) -> Curve:
        return Curve.of(self.rows[panel], method=method, setting=setting, users=users)

    def theorem(self, panel: str, users: int) -> Curve:
        xs = sorted({row.x for row in self.rows[panel] if row.users == users})
        one = PANELS[panel]
        return theorem_curve(one, users, xs, moment_order=self.moment_orders[one.distribution])

    def all_rows(self) -> Iterator[ResultRow]:
        for panel in self.panels:
            yield from self.rows[panel.name]


@dataclass(frozen=True, kw_only=True)
class Slope:
    """A slope in log-log scale and that of the theorem's bound; only for curves with all points."""

    panel: str
    variable: str
    setting: str
    users: str
    theorem: str
    bound: float
    found: Mapping[str, MeanEstimate]


def fit_slopes(results: Results) -> Iterator[Slope]:
    """Fit the slopes of every panel: in m or gamma for each number of users, and in n between two of them."""
    for panel in results.panels:
        for setting in SETTINGS:
            numbers = results.users(panel.name)
            theorem = {users: results.theorem(panel.name, users) for users in numbers}
            found = {
                users: _complete_curves(results, panel.name, setting.name, theorem[users])
                for users in numbers
            }
            for users in numbers:
                yield Slope(
                    panel=panel.name,
                    variable="m" if panel.axis == "records" else "gamma",
                    setting=setting.name,
                    users=f"{users:,}",
                    theorem=panel.theorem,
                    bound=theorem[users].slope().value,
                    found={name: curve.slope() for name, curve in found[users].items()},
                )
            for few, many in itertools.pairwise(numbers):
                both = [name for name in found[few] if name in found[many]]
                yield Slope(
                    panel=panel.name,
                    variable="n",
                    setting=setting.name,
                    users=f"{few:,} to {many:,}",
                    theorem=panel.theorem,
                    bound=slope_in_users(theorem[few], theorem[many]).value,
                    found={name: slope_in_users(found[few][name], found[many][name]) for name in both},
                )


def _complete_curves(results: Results, panel: str, setting: str, theorem: Curve) -> dict[str, Curve]:
    """The curves with all points: slopes over different points cannot be compared."""
    curves = {name: results.curve(panel, name, setting, theorem.users) for name in results.methods(panel)}
    return {name: curve for name, curve in curves.items() if curve.x == theorem.x}
