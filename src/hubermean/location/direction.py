"""Search directions for the Huber solver: Newton where a d x d matrix is cheap, limited-memory BFGS beyond.

A direction is only a proposal. The solver checks every candidate with certified inequalities and has a
step of its own that cannot fail, so nothing here affects correctness, only speed.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from hubermean.location.floats import length
from hubermean.location.rows import Floats
from hubermean.location.sweep import Sweep

# Up to here forming the Hessian costs a few gradient passes at most, and Newton needs fewer passes overall.
NEWTON_DIMENSION = 192
MEMORY = 12


class Directions:
    """Proposes directions from the passes made so far."""

    def __init__(self, dimension: int) -> None:
        self.uses_hessian = dimension <= NEWTON_DIMENSION
        self._pairs: deque[tuple[Floats, Floats, float]] = deque(maxlen=MEMORY)

    def learn(self, before: Sweep, after: Sweep) -> None:
        """Remember the change of gradient along an accepted step."""
        if self.uses_hessian:
            return
        step = after.centre - before.centre
        change = after.gradient - before.gradient
        product = float(step @ change)
        # The loss is convex, so this fails where it is straight or by rounding. Older pairs then describe another
        # region, and their step would be repeated for ever: start over from the majoriser.
        if product > 1e-12 * length(step) * length(change):
            self._pairs.append((step, change, 1.0 / product))
        else:
            self._pairs.clear()

    def propose(self, here: Sweep) -> Floats | None:
        """A direction at `here`, or None where the model gives none."""
        direction = _newton(here) if here.hessian is not None else self._quasi_newton(here)
        if direction is None or not np.all(np.isfinite(direction)):
            return None
        proposed, longest = length(direction), self.longest(here)
        return direction if proposed <= longest else direction * (longest / proposed)

    @staticmethod
    def longest(here: Sweep) -> float:
        """How long a step may be: where the loss is nearly flat the model asks for absurd ones.

        influence / pull is a mean distance in which a user counts with a_i w_i: a length that far outliers cannot
        inflate.
        """
        return 4.0 * here.influence / here.pull

    def _quasi_newton(self, here: Sweep) -> Floats:
        """Two-loop recursion (Nocedal 1980); the initial model is the majoriser's curvature."""
        vector = -here.gradient
        used: list[float] = []
        for step, change, inverse in reversed(self._pairs):
            used.append(inverse * float(step @ vector))
            vector = vector - used[-1] * change
        if self._pairs:
            _, change, inverse = self._pairs[-1]
            vector = vector / (inverse * float(change @ change))
        else:
            vector = vector / here.pull
        for (step, change, inverse), share in zip(self._pairs, reversed(used), strict=True):
            vector = vector + (share - inverse * float(change @ vector)) * step
        return vector


def _newton(here: Sweep) -> Floats | None:
    assert here.hessian is not None
    for ridge in (0.0, 1e-12 * here.pull):
        # Singular where no user is inside its threshold and all others are in line: a ridge then keeps the
        # useful part of the direction, and the caller limits its length.
        matrix = here.hessian + ridge * np.eye(here.gradient.size)
        try:
            return np.asarray(np.linalg.solve(matrix, -here.gradient))
        except np.linalg.LinAlgError:
            continue
    return None
