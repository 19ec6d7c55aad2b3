"""How far hostile users can move a release, computed from the honest data and public numbers (proofs/robustness.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi

from hubermean.huber.solver import huber_location
from hubermean.mechanisms.inverse_sensitivity.mechanism import PreparedInverseSensitivity
from hubermean.mechanisms.propose_test_release.mechanism import PreparedProposeTestRelease
from hubermean.types.request import Neighbors


@dataclass(frozen=True, kw_only=True, eq=False)
class Honest:
    """Honest users around their Huber location.

    Attributes:
        location: the Huber location, shape (d,).
        depths: how far inside the threshold each user lies, deepest first; negative outside.
        mass: the total weight of users at least that deep.
    """

    location: np.ndarray
    depths: np.ndarray
    mass: np.ndarray

    @classmethod
    def of(cls, means: np.ndarray, *, threshold: float, weights: np.ndarray | None = None) -> Honest:
        points = np.asarray(means, dtype=np.float64).reshape(len(means), -1)
        weights = np.ones(len(points)) if weights is None else weights
        location = np.asarray(huber_location(points, weights=weights, thresholds=threshold).point)
        depths = threshold - np.linalg.norm(points - location, axis=1)
        order = np.argsort(-depths)
        return cls(location=location, depths=depths[order], mass=np.cumsum(weights[order]))

    def shift(self, gradient: float) -> float:
        """How far from the location a point can be whose gradient is at most this; infinite if Lemma 1 has no r."""
        if gradient == 0.0:
            return 0.0
        held = np.flatnonzero(self.mass * self.depths > gradient)
        return gradient / float(self.mass[held[-1]]) if len(held) else math.inf

    def distance(self, values: np.ndarray | tuple[float, ...]) -> float:
        return float(np.linalg.norm(np.asarray(values) - self.location))


def gradient_of_exact(
    prepared: PreparedInverseSensitivity, *, users: int, hostile: int, failure: float
) -> float:
    """g of Theorem 2: the gradient that a release of `inverse-sensitivity` has, but for this chance of failure."""
    grid, spacing = prepared.grid, 2.0**prepared.grid.exponent
    influence = prepared.cap * grid.threshold * spacing
    factor = 1 if prepared.request.neighbors is Neighbors.ADD_REMOVE else 2
    noise = factor * noise_as_users(prepared, users=users, failure=failure)
    return (2 * hostile + noise) * influence + users * prepared.cap * spacing / 2.0


def noise_as_users(prepared: PreparedInverseSensitivity, *, users: int, failure: float) -> int:
    """j of Theorem 2: noise does no more than so many more hostile users would, but for this chance of failure."""
    grid, rate = prepared.grid, float(prepared.rate)
    step = 1 if prepared.request.neighbors is Neighbors.REPLACE_VALUES else prepared.cap
    common = max(1, round(1.0 / rate))  # t
    near = common * step * grid.threshold // (users * prepared.cap)  # L
    if near < 1:
        raise ValueError("the grid is too coarse for this bound")
    log_ratio = math.log((2 * grid.radius + 1) / near) + rate * common - math.log(failure)
    score = max(0, math.ceil(log_ratio / rate) - 1)
    if score >= prepared.n_levels:
        raise ValueError("the mechanism does not tell so many changes apart")
    return score


def gradient_of_tested(prepared: PreparedProposeTestRelease, *, total_weight: int, hostile: int) -> float:
    """g of Theorem 1: the gradient of the honest data at the computed center."""
    geometry = prepared.geometry
    return 2 * hostile * prepared.cap * geometry.threshold + geometry.gradient_rate * total_weight


def gaussian_length(stddev: float, dimension: int, failure: float) -> float:
    """The length that noise in so many columns exceeds with this chance; a little more, for the grid of the answers."""
    return stddev * float(chi.isf(failure, dimension)) * (1.0 + 1e-9)
