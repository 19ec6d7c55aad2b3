"""Neighbor pairs for `smooth-sensitivity`, and what must hold for each of them; no test here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hubermean.accounting.smooth_sensitivity import calibrate_smooth_noise
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.smooth_sensitivity import mechanism as smooth
from hubermean.mechanisms.smooth_sensitivity.mechanism import PreparedSmoothSensitivity, SmoothSensitivity
from hubermean.types.request import Neighbors, PublicFacts, Request

Array = NDArray[np.float64]
T = 1.0  # every dataset is in units of the threshold


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """User means (NaN: no usable record) and the number of records behind each."""

    means: Array
    counts: NDArray[np.int64]

    def table(self) -> UserTable:
        return UserTable.from_means(self.means, self.counts)

    def request(self, relation: Neighbors, *, cap: int, epsilon: float, delta: float) -> Request:
        """Per record where there is a cap to speak of."""
        return Request(
            columns=tuple(f"mean_{j}" for j in range(self.means.shape[1])),
            epsilon=epsilon,
            delta=delta,
            neighbors=relation,
            per="record" if cap > 1 else "user",
        )

    def without(self, user: int) -> Dataset:
        return Dataset(means=np.delete(self.means, user, axis=0), counts=np.delete(self.counts, user))

    def with_user(self, mean: Array, count: int) -> Dataset:
        return Dataset(means=np.vstack([self.means, mean]), counts=np.append(self.counts, count))


FAMILIES = ("tails", "edge", "two", "ties", "tight", "flat", "springs", "border", "layers")


def make_dataset(rng: np.random.Generator, family: str, n: int, d: int, *, cap: int = 1) -> Dataset:
    """A data set of a named shape: each aims at another way in which a sensitivity bound can fail."""
    direction = rng.normal(size=(n, d))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    sign = rng.choice([-1.0, 1.0], n)
    axis = np.eye(d)[0]
    match family:
        case "tails":
            means = rng.standard_cauchy((n, d)) * rng.choice([0.05, 0.3, 2.0])
        case "edge":  # everyone just inside or just outside the threshold of a common center
            means = direction * (1.0 + rng.choice([-1, 1], (n, 1)) * 10.0 ** rng.uniform(-16, -1, (n, 1)))
        case "two":
            means = sign[:, None] * rng.uniform(0.3, 2.5) * axis + rng.normal(size=(n, d)) * 0.02
        case "ties":
            means = rng.integers(-2, 3, (n, d)) * rng.choice([0.25, 0.5, 1.0])
        case "tight":
            means = rng.normal(size=(n, d)) * 0.01
            means[: max(1, n // 20)] += rng.choice([-50.0, 50.0]) * axis
        case "flat":  # nobody quadratic near the center
            means = sign[:, None] * rng.uniform(1.5, 50.0) * axis
        case "springs":  # a few near the center hold many far away in balance
            means = sign[:, None] * 1.5 * axis
            few = max(1, n // rng.integers(2, 8))
            means[:few] = rng.normal(size=(few, d)) * 0.1
        case "border":  # around the clip ball's surface
            means = rng.normal(size=(n, d)) * 0.1 + rng.uniform(4.0, 6.0) * axis
        case "layers":  # depths spread evenly, so that every k is decided by another user
            means = direction * np.linspace(0.0, 1.2, n)[:, None]
        case _:
            raise ValueError(family)
    means = means + rng.choice([0.0, 0.0, 1.0, -3.7]) * axis
    counts = rng.integers(1, cap + 2, n) if cap > 1 else np.ones(n, dtype=np.int64)
    means[rng.random(n) < 0.05] = np.nan
    return Dataset(means=means, counts=counts)


POWERS = (None, 0.5, 1.0)
MAX_RECORDS_GRID = (4, 10_000)


def some_thresholds(rng: np.random.Generator, cap: int) -> tuple[int, float | None]:
    """(cap, power): thresholds that shrink with the weight, for weights up to a cap above one."""
    if cap == 1:
        return 1, None
    return int(rng.choice(MAX_RECORDS_GRID)), POWERS[rng.integers(3)]


def as_wide_as_thresholds(
    dataset: Dataset, rng: np.random.Generator, cap: int, power: float | None
) -> Dataset:
    """The dataset in units of the threshold of some weight, so that heavy users have something to decide."""
    if power is None:
        return dataset
    return replace(dataset, means=dataset.means * float(rng.choice([1.0, cap**-power, (cap / 2) ** -power])))


def iterate_neighbors(
    dataset: Dataset, relation: Neighbors, rng: np.random.Generator, cap: int
) -> Iterator[Dataset]:
    """A few neighbors meant to move the center or the depths as far as one user can."""
    n, d = dataset.means.shape
    usable = dataset.means[np.isfinite(dataset.means).all(axis=1)]
    middle = np.median(usable, axis=0) if len(usable) else np.zeros(d)
    axis = np.eye(d)[0]
    targets = [
        middle + 1e6 * axis,
        middle - 1e6 * axis,
        middle + axis * rng.uniform(-1.1, 1.1),
        middle,
        np.full(d, np.nan),
        middle + 3.0 * rng.normal(size=d),
    ]
    by_place = np.argsort(np.nan_to_num(dataset.means[:, 0]))
    for user in {int(by_place[0]), int(by_place[-1]), int(by_place[n // 2]), int(rng.integers(n))}:
        smaller = dataset.without(user)
        if relation is Neighbors.ADD_REMOVE:
            if n > 1:
                yield smaller
            continue
        for target in targets:
            count = int(dataset.counts[user])
            if relation is Neighbors.REPLACE_USER and cap > 1:
                count = int(rng.choice([1, cap, cap + 5]))
            yield smaller.with_user(target, count)
    if relation is Neighbors.ADD_REMOVE:
        for target in targets:
            yield dataset.with_user(target, int(rng.choice([1, cap, cap + 5])))


def prepare(
    dataset: Dataset,
    relation: Neighbors,
    *,
    cap: int = 1,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    radius: float = 5.0,
    power: float | None = None,
) -> PreparedSmoothSensitivity:
    """The mechanism for a dataset."""
    request = dataset.request(relation, cap=cap, epsilon=epsilon, delta=delta)
    mechanism = SmoothSensitivity(
        threshold=T, radius=radius, max_records=cap if cap > 1 else None, threshold_power=power
    )
    return mechanism.prepare(request, PublicFacts.of(dataset.table(), relation))


@lru_cache(maxsize=256)
def prepare_at(
    relation: Neighbors,
    *,
    beta: float,
    epsilon: float,
    delta: float,
    dimension: int = 1,
    cap: int = 1,
    power: float | None = None,
) -> PreparedSmoothSensitivity:
    """The mechanism at a beta of our choice: every beta is valid, for every number of users."""
    any_dataset = Dataset(means=np.zeros((2, dimension)), counts=np.ones(2, dtype=np.int64))
    made = prepare(any_dataset, relation, cap=cap, epsilon=epsilon, delta=delta, power=power)
    noise = calibrate_smooth_noise(epsilon, delta, beta=beta + 2.0**-40, dimension=dimension)
    exponent = smooth._grid_exponent(made.radius, noise.alpha)
    return replace(
        made,
        beta=beta,
        alpha=noise.alpha,
        smallest_sigma=noise.smallest_sigma,
        exponent=exponent,
        rounding=math.sqrt(dimension) * 2.0**exponent + (dimension + 12) * 2.0**-53 * 1.001 * made.radius,
        max_changes=min(math.ceil(30.0 / beta), 2000),
    )


def gradient(points: Array, weights: NDArray[np.int64], at: Array) -> Array:
    """The gradient of the weighted Huber loss, as written in the paper."""
    offsets = at - points
    distance = np.linalg.norm(offsets, axis=1)
    influences = weights * T / np.maximum(distance, T)
    return np.asarray(influences @ offsets)


@dataclass(frozen=True, kw_only=True)
class Side:
    """What the mechanism computes on one data set."""

    center: Array
    clipped: Array
    bounds: Array
    sensitivity: float
    position: Array
    sigma: float


def side(prepared: PreparedSmoothSensitivity, dataset: Dataset) -> Side:
    table = dataset.table()
    points, weights = prepared.users(table)
    center, sensitivity = prepared.center_and_sensitivity(points, weights)
    if len(points):
        depths = prepared.geometry.depths(points, center, weights)
        bounds = smooth.bound_local_sensitivity(
            depths, weights, caps=prepared.caps, reach=prepared.max_changes
        )
    else:
        bounds = np.full(prepared.max_changes, np.inf)
    position, sigma = prepared.statistic(table)
    return Side(
        center=center,
        clipped=prepared.clipped(center),
        bounds=bounds,
        sensitivity=sensitivity,
        position=np.array(position, dtype=float),
        sigma=sigma,
    )


class BrokenGuaranteeError(AssertionError):
    """A guarantee that a pair of neighbors breaks."""


def check_pair(
    prepared: PreparedSmoothSensitivity, dataset: Dataset, other: Dataset, *, divergence: bool = True
) -> float:
    """Raise `BrokenGuaranteeError` where the pair breaks a guarantee; return the worse divergence over delta."""
    first, second = side(prepared, dataset), side(prepared, other)
    shift = float(np.linalg.norm(first.center - second.center))
    for one, two in ((first, second), (second, first)):
        if not (one.bounds[:-1] <= two.bounds[1:]).all():
            raise BrokenGuaranteeError("B_k(D) > B_{k+1}(D')")
        if one.bounds.size and shift > one.bounds[0]:
            raise BrokenGuaranteeError("the center moves by more than B_0")
        if float(np.linalg.norm(first.clipped - second.clipped)) > one.sensitivity * (1.0 + 2.0**-40):
            raise BrokenGuaranteeError("the clipped center moves by more than S")
    if abs(math.log(first.sensitivity / second.sensitivity)) > prepared.beta + 2.0**-41:
        raise BrokenGuaranteeError("S is not smooth")
    if abs(math.log(first.sigma / second.sigma)) > prepared.beta + 2.0**-40:
        raise BrokenGuaranteeError("sigma is not smooth")
    if not divergence:
        return math.nan
    gap = float(np.linalg.norm(first.position - second.position))
    d, epsilon = len(first.center), prepared.request.epsilon
    worst = max(
        hockey_stick(epsilon, gap / one.sigma, math.log(two.sigma / one.sigma), d)
        for one, two in ((first, second), (second, first))
    )
    if worst > prepared.request.delta * (1.0 + 1e-6):
        raise BrokenGuaranteeError("the divergence of the two outputs exceeds delta")
    return worst / prepared.request.delta


def hockey_stick(epsilon: float, shift: float, log_ratio: float, dimension: int) -> float:
    """H_eps( N(0, I) || N(shift e_1, t^2 I) ), t = e^log_ratio, by integrating over the distance from the axis.

    At distance rho from the axis the log ratio of the densities is a x^2 + b x + c along it; where it exceeds
    epsilon is a half-line, an interval or the outside of one, of which normal distribution functions are taken.
    """
    t = math.exp(log_ratio)
    # The quadratic's coefficient (1/t^2 - 1)/2, without cancellation.
    a = 0.5 * math.expm1(-2.0 * log_ratio)
    b = -shift / (t * t)
    level = 0.5 * shift**2 / (t * t) + dimension * log_ratio - epsilon
    if dimension == 1:
        rho, weight = np.zeros(1), np.ones(1)
    else:
        top = math.sqrt(dimension) + 12.0
        # The set changes its kind at one distance, with a square root there: integrate on either side.
        square = (b * b - 4.0 * a * level) / (4.0 * a * a) if a != 0.0 else -1.0
        cuts = [0.0, math.sqrt(square), top] if 0.0 < square < top * top else [0.0, top]
        nodes, of_node = _legendre()
        rho = np.concatenate([x + 0.5 * (y - x) * (nodes + 1.0) for x, y in itertools.pairwise(cuts)])
        share = np.concatenate([0.5 * (y - x) * of_node for x, y in itertools.pairwise(cuts)])
        m = dimension - 1
        log_density = (1 - m / 2) * math.log(2) - math.lgamma(m / 2) + (m - 1) * np.log(rho) - rho**2 / 2
        weight = share * np.exp(log_density)
    c = a * rho**2 + level
    # Under Q at the same rho: density of the distance is that of t times a chi variable.
    ratio = np.exp((dimension - 1) * -log_ratio + 0.5 * rho**2 * -math.expm1(-2.0 * log_ratio))
    intervals = [_positive_set(a, b, float(spot)) for spot in c]
    low = np.array([x for x, _, _, _ in intervals]), np.array([x for _, _, x, _ in intervals])
    high = np.array([x for _, x, _, _ in intervals]), np.array([x for _, _, _, x in intervals])
    total = 0.0
    for x, y in zip(low, high, strict=True):
        p, q = _between(x, y), _between((x - shift) / t, (y - shift) / t)
        total += float(np.sum(weight * p - math.exp(epsilon) * ratio * weight * q))
    return total


@lru_cache(maxsize=1)
def _legendre() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(120)


def _positive_set(a: float, b: float, c: float) -> tuple[float, float, float, float]:
    """Where a x^2 + b x + c > 0, as two intervals (low, high, low, high); (0, 0) is empty."""
    inf = math.inf
    if abs(a) < 1e-14:
        if b == 0.0:
            return (-inf, inf, 0, 0) if c > 0 else (0, 0, 0, 0)
        return (-inf, -c / b, 0, 0) if b < 0 else (-c / b, inf, 0, 0)
    square = b * b - 4.0 * a * c
    if square <= 0.0:
        return (-inf, inf, 0, 0) if a > 0 else (0, 0, 0, 0)
    root = -0.5 * (b + math.copysign(math.sqrt(square), b))
    first, last = sorted((root / a, c / root if root != 0.0 else 0.0))
    return (-inf, first, last, inf) if a > 0 else (first, last, 0, 0)


def _between(low: Array, high: Array) -> Array:
    """P(low < X < high) for a standard normal, from the tail that keeps its digits."""
    from_left = special.ndtr(high) - special.ndtr(low)
    from_right = special.ndtr(-low) - special.ndtr(-high)
    return np.asarray(np.where(low > 0, from_right, from_left))
