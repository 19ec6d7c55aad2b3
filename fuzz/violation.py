"""What is guaranteed about errors, and the exception that says that a guarantee was broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import hubermean as hm
from fuzz.novelty import notice

T = TypeVar("T")
_ENGINES = ("duckdb", "_duckdb", "pyarrow", "polars", "pandas")


class Violation(AssertionError):  # noqa: N818 - not an error of the program's
    """A guarantee about hostile input was broken."""


def require(holds: bool, guarantee: str) -> None:
    if not holds:
        raise Violation(guarantee)


def result_or_refusal(work: Callable[[], T], *, hidden: Iterable[str] = ()) -> T | None:
    """What `work` gives, or None where it refused in the way that is guaranteed; whatever else it raises
    passes through.

    `hidden` are texts of the data, which no message may hold.
    """
    try:
        return work()
    except hm.HubermeanError as error:
        check_refusal(error, hidden=hidden)
        notice(str(error))
        return None


def check_refusal(error: BaseException, *, hidden: Iterable[str] = ()) -> None:
    """One line that quotes no data, and no error of an engine, which would, behind it."""
    said = str(error)
    require(bool(said.strip()), "an error says something")
    require(len(said.splitlines()) == 1, "an error is one line")
    for text in hidden:
        require(text not in said, "an error quotes no data")
    behind = error.__context__
    while behind is not None:
        engine = type(behind).__module__.split(".")[0]
        require(engine not in _ENGINES, "an error carries no error of an engine")
        behind = behind.__context__


def is_foreign(error: BaseException) -> bool:
    """Whether a library cannot make what a target wanted to test with; Rust's panics are no `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
