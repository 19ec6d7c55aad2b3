"""Curves through the rows of a panel, their slopes in double logarithms, and how one lies to another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hubermean.reproduce.figures.estimate import Estimate
from hubermean.reproduce.figures.panels import Panel
from hubermean.reproduce.figures.point import Row
from hubermean.reproduce.figures.theory import bound


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One method in one setting with so many users; points where it cannot serve are left out."""

    method: str
    setting: str
    users: int
    x: tuple[int, ...]
    mse: tuple[float, ...]
    errors: tuple[float, ...]
    ratios: tuple[float, ...]

    @classmethod
    def of(cls, rows: Iterable[Row], *, method: str, setting: str, users: int) -> Curve:
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
        """Its first part."""
        size = sum(x <= last for x in self.x)
        parts = {name: getattr(self, name)[:size] for name in ("x", "mse", "errors", "ratios")}
        return replace(self, **parts)

    def slope(self) -> Estimate:
        """Of log error against log x, by least squares; its standard error comes from those of the points."""
        return _slope(
            self.x, self.mse, [error / mse for error, mse in zip(self.errors, self.mse, strict=True)]
        )

    def over(self, other: Curve) -> Estimate:
        """How many times the other's error, as a geometric mean over the points that both have."""
        mine = {x: (mse, error) for x, mse, error in zip(self.x, self.mse, self.errors, strict=True)}
        theirs = {x: (mse, error) for x, mse, error in zip(other.x, other.mse, other.errors, strict=True)}
        common = [x for x in self.x if x in theirs]
        if not common:
            return Estimate(value=math.nan, error=math.nan)
        logs = [math.log(mine[x][0] / theirs[x][0]) for x in common]
        squares = [(mine[x][1] / mine[x][0]) ** 2 + (theirs[x][1] / theirs[x][0]) ** 2 for x in common]
        value = math.exp(sum(logs) / len(common))
        return Estimate(value=value, error=value * math.sqrt(sum(squares)) / len(common))

    def growth(self) -> Estimate:
        """The error at the last x over that at the first."""
        if len(self.x) < 2:
            return Estimate(value=math.nan, error=math.nan)
        value = self.mse[-1] / self.mse[0]
        relative = math.hypot(self.errors[-1] / self.mse[-1], self.errors[0] / self.mse[0])
        return Estimate(value=value, error=value * relative)


def theorem_curve(panel: Panel, users: int, xs: Sequence[int], *, moment_order: float) -> Curve:
    """The theorem's bound as a curve; its height has no meaning."""
    heights = tuple(bound(panel, users, x, moment_order=moment_order) for x in xs)
    return Curve(
        method="theorem",
        setting="",
        users=users,
        x=tuple(xs),
        mse=heights,
        errors=(0.0,) * len(heights),
        ratios=(math.nan,) * len(heights),
    )


def slope_in_users(few: Curve, many: Curve) -> Estimate:
    """Of log error against log n, between two numbers of users, averaged over the points that both have."""
    distance = math.log(many.users / few.users)
    over = many.over(few)
    return Estimate(value=math.log(over.value) / distance, error=over.relative / distance)


def _slope(xs: Sequence[float], values: Sequence[float], relative: Sequence[float]) -> Estimate:
    if len(xs) < 2:
        return Estimate(value=math.nan, error=math.nan)
    logs = np.log(np.array(xs, dtype=float))
    centred = logs - logs.mean()
    weights = centred / float(centred @ centred)
    return Estimate(
        value=float(weights @ np.log(values)), error=float(np.sqrt(weights**2 @ np.array(relative) ** 2))
    )
