"""How long the stages of a release took: never measured unless asked for, since it depends on the data.

Time is not covered by any privacy promise (docs/timing.md). This module alone reads a clock; the stages of a release
are marked with `stage`, which does nothing while nobody asks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar, Token
from typing import Self

_asking: ContextVar[UnsafeTimings | None] = ContextVar("hubermean_unsafe_timings", default=None)

WARNING = "unsafe: these depend on the data"


class UnsafeTimings:
    """Seconds of each stage of the releases made inside of it; for the owner of the data, not to be published.

    `stages` names them in order; a stage within a stage is named after both, and one that is done again adds up.

    >>> import hubermean as hm
    >>> with hm.UnsafeTimings() as timings:
    ...     release = hm.mean_of_user_means([1.0, 2.0], epsilon=1, bounds=(0, 3))
    >>> list(timings.stages)
    ['preparing', 'mechanism', 'mechanism: law', 'mechanism: draw', 'mechanism: outcome']
    """

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._open: list[str] = []
        self._token: Token[UnsafeTimings | None] | None = None

    def __enter__(self) -> Self:
        self._token = _asking.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            _asking.reset(self._token)
            self._token = None

    def __repr__(self) -> str:
        return "UnsafeTimings(seconds that depend on the data, in .stages)"

    @contextlib.contextmanager
    def _measure(self, name: str) -> Iterator[None]:
        self._open.append(name)
        full = ": ".join(self._open)
        self.stages.setdefault(full, 0.0)  # before what is inside of it
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stages[full] += time.perf_counter() - start
            self._open.pop()


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """A stage of a release, as a block or a decorator."""
    asking = _asking.get()
    if asking is None:
        yield
    else:
        with asking._measure(name):
            yield
