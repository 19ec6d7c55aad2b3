"""Mechanisms over groups: `clipped`, `adaptive` and counts release all groups at once, others group by group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from hubermean.accounting.budget import THE_GROUPS, BudgetEntry, Claim
from hubermean.data.arrays import FloatArray
from hubermean.data.group_table import GroupKey, GroupTable, Membership
from hubermean.data.user_table import UserTable
from hubermean.distributions.output import Independent, NoisySum, OutputDistribution, Staged, without_claims
from hubermean.errors import NotReleased
from hubermean.mechanisms.base import Outcome, Prepared, refusals_cost_everything
from hubermean.mechanisms.groups.budget_split import GroupBudgetSplit
from hubermean.noise.source import NoiseSource
from hubermean.types.dry_run import Prospect
from hubermean.types.release import Interval, IntervalRule
from hubermean.types.release_table import Denominators, TableIntervals
from hubermean.types.timings import stage


@dataclass(frozen=True, kw_only=True)
class GroupOutcome:
    """The result of a grouped mechanism: all of it released or public.

    Attributes:
        keys: the groups, in the caller's order or sorted.
        values: shape (groups, columns); NaN where the mechanism's own test failed.
        refusals: why not, by the index of the group.
        warnings: sentences for the reader of the table, made of released quantities only.
        denominators: the measured weight of each group; None if it was not measured.
    """

    keys: Sequence[GroupKey]
    values: FloatArray
    parameters: Mapping[str, Any]
    intervals: TableIntervals | None = None
    denominators: Denominators | None = None
    refusals: Mapping[int, str] = field(default_factory=dict)
    mechanism: str | None = None
    budget_breakdown: tuple[BudgetEntry, ...] = ()
    warnings: tuple[str, ...] = ()


class GroupMechanism(ABC):
    """A way to release the values of groups whose keys are decided."""

    @abstractmethod
    def distribution(self, table: GroupTable, keys: Sequence[GroupKey]) -> OutputDistribution:
        """The output distribution for these groups; a group without users is treated like any other."""

    @abstractmethod
    def outcome(self, sample: Any, keys: Sequence[GroupKey]) -> GroupOutcome:
        """Post-processing of a sample, with public numbers only."""

    def prospect(self) -> Prospect:
        """What a release would do and need, for dry runs; of one group where groups are released one by one."""
        return Prospect()


@dataclass(frozen=True, kw_only=True)
class PreparedGroups:
    """A grouped release with every public decision made."""

    group_split: GroupBudgetSplit
    groups: GroupMechanism

    def prospect(self) -> Prospect:
        """What a release would do and need, for dry runs."""
        found = self.groups.prospect()
        if (selection := self.group_split.selection) is None:
            return found
        needs = f"about {selection.usual_users:,} users for a group to appear"
        return replace(found, steps=(THE_GROUPS, *found.steps), needs=(needs, *found.needs))

    def distribution(self, table: GroupTable) -> OutputDistribution:
        selection = self.group_split.selection
        if selection is None:
            return self.groups.distribution(table, table.keys)
        chosen = replace(selection.distribution(table), claim=self.group_split.selection_claim())
        return Staged(first=chosen, then=lambda keys: self.groups.distribution(table, keys))

    def outcome(self, sample: Any, table: GroupTable) -> GroupOutcome:
        if self.group_split.selection is None:
            return self.groups.outcome(sample, table.keys)
        keys, rest = sample
        return self.groups.outcome(rest, keys)

    def run(self, table: GroupTable, noise: NoiseSource) -> GroupOutcome:
        with refusals_cost_everything():
            with stage("distribution"):
                distribution = self.distribution(table)
            with stage("sample"):
                sample = distribution.sample(noise)
        with stage("outcome"):
            return self.outcome(sample, table)


class AdditiveMechanism(Protocol):
    """A mechanism that adds noise to sums over users, of one group or of many at once."""

    def statistic(self, table: UserTable, membership: Membership | None = None) -> list[list[int]]: ...

    def noisy(self, sums: Sequence[Sequence[int]]) -> NoisySum: ...

    def estimate(self, sample: Sequence[int], groups: int = 1) -> Any: ...

    def parameters(self) -> dict[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class SummedGroups(GroupMechanism):
    """All groups at once: their sums in one pass, their noise in one sample."""

    prepared: AdditiveMechanism
    mechanism: str

    def distribution(self, table: GroupTable, keys: Sequence[GroupKey]) -> NoisySum:
        sums = self.prepared.statistic(table.members, table.membership)
        if keys is not table.keys:
            index = {key: number for number, key in enumerate(table.keys)}
            # A group without users has sums of zero.
            wanted = [index.get(key, -1) for key in keys]
            sums = [[0 if number < 0 else term[number] for number in wanted] for term in sums]
        return self.prepared.noisy(sums)

    def outcome(self, sample: Sequence[int], keys: Sequence[GroupKey]) -> GroupOutcome:
        found = self.prepared.estimate(sample, len(keys))
        return GroupOutcome(
            keys=keys,
            values=found.values(),
            parameters=self.prepared.parameters(),
            intervals=found,
            denominators=found,
            mechanism=self.mechanism,
        )


@dataclass(frozen=True, kw_only=True)
class GroupByGroup(GroupMechanism):
    """Any mechanism, run on the table of each group; `claim` is what all of them cost together.

    The mechanism's own claims are for one user more or less in one group. One user may change several groups, so they
    are replaced by the common claim.
    """

    prepared: Prepared
    claim: Claim
    mechanism: str
    columns: int

    def distribution(self, table: GroupTable, keys: Sequence[GroupKey]) -> Independent:
        tables = dict(zip(table.keys, table.tables(), strict=True))
        empty = table.members.take(np.zeros(0, dtype=np.int64))
        distributions = [without_claims(self.prepared.distribution(tables.get(key, empty))) for key in keys]
        return Independent(parts=distributions, claim=self.claim)

    def outcome(self, sample: Sequence[Any], keys: Sequence[GroupKey]) -> GroupOutcome:
        outcomes: list[Outcome | None] = []
        refusals = {}
        for number, own in enumerate(sample):
            try:
                outcomes.append(self.prepared.outcome(own))
            except NotReleased as refusal:
                outcomes.append(None)
                # The cost is stated for the whole table.
                refusals[number] = str(refusal).split(";")[0]
        nothing = (np.nan,) * self.columns
        values = [nothing if one is None else one.values for one in outcomes]
        made = [one for one in outcomes if one is not None]
        rules = [None if one is None else one.interval_rule for one in outcomes]
        return GroupOutcome(
            keys=keys,
            values=np.array(values, dtype=np.float64).reshape(len(keys), self.columns),
            # Parameters of a single group are not those of the table.
            parameters=_shared([one.parameters for one in made]) if len(made) > 1 or len(keys) == 1 else {},
            intervals=GroupIntervals(rules=rules, columns=self.columns) if any(rules) else None,
            refusals=refusals,
            mechanism=next((one.mechanism for one in made if one.mechanism), self.mechanism),
        )


def _shared(parameters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The parameters that all groups have in common."""
    if not parameters:
        return {}
    first, *others = parameters
    return {
        name: given
        for name, given in first.items()
        if all(name in one and one[name] == given for one in others)
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupIntervals:
    """Intervals of groups that were released one by one, each by its own rule."""

    rules: Sequence[IntervalRule | None]
    columns: int

    @property
    def covers(self) -> str:
        return self._first().covers

    def _first(self) -> Interval:
        return next(rule for rule in self.rules if rule is not None).at(0.95)

    def ends(self, level: float) -> tuple[FloatArray, FloatArray]:
        nothing = (np.nan,) * self.columns
        made = [None if rule is None else rule.at(level) for rule in self.rules]
        low = [nothing if one is None else one.low for one in made]
        high = [nothing if one is None else one.high for one in made]
        return np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
