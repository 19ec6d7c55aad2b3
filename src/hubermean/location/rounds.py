"""The Huber location of users one can only ask all at once: few rounds, many places in each.

Where users are spread over many machines a pass over them costs far more than arithmetic. So each round looks from
several places along the proposed direction, in one pass, and takes the best of those that a step may end at. The step
that cannot fail is among them, so that every round is a step and the argument by which the iteration ends is that of
one machine (proofs/huber-location.md, 2.4 and 2.6). One column has a method of its own (`sections`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hubermean.location.blocks import length
from hubermean.location.direction import Directions
from hubermean.location.huber import SmallGradient, decreases
from hubermean.location.rows import Floats
from hubermean.location.sweep import Sweep

_SECTIONS = 32  # into which what is left of a line is cut
# So many numbers, about, a part may return; but one place alone is too few. Where all goes well few are enough.
_ANSWER_ELEMENTS, _FEWEST_PLACES = 2**15, 4


class Crowd(Protocol):
    """Users that answer one question at a time, all of them."""

    @property
    def total_weight(self) -> float: ...

    def sweeps(self, centres: Sequence[Floats], *, hessian: bool) -> list[Sweep]:
        """What is seen from each of the places, in one pass."""


def small_gradient_in_rounds(crowd: Crowd, start: Floats, *, tolerance: float) -> SmallGradient:
    """A point of small gradient, from `start` on; several columns.

    *Formal guarantees*
    - It ends for every data set, with norm_bound <= max(tolerance, 5/4 floor), as `small_gradient` does (2.6).
    - One pass a round, and one for the start. How few rounds there are is measured, not proved.
    """
    directions = Directions(start.size)
    (here,) = crowd.sweeps([start], hessian=directions.uses_hessian)
    record, rest, fast = here.norm, None, True
    while here.norm_bound > tolerance and here.norm > here.floor:
        if fast:  # the next direction will do as well
            lines = [_proposed(directions, here, _FEWEST_PLACES)]
        else:
            most = _places_each(directions, start.size, 1 if rest is None else 2)
            lines = [_proposed(directions, here, most), *([] if rest is None else [rest.cut(most)])]
        there, rest = _round(crowd, directions, here, record, lines)
        fast = there.norm <= 0.25 * here.norm
        directions.learn(here, there)
        if there.norm <= 0.5 * record:
            record = there.norm
        here = there
    return SmallGradient(point=here.centre, norm_bound=here.norm_bound)


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


def _round(
    crowd: Crowd, directions: Directions, here: Sweep, record: float, lines: Sequence[_Line]
) -> tuple[Sweep, _Line | None]:
    """The best end of a step, from one pass, and what is left to search of its line.

    A step may end where the loss is certain to be less, or where the gradient is half the smallest so far.
    """
    # Last the majoriser's minimiser, which decreases the loss by itself (proof 2.3).
    places = [place for line in lines for place in line.places(here.centre)]
    seen = crowd.sweeps([*places, here.centre - here.gradient / here.pull], hessian=directions.uses_hessian)
    best: tuple[Sweep, _Line | None] = (seen[-1], None)
    least = math.inf
    for line in lines:
        mine, seen = seen[: line.steps.size], seen[line.steps.size :]
        for position, loss in enumerate(line.losses(here, mine).tolist()):
            end = mine[position]
            if loss < least and (
                end.norm <= 0.5 * record or decreases(here, end, total_weight=crowd.total_weight)
            ):
                best, least = (end, line.rest(here, mine, position)), loss
    return best


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
