"""Stage timings of a release, measured only when requested explicitly, because they depend on the data.

No privacy guarantee covers timing (docs/evidence/timing.md). Only this module reads a clock. `stage` marks the stages
of a release and does nothing unless timings were requested.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar, Token
from typing import Self

_active: ContextVar[UnsafeTimings | None] = ContextVar("hubermean_unsafe_timings", default=None)

WARNING = "unsafe: timings depend on the data"


class UnsafeTimings:
    """Seconds per stage of the releases made within this context; for the owner of the data, not for publication.

    `stages` maps names to seconds, in order. A nested stage has both names; repeated stages are added up.

    >>> import hubermean as hm
    >>> with hm.UnsafeTimings() as timings:
    ...     release = hm.mean_of_user_means([1.0, 2.0], epsilon=1, bounds=(0, 3))
    >>> list(timings.stages)
    ['preparing', 'mechanism', 'mechanism: distribution', 'mechanism: sample', 'mechanism: outcome']
    """

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._open: list[str] = []
        self._token: Token[UnsafeTimings | None] | None = None

    def __enter__(self) -> Self:
        self._token = _active.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            _active.reset(self._token)
            self._token = None

    def __repr__(self) -> str:
        return "UnsafeTimings(seconds that depend on the data, in .stages)"

    @contextlib.contextmanager
    def _measure(self, name: str) -> Iterator[None]:
        self._open.append(name)
        full = ": ".join(self._open)
        self.stages.setdefault(full, 0.0)  # listed before nested stages
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stages[full] += time.perf_counter() - start
            self._open.pop()


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Mark a stage of a release, as a context manager or decorator."""
    timings = _active.get()
    if timings is None:
        yield
    else:
        with timings._measure(name):
            yield
