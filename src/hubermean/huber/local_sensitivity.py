"""Local sensitivity of the Huber location at distance k, and a smooth upper bound on it.

A pure kernel on depths and weights. The depth of a user is T - |y - c|: how far the center may move before the user
leaves its quadratic zone. Users of depth at least r have linear influence on the ball of radius r around the center.
Changing k users cannot move the center out of that ball if their total influence is smaller than the restoring
influence of these users. Proof, with all rounding: proofs/smooth-sensitivity.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubermean.data.arrays import FloatArray, IntArray

LARGEST_WEIGHT = 2**22
"""With weights up to 2^22 and up to 2^40 users, every sum of weights below is exact in 64 bits."""


@dataclass(frozen=True, kw_only=True)
class InfluenceLimits:
    """Public limits on a user's influence and on rounding errors (proofs/smooth-sensitivity.md, section 1).

    Attributes:
        weight: w, the largest weight of a user.
        influence: upper bound on the change of the gradient between neighbors: 2 q for replacing a user, q for adding
            one, rounded up.
        gradient_rate: the gradient at the computed center is at most this times the total weight.
        depth_step: e, twice the error of a computed depth plus the rounding of the comparison below.
    """

    weight: int
    influence: float
    gradient_rate: float
    depth_step: float

    def influence_after(self, changes: IntArray, total_weight: int) -> FloatArray:
        """Return Q_k: the influence of a neighbor plus both solvers' errors, after k changes.

        It counts k more users, so that Q_k(D) <= Q_{k+1}(D') holds for the floats themselves (Lemma 3).
        """
        heaviest: IntArray = total_weight + changes * self.weight
        grown: FloatArray = self.influence + 2.0 * self.gradient_rate * heaviest.astype(np.float64)
        return grown


def bound_local_sensitivity(
    depths: FloatArray, weights: IntArray | None, *, caps: InfluenceLimits, reach: int
) -> FloatArray:
    """Return B_0 ... B_{reach-1}, the local sensitivity bounds after k changes; infinite where no bound holds.

    Args:
        depths: T - |y_i - c| of each user as computed, shape (n,), in any order.
        weights: integers from 1 to `caps.weight`, shape (n,), or None for ones.
        caps: the public limits.
        reach: how many bounds to compute.

    **Formal guarantees** (proofs/smooth-sensitivity.md; D' is any neighbor of D under the limits)
    - The computed centers of D and D' are at most B_0(D) apart (Lemma 2).
    - B_k(D) <= B_{k+1}(D') for the returned floats (Lemma 3).
    - Non-decreasing in k. All bounds are infinite without users of positive depth.
    - O(n log n) time: a sort, and a bisection over k for all users at once.
    """
    total = depths.size if weights is None else int(weights.sum())
    inside = depths > 0.0
    depth = depths[inside]
    if weights is None:
        depth = np.sort(depth)[::-1]
        mass = np.arange(1, depth.size + 1, dtype=np.int64)
    else:
        order = np.argsort(-depth)
        depth = depth[order]
        mass = np.cumsum(weights[inside][order])
    # The largest mass that withstands k changes, over all users that withstand at least k.
    largest = np.zeros(reach + 1, dtype=np.int64)
    np.maximum.at(largest, _changes_withstood(depth, mass, total, caps, reach), mass)
    largest = np.maximum.accumulate(largest[::-1])[::-1][1:]
    changes = np.arange(1, reach + 1, dtype=np.int64)
    bounds = np.full(reach, np.inf)
    np.divide(
        caps.influence_after(changes, total), largest - changes * caps.weight, out=bounds, where=largest > 0
    )
    return bounds


def _changes_withstood(
    depth: FloatArray, mass: IntArray, total: int, caps: InfluenceLimits, reach: int
) -> IntArray:
    """For each user, return the largest k such that the users at least as deep withstand k changes together.

    The condition is k Q_k / (mass - k w) + k e <= depth. The left side grows with k, also in floats, since rounding
    is monotone; so bisection finds the largest k exactly. The number of bisection steps depends on `reach` only.
    """
    low = np.zeros(depth.size, dtype=np.int64)
    high = np.minimum((mass - 1) // caps.weight, reach)  # mass - k w stays positive
    for _ in range(reach.bit_length()):
        open_ = low < high
        middle = (low + high + 1) >> 1
        times = middle.astype(np.float64)
        needed = times * caps.influence_after(middle, total)
        needed /= (mass - middle * caps.weight).astype(np.float64)
        needed += times * caps.depth_step
        enough = needed <= depth
        # Where low = high already, middle = low and either branch changes nothing but `high`.
        low = np.where(enough & open_, middle, low)
        high = np.where(enough | ~open_, high, middle - 1)
    return low


def bound_smooth_sensitivity(bounds: FloatArray, *, diameter: float, decay: float) -> float:
    """Return max_k decay^k min(diameter, B_k), where B_k is the diameter beyond the end of `bounds`.

    **Formal guarantees** (proofs/smooth-sensitivity.md, Lemma 4)
    - At least min(diameter, B_0).
    - For neighbors whose bounds satisfy B_k(D) <= B_{k+1}(D') and have equal length, the two results differ by a
      factor of at most (1 + 2^-50) / decay, if decay^len(bounds) >= 2^-900.
    """
    powers = np.full(bounds.size + 1, decay)
    powers[0] = 1.0
    # Each power is the previous one times `decay`, rounded once: no accuracy of exp is assumed.
    powers = np.multiply.accumulate(powers)
    capped = np.append(np.minimum(bounds, diameter), diameter)
    return float(np.max(powers * capped))
