"""Every error raised on purpose.

    HubermeanError            base; never raised itself
    ├── InputError            bad input: a parameter, a file or a column (exit code 2)
    ├── NotReleased           a mechanism's own private test said no (exit code 1)
    ├── BudgetExhausted       a data set has too little budget left (exit code 3)
    ├── LedgerUnavailable     a ledger cannot be read or written now (exit code 2)
    └── LedgerDamaged         a ledger is not as it was written (exit code 5)

A message is one sentence that says what to do next. It is made of parameters and schema only: never of a
user's value, nor of any statistic that did not pass a private mechanism.
"""

from __future__ import annotations

from numbers import Real


class HubermeanError(Exception):
    """Base of every error raised on purpose; `exit_code` is what the command line returns for it."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class InputError(HubermeanError, ValueError):
    """A parameter, a file or a column that cannot be used."""


class NotReleased(HubermeanError):  # noqa: N818 - a public name that says what happened
    """The mechanism's own (private) test decided against a release; the budget stated is spent."""

    exit_code = 1

    def __init__(self, reason: str, *, epsilon: float, delta: float) -> None:
        super().__init__(reason)
        self.epsilon = epsilon
        self.delta = delta


class BudgetExhausted(HubermeanError):  # noqa: N818 - a public name that says what happened
    """A data set has less budget left than was asked for; nothing was spent, and the data was not touched.

    Attributes:
        dataset: the name of the data set.
        epsilon, delta: what is left; under concentrated composition, the largest pure epsilon that is.
    """

    exit_code = 3

    def __init__(self, reason: str, *, dataset: str, epsilon: float, delta: float) -> None:
        super().__init__(reason)
        self.dataset = dataset
        self.epsilon = epsilon
        self.delta = delta


class LedgerUnavailable(HubermeanError):  # noqa: N818 - a public name that says what happened
    """A ledger that cannot be read or written now: a full disk, a lost connection, a missing permission."""


class LedgerDamaged(HubermeanError):  # noqa: N818 - a public name that says what happened
    """A ledger that is not as it was written; nothing is released against it.

    Attributes:
        entry: the number of the first entry that is damaged, where that can be told.
    """

    exit_code = 5

    def __init__(self, reason: str, *, entry: int | None = None) -> None:
        super().__init__(reason)
        self.entry = entry


class NotRecorded(UserWarning):
    """A release was paid for and returned, but the ledger could not keep it: keep it yourself."""


def one_line(message: str) -> str:
    """Names in a message may hold line breaks and control codes, which a terminal or a log would obey."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in message)


def is_real(given: object) -> bool:
    """Whether a parameter is a number, of Python's or of numpy's; True and False are not meant as numbers."""
    return isinstance(given, Real) and not isinstance(given, bool)
