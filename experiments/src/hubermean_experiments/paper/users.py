"""Users of unequal size: the degree of imbalance, weights and thresholds (Zhao et al. 2024, section 6).

The paper takes the number of records of each user as public: neighboring data sets have the same counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hubermean.errors import InputError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PaperUsers:
    """Public facts about the users of the paper's mechanism: weights, thresholds and their order by size.

    `weights` (n,) sum to 1, `thresholds` (n,) are the T_i, `lightest_first` orders users by their count.
    `gamma` and `k_0` belong to Definition Gunb and are None for Definition G.
    """

    weights: Floats = field(repr=False)
    thresholds: Floats = field(repr=False)
    lightest_first: Integers = field(repr=False)
    gamma: Fraction | None
    k_0: int | None

    @property
    def n_users(self) -> int:
        return len(self.weights)

    @property
    def heaviest(self) -> Integers:
        """The last k_0 users in ascending order of count."""
        return self.lightest_first[self.n_users - (self.k_0 or 0) :]

    @staticmethod
    def balanced(n_users: int, threshold: float) -> PaperUsers:
        """w_i = 1/n and one threshold (section 5)."""
        return PaperUsers(
            weights=np.full(n_users, 1.0 / n_users),
            thresholds=np.full(n_users, threshold),
            lightest_first=np.arange(n_users),
            gamma=None,
            k_0=None,
        )

    @staticmethod
    def imbalanced(
        counts: npt.ArrayLike, scale: float, *, gamma: float | Fraction | None, k_0: int | None
    ) -> PaperUsers:
        """w_i = min(m_i, m_c) / sum_j min(m_j, m_c) and T_i = A / sqrt(min(m_i, m_c)) (Thm mseunb, section 7).

        The paper orders users by m_i "without loss of generality". Users of equal size are ordered here by
        position, which matters because h (eq. h) depends on the last ones only.
        """
        m = check_counts(counts)
        chosen = resolve_gamma(m, gamma)
        effective = effective_counts(m, chosen)
        n = len(m)
        last = n // (8 * chosen) if k_0 is None else k_0  # Thm mseunb: k_0 = floor(n / (8 gamma))
        if isinstance(last, bool) or int(last) != last or not 0 <= last < n:
            raise InputError(f"k_0 must be a whole number from 0 to n - 1, not {k_0!r}")
        return PaperUsers(
            weights=effective / effective.sum(),
            thresholds=scale / np.sqrt(effective),
            lightest_first=np.argsort(m, kind="stable"),
            gamma=chosen,
            k_0=int(last),
        )


def imbalance_gamma(counts: npt.ArrayLike) -> Fraction:
    """The smallest gamma >= 1 of Zhao et al. (2024), Assumption unbalance, exactly.

    The assumption: users with m_i > gamma N / n hold at most half of all N records. Their share changes only
    where gamma N / n passes one of the m_i, so the smallest gamma is 1 or one of the n m_i / N.

    >>> imbalance_gamma([7, 7, 7])
    Fraction(1, 1)
    >>> imbalance_gamma([1, 1, 1, 97])
    Fraction(97, 25)
    >>> round(float(imbalance_gamma(range(1, 10_001))), 3)
    1.414
    """
    m = np.sort(check_counts(counts))
    n, total = len(m), int(m.sum())
    # Records of users after position i. Users of equal size are adjacent. If stopping at one of them suffices, so
    # does stopping at the last one: the size found is right.
    above = total - np.cumsum(m)
    return max(Fraction(1), Fraction(int(m[np.argmax(2 * above <= total)]) * n, total))


def resolve_gamma(counts: Integers, gamma: float | Fraction | None) -> Fraction:
    """Return the caller's gamma if the assumption holds with it, or the smallest valid one if it is None."""
    smallest = imbalance_gamma(counts)
    if gamma is None:
        return smallest
    try:
        given = Fraction(gamma)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"gamma must be a finite number of at least 1, not {gamma!r}") from None
    if given < smallest:
        raise InputError(
            f"gamma={float(given):g} does not satisfy the paper's assumption on these counts; "
            f"give at least {float(smallest):.6g}, or leave it out"
        )
    return given


def effective_counts(counts: Integers, gamma: Fraction) -> Floats:
    """min(m_i, m_c) with m_c = gamma N / n."""
    cap = gamma * int(counts.sum()) / len(counts)
    return np.minimum(counts.astype(np.float64), float(cap))


def check_counts(counts: npt.ArrayLike) -> Integers:
    """Check counts and return them as integers: each at least 1, below 2^62 in total."""
    array = np.asarray(counts)
    if array.ndim != 1 or len(array) == 0 or array.dtype.kind not in "iuf":
        raise InputError("counts must be one whole number of at least 1 per user")
    if not (np.all(array >= 1) and np.all(array == np.floor(array)) and float(array.sum()) < 2.0**62):
        raise InputError("counts must be whole numbers of at least 1, below 2^62 in total")
    return array.astype(np.int64)
