"""`DryRun`: what a release would do and cost, from public facts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hubermean.errors import printable
from hubermean.types.formatting import number
from hubermean.types.request import Neighbors
from hubermean.types.screen import Lines


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """What a prepared mechanism would do.

    Attributes:
        mechanism: its name, where that is not the requested one.
        steps: the private steps, in order; each is paid for only if it runs.
        needs: what private data must have for a release to be expected, in words.
    """

    mechanism: str | None = None
    steps: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DryRunReceipt:
    """What a ledger would do.

    Attributes:
        dataset: the data set.
        charged, left: what would be charged, and left after that, as text.
        entry: the entry that answers this question already; nothing would be charged then.
    """

    dataset: str
    charged: str
    left: str
    entry: int | None = None

    def __str__(self) -> str:
        if self.entry is not None:
            return f"{printable(self.dataset)}: recorded in entry {self.entry}, so nothing would be charged"
        return f"{printable(self.dataset)}: {self.charged} would be charged, {self.left} would be left"


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """The result of `dry_run=True`: the request passed every check that is free. No record was read.

    Attributes:
        statistic: "mean" or "count".
        columns, per, neighbors, epsilon, delta: the request.
        mechanism: the mechanism that would run.
        by: the group columns; empty without groups.
        groups: the number of public groups; None if they would be selected privately, or without groups.
        steps, needs: see `Prospect`. If private data do not have what is needed, the release ends early and costs no
            more than the steps that ran.
        receipt: what the ledger would do; None without one.
    """

    statistic: str
    columns: tuple[str, ...]
    per: str
    neighbors: Neighbors
    epsilon: float
    delta: float
    mechanism: str
    steps: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    receipt: DryRunReceipt | None = None
    by: tuple[str, ...] = ()
    groups: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the dry run as plain data."""
        return {"dry_run": True, "released": False, **asdict(self), "neighbors": self.neighbors.value}

    def rows(self) -> list[tuple[str, str]]:
        """Return the dry run as labelled lines."""
        budget = f"epsilon = {number(self.epsilon)}"
        budget += f", delta = {number(self.delta)}" if self.delta > 0 else ""
        rows = [
            ("would release", f"{self.statistic} of {_list_some(self.columns)}, per {self.per}"),
            *([("groups", self._describe_groups())] if self.by else []),
            ("mechanism", self.mechanism),
            ("budget", f"{budget}, {self.neighbors.value}"),
        ]
        if len(self.steps) > 1:
            rows.append(("private steps", ", ".join(self.steps)))
        if self.needs:
            rows.append(("needs", "; ".join(self.needs)))
            rows.append(("otherwise", "it ends early, and costs only the steps that ran"))
        if self.receipt is not None:
            rows.append(("ledger", str(self.receipt)))
        return [(label, printable(text)) for label, text in rows]

    def _describe_groups(self) -> str:
        names = _list_some(self.by)
        if self.groups is None:
            return f"by {names}; those with enough users, selected privately"
        return f"by {names}; {self.groups:,} public {'group' if self.groups == 1 else 'groups'}"

    def __str__(self) -> str:
        return repr(Lines(tuple(self.rows())))

    __repr__ = __str__


def _list_some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3:,} more"
