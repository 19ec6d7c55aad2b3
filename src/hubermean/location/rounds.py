"""The Huber location of users one can only ask all at once: few rounds, many places in each.

Where users are spread over many machines a pass over them costs far more than arithmetic. So each round looks from
several places along the proposed direction, in one pass, and takes the best of those that a step may end at. The step
that cannot fail is among them, so that every round is a step and the argument by which the iteration ends is that of
one machine (proofs/huber-location.md, 2.4 and 2.6). So is a step that is sure to be good where most users hold the
centre, which bounds the number of rounds there (proofs/tested.md, Lemma 5). One column has a method of its own
(`sections`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hubermean.location.descent import decreases
from hubermean.location.direction import Directions
from hubermean.location.floats import length
from hubermean.location.huber import SmallGradient, small_gradient
from hubermean.location.rows import Floats
from hubermean.location.sweep import Sweep

HELD_SHARE = 0.89
"""A centre is held if users of this share of the weight lie within three quarters of the threshold around it."""

HELD_WITHIN = 0.75
"""In thresholds. The rest, a quarter, is a ball around the centre on which all of these users stay quadratic."""

MOST_PASSES = 10
"""So many passes of a search find a centre that is held; the one that looks for a start comes before them
(proofs/tested.md, Lemma 5)."""

# In thresholds. The first makes the centre of parts as robust as a median, yet a mean where parts agree; it is then
# less than 1.44 away from a centre that is held, and those who hold that are within the second of it (Lemma 5).
_PARTS_WITHIN, _WIDE, _NEAR = 0.125, 2.2, 0.2
PART_TOLERANCE = 2.0**-16
"""Gradient per unit of weight, in thresholds: what a centre that helps to find another is good for."""

# In units of the weight, half way between the least and the largest curvature where the centre is held.
_EVEN = 0.5 * (1.0 + HELD_SHARE)
_SECTIONS = 32  # into which what is left of a line is cut
# So many numbers, about, a part may return; but one place alone is too few. Where all goes well few are enough.
_ANSWER_ELEMENTS, _FEWEST_PLACES = 2**15, 4


class Crowd(Protocol):
    """Users that answer one question at a time, all of them."""

    @property
    def total_weight(self) -> float: ...

    @property
    def threshold(self) -> float: ...

    def sweeps(
        self, centres: Sequence[Floats], *, hessian: bool, widths: Sequence[float] | None = None
    ) -> list[Sweep]:
        """What is seen from each of the places, in one pass; `widths`, one a place, multiply the threshold there."""


def centre_of_parts(centres: Floats, weights: Floats, *, threshold: float) -> Floats:
    """A start, from where parts of the users have their centres: near one that is held, however users were parted."""
    narrow = _PARTS_WITHIN * threshold
    tolerance = PART_TOLERANCE * narrow * float(weights.sum())
    return small_gradient(centres, weights=weights, thresholds=narrow, tolerance=tolerance).point


class Search:
    """The search for a point of small gradient; several columns.

    *Formal guarantees*
    - `go_on` without a number ends for every data set, with norm_bound <= max(tolerance, 5/4 floor), as
      `small_gradient` does (proofs/huber-location.md, 2.6).
    - From the centre of parts on, MOST_PASSES passes are enough wherever the centre is held (proofs/tested.md,
      Lemma 5). How few there are elsewhere is measured, not proved.
    """

    def __init__(self, crowd: Crowd, start: Floats, *, tolerance: float) -> None:
        """In one pass, or two where the start is poor."""
        self._crowd = crowd
        self._tolerance = tolerance
        self._directions = Directions(start.size)
        hessian = self._directions.uses_hessian
        self._here, wide = crowd.sweeps([start, start], hessian=hessian, widths=[1.0, _WIDE])
        self.passes = 1
        # With a gradient below that, a centre that is held is near. Else a step with so wide a threshold that all who
        # hold the centre count as in a mean leads there.
        if self._here.norm > _NEAR * crowd.threshold * crowd.total_weight:
            place = start - wide.gradient / (HELD_SHARE * crowd.total_weight)
            (there,) = crowd.sweeps([place], hessian=hessian)
            self._here = min(self._here, there, key=lambda one: one.norm)
            self.passes += 1
        self._record = self._here.norm
        self._rest: _Line | None = None
        self._fast = True

    @property
    def found(self) -> SmallGradient:
        """Where the search is."""
        return SmallGradient(point=self._here.centre, norm_bound=self._here.norm_bound)

    @property
    def is_over(self) -> bool:
        return self._here.norm_bound <= self._tolerance or self._here.norm <= self._here.floor

    def go_on(self, passes: int | None = None) -> None:
        """Until it is over, or that many passes were made in all."""
        while not self.is_over and (passes is None or self.passes < passes):
            self._round()

    def _round(self) -> None:
        """One pass, and a step to where it showed to be best.

        A step may end where the loss is certain to be less, or where the gradient is half the smallest so far. If
        there is such a gradient, the smallest is taken.
        """
        here, lines = self._here, self._lines()
        places = [place for line in lines for place in line.places(here.centre)]
        # The majoriser's minimiser, which decreases the loss by itself (proof 2.3), and the step that is sure to be
        # good where the centre is held.
        places.append(here.centre - here.gradient / here.pull)
        places.append(here.centre - here.gradient / (_EVEN * self._crowd.total_weight))
        seen = self._crowd.sweeps(places, hessian=self._directions.uses_hessian)
        self.passes += 1
        smallest = min(seen, key=lambda one: one.norm)
        if smallest.norm <= 0.5 * self._record:
            there, self._rest, self._record = smallest, None, smallest.norm
        else:
            there, self._rest = self._downhill(lines, seen)
        self._fast = there.norm <= 0.25 * here.norm
        self._directions.learn(here, there)
        self._here = there

    def _lines(self) -> list[_Line]:
        """Along which to look next."""
        directions, here, rest = self._directions, self._here, self._rest
        if self._fast:  # the next direction will do as well
            return [_proposed(directions, here, _FEWEST_PLACES)]
        most = _places_each(directions, here.centre.size, 1 if rest is None else 2)
        return [_proposed(directions, here, most), *([] if rest is None else [rest.cut(most)])]

    def _downhill(self, lines: Sequence[_Line], seen: Sequence[Sweep]) -> tuple[Sweep, _Line | None]:
        """The end of a step with the least loss, and what is left to search of its line."""
        best: tuple[Sweep, _Line | None] = (seen[-2], None)
        least = math.inf
        for line in lines:
            mine, seen = seen[: line.steps.size], seen[line.steps.size :]
            for position, loss in enumerate(line.losses(self._here, mine).tolist()):
                end = mine[position]
                if loss < least and decreases(self._here, end, total_weight=self._crowd.total_weight):
                    best, least = (end, line.rest(self._here, mine, position)), loss
        return best


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Line:
    """Places on a ray from where we are; steps rise."""

    direction: Floats
    steps: Floats

    def places(self, origin: Floats) -> list[Floats]:
        return [origin + step * self.direction for step in self.steps]

    def slopes(self, sweeps: Sequence[Sweep]) -> Floats:
        return np.array([float(one.gradient @ self.direction) for one in sweeps])

    def losses(self, here: Sweep, sweeps: Sequence[Sweep]) -> Floats:
        """How much more than here the loss is at the places, about: its slope summed up, so that nothing cancels."""
        slopes = self.slopes([here, *sweeps])
        return np.asarray(np.cumsum(0.5 * (slopes[1:] + slopes[:-1]) * np.diff(self.steps, prepend=0.0)))

    def rest(self, here: Sweep, sweeps: Sequence[Sweep], chosen: int) -> _Line | None:
        """The part between the chosen place and the next on the side to which the loss still falls, if there is one."""
        slope = self.slopes(sweeps)[chosen]
        other = chosen + 1 if slope < 0.0 else chosen - 1
        if other == len(sweeps):
            return None
        end = here.centre if other < 0 else sweeps[other].centre
        return _Line(direction=end - sweeps[chosen].centre, steps=np.ones(1))

    def cut(self, most: int) -> _Line:
        """The line up to its last place, cut into equal sections."""
        sections = min(most + 1, _SECTIONS)
        return _Line(direction=self.direction, steps=np.arange(1, sections) / sections * self.steps[-1])


def _places_each(directions: Directions, size: int, lines: int) -> int:
    """How many places of each line a pass looks from: fewer where the answer for one is long."""
    answer = 2 * size + (size * size // 4 if directions.uses_hessian else 0)
    return max(_FEWEST_PLACES, _ANSWER_ELEMENTS // answer) // lines


def _proposed(directions: Directions, here: Sweep, most: int) -> _Line:
    """Along the proposed direction if the loss decreases along it, else along the gradient."""
    direction = directions.propose(here)
    if direction is None or not -math.inf < float(here.gradient @ direction) < 0.0:
        direction = -here.gradient / here.pull
    longest = directions.longest(here) / length(direction)
    # The most useful first, since long answers leave room for few.
    multiples = (1.0, 2.0**-4, 2.0**5, 2.0**-2, 2.0**10, 2.0**-6, 2.0**15, 2.0**-10)
    steps = [1.0, 0.25, 4.0, 0.5, 2.0, *(multiple * longest for multiple in multiples)]
    return _Line(direction=direction, steps=np.unique(steps[:most]))
