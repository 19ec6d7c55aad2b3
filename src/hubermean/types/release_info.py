"""What a release and a table of releases have in common: the guarantee, the mechanism, the budget and the receipt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hubermean.accounting.budget import BudgetEntry, format_amounts, has_stages
from hubermean.errors import printable
from hubermean.types.formatting import number, readable, to_width
from hubermean.types.request import Neighbors


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What a ledger charged for a release.

    Attributes:
        dataset: the data set that was charged.
        entry: the number of the ledger's entry.
        charged, left: the cost, and what remains of the budget, as text.
        again: whether the release was recorded earlier and cost nothing this time.
        recorded: whether the ledger holds the release; if not, making it again would be charged again.
        lasting: whether the question is recognised in other processes, and for an equal data frame.
    """

    dataset: str
    entry: int
    charged: str
    left: str
    again: bool = False
    recorded: bool = True
    lasting: bool = True

    def to_dict(self) -> dict[str, str | int | bool]:
        """Return the receipt as plain data."""
        names = ("dataset", "entry", "charged", "left", "again", "recorded")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        charge = "recorded earlier, so nothing was charged" if self.again else f"{self.charged} charged"
        if not self.recorded:
            charge += ", but this could not be recorded: keep it"
        text = f"{printable(self.dataset)}, entry {self.entry}: {charge}; {self.left} left"
        if self.lasting or self.again:
            return text
        return f"{text}. A data frame has no name: give question='...', and running this again costs nothing"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ReleaseInfo:
    """What holds for a whole release, with or without groups. All of it is released or public.

    Attributes:
        columns: names of the value columns.
        epsilon, delta: the privacy loss of the whole release.
        neighbors: the change of the data that the guarantee covers.
        mechanism: the name of the mechanism.
        per: "record" (mean over records) or "user" (mean of user means).
        parameters: public and privately chosen parameters of the mechanism.
        budget_breakdown: what the budget was spent on, one entry per private step.
        statistic: "mean" or "count".
        receipt: what the ledger charged; None without a ledger.
    """

    columns: tuple[str, ...]
    epsilon: float
    delta: float
    neighbors: Neighbors
    mechanism: str
    per: str
    parameters: Mapping[str, Any]
    budget_breakdown: tuple[BudgetEntry, ...]
    statistic: str = "mean"
    receipt: Receipt | None = field(default=None, compare=False)

    def info_fields(self) -> dict[str, Any]:
        """Return the fields of this class by name."""
        return {one.name: getattr(self, one.name) for one in fields(ReleaseInfo)}

    @property
    def description(self) -> str:
        """What is released, in words."""
        if self.statistic == "count":
            return "counted" if self.per == "user" else "counted up to the cap"
        return "mean over records" if self.per == "record" else "mean of user means"

    @property
    def budget(self) -> str:
        """Epsilon, and delta if there is one, as text."""
        return f"epsilon = {number(self.epsilon)}" + (
            f", delta = {number(self.delta)}" if self.delta > 0 else ""
        )

    def breakdown_lines(self) -> list[tuple[str, str]]:
        """Return the budget breakdown as a labelled line; empty if the budget was spent at once."""
        if not has_stages(self.budget_breakdown):
            return []
        entries = [entry for entry in self.budget_breakdown if entry.unit != "delta"]
        texts = format_amounts([entry.amount for entry in entries])
        steps = ", ".join(f"{entry.what} {text}" for entry, text in zip(entries, texts, strict=True))
        return [(f"{entries[0].unit} spent on", steps)]

    def parameter_lines(self) -> list[tuple[str, str]]:
        """Return the parameters as labelled lines."""
        return [(name.replace("_", " "), readable(value)) for name, value in self.parameters.items()]

    def receipt_lines(self) -> list[tuple[str, str]]:
        """Return the receipt as a labelled line; empty without a ledger."""
        return [] if self.receipt is None else [("ledger", str(self.receipt))]


def state_guarantee(epsilon: float, delta: float, neighbors: Neighbors, *, grouped: bool = False) -> str:
    """Return the guarantee in one sentence, and what it leaves public in another."""
    factor = f"{math.exp(epsilon):.3g}" if epsilon <= 20 else f"e^{number(epsilon)}"
    failure = f", plus {number(delta)}" if delta > 0 else ""
    change = neighbors.grouped_change if grouped else neighbors.change
    sentence = f"{change} changes the probability of any result by at most a factor of {factor}{failure}."
    return f"{sentence} {neighbors.public_numbers}".rstrip()


def format_values(statistic: str, value: float, *ends: Any) -> list[str]:
    """Return a value and the ends of its interval as text; counts are whole numbers."""
    if statistic == "count":
        return [f"{one:,.0f}" for one in (value, *ends)]
    return [number(value)] if not ends else list(to_width(value, *ends))
