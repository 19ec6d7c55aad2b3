"""One Huber step: clip every update around a center and add the results up as exact integers.

Whatever floats do before, what a client adds is a vector of integers whose norm is checked at the end, with the error
of the check on the safe side; integers add up exactly. So one client moves the sum by no more than the threshold,
in any order of clients and on any machine (proofs/federated.md, Lemma 4).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hubermean.data.arrays import FloatArray, IntArray

_ROUNDING = 2.0**-52
_CHUNK_VALUES = 2**15  # numbers whose squares are added up at a time, in the processor's cache


@dataclass(frozen=True, kw_only=True, repr=False)  # both are private
class ClippedTotals:
    """Exact totals over clients.

    Attributes:
        sums: the clipped updates, added up, in units of threshold / threshold_units.
        count: of clients within a length, weighted: see `RoundPlan.count_units`.
    """

    sums: IntArray
    count: int


def clip_and_add(
    blocks: Iterable[FloatArray],
    *,
    size: int,
    center: FloatArray | None,
    threshold: float,
    threshold_units: int,
    count_within: float,
    count_units: tuple[int, int],
) -> ClippedTotals:
    """Return the totals of updates that are clipped to the threshold around a center.

    Args:
        blocks: updates as rows, shape (any, size); rows that are not finite count as nothing.
        size: numbers in an update.
        center: shape (size,); None for zero.
        threshold: largest distance from the center that counts in full.
        threshold_units: the integer norm that stands for it.
        count_within: largest distance from the center of a client that is counted as within.
        count_units: what a client within adds to the count, and what one beyond takes away.

    **Formal guarantees** (proofs/federated.md, Lemma 4)
    - Without any one row, `sums` differs by an integer vector of Euclidean norm at most `threshold_units` (modulo
      2^64 in every coordinate, which noise and its removal commute with), and `count` by at most max(count_units).
    - No row raises or warns, and none has any influence on how another one is clipped.
    """
    sums, count = np.zeros(size, dtype=np.int64), 0
    with np.errstate(all="ignore"):
        for rows in blocks:
            clipped, usable, within = _clip(rows, center, threshold, threshold_units, count_within)
            sums += clipped.sum(axis=0)
            inside, outside = int((usable & within).sum()), int((usable & ~within).sum())
            count += inside * count_units[0] - outside * count_units[1]
    return ClippedTotals(sums=sums, count=count)


def _clip(
    rows: FloatArray, center: FloatArray | None, threshold: float, threshold_units: int, count_within: float
) -> tuple[IntArray, np.ndarray, np.ndarray]:
    """Return clipped rows in units, which rows are usable, and which lie within the length that is counted."""
    size = rows.shape[1]
    offset = np.array(rows, order="C") if center is None else np.subtract(rows, center, order="C")
    largest = np.abs(offset).max(axis=1)
    usable = np.isfinite(largest)  # NaN is larger than anything here
    if not usable.all():
        offset[~usable] = 0.0
        largest[~usable] = 0.0
    # Scaled by the largest entry, squares neither overflow nor vanish.
    scale = np.where(largest > 0.0, largest, 1.0)
    offset /= scale[:, None]
    length = np.sqrt(squared_lengths(offset))  # from 1 to sqrt(size), or 0
    within = largest * length <= count_within
    margin = 1.0 - (size + 16) * _ROUNDING
    edge = margin / np.maximum(length, 0.5)
    offset *= (threshold_units * np.minimum(scale / threshold, edge))[:, None]
    np.trunc(offset, out=offset)
    # A float sum of squares is off by less than (size + 2) roundings of itself, in any order.
    squares = squared_lengths(offset) * (1.0 + (size + 16) * _ROUNDING)
    safe = squares <= float(threshold_units) ** 2
    if not safe.all():  # never, by the choice of the margin; a check that cannot be made fails closed
        offset[~safe] = 0.0
    return offset.astype(np.int64), usable, within


def squared_lengths(rows: FloatArray) -> FloatArray:
    """Return the sum of squares of each row, to the bit a function of that row alone.

    A sum of numpy (`einsum`, `sum`, `dot`) takes the numbers of a row in an order that depends on how many rows there
    are and how they lie in memory: then one client decides in which direction the length of another one is rounded, and
    whether it counts as within the threshold. Here the order is written down, and every operation is between two
    numbers, which IEEE arithmetic rounds in one way only.
    """
    count, size = rows.shape
    found = np.zeros(count)
    step = max(1, _CHUNK_VALUES // size)
    for first in range(0, count, step):
        for start in range(0, size, _CHUNK_VALUES):
            squares = np.square(rows[first : first + step, start : start + _CHUNK_VALUES].T, order="C")
            width = len(squares)
            while width > 1:
                half = width // 2
                squares[:half] += squares[width - half : width]
                width -= half
            found[first : first + step] += squares[0]
    return found
