"""Users of partitions as points: how they are read, and the exact gradient at a center."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubermean.data.user_table import UserTable
from hubermean.huber.geometry import Geometry
from hubermean.mechanisms.contributions import UserPoints
from hubermean.types.request import Neighbors, Request

Array = NDArray[np.float64]


def reading(d: int, *, cap: int = 1, radius: float = 1e4) -> UserPoints:
    request = Request(
        columns=tuple(f"mean_{j}" for j in range(d)),
        epsilon=1.0,
        delta=1e-6,
        neighbors=Neighbors.ADD_REMOVE,
        per="record" if cap > 1 else "user",
    )
    geometry = Geometry.choose(threshold=1.0, radius=radius, dimension=d)
    return UserPoints(geometry=geometry, request=request, cap=cap)


def exact_gradient(table: UserTable, how: UserPoints, center: Array) -> float:
    """The norm of the gradient at the center: exactly for one column, else in long doubles."""
    points, weights = how.read(table)
    rows, masses = np.asarray(points), np.ones(len(points)) if weights is None else weights
    if rows.shape[1] == 1:
        at = Fraction(float(center[0]))
        clamped = (max(Fraction(-1), min(Fraction(1), at - Fraction(float(y)))) for y in rows[:, 0])
        return float(abs(sum(int(mass) * force for mass, force in zip(masses, clamped, strict=True))))
    away = center.astype(np.longdouble) - rows
    distance = np.sqrt((away * away).sum(axis=1))
    return float(np.sqrt(((away * (masses / np.maximum(distance, 1))[:, None]).sum(axis=0) ** 2).sum()))
