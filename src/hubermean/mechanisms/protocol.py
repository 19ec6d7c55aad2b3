"""The small protocol behind which every mechanism lives.

A mechanism is told what is public (`Request`, `PublicFacts`), decides everything it can from that alone, and
only then sees the private table, which it turns into a law; a draw from that law is all it may release. To add one,
write a class with `name`, `check` and `prepare`, and pass an instance as `hubermean.mean(...,
mechanism=YourMechanism())`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from itertools import repeat
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np

from hubermean.errors import InputError
from hubermean.laws import Law
from hubermean.noise import NoiseSource
from hubermean.relations import Neighbors
from hubermean.release import Denominator, IntervalRule
from hubermean.spending import Spent, checked_budget
from hubermean.unsafe_timings import stage
from hubermean.user_table import IntArray, PrivateTable, UserTable

Per = Literal["record", "user"]
Bounds = tuple[float, float]
OneOrTwoBounds = tuple[float | None, float | None]

PLANNED_USERS = 3_000
"""How many users tunings and predictions count on where the number of users is private, unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the caller knows and takes as public; each mechanism uses some of it and refuses the rest."""

    bounds: OneOrTwoBounds | Sequence[OneOrTwoBounds] | None = None
    record_cap: int | None = None
    threshold: float | None = None
    threshold_power: float | None = None
    scale: float | Sequence[float] | None = None
    radius: float | None = None
    hostile: float | None = None
    n_users: int | None = None

    @classmethod
    def given(cls, **known: Any) -> Known:
        """With numbers of numpy's as Python's own; what is no number is left for the mechanism to refuse."""
        return cls(**{name: _plain(number) for name, number in known.items()})

    def given_ones(self) -> dict[str, Any]:
        """What is known, by name."""
        return {
            one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) is not None
        }

    def spread(self, *more: str, of: str) -> tuple[float, float]:
        """Threshold and radius for a mechanism that needs both and takes no bounds; it may use `more`."""
        self.only("threshold", "radius", "record_cap", *more, of=of)
        if self.threshold is None:
            raise InputError("give threshold= (the distance from the mean within which most user means lie)")
        if self.radius is None:
            raise InputError("give radius= (the mean lies within this distance of 0; it may be generous)")
        return self.threshold, self.radius

    def only(self, *used: str, of: str) -> None:
        """Refuse what a mechanism would have to ignore."""
        for one in fields(self):
            if getattr(self, one.name) is not None and one.name not in used:
                raise InputError(f"{one.name} is not used by mechanism {of!r}; leave it out")


class Column(NamedTuple):
    """A value column: its name, and the largest magnitude its encoding can hold."""

    name: str
    limit: Fraction


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the caller asked for. Public."""

    columns: tuple[str, ...]
    epsilon: float
    delta: float
    neighbors: Neighbors
    per: Per

    @classmethod
    def checked(
        cls, columns: tuple[str, ...], *, epsilon: float, delta: float, per: str, neighbors: str | Neighbors
    ) -> Request:
        """A request whose every argument is in range."""
        epsilon, delta = checked_budget(epsilon, delta)
        if not isinstance(per, str) or per not in get_args(Per):
            raise InputError(f"per must be 'record' or 'user', not {per!r}")
        return cls(
            columns=columns,
            epsilon=epsilon,
            delta=delta,
            neighbors=Neighbors.parse(neighbors),
            per="record" if per == "record" else "user",
        )


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """What the neighbour relation makes public about the data, and nothing else.

    `n_users` is None under `add-remove`; `record_counts` is None unless counts are public. `planned_users` stands in
    for a private number of users where something is tuned or predicted: a public guess, never the true number; so does
    `planned_weight` for a private weight of all users, where there is a better guess than the number of users.
    `held_up_to` says from how many users on they are not on one machine; None if they always are.
    """

    columns: tuple[Column, ...]
    n_users: int | None
    record_counts: IntArray | None
    planned_users: int = PLANNED_USERS
    planned_weight: float | None = None
    held_up_to: int | None = None

    @classmethod
    def declared(
        cls,
        columns: Sequence[str],
        limits: Sequence[Fraction],
        *,
        n_users: int | None = None,
        held_up_to: int | None = None,
    ) -> PublicFacts:
        """What a schema and the caller say, before any record is read."""
        named = zip(columns, limits, strict=True)
        made = tuple(map(tuple.__new__, repeat(Column), named))  # no call of Python's for each of many
        return cls(columns=made, n_users=n_users, record_counts=None, held_up_to=held_up_to)

    @classmethod
    def of(cls, table: PrivateTable, neighbors: Neighbors) -> PublicFacts:
        """InputError where users are in parts and their counts would be public: these are as many as the users."""
        if neighbors.counts_are_public and not isinstance(table, UserTable):
            raise InputError(
                f"{neighbors.value!r} takes users on one machine; use neighbors='replace-user' or 'add-remove'"
            )
        n_users = table.n_users if neighbors.users_are_public else None
        facts = cls.declared(table.columns, table.limits, n_users=n_users, held_up_to=table.held_up_to)
        if neighbors.counts_are_public and isinstance(table, UserTable):
            return replace(facts, record_counts=table.records)
        return facts


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What left the mechanism: all of it released or public.

    `mechanism` is the name of the mechanism that made it, where that is not the one that was asked for.
    `spent` says what the budget was spent on; empty where all of it went at once. `warnings` are sentences for whoever
    reads the number, made of released quantities only.
    """

    values: tuple[float, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    interval_rule: IntervalRule | None = None
    mechanism: str | None = None
    denominator: Denominator | None = None
    spent: tuple[Spent, ...] = ()
    warnings: tuple[str, ...] = ()


class Prepared(ABC):
    """A mechanism whose every public decision is made."""

    @abstractmethod
    def law(self, table: PrivateTable) -> Law:
        """The law of the release given the data: private, and all that private data decides.

        It is the same law for the same users in whatever parts; a mechanism that cannot work on parts takes
        `table.collected()`.
        """

    @abstractmethod
    def outcome(self, draw: Any) -> Outcome:
        """Post-processing of a draw from the law, with public numbers only.

        Raises:
            NotReleased: the draw is the decision not to release.
        """

    def claims(self, law: Any, neighbour: Any) -> Mapping[str, float]:
        """What the proof claims about the laws of two neighbours, each as the share used of what it allows.

        For audits: a number above 1 refutes the proof, whether or not this pair breaks the promise.
        """
        return {}

    def concentrated(self) -> Fraction | None:
        """The rho for which the law is concentrated (zCDP), if it is; from public numbers alone.

        A ledger that adds up concentrated losses charges it; None where only (epsilon, delta) is known.
        """
        return None

    def is_adaptive(self) -> bool:
        """Whether it searches for its parameters step by step: an audit then makes pairs for each of the steps."""
        return False

    def users_to_audit(self) -> int:
        """How few users show the mechanism at work; fewer than this and it would only refuse."""
        return 1

    def predicted_noise(self) -> tuple[float, ...]:
        """The standard deviation of what the mechanism adds to each column, in units of the values.

        From public numbers alone, for users of whom nearly all lie within the threshold; `auto` and `plan` compare
        mechanisms by it. Nothing of privacy rests on it.

        Raises:
            InputError: with these public numbers no useful release is to be expected.
        """
        raise InputError("this mechanism offers no prediction of its noise; name it with mechanism=")

    def run(self, table: PrivateTable, noise: NoiseSource) -> Outcome:
        with stage("law"):
            law = self.law(table)
        with stage("draw"):
            draw = law.draw(noise)
        with stage("outcome"):
            return self.outcome(draw)


class Mechanism(Protocol):
    """A way to release a mean."""

    @property
    def name(self) -> str: ...

    def check(self, request: Request) -> None:
        """Refuse (InputError) what cannot work, from the request alone, before any data is read."""

    def prepare(self, request: Request, facts: PublicFacts) -> Prepared:
        """Decide everything that does not need private data."""


def _plain(given: Any) -> Any:
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if isinstance(given, list | tuple):
        return tuple(_plain(one) for one in given)
    if isinstance(given, bool) or not isinstance(given, Real):
        return given
    try:
        return int(given) if isinstance(given, Integral) else float(given)
    except OverflowError:  # beyond all floats, and so beyond all that is taken
        return given
