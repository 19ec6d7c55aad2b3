"""`GroupPlan`: the predicted error of each group of a release by group, without data."""

from __future__ import annotations

import html
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubermean.accounting.arguments import check_positive_integer
from hubermean.errors import InputError, parameter
from hubermean.mechanisms.groups.budget_split import MOST_GROUPS
from hubermean.planning.group_noise import predict_group_noise, users_to_appear
from hubermean.planning.words import format_number, format_ratio
from hubermean.types.request import Neighbors, Request

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PLANNED = 10_000_000
_SIZES = (1, 3)  # times powers of ten: sizes of groups that are shown
_AROUND = 30  # times the average size, on either side


@dataclass(frozen=True, kw_only=True)
class GroupPlanRow:
    """The prediction for a group of some size.

    Attributes:
        users: how many users the group has.
        noise: the predicted standard deviation of the noise in its mean.
        error: noise and sampling together.
        over_non_private: `error` over the error of the group's mean without privacy.
        appears: the probability that the group appears; None where keys are public.
    """

    users: int
    noise: float
    error: float
    over_non_private: float
    appears: float | None = None


@dataclass(frozen=True, kw_only=True)
class GroupSetting:
    """The public numbers of a plan for groups."""

    n_users: int
    groups: int
    groups_per_user: int
    public_keys: bool
    epsilon: float
    delta: float
    scale: float
    per: str
    neighbors: Neighbors

    @property
    def users_per_group(self) -> int:
        """The average number of users of a group."""
        return max(round(self.n_users * min(self.groups_per_user, self.groups) / self.groups), 1)


