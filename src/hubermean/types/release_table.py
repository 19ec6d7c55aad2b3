"""`ReleaseTable`: the result of a release by group, one row per group. It holds only what is safe to publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from hubermean.accounting.arguments import is_real
from hubermean.data.arrays import FloatArray
from hubermean.errors import InputError
from hubermean.types.frames import make_table
from hubermean.types.group_order import (
    FEWEST_IN_A_LINE,
    GroupOrder,
    axis_ends,
    group_times,
    is_noise,
    is_total,
    order_groups,
)
from hubermean.types.release import Denominator, Interval, Release, group_fields
from hubermean.types.release_info import DEFAULT_LEVEL, ReleaseInfo, state_guarantee
from hubermean.types.screen import Lines, Screen
from hubermean.types.table_screen import draw_times, show_groups

if TYPE_CHECKING:
    import pyarrow

_NAMED = 3  # columns that a title names


class TableIntervals(Protocol):
    """Computes the intervals of all groups at any level, from released quantities only."""

    @property
    def covers(self) -> str:
        """What the intervals cover."""

    def ends(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Return (low, high) of shape (groups, columns); NaN for groups without an interval."""


class Denominators(Protocol):
    """Computes what the means of all groups were divided by."""

    def denominators(self) -> list[Denominator]:
        """Return one denominator per group."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A group without a value: the mechanism's private test decided against a release."""

    group: Mapping[str, Any]
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return the refusal as plain data."""
        return {**group_fields(self.group), "released": False, "reason": self.reason}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ReleaseTable(ReleaseInfo, Sequence["Release | Refusal"]):
    """Private means, or counts, of many groups under one guarantee.

    The table is a sequence: `table[0]` is the `Release` of the first group, or a `Refusal`. Groups are in the order of
    `keys`, or sorted if they were selected privately. Which groups appear is part of the release; nothing else is
    known about the others.

    Attributes:
        by: names of the group columns.
        keys: the groups, each a tuple with one entry per group column.
        values: shape (groups, columns); NaN for a group that was refused.
        max_groups: the most groups that a user counts in; None for all of them.
        public_keys: whether the caller gave the groups; otherwise they were selected privately.
        intervals: computes `interval_at`; None if the mechanism offers no interval.
        measured: computes `denominators`; None if they were not measured.
        refusals: reasons, by position of the group.

    The other attributes are those of `ReleaseInfo`, for the whole table: columns, epsilon, delta, neighbors,
    mechanism, per, parameters, budget_breakdown, statistic, receipt and warnings.
    """

    by: tuple[str, ...]
    keys: tuple[tuple[Any, ...], ...]
    values: FloatArray
    max_groups: int | None
    public_keys: bool
    intervals: TableIntervals | None = None
    measured: Denominators | None = None
    refusals: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, position: int) -> Release | Refusal: ...

    @overload
    def __getitem__(self, position: slice) -> list[Release | Refusal]: ...

    def __getitem__(self, position: int | slice) -> Release | Refusal | list[Release | Refusal]:
        if isinstance(position, slice):
            return [self[one] for one in range(*position.indices(len(self)))]
        row = range(len(self))[position]  # negative and out of range as for any sequence
        group = dict(zip(self.by, self.keys[row], strict=True))
        if row in self.refusals:
            return Refusal(group=group, reason=self.refusals[row])
        return Release(
            **self.info_fields(),
            values=tuple(self.values[row].tolist()),
            n_users=None,
            interval_rule=Row(table=self, number=row) if self._has_interval(row) else None,
            denominator=self.denominators[row] if self.denominators else None,
            group=group,
        )

    def group(self, *key: Any) -> Release | Refusal:
        """Return the row of a group.

        Args:
            key: its keys in the order of `by`, or one of `keys`.

        Raises:
            InputError: the table has no such group.
        """
        if len(key) == 1 and isinstance(key[0], tuple):
            (key,) = key
        found = self._positions.get((key, tuple(map(type, key))), self._positions.get((key, ())))
        if found is None:
            raise InputError(f"there is no group {', '.join(map(str, key))} in this release")
        return self[found]

    @cached_property
    def _positions(self) -> dict[tuple[tuple[Any, ...], tuple[type, ...]], int]:
        """By key and types, since 1 and True are different groups; without types for other numbers that are equal."""
        exact = {(key, tuple(map(type, key))): position for position, key in enumerate(self.keys)}
        return {**{(key, ()): position for (key, _), position in reversed(exact.items())}, **exact}

    @cached_property
    def denominators(self) -> Sequence[Denominator]:
        """What each mean was divided by; empty if the mechanism did not measure it."""
        return () if self.measured is None else self.measured.denominators()

    @cached_property
    def may_be_empty(self) -> NDArray[np.bool_] | None:
        """Return which groups may have no users at all, as far as was measured; None if that was not measured.

        A public key that nobody has is such a group: its measured number, or its count, has an interval that reaches
        down to 0. Its value says nothing of its own.
        """
        if any(one.exact for one in self.denominators):
            return None
        if self.denominators:
            return np.array([one.may_be_none for one in self.denominators], dtype=np.bool_)
        ends = self.interval_at()
        if self.statistic != "count" or ends is None:
            return None
        may_be: NDArray[np.bool_] = ends[0][:, 0] <= 0.0
        return may_be

    @property
    def covers(self) -> str:
        """What the intervals cover and what they do not; each interval is for one group alone."""
        covered = "" if self.intervals is None else self.intervals.covers
        if self.max_groups is None:
            return f"{covered}; for each group separately"
        groups = "1 group" if self.max_groups == 1 else f"{self.max_groups:,} groups"
        left_out = f"records left out because their user is in more than {groups} are not covered"
        return f"{covered}; for each group separately; {left_out}"

    @property
    def guarantee(self) -> str:
        """The guarantee in one sentence; it holds for the whole table."""
        return state_guarantee(self.epsilon, self.delta, self.neighbors, grouped=True)

    def interval_at(self, level: float = DEFAULT_LEVEL) -> tuple[FloatArray, FloatArray] | None:
        """Return (low, high) of shape (groups, columns); None if the mechanism offers no interval.

        Args:
            level: the confidence level, between 0 and 1. It holds for each group separately, not for all at once.

        Raises:
            InputError: the level is not between 0 and 1.

        NaN stands for a group without an interval.
        """
        if not is_real(level) or not 0.0 < level < 1.0:
            raise InputError(f"level must be a number between 0 and 1, not {level!r}")
        if self.intervals is None:
            return None
        if level not in self._ends:
            self._ends[level] = self.intervals.ends(level)
        return self._ends[level]

    def _has_interval(self, row: int) -> bool:
        ends = self.interval_at()
        return ends is not None and not np.isnan(ends[0][row]).any()

    @cached_property
    def _ends(self) -> dict[float, tuple[FloatArray, FloatArray]]:
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain data, stable across versions."""
        return {
            "released": not len(self) or len(self.refusals) < len(self),
            "statistic": self.statistic,
            "by": list(self.by),
            "columns": list(self.columns),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbors": self.neighbors.value,
            "mechanism": self.mechanism,
            "per": self.per,
            "max_groups": self.max_groups,
            "public_keys": self.public_keys,
            "warnings": list(self.warnings),
            "parameters": dict(self.parameters),
            "budget_breakdown": [asdict(entry) for entry in self.budget_breakdown],
            "guarantee": self.guarantee,
            "ledger": self.receipt and self.receipt.to_dict(),
            "rows": self._row_dicts(),
        }

    def _row_dicts(self) -> list[dict[str, Any]]:
        rows = [row.to_dict() for row in self]
        if self.may_be_empty is None:
            return rows
        return [{**row, "may_be_empty": bool(one)} for row, one in zip(rows, self.may_be_empty, strict=True)]

    def to_arrow(self, level: float = DEFAULT_LEVEL) -> pyarrow.Table:
        """Return a PyArrow table: the group columns, then per value column its value and the ends of its interval.

        For a column `fare` they are named `fare`, `fare_interval_low` and `fare_interval_high`. The last columns are
        the measured number behind each value, `users` or `records`, and `may_be_empty`, where these were measured.
        """
        names = {name: [key[position] for key in self.keys] for position, name in enumerate(self.by)}
        ends = self.interval_at(level)
        numbers: list[tuple[str, Any]] = []
        for position, column in enumerate(self.columns):
            numbers.append((column, self.values[:, position]))
            if ends is not None:
                numbers.append((f"{column}_interval_low", ends[0][:, position]))
                numbers.append((f"{column}_interval_high", ends[1][:, position]))
        if self.denominators:
            numbers.append((f"{self.per}s", [one.value for one in self.denominators]))
        if self.may_be_empty is not None:
            numbers.append(("may_be_empty", self.may_be_empty))
        return make_table(names, numbers)

    @property
    def screen(self) -> Screen:
        """What a terminal, a prompt and a notebook show first: the groups, warnings, interval and guarantee."""
        lines = self.warning_lines()
        if self.refusals:
            reasons = "; ".join(dict.fromkeys(self.refusals.values()))
            lines.append(("Not released", f"{len(self.refusals):,} of {len(self):,} groups: {reasons}"))
        if self.intervals is not None:
            lines.append(("Interval", f"{DEFAULT_LEVEL:.0%} for each group: {self.intervals.covers}"))
        elif len(self):
            lines.append(("Interval", "none; the value of a group with few or no users may be pure noise"))
        if not len(self):
            needed = self.parameters.get("users_for_a_group", 0)
            lines.append(("Groups", f"none has enough users to appear (about {needed:,}); try larger groups"))
        lines += self.privacy_lines()
        return Screen(
            title=self._title,
            grid=show_groups(self) if len(self) else None,
            lines=Lines(tuple(lines)),
            charts=draw_times(self),
        )

    @property
    def _title(self) -> str:
        several = len(self.columns) > _NAMED
        columns = f"{len(self.columns):,} columns" if several else ", ".join(self.columns)
        chosen = "public" if self.public_keys else "selected privately"
        totals = sum(map(is_total, self.keys))
        counted = "1 group" if len(self) - totals == 1 else f"{len(self) - totals:,} groups"
        counted += (" and 1 total" if totals == 1 else f" and {totals:,} totals") if totals else ""
        notes = [*([self.note] if self.note else []), f"{counted}, {chosen}"]
        what = "Number of" if self.statistic == "count" else "Mean"
        return f"{what} {columns} by {', '.join(self.by)}   ({'; '.join(notes)})"

    @cached_property
    def times(self) -> tuple[float, ...] | None:
        """Where each group lies in time; None unless the groups are dates, periods or years."""
        return group_times(self.keys)

    def order(self, column: int = 0) -> GroupOrder:
        """Return the order in which groups are shown: time order, or sorted by the values of a column.

        Args:
            column: the number of the value column.
        """
        noise = self.is_uninformative(column).tolist()
        return order_groups(
            self.values[:, column].tolist(),
            uninformative=noise,
            times=self.times,
            totals=list(map(is_total, self.keys)),
        )

    def axis_ends(self, column: int = 0, level: float = DEFAULT_LEVEL) -> tuple[float, float] | None:
        """Return the range that a chart of a column shows, on which every value is that is more than noise.

        Args:
            column: the number of the value column.
            level: of the intervals.
        """
        ends = self.interval_at(level)
        return axis_ends(
            self.values[:, column].tolist(),
            []
            if ends is None
            else list(zip(ends[0][:, column].tolist(), ends[1][:, column].tolist(), strict=True)),
            uninformative=self.is_uninformative(column).tolist(),
        )

    def ends_of(self, row: int, column: int) -> tuple[float, float] | None:
        """Return the ends of a group's 95% interval; None if it has none.

        Args:
            row: the position of the group.
            column: the number of the value column.
        """
        ends = self.interval_at()
        if ends is None or row in self.refusals or np.isnan(ends[0][row]).any():
            return None
        return float(ends[0][row, column]), float(ends[1][row, column])

    def is_uninformative(self, column: int) -> NDArray[np.bool_]:
        """Return which groups' intervals reach from bound to bound, so that the value is noise alone.

        Args:
            column: the number of the value column.
        """
        bounds, ends = self.parameters.get("bounds"), self.interval_at()
        if not bounds or ends is None:
            return np.zeros(len(self), dtype=np.bool_)
        low, high = ends[0][:, column], ends[1][:, column]
        noise: NDArray[np.bool_] = is_noise(bounds, len(self.columns), column, low, high)
        return noise

    @property
    def is_line(self) -> bool:
        """Whether the groups are drawn as a line over time."""
        return self.times is not None and len(self) - len(self.refusals) >= FEWEST_IN_A_LINE

    def _chart(self) -> str:
        from hubermean.report.page import chart_of_groups

        return chart_of_groups(self)

    @property
    def details(self) -> Lines:
        """Everything else: how the interval is meant, the budget breakdown and the parameters, as labelled lines."""
        lines = [("what", self.description)]
        if self.intervals is not None:
            lines.append(("interval covers", self.covers))
        lines.append(("privacy", f"{self.budget}, {self.neighbors.value}, for the whole table"))
        lines += [*self.breakdown_lines(), ("mechanism", self.mechanism)]
        return Lines((*lines, *self.parameter_lines()))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Row:
    """Computes the interval of one group of a table."""

    table: ReleaseTable
    number: int

    def at(self, level: float) -> Interval:
        ends = self.table.interval_at(level)
        assert ends is not None
        low, high = (tuple(one[self.number].tolist()) for one in ends)
        return Interval(level=level, low=low, high=high, covers=self.table.covers)
