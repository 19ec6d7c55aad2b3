"""Around the part of a command that holds private data: what may be left of it, and what may be told of it."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import typer

from hubermean.unsafe_timings import WARNING, UnsafeTimings


def no_core_dumps() -> None:
    """Should this process crash, its memory is not written to disk; the limit can be raised again by who may."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


@contextlib.contextmanager
def private_run(*, unsafe_timings: bool = False) -> Iterator[None]:
    """Remove scratch files also when the process is asked to end; print the times of all stages if asked to."""
    with _ended_like_an_interrupt(), contextlib.ExitStack() as asked:
        if unsafe_timings:
            timings = asked.enter_context(UnsafeTimings())
            asked.callback(_print, timings)
        yield


def _print(timings: UnsafeTimings) -> None:
    typer.echo(WARNING, err=True)
    for name, seconds in timings.stages.items():
        typer.echo(f"{seconds:12.6f} s  {name}", err=True)


@contextlib.contextmanager
def _ended_like_an_interrupt() -> Iterator[None]:
    """SIGTERM would end the process on the spot, scratch files and all."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread hears of signals
        yield
        return
    heard: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        if heard:
            sys.exit(128 + heard[0])  # as a shell reports it
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
