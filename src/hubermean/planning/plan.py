"""`plan`: every mechanism at the same public parameters, side by side, without data."""

from __future__ import annotations

import html
import json
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubermean.errors import InputError
from hubermean.mechanisms import (
    Adaptive,
    Clipped,
    Column,
    Exact,
    Known,
    Mechanism,
    OneOrTwoBounds,
    Option,
    PublicFacts,
    Request,
    Smooth,
    Tested,
    Winsorized,
    best_option,
)
from hubermean.mechanisms.weights import check_cap
from hubermean.planning.words import call, headings, notes, table, title
from hubermean.privacy.arguments import positive, whole_positive
from hubermean.relations import DEFAULT_NEIGHBORS, Neighbors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THRESHOLD_IN_SCALES = 3.0
RADIUS_IN_SCALES = 1e6
MOST_USERS = 2**40
MOST_COLUMNS = 10_000
# Nothing is known here about how values will be read, so nothing is refused for their size.
_ANY_VALUE = Fraction(10**200)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One mechanism: what to expect of it, or why it cannot serve.

    Attributes:
        mechanism: its name.
        layout: "joint" or "column by column".
        threshold: the threshold it would be given, None for `clipped` and `adaptive`.
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
    """The public parameters of a plan."""

    n_users: int
    epsilon: float
    delta: float
    columns: int
    scale: float
    threshold: float | None
    radius: float
    bounds: OneOrTwoBounds | Sequence[OneOrTwoBounds] | None
    per: str
    neighbors: Neighbors
    record_cap: int | None

    @property
    def non_private_error(self) -> float:
        """The error of a mean of as many users without privacy: sampling alone."""
        return self.scale / math.sqrt(self.n_users)

    def request(self) -> Request:
        names = tuple(f"column {number + 1}" for number in range(self.columns))
        checked = Request.checked(
            names, epsilon=self.epsilon, delta=self.delta, per=self.per, neighbors=self.neighbors
        )
        check_cap(self.record_cap, checked)
        return checked

    def options(self) -> list[tuple[Row, Option | None]]:
        """Every mechanism, prepared and weighed; in the order in which they go where they are alike."""
        request, cap = self.request(), self.record_cap
        if self.neighbors.counts_are_public:
            # Users with equally many records weigh the same, whatever the number.
            request, cap = replace(request, per="user"), None
        facts = PublicFacts(
            columns=tuple(Column(name=name, limit=_ANY_VALUE) for name in request.columns),
            n_users=self.n_users if self.neighbors.users_are_public else None,
            record_counts=None,
            planned_users=self.n_users,
        )
        column = self.threshold or THRESHOLD_IN_SCALES * self.scale
        joint = self.threshold or column * math.sqrt(self.columns)
        guess = None if self.neighbors.users_are_public else self.n_users
        bounds, radius = self.bounds, self.radius

        def clipped() -> Mechanism:
            if bounds is None:
                raise InputError("needs bounds, public limits of user means")
            return Clipped(bounds=bounds, record_cap=cap)

        makers: tuple[tuple[str, str, float | None, Callable[[], Mechanism]], ...] = (
            ("clipped", "column by column", None, clipped),
            (
                "exact",
                "column by column",
                column,
                lambda: Exact(threshold=column, radius=radius, record_cap=cap),
            ),
            ("tested", "joint", joint, lambda: Tested(threshold=joint, radius=radius, record_cap=cap)),
            (
                "smooth",
                "joint",
                joint,
                lambda: Smooth(threshold=joint, radius=radius, record_cap=cap, users=guess),
            ),
            (
                "winsorized",
                "joint",
                joint,
                lambda: Winsorized(threshold=joint, radius=radius, record_cap=cap),
            ),
        )
        weighed: list[tuple[Row, Option | None]] = []
        for name, layout, threshold, make in makers:
            row = Row(mechanism=name, layout=layout, threshold=threshold)
            try:
                option = Option.of(make(), request, facts)
            except InputError as refusal:
                weighed.append((replace(row, reason=str(refusal)), None))
                continue
            weighed.append((self._filled(row, option), option))
        # No candidate beside the others, which are told more; what it would do shows what that is worth.
        weighed.append((self._adaptive(request, facts, cap), None))
        return weighed

    def _adaptive(self, request: Request, facts: PublicFacts, cap: int | None) -> Row:
        row = Row(mechanism="adaptive", layout="column by column", threshold=None)
        try:
            noise = Adaptive(record_cap=cap).prepare(request, facts).noise_for(self.scale)
        except InputError as refusal:
            return replace(row, reason=str(refusal))
        error = math.hypot(self.non_private_error, noise)
        return replace(
            row,
            noise=(noise,) * self.columns,
            error=error,
            over_non_private=error / self.non_private_error,
        )

    def _filled(self, row: Row, option: Option) -> Row:
        if option.refusal is not None:
            return replace(row, reason=str(option.refusal))
        error = math.sqrt(self.non_private_error**2 + option.variance / self.columns)
        return replace(row, noise=option.noise, error=error, over_non_private=error / self.non_private_error)


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan:
    """A comparison of mechanisms from public parameters; it holds no data and saw none.

    Attributes:
        setting: the public parameters.
        rows: one per mechanism: the best, then the others by predicted error, those that cannot serve last.
        best: the row that `mechanism="auto"` would go by if it is told as much; None where no mechanism can serve.
            `adaptive`, which is told nothing, stands beside the others and is never it.
    """

    setting: Setting
    rows: tuple[Row, ...]
    best: Row | None

    @classmethod
    def of(cls, setting: Setting) -> Plan:
        weighed = setting.options()
        chosen = best_option((option for _, option in weighed if option is not None), delta=setting.delta)
        best = next((row for row, option in weighed if option is not None and option is chosen), None)
        rows = tuple(sorted((row for row, _ in weighed), key=lambda row: (row is not best, row.error)))
        return cls(setting=setting, rows=rows, best=best)

    def at(self, n_users: int) -> Plan:
        """The same for another number of users."""
        return Plan.of(replace(self.setting, n_users=n_users))

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        setting = self.setting
        return {
            "n_users": setting.n_users,
            "epsilon": setting.epsilon,
            "delta": setting.delta,
            "columns": setting.columns,
            "scale": setting.scale,
            "radius": setting.radius,
            "bounds": setting.bounds,
            "per": setting.per,
            "neighbors": setting.neighbors.value,
            "record_cap": setting.record_cap,
            "non_private_error": setting.non_private_error,
            "best": None if self.best is None else self.best.mechanism,
            "rows": [row.to_dict() for row in self.rows],
        }

    def to_json(self, *, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def plot(self, path: str | Path | None = None) -> Figure:
        """The predicted error over the number of users, a line per mechanism; written to `path` if one is given.

        Needs matplotlib: `pip install 'hubermean[plot]'`.
        """
        from hubermean.planning.figure import figure

        return figure(self, path)

    def __repr__(self) -> str:
        cells = [headings(self), *table(self)]
        widths = [max(len(line[position]) for line in cells) for position in range(len(cells[0]))]
        lines = [title(self), ""]
        for line in cells:
            padded = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
            lines.append("  ".join(padded).rstrip())
        below = [textwrap.fill(note, 110) for note in notes(self)]
        return "\n".join([*lines, "", *below, *filter(None, [call(self)])])

    def _repr_html_(self) -> str:
        def line(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(line(cells, "td") for cells in table(self))
        below = "".join(f"<p>{html.escape(note)}</p>" for note in notes(self))
        code = call(self)
        example = f"<pre>{html.escape(code)}</pre>" if code else ""
        head = line(headings(self), "th")
        return f"<table><caption>{html.escape(title(self))}</caption>{head}{body}</table>{below}{example}"


def plan(
    *,
    n_users: int,
    epsilon: float,
    delta: float = 0.0,
    columns: int = 1,
    scale: float = 1.0,
    threshold: float | None = None,
    radius: float | None = None,
    bounds: OneOrTwoBounds | Sequence[OneOrTwoBounds] | None = None,
    per: str = "user",
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    record_cap: int | None = None,
) -> Plan:
    """Compare all mechanisms at public parameters, before there is any data: predicted errors, and the best.

    Args:
        n_users: how many users to expect. Public, or a guess.
        epsilon, delta: the privacy budget of the release.
        columns: how many value columns are released together.
        scale: the standard deviation of user means in a column, a guess; 1 gives errors in units of it.
        threshold: as for `mean`, for every mechanism alike. By default 3 scales for mechanisms that work column by
            column, and 3 scales times sqrt(columns) for joint ones, whose distances are those of whole vectors.
        radius: as for `mean`; a million scales by default.
        bounds: as for `mean`; without them `clipped` cannot serve.
        per, neighbors, record_cap: as for `mean`. With `per="record"` users are expected to fill half their cap, or,
            under "replace-values", to have equally many records.

    Returns:
        A `Plan`: a table where it is printed or shown in a notebook, `plot()` for a figure, `to_json()` for machines.

    Raises:
        InputError: a parameter that cannot be used.

    >>> comparison = plan(n_users=10_000, epsilon=1, delta=1e-5, columns=3)
    >>> comparison.best.mechanism, round(comparison.best.over_non_private, 2)
    ('exact', 1.03)
    """
    users = whole_positive("n_users", n_users)
    width = whole_positive("columns", columns)
    if users > MOST_USERS or width > MOST_COLUMNS:
        raise InputError(f"n_users may be at most 2^40 and columns at most {MOST_COLUMNS:,}")
    spread = positive("scale", scale)
    if not 1e-100 <= spread <= 1e100:
        raise InputError(f"scale must be a number from 1e-100 to 1e100, not {scale!r}")
    known = Known.given(bounds=bounds, record_cap=record_cap, threshold=threshold, radius=radius)
    setting = Setting(
        n_users=users,
        epsilon=epsilon,
        delta=delta,
        columns=width,
        scale=spread,
        threshold=None if threshold is None else positive("threshold", threshold),
        radius=RADIUS_IN_SCALES * spread if radius is None else positive("radius", radius),
        bounds=known.bounds,
        per=per,
        neighbors=Neighbors.parse(neighbors),
        record_cap=known.record_cap,
    )
    request = setting.request()
    if known.bounds is not None:
        Clipped(bounds=known.bounds, record_cap=known.record_cap).check(request)
    return Plan.of(replace(setting, epsilon=request.epsilon, delta=request.delta))
