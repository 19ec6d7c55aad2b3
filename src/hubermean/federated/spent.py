"""What a run of rounds costs, in words and numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hubermean.types.clients import ClientNeighbors


@dataclass(frozen=True, kw_only=True)
class PrivacySpent:
    """The guarantee of a run. The whole run is charged before its first round.

    Attributes:
        epsilon, delta: spent so far: nothing before the first round, all of it from then on. The guarantee of every
            average of the run together.
        rounds_done, rounds: finished rounds, and rounds that were paid for.
        neighbors: the change that is hidden.
        noise_multiplier: standard deviation of the noise of a step's sum, in thresholds.
        secure: whether the noise was real; with seeded noise nothing is private.
    """

    epsilon: float
    delta: float
    rounds_done: int
    rounds: int
    neighbors: ClientNeighbors
    noise_multiplier: float
    secure: bool

    def __str__(self) -> str:
        """Say it in sentences."""
        if not self.secure:
            return "No privacy: the noise of this run was seeded."
        if self.epsilon == 0.0:
            return f"Nothing spent: the first of {self.rounds} rounds was not begun."
        factor = math.exp(min(self.epsilon, 700.0))
        written = f"{factor:,.0f}" if 100.0 <= factor < 1e9 else f"{factor:.3g}"
        lines = [
            f"epsilon = {self.epsilon:g}, delta = {self.delta:g} for each client, over all {self.rounds} rounds "
            f"({self.rounds_done} done).",
            f"{self.neighbors.change} changes the probability of any result by at most a factor of {written}, plus "
            f"{self.delta:g}.",
            self.neighbors.public_numbers,
        ]
        return "\n".join(lines)
