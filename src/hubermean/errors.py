"""Every error raised on purpose.

    HubermeanError            base; never raised itself
    ├── InputError            bad input: a parameter, a file or a column (exit code 2)
    └── NotReleased           a mechanism's own private test said no (exit code 1)

A message is one sentence that says what to do next. It is made of parameters and schema only: never of a
user's value, nor of any statistic that did not pass a private mechanism.
"""

from __future__ import annotations

from numbers import Real


class HubermeanError(Exception):
    """Base of every error raised on purpose; `exit_code` is what the command line returns for it."""

    exit_code = 2


class InputError(HubermeanError, ValueError):
    """A parameter, a file or a column that cannot be used."""


class NotReleased(HubermeanError):  # noqa: N818 - a public name that says what happened
    """The mechanism's own (private) test decided against a release; the budget stated is spent."""

    exit_code = 1

    def __init__(self, reason: str, *, epsilon: float, delta: float) -> None:
        super().__init__(reason)
        self.epsilon = epsilon
        self.delta = delta


def is_real(given: object) -> bool:
    """Whether a parameter is a number, of Python's or of numpy's; True and False are not meant as numbers."""
    return isinstance(given, Real) and not isinstance(given, bool)
