"""The adaptive step: how far a released average moves the model. All of it is post-processing and costs no privacy.

Clipped averages are short, and how short nobody can know beforehand: by the threshold, by how little clients agree, by
what hostile ones take away. So the length of the step is learned from the averages themselves. Where an average turns
back on the direction so far, steps are too long; where it goes on along it, they may be longer (as in Jacobs 1988, with
the noise, whose size is public, taken out of the lengths). Each move is part of the last one besides, which averages
noise out, and the moves decay linearly to nothing at the end of the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hubermean.data.arrays import FloatArray

FIRST_MULTIPLE = 20.0
"""Lengths of a typical update that the first move has where all clients agree, in a run of 30 rounds or more."""
MOMENTUM = 0.4
"""The part of a move's direction that comes from the moves before."""

_LENGTH_ROUNDS = 5
"""Rounds whose thresholds say how long updates are. Later lengths depend on how far the model swings: a step that followed
them would swing it further."""

_TURNING, _SHRINK = -0.9, 2.0
"""Below this cosine, steps shrink, and how fast: by e^-0.2 in a round where the average turns back exactly."""
_AGREEING, _GROW = 0.5, 0.3
_LEAST_SIGNAL = 0.1  # of a squared length, in squared lengths of its noise: below, a cosine says little
_LARGEST_FACTOR = 2.0**20  # of the multiple, either way


@dataclass(frozen=True, kw_only=True)
class ServerStep:
    """Where the adaptive step stands after a round: a function of released and public numbers.

    Attributes:
        multiple: of a typical length, that the next move has where all clients agree, before it decays.
        longest: the largest typical length of an update in the first rounds, as the thresholds said.
        last_factor: length of the last move where all clients agreed; it gives the direction back from the answer.
    """

    multiple: float
    longest: float
    last_factor: float = 1.0

    @classmethod
    def first(cls, *, rounds: int, length: float) -> ServerStep:
        """Return the step of round 1; the fewer rounds, the shorter."""
        return cls(multiple=min(FIRST_MULTIPLE, max(1.0, rounds / 1.5)), longest=length)

    def factor(self, *, round: int, rounds: int) -> float:
        """Return the length of this round's move where all clients agree; known before the round."""
        return self.multiple * self.longest * (1.0 - (round - 1) / rounds)

    def reach(self, *, round: int, rounds: int) -> float:
        """Return what this round's average, in thresholds, is multiplied by in the move."""
        return self.factor(round=round, rounds=rounds) * (1.0 if round == 1 else 1.0 - MOMENTUM)

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
        >>> step = ServerStep.first(rounds=30, length=0.5)
        >>> moved, after = step.move(
        ...     np.array([0.6, 0.8]), None, round=1, rounds=30, noise_square=0.01, next_length=0.4
        ... )
        >>> moved
        array([6., 8.])
        >>> back, later = after.move(
        ...     np.array([-0.6, -0.8]), moved, round=2, rounds=30, noise_square=0.01, next_length=0.4
        ... )
        >>> later.multiple < after.multiple
        True
        """
        factor = self.factor(round=round, rounds=rounds)
        direction, multiple = average, self.multiple
        if last is not None:
            before = last / self.last_factor
            share = _momentum_noise(round - 1) * noise_square
            cosine = _cosine(average, before, noise_square, share)
            change = _GROW * max(cosine - _AGREEING, 0.0) + _SHRINK * min(cosine - _TURNING, 0.0)
            multiple = min(
                max(multiple * math.exp(change), FIRST_MULTIPLE / _LARGEST_FACTOR),
                FIRST_MULTIPLE * _LARGEST_FACTOR,
            )
            direction = MOMENTUM * before + (1.0 - MOMENTUM) * average
        longest = max(self.longest, next_length) if round < _LENGTH_ROUNDS else self.longest
        return factor * direction, ServerStep(multiple=multiple, longest=longest, last_factor=factor)

    # --- as text ----------------------------------------------------------------------------------------------------

    def to_text(self) -> str:
        """Return the step as text that gives the same floats back."""
        return " ".join(one.hex() for one in (self.multiple, self.longest, self.last_factor))

    @classmethod
    def from_text(cls, text: str) -> ServerStep:
        """Return the step of a text; ValueError if there is none in it."""
        multiple, longest, last_factor = map(float.fromhex, text.split())
        if not all(0.0 < one < math.inf for one in (multiple, longest, last_factor)):
            raise ValueError("damaged")
        return cls(multiple=multiple, longest=longest, last_factor=last_factor)


def _momentum_noise(rounds: int) -> float:
    """The variance of noise in the direction after some rounds, in that of one average."""
    share = 1.0
    for _ in range(min(rounds - 1, 100)):  # it has settled by then
        share = MOMENTUM**2 * share + (1.0 - MOMENTUM) ** 2
    return share


def _cosine(one: FloatArray, other: FloatArray, noise: float, other_noise: float) -> float:
    """The cosine between two noisy vectors without their noise, which is independent: from -1 to 1."""
    squares = [
        max(float((vector * vector).sum()) - square, _LEAST_SIGNAL * square)
        for vector, square in ((one, noise), (other, other_noise))
    ]
    length = math.sqrt(squares[0]) * math.sqrt(squares[1])
    return min(max(float((one * other).sum()) / length, -1.0), 1.0) if length > 0.0 else 0.0
