"""How much a search does: a number of pairs, within a time limit if there is one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

Progress = Callable[[int, float], None]
"""Called with the number of pairs evaluated so far, and the share of the search that is done, from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much a search does, from the moment it is made.

    Attributes:
        pairs: how many pairs it evaluates at most.
        seconds: a time limit, or None. Without one, the search depends on its seed alone.
        progress: called after each pair.
    """

    pairs: int
    seconds: float | None = None
    progress: Progress | None = None
    begin: float = field(default_factory=lambda: time.monotonic())

    def used(self, evaluated: int) -> float:
        """Return the share of the effort that is used after so many pairs."""
        elapsed = 0.0 if self.seconds is None else (time.monotonic() - self.begin) / self.seconds
        return min(max(evaluated / self.pairs, elapsed), 1.0)

    def is_late(self, share: float) -> bool:
        """Whether this share of the time limit is over."""
        return self.seconds is not None and self.used(0) >= share

    def report(self, evaluated: int) -> None:
        """Report the progress after so many pairs."""
        if self.progress is not None:
            self.progress(evaluated, self.used(evaluated))
