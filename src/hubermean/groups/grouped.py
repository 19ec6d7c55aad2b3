"""A mechanism over groups: for `clipped` and `adaptive` all groups at once, for the others one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import NotReleased
from hubermean.exact.adding import Membership
from hubermean.group_table import GroupTable, Key
from hubermean.groups.division import Division
from hubermean.laws import Claim, Independent, Law, NoisySum, Staged, without_claims
from hubermean.mechanisms import Outcome, Prepared
from hubermean.noise import NoiseSource
from hubermean.release import Interval, IntervalRule
from hubermean.release_table import Denominators, TableIntervals
from hubermean.spending import Spent
from hubermean.unsafe_timings import stage
from hubermean.user_table import UserTable

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class GroupOutcome:
    """What left a grouped mechanism: all of it released or public.

    Attributes:
        keys: the groups, in the caller's order or sorted.
        values: shape (groups, columns); NaN where the mechanism's own test failed.
        refusals: why, by the number of the group.
        denominators: the measured weight of each group; None if it was not measured.
    """

    keys: Sequence[Key]
    values: Floats
    parameters: Mapping[str, Any]
    intervals: TableIntervals | None = None
    denominators: Denominators | None = None
    refusals: Mapping[int, str] = field(default_factory=dict)
    mechanism: str | None = None
    spent: tuple[Spent, ...] = ()


class Groups(ABC):
    """A way to release groups whose keys are settled."""

    @abstractmethod
    def law(self, table: GroupTable, keys: Sequence[Key]) -> Law:
        """The law of the release of these groups; one that nobody is in is like any other."""

    @abstractmethod
    def outcome(self, draw: Any, keys: Sequence[Key]) -> GroupOutcome:
        """Post-processing of a draw."""


@dataclass(frozen=True, kw_only=True)
class PreparedGroups:
    """A grouped release whose every public decision is made."""

    division: Division
    groups: Groups

    def law(self, table: GroupTable) -> Law:
        selection = self.division.selection
        if selection is None:
            return self.groups.law(table, table.keys)
        chosen = replace(selection.law(table), claim=self.division.claim_of_keys())
        return Staged(first=chosen, then=lambda keys: self.groups.law(table, keys))

    def outcome(self, draw: Any, table: GroupTable) -> GroupOutcome:
        if self.division.selection is None:
            return self.groups.outcome(draw, table.keys)
        keys, rest = draw
        return self.groups.outcome(rest, keys)

    def run(self, table: GroupTable, noise: NoiseSource) -> GroupOutcome:
        with stage("law"):
            law = self.law(table)
        with stage("draw"):
            draw = law.draw(noise)
        with stage("outcome"):
            return self.outcome(draw, table)


class Additive(Protocol):
    """A mechanism that adds noise to sums, of one group or of many at once."""

    def statistic(self, table: UserTable, membership: Membership | None = None) -> list[list[int]]: ...

    def noisy(self, sums: Sequence[Sequence[int]]) -> NoisySum: ...

    def found(self, draw: Sequence[int], groups: int = 1) -> Any: ...

    def parameters(self) -> dict[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class Together(Groups):
    """All groups in one go: their sums in one pass, their noise in one draw."""

    prepared: Additive
    mechanism: str

    def law(self, table: GroupTable, keys: Sequence[Key]) -> NoisySum:
        sums = self.prepared.statistic(table.members, table.membership)
        if keys is not table.keys:
            place = {key: number for number, key in enumerate(table.keys)}
            # In a group that nobody is in there is nothing to add up.
            wanted = [place.get(key, -1) for key in keys]
            sums = [[0 if number < 0 else term[number] for number in wanted] for term in sums]
        return self.prepared.noisy(sums)

    def outcome(self, draw: Sequence[int], keys: Sequence[Key]) -> GroupOutcome:
        found = self.prepared.found(draw, len(keys))
        return GroupOutcome(
            keys=keys,
            values=found.values(),
            parameters=self.prepared.parameters(),
            intervals=found,
            denominators=found,
            mechanism=self.mechanism,
        )


@dataclass(frozen=True, kw_only=True)
class OneByOne(Groups):
    """Any mechanism, on the table of each group; `claim` is what all of them cost together.

    What the mechanism claims is for one user more or less in one group; one user may change more than that.
    """

    prepared: Prepared
    claim: Claim
    mechanism: str
    columns: int

    def law(self, table: GroupTable, keys: Sequence[Key]) -> Independent:
        tables = dict(zip(table.keys, table.tables(), strict=True))
        nobody = table.members.taken(np.zeros(0, dtype=np.int64))
        laws = [without_claims(self.prepared.law(tables.get(key, nobody))) for key in keys]
        return Independent(parts=laws, claim=self.claim)

    def outcome(self, draw: Sequence[Any], keys: Sequence[Key]) -> GroupOutcome:
        outcomes: list[Outcome | None] = []
        refusals = {}
        for number, own in enumerate(draw):
            try:
                outcomes.append(self.prepared.outcome(own))
            except NotReleased as refusal:
                outcomes.append(None)
                # What it cost is said of the whole table.
                refusals[number] = str(refusal).split(";")[0]
        nothing = (np.nan,) * self.columns
        values = [nothing if one is None else one.values for one in outcomes]
        made = [one for one in outcomes if one is not None]
        rules = [None if one is None else one.interval_rule for one in outcomes]
        return GroupOutcome(
            keys=keys,
            values=np.array(values, dtype=np.float64).reshape(len(keys), self.columns),
            # Those of a single group are not the table's.
            parameters=_shared([one.parameters for one in made]) if len(made) > 1 or len(keys) == 1 else {},
            intervals=RowByRow(rules=rules, columns=self.columns) if any(rules) else None,
            refusals=refusals,
            mechanism=next((one.mechanism for one in made if one.mechanism), self.mechanism),
        )


def _shared(parameters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all groups have in common."""
    if not parameters:
        return {}
    first, *others = parameters
    return {
        name: given
        for name, given in first.items()
        if all(name in one and one[name] == given for one in others)
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class RowByRow:
    """Intervals that each group made for itself."""

    rules: Sequence[IntervalRule | None]
    columns: int

    @property
    def covers(self) -> str:
        return self._first().covers

    def _first(self) -> Interval:
        return next(rule for rule in self.rules if rule is not None).at(0.95)

    def ends(self, level: float) -> tuple[Floats, Floats]:
        nothing = (np.nan,) * self.columns
        made = [None if rule is None else rule.at(level) for rule in self.rules]
        low = [nothing if one is None else one.low for one in made]
        high = [nothing if one is None else one.high for one in made]
        return np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
