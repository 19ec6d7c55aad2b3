"""The Huber location of one column in few passes, whatever the data: a bracket, cut into many sections at once.

Users that are spread over many machines are asked for the gradient at some hundred places in one pass. It does not
decrease from left to right, so the places where its sign changes bracket the minimiser. Half of the places are evenly
spaced, which bounds the number of passes for every data set (proofs/huber-location.md, 2.7); the others crowd around
where the gradient would vanish if it were a straight line, which it nearly is as a rule.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hubermean.location.floats import SLACK, TINY
from hubermean.location.huber import SmallGradient
from hubermean.location.rows import Floats, Rows, block_rows
from hubermean.location.sums import Compensated, strip_sum

SECTIONS, MOST_PASSES = 80, 8
_NEAR = 0.125 ** np.arange(1, 13)  # distances from the guess, in widths of the bracket


def gradients_at(points: Rows, weights: Floats | None, thresholds: float | Floats, places: Floats) -> Floats:
    """G(p) = sum_i a_i clamp(p - y_i, -T_i, T_i) at each of the places, in one pass; `points` has one column.

    *Formal guarantees*
    - Each is within `gradient_error(n, 1, sum_i a_i T_i)` of the exact one (proof 3.5).
    - At a place right (left) of all points it is not negative (positive): every term is so.
    """
    rows = block_rows(places.size)
    total = Compensated(places.size)
    column, influences, ones = np.empty((rows, 1)), np.empty((rows, places.size)), np.ones(rows)
    for start in range(0, len(points), rows):
        window = slice(start, min(start + rows, len(points)))
        part = points.read(window, column)
        there = np.subtract(places, part, out=influences[: len(part)])
        own = thresholds if isinstance(thresholds, float) else thresholds[window, np.newaxis]
        np.clip(there, -own, own, out=there)
        total.add(strip_sum(ones[: len(part)] if weights is None else weights[window], there))
    return total.total()


def small_gradient_by_sections(
    ask: Callable[[Floats], Floats], *, reach: float, guess: float, error: float, tolerance: float
) -> SmallGradient:
    """A point of small gradient, from the gradients that `ask` finds at some places in one pass.

    All points lie within `reach` of 0, `guess` is where the minimiser may be, `error` bounds the error of a gradient.

    *Formal guarantees* (proof 2.7)
    - norm_bound bounds the norm of the exact gradient at the point.
    - If tolerance >= 5 error + 8 W u reach, at most `MOST_PASSES` passes are made, whatever the data, and
      norm_bound <= tolerance.
    """
    places = _places(-reach, reach, guess)
    gradients = ask(places)
    while True:
        least = int(np.argmin(np.abs(gradients)))
        bound = float(abs(gradients[least])) * SLACK + error
        left = int(np.flatnonzero(gradients[:-1] < 0).max(initial=0))
        low, high = places[left : left + 2]
        share = gradients[left] / min(gradients[left] - gradients[left + 1], -TINY)
        inside = _places(low, high, low + min(share, 1.0) * (high - low))
        inside = inside[(inside > low) & (inside < high)]
        if bound <= tolerance or inside.size == 0:
            return SmallGradient(point=places[least : least + 1].copy(), norm_bound=bound)
        ends = gradients[left : left + 2]
        places = np.concatenate(([low], inside, [high]))
        gradients = np.concatenate((ends[:1], ask(inside), ends[1:]))


def _places(low: float, high: float, guess: float) -> Floats:
    """Both ends, what cuts the bracket into equal sections, and places ever nearer to the guess."""
    near = (high - low) * _NEAR
    even = np.linspace(low, high, SECTIONS + 1)
    return np.unique(np.clip(np.concatenate((even, guess - near, [guess], guess + near)), low, high))
