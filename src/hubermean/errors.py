"""Every error raised on purpose.

    HubermeanError            base; never raised itself
    ├── InputError            bad input: a parameter, a file or a column (exit code 2)
    ├── NotReleased           a private step decided against a release (exit code 1)
    ├── BudgetExhausted       a data set has too little budget left (exit code 3)
    ├── LedgerUnavailable     a ledger cannot be read or written now (exit code 2)
    └── LedgerDamaged         a ledger was changed after it was written (exit code 5)

A message says what happened and what to do. It quotes parameters and the schema only, never a user's value or an
unreleased statistic. Parameters are mentioned by `parameter`, so that the command line can print its options instead.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

_BEGIN, _END = "\x02", "\x03"  # around a parameter that a message mentions


class HubermeanError(Exception):
    """Base of every error raised on purpose; `exit_code` is what the command line returns for it.

    Attributes:
        message: the message, with parameters as `parameter` marks them; `str(error)` has them as Python writes them.
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(self._as_python_writes_it())

    def advise(self, advice: str) -> None:
        """Add to the message what else can be done, as `advice` says."""
        self.message = f"{self.message}; {advice}"
        self.args = (self._as_python_writes_it(),)

    def _as_python_writes_it(self) -> str:
        return self.spelled(lambda name, value: f"{name}={value}" if value else name)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that the message mentions."""
        return tuple(piece.partition(_END)[0].partition("=")[0] for piece in self.message.split(_BEGIN)[1:])

    def spelled(self, spell: Callable[[str, str], str]) -> str:
        """Return the message with each parameter as `spell` writes its name and its value, empty if it has none."""
        text, *pieces = self.message.split(_BEGIN)
        for piece in pieces:
            mention, _, more = piece.partition(_END)
            name, _, value = mention.partition("=")
            text += spell(name, value) + more
        return printable(text)


def parameter(name: str, value: object = None) -> str:
    """Mention a parameter in a message, alone or with a value.

    >>> error = InputError(f"{parameter('max_records')} is for {parameter('per', 'record')}")
    >>> print(error)
    max_records is for per='record'
    >>> error.parameters
    ('max_records', 'per')
    """
    return f"{_BEGIN}{name}{'' if value is None else f'={value!r}'}{_END}"


class InputError(HubermeanError, ValueError):
    """A parameter, a file or a column that cannot be used."""


class NotReleased(HubermeanError):  # noqa: N818 - a public name that says what happened
    """A private step of the mechanism decided against a release.

    Attributes:
        epsilon, delta: what was spent, rounded up: all of the budget, or what the steps cost that had run. Nothing
            where an earlier refusal of the same question is returned again.
        rho: what was spent in concentrated privacy, where the steps are accounted for in it.
    """

    exit_code = 1

    def __init__(self, reason: str, *, epsilon: float, delta: float, rho: Fraction | None = None) -> None:
        super().__init__(reason)
        self.epsilon = epsilon
        self.delta = delta
        self.rho = rho


class BudgetExhausted(HubermeanError):  # noqa: N818 - a public name that says what happened
    """A release exceeds the remaining budget of its data set; nothing was spent and no data were read.

    Attributes:
        dataset: the name of the data set.
        epsilon, delta: what is left; under concentrated composition, the largest pure epsilon that still fits.
    """

    exit_code = 3

    def __init__(self, reason: str, *, dataset: str, epsilon: float, delta: float) -> None:
        super().__init__(reason)
        self.dataset = dataset
        self.epsilon = epsilon
        self.delta = delta


class LedgerUnavailable(HubermeanError):  # noqa: N818 - a public name that says what happened
    """A ledger cannot be read or written now: a full disk, a lost connection, a missing permission."""


class LedgerDamaged(HubermeanError):  # noqa: N818 - a public name that says what happened
    """A ledger was changed after it was written; nothing is released against it.

    Attributes:
        entry: the number of the first damaged entry, if it can be identified.
    """

    exit_code = 5

    def __init__(self, reason: str, *, entry: int | None = None) -> None:
        super().__init__(reason)
        self.entry = entry


class NotRecorded(UserWarning):
    """A release was charged and returned, but the ledger could not record it: keep it yourself."""


def printable(message: str) -> str:
    """Replace line breaks and control codes, which a terminal or a log would interpret."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in message)