@dataclass(frozen=True, kw_only=True, repr=False)
class GroupPlan:
    """Predicted errors of groups, by their number of users; it holds no data and saw none.

    Attributes:
        setting: the public numbers.
        rows: one per size of a group, ascending; the average size is among them.
        users_for_a_group: with how many users a group appears half of the time; None where keys are public.
        noise: "Gaussian" or "Laplace", whichever is predicted to be less.
    """

    setting: GroupSetting
    rows: tuple[GroupPlanRow, ...]
    users_for_a_group: int | None
    noise: str

    @classmethod
    def of(cls, setting: GroupSetting) -> GroupPlan:
        """Predict the errors of groups of sizes around the average.

        Raises:
            InputError: a number that is out of range, or private keys without delta.
        """
        if setting.groups > MOST_PLANNED or setting.groups_per_user > min(setting.groups, MOST_GROUPS):
            raise InputError(
                f"{parameter('groups')} may be at most {MOST_PLANNED:,}, and {parameter('groups_per_user')} at most "
                f"{MOST_GROUPS:,} and no more than there are groups"
            )
        found = predict_group_noise(
            n_users=setting.n_users,
            groups=setting.groups,
            groups_per_user=setting.groups_per_user,
            epsilon=setting.epsilon,
            delta=setting.delta,
            neighbors=setting.neighbors,
            public_keys=setting.public_keys,
        )
        rows = []
        for users in _sizes(setting):
            sampling, noise = setting.scale / math.sqrt(users), setting.scale * found.of_mean(users)
            error = math.hypot(sampling, noise)
            chance = None if found.appears is None else found.appears(users)
            rows.append(
                GroupPlanRow(
                    users=users, noise=noise, error=error, over_non_private=error / sampling, appears=chance
                )
            )
        least = None if found.appears is None else users_to_appear(found.appears)
        return cls(setting=setting, rows=tuple(rows), users_for_a_group=least, noise=found.kind)

    @property
    def average(self) -> GroupPlanRow:
        """The row of a group of average size."""
        return next(row for row in self.rows if row.users == self.setting.users_per_group)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        setting = asdict(self.setting) | {"neighbors": self.setting.neighbors.value}
        return {
            **setting,
            "users_per_group": self.setting.users_per_group,
            "users_for_a_group": self.users_for_a_group,
            "noise": self.noise,
            "rows": [
                {
                    "users": row.users,
                    "noise_stddev": row.noise,
                    "predicted_error": row.error,
                    "over_non_private": row.over_non_private,
                    "appears": row.appears,
                }
                for row in self.rows
            ],
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict()` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the predicted error over the number of users of a group; `path` also writes it to a file.

        Needs matplotlib: `pip install 'hubermean[plot]'`.
        """
        from hubermean.planning.figure import draw_group_plan

        return draw_group_plan(self, path)

    @property
    def title(self) -> str:
        """The public numbers in one line."""
        setting = self.setting
        delta = f", delta = {setting.delta:g}" if setting.delta else ""
        keys = "public" if setting.public_keys else "selected privately"
        each = "1 group" if setting.groups_per_user == 1 else f"{setting.groups_per_user:,} groups"
        return (
            f"{setting.n_users:,} users in {setting.groups:,} groups ({keys}), {each} each, "
            f"epsilon = {setting.epsilon:g}{delta}, {setting.neighbors.value}"
        )

    @property
    def headings(self) -> list[str]:
        """The headings of the table."""
        return [
            "users of a group",
            "noise",
            "error",
            "ratio",
            *([] if self.setting.public_keys else ["appears"]),
        ]

    def cells(self) -> list[list[str]]:
        """Return the cells of the table, one row per size; an arrow marks the average size."""
        return [
            [
                f"{'→' if row is self.average else ' '} {row.users:,}",
                format_number(row.noise),
                format_number(row.error),
                format_ratio(row.over_non_private),
                *([] if row.appears is None else [_percent(row.appears)]),
            ]
            for row in self.rows
        ]

    def notes(self) -> list[str]:
        """Return sentences on what the numbers mean."""
        setting = self.setting
        lines = [
            f"Predicted for user means with standard deviation {format_number(setting.scale)} in each group. Without "
            "privacy a group has the error of sampling alone; the ratio is relative to it. The arrow marks a group of "
            "average size."
        ]
        if self.users_for_a_group is not None:
            lines.append(
                f"A group appears more often than not with {self.users_for_a_group:,} users or more. Public keys cost "
                "no budget: give them if you know them."
            )
        if self.average.noise > setting.scale:
            lines.append(
                "The noise in a group of average size is larger than the spread of users: use fewer groups or a larger "
                "epsilon."
            )
        return lines

    def __repr__(self) -> str:
        cells = [self.headings, *self.cells()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if position == 0 else cell.rjust(width)
                for position, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in cells
        ]
        notes = [textwrap.fill(note, 79) for note in self.notes()]
        return "\n".join([textwrap.fill(self.title, 79), "", *lines, "", *notes])

    def _repr_html_(self) -> str:
        def line(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(line(cells, "td") for cells in self.cells())
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes())
        return (
            f"<div><p><b>{html.escape(self.title)}</b></p><table><thead>{line(self.headings, 'th')}</thead>"
            f"<tbody>{body}</tbody></table>{notes}</div>"
        )


def plan_groups(
    *,
    n_users: int,
    groups: int,
    groups_per_user: int,
    private_keys: bool,
    epsilon: float,
    delta: float,
    scale: float,
    per: str,
    neighbors: Neighbors,
) -> GroupPlan:
    """Check the numbers of a plan for groups, and predict; see `hubermean.plan`."""
    request = Request.checked(("value",), epsilon=epsilon, delta=delta, per=per, neighbors=neighbors)
    return GroupPlan.of(
        GroupSetting(
            n_users=n_users,
            groups=check_positive_integer("groups", groups),
            groups_per_user=check_positive_integer("groups_per_user", groups_per_user),
            public_keys=not private_keys,
            epsilon=request.epsilon,
            delta=request.delta,
            scale=scale,
            per=per,
            neighbors=neighbors,
        )
    )


def _sizes(setting: GroupSetting) -> list[int]:
    """Return round numbers of users around the average, and the average itself."""
    average = setting.users_per_group
    least, most = max(average / _AROUND, 3.0), min(average * _AROUND, setting.n_users)
    top = math.ceil(math.log10(max(setting.n_users, 10)))
    tens = (factor * 10**power for power in range(top + 1) for factor in _SIZES)
    return sorted({size for size in tens if least <= size <= most} | {average})


def _percent(chance: float) -> str:
    if 0.0 < chance < 0.001:
        return "< 0.1%"
    return "> 99.9%" if 0.999 < chance < 1.0 else f"{chance:.1%}".replace(".0%", "%")
