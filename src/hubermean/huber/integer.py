"""The exact Huber location of integers, in time linear in the number of users.

With integer values y_i, weights a_i >= 0 and thresholds T_i >= 1 the gradient
G(s) = sum_i a_i clamp(s - y_i, -T_i, T_i) is an integer at every integer s. It is non-decreasing and piecewise
linear with corners y_i - T_i and y_i + T_i. Sums may need far more than 64 bits: `_exact_dot` splits its operands so
that no partial sum overflows, and adds the parts as Python integers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hubermean.data.arrays import IntArray
from hubermean.errors import InputError

# |y| <= 2^62 and T < 2^62, so that y - T and y + T are exact in int64.
LARGEST_VALUE = 2**62
LIMB_BITS = 21
# Limb products are below 2^42 in size; 2^16 of them sum to less than 2^63.
SUM_ROWS = 2**16


@dataclass(frozen=True, kw_only=True)
class IntegerHuberLocation:
    """The minimizers of an integer Huber loss: a closed interval [first, last] of rationals. Private.

    `lower` is the smallest integer s with G(s) >= 0, `upper` the largest with G(s) <= 0. `point` is the midpoint of
    the minimizers. The integer minimizers are lower..upper; there is none if lower == upper + 1.
    """

    point: Fraction = field(repr=False)
    first: Fraction = field(repr=False)
    last: Fraction = field(repr=False)
    lower: int = field(repr=False)
    upper: int = field(repr=False)


def integer_huber_location(
    values: npt.ArrayLike, *, weights: npt.ArrayLike | None = None, thresholds: npt.ArrayLike
) -> IntegerHuberLocation:
    """Compute the exact minimizers of the weighted Huber loss of integers.

    Args:
        values: one integer per user, shape (n,), within 2**62 in absolute value.
        weights: one integer from 0 to 2**62, or one per user; default 1.
        thresholds: one integer from 1 to 2**62 - 1, or one per user.

    Raises:
        InputError: if weights are all zero, `values` is empty, or numbers are not integers in range.

    **Formal guarantees** (proofs/huber-location.md, 4)
    - `first`, `last`, `point`, `lower` and `upper` are exact; nothing overflows.
    - lower - 1 <= upper always, and lower = upper + 1 exactly if the minimizer is a single non-integer.

    >>> found = integer_huber_location([0, 1, 2, 100], thresholds=2)
    >>> found.point, found.lower, found.upper
    (Fraction(5, 3), 2, 1)
    >>> found = integer_huber_location([-10, 10], thresholds=1)
    >>> found.lower, found.upper, found.point
    (-9, 9, Fraction(0, 1))
    """
    y, a, t = _checked(values, weights, thresholds)
    first, unique = _first_zero(y, a, t)
    last = first if unique else -_first_zero(-y, a, t)[0]
    return IntegerHuberLocation(
        point=(first + last) / 2,
        first=first,
        last=last,
        lower=-((-first.numerator) // first.denominator),
        upper=last.numerator // last.denominator,
    )


def integer_gradient(
    values: npt.ArrayLike, at: int, *, weights: npt.ArrayLike | None = None, thresholds: npt.ArrayLike
) -> int:
    """Return G(at) = sum_i a_i clamp(at - y_i, -T_i, T_i), exactly.

    >>> integer_gradient([0, 1, 2, 100], 2, thresholds=2)
    1
    """
    y, a, t = _checked(values, weights, thresholds)
    # Outside the corners the gradient is constant; inside, `at` fits the arrays' type.
    return _exact_dot(_influences(y, t, min(max(int(at), -(2**63)), 2**63 - 1)), a)


def _checked(
    values: npt.ArrayLike, weights: npt.ArrayLike | None, thresholds: npt.ArrayLike
) -> tuple[IntArray, IntArray | None, IntArray]:
    """Return values, weights and thresholds of the users of positive weight, as int64."""
    y = _int64(values, "values")
    if y.ndim != 1 or y.size == 0:
        raise InputError("values must be a non-empty one-dimensional array")
    if y.min() < -LARGEST_VALUE or y.max() > LARGEST_VALUE:
        raise InputError("values must lie between -2**62 and 2**62")
    t = _one_per_user(thresholds, y.size, "thresholds")
    if t.min() < 1 or t.max() >= LARGEST_VALUE:
        raise InputError("thresholds must lie between 1 and 2**62 - 1")
    if weights is None:
        return y, None, t
    a = _one_per_user(weights, y.size, "weights")
    if a.min() < 0 or a.max() > LARGEST_VALUE:
        raise InputError("weights must lie between 0 and 2**62")
    counted = a > 0
    if not counted.any():
        raise InputError("at least one user must have a positive weight")
    return (y, a, t) if counted.all() else (y[counted], a[counted], t[counted])


def _int64(values: npt.ArrayLike, name: str) -> IntArray:
    array = np.asarray(values)
    if array.dtype.kind == "u" and array.size and int(array.max()) > LARGEST_VALUE:
        raise InputError(f"{name} must be at most 2**62 in size")
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must be integers of at most 64 bits, not of dtype {array.dtype}")
    return array.astype(np.int64, copy=False)


def _one_per_user(values: npt.ArrayLike, n: int, name: str) -> IntArray:
    array = _int64(values, name)
    if array.ndim != 0 and array.shape != (n,):
        raise InputError(f"{name} must be one integer or one per user, an array of shape ({n},)")
    return np.broadcast_to(array, (n,))


def _first_zero(y: IntArray, a: IntArray | None, t: IntArray) -> tuple[Fraction, bool]:
    """Return inf{s : G(s) >= 0}, and whether G is positive right after it, so that it is the only zero.

    Prune and search (proof 4.2): keep lo < hi with G(lo) < 0 <= G(hi), cut at the median of the corners strictly
    between, and fold every user without such a corner into one line: G = level + slope s + active. Each cut at least
    halves the corners, so all cuts together cost O(n).
    """
    lo, hi = int(y.min()) - 1, int(y.max())
    level = slope = 0
    while True:
        left, right = y - t, y + t
        high, low = right <= lo, left >= hi
        line = (left <= lo) & (right >= hi)
        level += _exact_dot(t[high], _some(a, high)) - _exact_dot(t[low], _some(a, low))
        level -= _exact_dot(y[line], _some(a, line))
        slope += int(np.count_nonzero(line)) if a is None else _exact_dot(a[line], None)
        active = ~(high | low | line)
        y, a, t = y[active], _some(a, active), t[active]
        if y.size == 0:
            break
        corners = np.concatenate((left[active], right[active]))
        corners = corners[(corners > lo) & (corners < hi)]
        middle = corners.size // 2
        pivot = int(np.partition(corners, middle)[middle])
        value = level + slope * pivot + _exact_dot(_influences(y, t, pivot), a)
        if value >= 0:
            hi = pivot
        else:
            lo = pivot
    # No corner is left between lo and hi: G is the line level + slope s there, and slope > 0 as it crosses 0.
    return Fraction(-level, slope), level + slope * hi > 0


def _some(weights: IntArray | None, chosen: npt.NDArray[np.bool_]) -> IntArray | None:
    return None if weights is None else weights[chosen]


def _influences(y: IntArray, t: IntArray, at: int) -> IntArray:
    """Return clamp(at - y, -T, T) as clamp(at, y - T, y + T) - y, which cannot overflow."""
    return np.asarray(np.minimum(np.maximum(np.int64(at), y - t), y + t) - y)


def _exact_dot(numbers: IntArray, weights: IntArray | None) -> int:
    """Return sum_i numbers_i weights_i (weights default to 1) as a Python integer, exact for int64 (proof 4.1)."""
    total = 0
    for start in range(0, numbers.size, SUM_ROWS):
        part = numbers[start : start + SUM_ROWS]
        share = None if weights is None else weights[start : start + SUM_ROWS]
        largest = max(int(part.max()), -int(part.min()))
        heaviest = 1 if share is None else max(int(share.max()), -int(share.min()))
        if largest * heaviest * part.size < 2**63:
            total += int(part.sum()) if share is None else int(part @ share)
            continue
        for i, limb in enumerate(_limbs(part)):
            if share is None:
                total += int(limb.sum()) << (LIMB_BITS * i)
                continue
            for j, other in enumerate(_limbs(share)):
                total += int(limb @ other) << (LIMB_BITS * (i + j))
    return total


def _limbs(numbers: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """numbers = x0 + x1 2^21 + x2 2^42 with 0 <= x0, x1 < 2^21 and -2^21 <= x2 < 2^21."""
    mask = np.int64(2**LIMB_BITS - 1)
    return (
        np.asarray(numbers & mask),
        np.asarray((numbers >> LIMB_BITS) & mask),
        np.asarray(numbers >> (2 * LIMB_BITS)),
    )
