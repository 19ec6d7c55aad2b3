"""The adaptive step: how far a released average moves the model. All of it is post-processing and costs no privacy.

Clipped averages are short, and how short nobody can know beforehand: by the threshold, by how little clients agree, by
what hostile ones take away. So averages are brought to a length of their own: each move has about the same number of
typical update lengths, whatever clients agree on (normalized steps, as in Cutkosky & Mehta 2020), and moves decay
linearly to nothing at the end of the run. How much clients agree is the length of the averages of earlier rounds,
without their noise, whose size is public. Where averages turn back on each other, steps are too long and shrink, as in
Jacobs (1988).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hubermean.data.arrays import FloatArray

MOVE_LENGTHS = 2.5
"""Typical lengths of an update in the first moves of a run of 30 rounds or more."""
LARGEST_MULTIPLE = 40.0
"""Of an average, in the same lengths: where clients agree on little, moves are shorter."""
LENGTH_ROUNDS = 5
"""Rounds whose thresholds say how long updates are. Later lengths depend on how far the model swings: a step that
followed them would swing it further."""

_TURNING, _SHRINK = -0.9, 2.0
"""Below this cosine, steps shrink, and how fast: by e^-0.2 in a round where the average turns back exactly."""
_AGREEING, _RECOVER = 0.5, 0.3
"""Above this cosine, steps that shrank grow again; never beyond where they began."""
_LEAST_SHRINK = 2.0**-20
_LEAST_SIGNAL = (
    0.1  # of a squared length, in squared lengths of its noise: below, a length or a cosine says little
)


@dataclass(frozen=True, kw_only=True)
class ServerStep:
    """Where the adaptive step stands after a round: a function of released and public numbers.

    Attributes:
        longest: the largest typical length of an update in the first rounds, as the thresholds said.
        agreement: length of the averages, in thresholds and without noise, smoothed over rounds: 1 where all agree.
        shrink: what steps have shrunk to because averages turned back; at most 1.
        last_factor: what the last average was multiplied by; it gives the average back from the answer.
    """

    longest: float
    agreement: float = 1.0
    shrink: float = 1.0
    last_factor: float = 1.0

    def factor(self, *, round: int, rounds: int) -> float:
        """Return what this round's average, in thresholds, is multiplied by; known before the round."""
        lengths = min(MOVE_LENGTHS, max(1.0, rounds / 12.0))
        multiple = min(lengths / self.agreement, LARGEST_MULTIPLE)
        return self.shrink * multiple * self.longest * (1.0 - (round - 1) / rounds)

    def move(
        self,
        average: FloatArray,
        last: FloatArray | None,
        *,
        round: int,
        rounds: int,
        noise_square: float,
        next_length: float,
    ) -> tuple[FloatArray, ServerStep]:
        """Return what to add to the model, and the step of the next round.

        Args:
            average: of this round, in thresholds, with its noise.
            last: what was added in the round before; None in the first.
            round, rounds: number of this round, from 1, and of all.
            noise_square: expected squared length of the noise in `average`.
            next_length: the typical length of an update that the next threshold says.

        >>> import numpy as np
        >>> step = ServerStep(longest=0.5)
        >>> average = np.array([0.3, 0.4])
        >>> moved, after = step.move(average, None, round=1, rounds=30, noise_square=0.01, next_length=0.5)
        >>> moved
        array([0.375, 0.5  ])
        >>> round(after.agreement, 2)  # so the next move is twice as long
        0.49
        >>> back, later = after.move(-average, moved, round=2, rounds=30, noise_square=0.01, next_length=0.5)
        >>> later.shrink < after.shrink
        True
        """
        factor = self.factor(round=round, rounds=rounds)
        square = _signal(average, noise_square)
        agreement, shrink = math.sqrt(square), self.shrink
        if last is not None:
            before = last / self.last_factor
            length = math.sqrt(square) * math.sqrt(_signal(before, noise_square))
            cosine = min(max(float((average * before).sum()) / length, -1.0), 1.0)
            change = _RECOVER * max(cosine - _AGREEING, 0.0) + _SHRINK * min(cosine - _TURNING, 0.0)
            shrink = min(max(shrink * math.exp(change), _LEAST_SHRINK), 1.0)
            agreement = math.sqrt(self.agreement) * math.sqrt(agreement)
        longest = max(self.longest, next_length) if round < LENGTH_ROUNDS else self.longest
        after = ServerStep(longest=longest, agreement=agreement, shrink=shrink, last_factor=factor)
        return factor * average, after

    # --- as text ----------------------------------------------------------------------------------------------------

    def to_text(self) -> str:
        """Return the step as text that gives the same floats back."""
        return " ".join(one.hex() for one in (self.longest, self.agreement, self.shrink, self.last_factor))

    @classmethod
    def from_text(cls, text: str) -> ServerStep:
        """Return the step of a text; ValueError if there is none in it."""
        longest, agreement, shrink, last_factor = numbers = [float.fromhex(one) for one in text.split()]
        if not all(0.0 < one < math.inf for one in numbers):
            raise ValueError("damaged")
        return cls(longest=longest, agreement=agreement, shrink=shrink, last_factor=last_factor)


def _signal(vector: FloatArray, noise_square: float) -> float:
    """The squared length of a noisy vector without its noise; a part of that of the noise at least."""
    return max(float((vector * vector).sum()) - noise_square, _LEAST_SIGNAL * noise_square)
