"""How far the Huber location can move when k + 1 users change: the certified bounds B_k and their smooth maximum.

A pure kernel: depths and weights in, numbers out. The depth of a user is T - |y - c|, the room it has before
it leaves its quadratic zone. Users of depth at least r pull like springs on the whole ball of radius r around
the centre, and k changed users cannot carry the centre out of it if their total pull is smaller than that of
the springs. Proof, with every rounding counted: proofs/smooth.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LARGEST_WEIGHT = 2**22
"""Weights of at most 2^22 and at most 2^40 users: every sum of weights below is exact in 64 bits."""


@dataclass(frozen=True, kw_only=True)
class Caps:
    """Public limits on what one user can do, and on the errors of the arithmetic (proofs/smooth.md, section 1).

    Attributes:
        weight: w, the largest weight a user may have.
        pull: more than the gradient can change between neighbours: 2 q for replacing a user, q for adding one.
        gradient_rate: the gradient at the computed centre is at most this times the total weight.
        depth_step: e, twice the error of a computed depth and the rounding of the comparison below.
    """

    weight: int
    pull: float
    gradient_rate: float
    depth_step: float

    def pull_after(self, changes: Integers, total_weight: int) -> Floats:
        """Q_k: the pull of a neighbour plus both solvers' errors, any k changes away.

        It counts k more users, so that Q_k(D) <= Q_{k+1}(D') holds for the floats themselves (Lemma 3).
        """
        heaviest: Integers = total_weight + changes * self.weight
        grown: Floats = self.pull + 2.0 * self.gradient_rate * heaviest.astype(np.float64)
        return grown


def certified_bounds(depths: Floats, weights: Integers | None, *, caps: Caps, reach: int) -> Floats:
    """B_0 ... B_{reach-1}; infinite where the data withstands no further change.

    Args:
        depths: T - |y_i - c| of each user as computed, shape (n,), in any order.
        weights: whole numbers from 1 to `caps.weight`, shape (n,), or None for ones.
        caps: the public limits.
        reach: how many bounds to compute.

    *Formal guarantees* (proofs/smooth.md; D' is any neighbour of D, as the caps say)
    - The computed centres of D and D' are at most B_0(D) apart (Lemma 2).
    - B_k(D) <= B_{k+1}(D'), for the floats that are returned (Lemma 3).
    - Non-decreasing in k. No users, or none of positive depth: all infinite.
    - O(n log n) time; a sort, and a bisection over k for all users at once.
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
    # The mass that withstands k changes: the largest over all users that withstand k or more.
    largest = np.zeros(reach + 1, dtype=np.int64)
    np.maximum.at(largest, _changes_withstood(depth, mass, total, caps, reach), mass)
    largest = np.maximum.accumulate(largest[::-1])[::-1][1:]
    changes = np.arange(1, reach + 1, dtype=np.int64)
    bounds = np.full(reach, np.inf)
    np.divide(caps.pull_after(changes, total), largest - changes * caps.weight, out=bounds, where=largest > 0)
    return bounds


def _changes_withstood(depth: Floats, mass: Integers, total: int, caps: Caps, reach: int) -> Integers:
    """For each user the most changes k that users at least as deep withstand together.

    That is k Q_k / (mass - k w) + k e <= depth. The left side grows with k, in floats too, since every rounding
    is monotone; so bisection finds exactly the largest k. How many turns it takes depends on `reach` alone.
    """
    low = np.zeros(depth.size, dtype=np.int64)
    high = np.minimum((mass - 1) // caps.weight, reach)  # mass - k w stays positive
    for _ in range(reach.bit_length()):
        open_ = low < high
        middle = (low + high + 1) >> 1
        times = middle.astype(np.float64)
        needed = times * caps.pull_after(middle, total)
        needed /= (mass - middle * caps.weight).astype(np.float64)
        needed += times * caps.depth_step
        enough = needed <= depth
        # Where low = high already, middle = low and either branch changes nothing but `high`.
        low = np.where(enough & open_, middle, low)
        high = np.where(enough | ~open_, high, middle - 1)
    return low


def smooth_maximum(bounds: Floats, *, diameter: float, decay: float) -> float:
    """max_k decay^k min(diameter, B_k), with B_k taken as the diameter from the end of `bounds` on.

    *Formal guarantees* (proofs/smooth.md, Lemma 4)
    - At least min(diameter, B_0).
    - For neighbours whose bounds satisfy B_k(D) <= B_{k+1}(D'), of equal length, the two results differ by a
      factor of at most (1 + 2^-50) / decay, if decay^len(bounds) >= 2^-900.
    """
    powers = np.full(bounds.size + 1, decay)
    powers[0] = 1.0
    # Each power is the previous one times `decay`, rounded once: no accuracy of an exponential is relied on.
    powers = np.multiply.accumulate(powers)
    capped = np.append(np.minimum(bounds, diameter), diameter)
    return float(np.max(powers * capped))
