"""The part of a command that holds private data: nothing of it stays on disk, and its timings are not printed."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import typer

from hubermean.types.timings import WARNING, UnsafeTimings


def no_core_dumps() -> None:
    """Keep the memory of this process off the disk should it crash."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


@contextlib.contextmanager
def private_run(*, unsafe_timings: bool = False) -> Iterator[None]:
    """Remove scratch files also on SIGTERM; print the time of each stage where `unsafe_timings` is set."""
    with _end_like_an_interrupt(), contextlib.ExitStack() as stack:
        if unsafe_timings:
            timings = stack.enter_context(UnsafeTimings())
            stack.callback(_print, timings)
        yield


def _print(timings: UnsafeTimings) -> None:
    typer.echo(WARNING, err=True)
    for name, seconds in timings.stages.items():
        typer.echo(f"{seconds:12.6f} s  {name}", err=True)


@contextlib.contextmanager
def _end_like_an_interrupt() -> Iterator[None]:
    """Turn SIGTERM into an exception; by default it would leave scratch files behind."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield
        return
    received: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        if received:
            sys.exit(128 + received[0])  # as a shell reports it
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
