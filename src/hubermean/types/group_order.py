"""The order and the range in which groups are shown: on a terminal, in a notebook, in a report and in a figure.

Groups in time are shown in time order and joined by a line. Others are sorted by value, the largest first. Values that
are noise alone, and groups that were refused, come last. Totals over groups stand below all of them. All of this is
computed from released numbers.
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

FEWEST_IN_A_LINE = 3
"""Groups in time that are joined by a line; fewer are dots."""

_FIRST_YEAR, _LAST_YEAR = 1800, 2199
_MOST_GAPS = 3  # steps of a series of years per year: numbers that are further apart are no years
_REACH = 1.5  # times the range of the middle half, beyond which an interval is cut off


@dataclass(frozen=True, kw_only=True)
class ShownGroups:
    """The groups that are shown, by row of the table: the first ones, and the last ones if some are left out between.

    >>> order_groups([3.0, 1.0, 2.0]).cut(2)
    ShownGroups(first=(0,), last=(1,), left_out=1)
    """

    first: tuple[int, ...]
    last: tuple[int, ...] = ()
    left_out: int = 0

    @property
    def rows(self) -> tuple[int, ...]:
        """All rows that are shown."""
        return (*self.first, *self.last)


@dataclass(frozen=True, kw_only=True)
class GroupOrder:
    """The rows of a table in the order in which they are shown.

    Attributes:
        rows: all rows.
        ranked: how many of them, from the first one on, have a value that is more than noise.
        totals: how many of them, at the end, are totals, which are always shown.
    """

    rows: tuple[int, ...]
    ranked: int
    totals: int = 0

    def cut(self, most: int, *, all_up_to: int = 0) -> ShownGroups:
        """Return as many rows as may be shown: the first and the last of those that are more than noise."""
        groups = len(self.rows) - self.totals
        totals = self.rows[groups:]
        if groups <= max(most, all_up_to):
            return ShownGroups(first=self.rows)
        left_out, top = groups - most, (most + 1) // 2
        if self.ranked < most:
            return ShownGroups(first=self.rows[:most], last=totals, left_out=left_out)
        last = self.rows[self.ranked - (most - top) : self.ranked]
        return ShownGroups(first=self.rows[:top], last=(*last, *totals), left_out=left_out)


def order_groups(
    values: Sequence[float],
    *,
    uninformative: Sequence[bool] | None = None,
    times: Sequence[float] | None = None,
    totals: Sequence[bool] | None = None,
) -> GroupOrder:
    """Return the order of groups with these values; NaN for a group that was refused.

    Args:
        uninformative: which values are noise alone.
        times: of all groups; they are then in time order.
        totals: which are totals over groups; they keep their order and come last.

    >>> order_groups([1.0, 3.0, float("nan"), 2.0], uninformative=[False, True, False, False]).rows
    (3, 0, 1, 2)
    """
    rows = range(len(values))
    if times is not None:
        return GroupOrder(rows=tuple(sorted(rows, key=lambda row: times[row])), ranked=len(values))
    noise = [False] * len(values) if uninformative is None else uninformative
    below = [row for row in rows if totals is not None and totals[row]]

    def rank(row: int) -> tuple[bool, bool, float]:
        refused = math.isnan(values[row])
        return refused, noise[row], 0.0 if refused else -values[row]

    ordered = sorted((row for row in rows if row not in below), key=rank)
    ranked = sum(not any(rank(row)[:2]) for row in ordered)
    return GroupOrder(rows=(*ordered, *below), ranked=ranked, totals=len(below))


def is_total(key: Sequence[Any]) -> bool:
    """Return whether a key is that of a total: it has None for the columns that are added up."""
    return None in key


def show_key(key: Any) -> str:
    """Return the text of one column of a key.

    >>> show_key("north"), show_key(None)
    ('north', 'all')
    """
    return "all" if key is None else str(key)


def axis_ends(
    values: Sequence[float], ends: Sequence[tuple[float, float]], *, uninformative: Sequence[bool] = ()
) -> tuple[float, float] | None:
    """Return the range that a chart shows; None where there is nothing to show.

    Every value is on it, except those that are noise alone beside others. An interval that reaches far beyond those of
    other groups is cut off, since it would flatten all of them.

    >>> values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    >>> ends = [(value - 1.0, value + 1.0) for value in values[:-1]] + [(-1000.0, 1000.0)]
    >>> low, high = axis_ends(values, ends)
    >>> -20.0 < low < 0.0, 7.0 < high < 20.0
    (True, True)
    """
    kept = [row for row in range(len(values)) if math.isfinite(values[row])]
    if useful := [row for row in kept if not (uninformative and uninformative[row])]:
        kept = useful
    if not kept:
        return None
    lowest, highest = min(values[row] for row in kept), max(values[row] for row in kept)
    pairs = [ends[row] for row in kept if ends and all(map(math.isfinite, ends[row]))]
    if not pairs:
        return lowest, highest
    lows, highs = np.array(pairs).T
    low, high = float(np.quantile(lows, 0.25)), float(np.quantile(highs, 0.75))
    reach = _REACH * (high - low)
    return (
        min(lowest, max(float(lows.min()), low - reach)),
        max(highest, min(float(highs.max()), high + reach)),
    )


def is_noise(bounds: Any, columns: int, column: int, low: Any, high: Any) -> Any:
    """Return whether an interval reaches from bound to bound, so that its value is noise alone; of arrays, an array.

    Args:
        bounds: as a release states them, a pair for all columns, or one per column.
        columns, column: how many columns were released, and the number of this one.
    """
    shared = columns == 1 or not isinstance(bounds[0], Sequence)
    least, most = bounds if shared else bounds[column]
    room = 1e-9 * (most - least)
    return (low <= least + room) & (high >= most - room)


def group_times(keys: Sequence[tuple[Any, ...]]) -> tuple[float, ...] | None:
    """Return where each group lies in time; None unless all groups are dates, periods or years of one column.

    >>> group_times([("2024-02",), ("2023-12",)])
    (24289.0, 24287.0)
    >>> group_times([(2015,), (2016,)]), group_times([("north",), ("south",)])
    ((2015.0, 2016.0), None)
    """
    if len(keys) < 2 or any(len(key) != 1 for key in keys):
        return None
    names = [key[0] for key in keys]
    for read in (_read_date, *_READERS):
        times = [read(name) for name in names]
        if None not in times:
            found = tuple(time for time in times if time is not None)
            return found if read is not _read_year or _are_years(found) else None
    return None


def _read_date(name: Any) -> float | None:
    if isinstance(name, datetime.datetime):
        return name.date().toordinal() + (name.hour * 3600 + name.minute * 60 + name.second) / 86400
    return float(name.toordinal()) if isinstance(name, datetime.date) else None


def _read_period(pattern: str, place: Callable[[int, int, int], float]) -> Callable[[Any], float | None]:
    """Return a function that places the texts of one kind of period."""
    written = re.compile(pattern, re.ASCII)

    def read(name: Any) -> float | None:
        found = written.fullmatch(name) if isinstance(name, str) else None
        if found is None:
            return None
        numbers = [int(part) for part in found.groups()]
        try:
            return float(place(*[*numbers, 1, 1][:3]))
        except ValueError:  # no such day
            return None

    return read


def _read_year(name: Any) -> float | None:
    """Place a year, as a number or as text."""
    if isinstance(name, str):
        if not re.fullmatch(r"[0-9]{4}", name):
            return None
        name = int(name)
    if isinstance(name, bool) or not isinstance(name, int | np.integer):
        return None
    return float(name) if _FIRST_YEAR <= name <= _LAST_YEAR else None


def _are_years(years: Sequence[float]) -> bool:
    """Whether numbers are about evenly spaced, as years and decades are, and codes are not."""
    distinct = sorted({int(year) for year in years})
    steps = [later - earlier for earlier, later in itertools.pairwise(distinct)]
    return bool(steps) and sum(steps) <= _MOST_GAPS * len(distinct) * reduce(math.gcd, steps)


_READERS: tuple[Callable[[Any], float | None], ...] = (
    _read_period(r"(\d{4})-(\d\d)-(\d\d)", lambda *day: datetime.date(*day).toordinal()),
    _read_period(
        r"(\d{4})-W(\d\d)", lambda year, week, _: datetime.date.fromisocalendar(year, week, 1).toordinal()
    ),
    _read_period(r"(\d{4})-(0[1-9]|1[0-2])", lambda year, month, _: 12 * year + month - 1),
    _read_period(r"(\d{4})-Q([1-4])", lambda year, quarter, _: 4 * year + quarter - 1),
    _read_year,
)
