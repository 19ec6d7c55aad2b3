"""`plan`: predicted errors of every mechanism for the same public parameters, without data."""

from __future__ import annotations

import html
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from hubermean.accounting.arguments import check_positive, check_positive_integer
from hubermean.errors import InputError, parameter
from hubermean.mechanisms.adaptive.mechanism import Adaptive
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.contributions import check_max_records
from hubermean.mechanisms.norm_clipping.mechanism import NormClipping
from hubermean.mechanisms.registry import (
    REGISTRY,
    MechanismEntry,
    Option,
    best_option,
    find_candidates,
    takes_vectors,
)
from hubermean.planning.group_plan import GroupPlan, plan_groups
from hubermean.planning.words import (
    format_call,
    format_title,
    list_headings,
    list_notes,
    list_reasons,
    list_rows,
)
from hubermean.types.options import PartialBounds, PublicParameters
from hubermean.types.request import DEFAULT_NEIGHBORS, Column, Neighbors, PublicFacts, Request

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THRESHOLD_IN_SCALES = 3.0
RADIUS_IN_SCALES = 1e6
MOST_USERS = 2**40
MOST_COLUMNS = 10_000
# A plan does not know how values will be read, so it refuses none for their size.
_ANY_VALUE = Fraction(10**200)


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """The prediction for one mechanism, or the reason why it cannot serve.

    Attributes:
        mechanism: its name.
        layout: "joint" or "column by column".
        threshold: the threshold it would be given, None where it takes none.
        noise: the predicted standard deviation of what it adds, per column.
        error: the predicted error of a column, noise and sampling together (root mean square over columns).
        over_non_private: `error` over the error of the non-private mean.
        reason: why it cannot serve; `noise` is then empty, `error` and `over_non_private` infinite.
    """

    mechanism: str
    layout: str
    threshold: float | None
    noise: tuple[float, ...] = ()
    error: float = math.inf
    over_non_private: float = math.inf
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        serves = self.reason is None
        return {
            "mechanism": self.mechanism,
            "layout": self.layout,
            "threshold": self.threshold,
            "noise_stddev": list(self.noise) if serves else None,
            "predicted_error": self.error if serves else None,
            "over_non_private": self.over_non_private if serves else None,
            "reason": self.reason,
        }


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The public parameters of a plan; `threshold` and `radius` are None where a plan has to assume them."""

    n_users: int
    epsilon: float
    delta: float
    columns: int
    scale: float
    threshold: float | None
    radius: float | None
    bounds: PartialBounds | Sequence[PartialBounds] | None
    per: str
    neighbors: Neighbors
    max_records: int | None

    @property
    def reach(self) -> float:
        """The radius, given or assumed."""
        return RADIUS_IN_SCALES * self.scale if self.radius is None else self.radius

    @property
    def non_private_error(self) -> float:
        """The error of the mean of this many users without privacy: sampling alone."""
        return self.scale / math.sqrt(self.n_users)

    def request(self) -> Request:
        """Return the request of a release with these parameters; InputError for one that is out of range."""
        names = tuple(f"column {number + 1}" for number in range(self.columns))
        checked = Request.checked(
            names, epsilon=self.epsilon, delta=self.delta, per=self.per, neighbors=self.neighbors
        )
        check_max_records(self.max_records, checked)
        return checked

    def candidates(self) -> set[str]:
        """Return the names of the mechanisms that `auto` chooses from, with the parameters that are given."""
        given = {name for name in ("bounds", "threshold", "radius") if getattr(self, name) is not None}
        compared = {entry.name for entry in find_candidates(given)}
        if not compared and takes_vectors(
            given, columns=self.columns, epsilon=self.epsilon, delta=self.delta, users=self.n_users
        ):
            compared = {NormClipping.name}
        return compared or {Adaptive.name}

    def predict(self) -> list[tuple[PlanRow, Option | None]]:
        """Return a row per mechanism of the registry; with its option, where `auto` would choose from it."""
        request, cap = self.request(), self.max_records
        if self.neighbors.counts_are_public:
            # Users with equally many records have equal weights, whatever the number.
            request, cap = replace(request, per="user"), None
        facts = PublicFacts(
            columns=tuple(Column(name=name, limit=_ANY_VALUE) for name in request.columns),
            n_users=self.n_users if self.neighbors.users_are_public else None,
            record_counts=None,
            planned_users=self.n_users,
        )
        candidates = self.candidates()
        predicted: list[tuple[PlanRow, Option | None]] = []
        for entry in REGISTRY.values():
            if not entry.in_plan or self.columns < entry.least_columns:
                continue
            threshold = self._threshold(entry) if "threshold" in entry.needs else None
            needed: dict[str, Any] = {
                name: {"bounds": self.bounds, "threshold": threshold, "radius": self.reach}[name]
                for name in entry.needs
            }
            if not entry.needs and entry.name in candidates:  # it takes what is given, and finds the rest
                threshold = self.threshold
                taken = {"threshold": threshold, "radius": self.radius}
                needed = {name: value for name, value in taken.items() if name in entry.takes}
            row = PlanRow(mechanism=entry.name, layout=entry.layout, threshold=threshold)
            try:
                mechanism = entry.make(PublicParameters(max_records=cap, **needed))
            except InputError as refusal:
                predicted.append((replace(row, reason=str(refusal)), None))
                continue
            option = Option.of(mechanism, request, facts, scale=self.scale)
            predicted.append((self._fill(row, option), option if entry.name in candidates else None))
        return predicted

    def _threshold(self, entry: MechanismEntry) -> float:
        """Return the threshold of a mechanism; distances of whole vectors grow with the number of columns."""
        column = THRESHOLD_IN_SCALES * self.scale
        return self.threshold or (column * math.sqrt(self.columns) if entry.layout == "joint" else column)

    def _fill(self, row: PlanRow, option: Option) -> PlanRow:
        if option.refusal is not None:
            return replace(row, reason=str(option.refusal))
        error = math.sqrt(self.non_private_error**2 + option.variance / self.columns)
        return replace(row, noise=option.noise, error=error, over_non_private=error / self.non_private_error)


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan:
    """A comparison of mechanisms from public parameters; it holds no data and saw none.

    Attributes:
        setting: the public parameters.
        rows: one per mechanism: `best` first, then the others by predicted error, those that cannot serve last.
        best: the row that `mechanism="auto"` would choose with the same public parameters; None where no mechanism can
            serve. That is `adaptive`, or `norm-clipping` for many columns and few users, unless bounds, or a threshold
            and a radius, are given. Rows of mechanisms that need what was not given are for comparison.
    """

    setting: Setting
    rows: tuple[PlanRow, ...]
    best: PlanRow | None

    @classmethod
    def of(cls, setting: Setting) -> Plan:
        """Compare the mechanisms of the registry under the public parameters in `setting`."""
        predicted = setting.predict()
        chosen = best_option((option for _, option in predicted if option is not None), delta=setting.delta)
        best = next((row for row, option in predicted if option is not None and option is chosen), None)
        rows = tuple(sorted((row for row, _ in predicted), key=lambda row: (row is not best, row.error)))
        return cls(setting=setting, rows=rows, best=best)

    def at(self, n_users: int) -> Plan:
        """Return the same plan for `n_users` users."""
        return Plan.of(replace(self.setting, n_users=n_users))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        setting = self.setting
        return {
            "n_users": setting.n_users,
            "epsilon": setting.epsilon,
            "delta": setting.delta,
            "columns": setting.columns,
            "scale": setting.scale,
            "radius": setting.reach,
            "bounds": setting.bounds,
            "per": setting.per,
            "neighbors": setting.neighbors.value,
            "max_records": setting.max_records,
            "non_private_error": setting.non_private_error,
            "best": None if self.best is None else self.best.mechanism,
            "rows": [row.to_dict() for row in self.rows],
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict()` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the predicted error over the number of users, one line per mechanism; `path` also writes it to a file.

        Needs matplotlib: `pip install 'hubermean[plot]'`.
        """
        from hubermean.planning.figure import draw_plan

        return draw_plan(self, path)

    def __repr__(self) -> str:
        cells = [list_headings(self), *list_rows(self)]
        widths = [max(len(line[position]) for line in cells) for position in range(len(cells[0]))]
        lines = [format_title(self), ""]
        for line in cells:
            padded = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
            lines.append("  ".join(padded).rstrip())
        below = [textwrap.fill(note, 110) for note in (*list_notes(self), *list_reasons(self))]
        return "\n".join([*lines, "", *below, *filter(None, [format_call(self)])])

    def _repr_html_(self) -> str:
        def line(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(line(cells, "td") for cells in list_rows(self))
        below = "".join(f"<p>{html.escape(note)}</p>" for note in (*list_notes(self), *list_reasons(self)))
        code = format_call(self)
        example = f"<pre>{html.escape(code)}</pre>" if code else ""
        head = line(list_headings(self), "th")
        return (
            f"<table><caption>{html.escape(format_title(self))}</caption>{head}{body}</table>{below}{example}"
        )


@overload
def plan(
    *,
    n_users: int,
    epsilon: float,
    delta: float = 0.0,
    columns: int = 1,
    scale: float = 1.0,
    threshold: float | None = None,
    radius: float | None = None,
    bounds: PartialBounds | Sequence[PartialBounds] | None = None,
    per: str = "user",
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    max_records: int | None = None,
    groups: None = None,
) -> Plan: ...


@overload
def plan(
    *,
    n_users: int,
    epsilon: float,
    delta: float = 0.0,
    scale: float = 1.0,
    per: str = "user",
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    groups: int,
    groups_per_user: int = 1,
    private_keys: bool = False,
) -> GroupPlan: ...


def plan(
    *,
    n_users: int,
    epsilon: float,
    delta: float = 0.0,
    columns: int = 1,
    scale: float = 1.0,
    threshold: float | None = None,
    radius: float | None = None,
    bounds: PartialBounds | Sequence[PartialBounds] | None = None,
    per: str = "user",
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    max_records: int | None = None,
    groups: int | None = None,
    groups_per_user: int = 1,
    private_keys: bool = False,
) -> Plan | GroupPlan:
    """Compare the predicted errors of all mechanisms, from public parameters and without data.

    With `groups`, predict the error of each group instead, by its number of users.

    Args:
        n_users: how many users to expect. Public, or a guess.
        epsilon: the privacy budget of the release.
        delta: the second part of the budget; some mechanisms need it.
        columns: how many value columns are released together.
        scale: the standard deviation of user means in a column, a guess; 1 gives errors in units of it.
        threshold: as for `mean`, the same for every mechanism. Where it is not given, mechanisms that need one are
            shown as if you knew it: 3 scales for those that release column by column, and 3 scales times sqrt(columns)
            for joint ones, whose distances are those of whole vectors.
        radius: as for `mean`; where it is not given, mechanisms that need one are shown with a million scales.
        bounds: as for `mean`; `clipped` needs them.
        per: as for `mean`, but "user" by default: "record" needs `max_records`.
        neighbors: as for `mean`.
        max_records: as for `mean`. With `per="record"` users are expected to have half as many records, or, under
            "replace-values", equally many.
        groups: how many groups a release by group has.
        groups_per_user: how many of them a user is in. More of them mean more noise in each.
        private_keys: whether groups are selected privately, which needs delta > 0. Otherwise you will give them as
            `keys`.

    Returns:
        A `Plan`, or with `groups` a `GroupPlan`: a table where it is printed or shown in a notebook, `plot()` for a
        figure, `to_json()` for machines.

    Raises:
        InputError: a parameter that cannot be used.

    Formal guarantees: a plan reads no data, so it costs no privacy budget.

    >>> comparison = plan(n_users=10_000, epsilon=1, delta=1e-5, columns=3)
    >>> comparison.best.mechanism, round(comparison.best.over_non_private, 2)
    ('adaptive', 1.05)
    >>> months = plan(n_users=10_000, epsilon=1, delta=1e-6, groups=12, groups_per_user=3)
    >>> months.average.users, round(months.average.over_non_private, 2)
    (2500, 1.14)
    """
    users = check_positive_integer("n_users", n_users)
    width = check_positive_integer("columns", columns)
    if users > MOST_USERS or width > MOST_COLUMNS:
        raise InputError(f"{parameter('n_users')} may be at most 2^40 and columns at most {MOST_COLUMNS:,}")
    unit = check_positive("scale", scale)
    if not 1e-100 <= unit <= 1e100:
        raise InputError(f"{parameter('scale')} must be a number from 1e-100 to 1e100, not {scale!r}")
    parameters = PublicParameters.from_keywords(
        bounds=bounds, max_records=max_records, threshold=threshold, radius=radius
    )
    if groups is not None:
        given = {"bounds": bounds, "max_records": max_records, "threshold": threshold, "radius": radius}
        unused = [name for name, value in given.items() if value is not None] + (
            ["columns"] if width > 1 else []
        )
        if unused:
            raise InputError(
                f"a plan for {parameter('groups')} is for one column without public parameters; leave out "
                f"{', '.join(map(parameter, unused))}"
            )
        return plan_groups(
            n_users=users,
            groups=groups,
            groups_per_user=groups_per_user,
            private_keys=private_keys,
            epsilon=epsilon,
            delta=delta,
            scale=unit,
            per=per,
            neighbors=Neighbors.parse(neighbors),
        )
    if groups_per_user != 1 or private_keys:
        raise InputError(
            f"{parameter('groups_per_user')} and {parameter('private_keys')} need {parameter('groups')}; give it as "
            "well, or leave them out"
        )
    setting = Setting(
        n_users=users,
        epsilon=epsilon,
        delta=delta,
        columns=width,
        scale=unit,
        threshold=None if threshold is None else check_positive("threshold", threshold),
        radius=None if radius is None else check_positive("radius", radius),
        bounds=parameters.bounds,
        per=per,
        neighbors=Neighbors.parse(neighbors),
        max_records=parameters.max_records,
    )
    request = setting.request()
    if parameters.bounds is not None:
        Clipped(bounds=parameters.bounds, max_records=parameters.max_records).check(request)
    return Plan.of(replace(setting, epsilon=request.epsilon, delta=request.delta))
