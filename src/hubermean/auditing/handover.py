"""Neighbouring data sets as records in a container, read the way a release reads them.

An audit of laws alone begins with users; here it begins with the first byte. In a container that guesses types from
its content, the changed user also has an id and missing values of another type than everybody else's: what is guessed
from one user must decide nothing about the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from hubermean.auditing.cells import Columns, kinds_of
from hubermean.auditing.containers import CONTAINERS, Container
from hubermean.errors import InputError

T = TypeVar("T")

MOST_RECORDS = 20
"""Of one user, in an audit through a container."""

_ODD_USER, _ODD_VALUE = "someone else", "n/a"


@dataclass
class Handover:
    """Puts two data sets into one kind of container, and has them read.

    `refusal` is the last one of the reader, and `was_read` says whether it read any data set at all: a container that
    is refused whatever it holds tells nothing, and gets no verdict.
    """

    container: Container
    refusal: InputError | None = None
    was_read: bool = False

    @classmethod
    def named(cls, name: str) -> Handover:
        if name not in CONTAINERS:
            raise InputError(f"container must be one of {', '.join(map(repr, CONTAINERS))}, not {name!r}")
        return cls(CONTAINERS[name])

    @contextmanager
    def of(self, first: Columns, second: Columns) -> Iterator[tuple[Any, Any]]:
        """Both data sets, as long as they are needed; a declared schema is the same for both."""
        kinds = kinds_of(first, second)
        with TemporaryDirectory() as folder:
            data = []
            for number, columns in enumerate((first, second)):
                own = Path(folder) / str(number)
                own.mkdir()
                data.append(self.container.make(columns, own, kinds))
            yield data[0], data[1]

    def read(self, reader: Callable[[Any], T], data: Any) -> T | None:
        """What a reader makes of a data set; None where it refuses: alike for neighbours, or that tells them apart."""
        try:
            table = reader(data)
        except InputError as refused:
            self.refusal = refused
            return None
        self.was_read = True
        return table

    def check(self) -> None:
        """Raise what the reader said if it refused every data set."""
        if self.refusal is not None and not self.was_read:
            raise self.refusal

    def changed_user(self, user: int) -> int | str:
        """The id of the user that changes: of another type than the others' where types are guessed."""
        return user if self.container.typed else _ODD_USER

    def cell(self, value: float, *, changed: bool = False) -> float | str | None:
        """A value as a cell; one that is missing is a text for the changed user where types are guessed."""
        if math.isfinite(value):
            return value
        return _ODD_VALUE if changed and not self.container.typed else None
