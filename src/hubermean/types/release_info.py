"""What a release and a table of releases have in common: the guarantee, the mechanism, the budget and the receipt."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubermean.accounting.budget import BudgetEntry, format_amounts, has_stages
from hubermean.errors import printable
from hubermean.types.formatting import number, readable, rounded_up, to_width
from hubermean.types.request import Neighbors
from hubermean.types.screen import WARNING, Lines, Screen

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from matplotlib.figure import Figure

DEFAULT_LEVEL = 0.95
_PLAIN_EPSILON = 20.0  # beyond which a factor is written as a power

NOT_SECURE = "This release was made with seeded noise, for tests. It protects nobody; do not publish it."


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
class ReleaseInfo(ABC):
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
        warnings: sentences on how the values should not be read.
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
    warnings: tuple[str, ...] = ()

    @property
    @abstractmethod
    def guarantee(self) -> str:
        """The guarantee in one sentence."""

    @property
    @abstractmethod
    def screen(self) -> Screen:
        """What a terminal, a prompt and a notebook show first."""

    @property
    @abstractmethod
    def details(self) -> Lines:
        """Everything else: how the interval is meant, the budget breakdown and the parameters, as labelled lines."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the release as plain data, stable across versions."""

    @abstractmethod
    def to_arrow(self, level: float = DEFAULT_LEVEL) -> pyarrow.Table:
        """Return the values as a PyArrow table, with the ends of their intervals."""

    def to_pandas(self, level: float = DEFAULT_LEVEL) -> pandas.DataFrame:
        """Return the columns of `to_arrow` as a pandas frame."""
        return self.to_arrow(level).to_pandas()

    def to_polars(self, level: float = DEFAULT_LEVEL) -> polars.DataFrame:
        """Return the columns of `to_arrow` as a Polars frame."""
        from hubermean.types.frames import to_polars

        return to_polars(self.to_arrow(level))

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_html(self, *, title: str | None = None, source: str | None = None) -> str:
        """Return one self-contained HTML page about the release, as `hubermean release --report` writes it.

        Args:
            title: the heading; by default made of the column names.
            source: where the data came from; of a path only the file name is shown.
        """
        from hubermean.report.page import page

        return page(self, title=title, source=source)  # type: ignore[arg-type]  # a Release or a ReleaseTable

    def plot(self, path: str | Path | None = None, *, level: float = DEFAULT_LEVEL) -> Figure:
        """Draw the values with their intervals; returns a matplotlib figure, and writes it to `path` if one is given.

        Raises:
            InputError: matplotlib is not installed, or the file cannot be written.
        """
        from hubermean.types.figure import draw_release

        return draw_release(self, path, level=level)

    def __repr__(self) -> str:
        return str(self.screen)

    def _repr_html_(self) -> str:
        return self.screen.to_html(self.details, self._chart())

    def _chart(self) -> str:
        """Return what a notebook draws beside the numbers, as safe markup."""
        return ""

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
    def note(self) -> str:
        """What a reader has to know to read the number right; empty where it is what one expects."""
        if self.statistic == "count":
            most = self.parameters.get("max_records")
            return f"at most {readable(most)} per user" if self.per == "record" and most is not None else ""
        return "mean of user means" if self.per == "user" else ""

    @property
    def budget(self) -> str:
        """Epsilon, and delta if there is one, as text."""
        return f"epsilon = {number(self.epsilon)}" + (
            f", delta = {number(self.delta)}" if self.delta > 0 else ""
        )

    def warning_lines(self) -> list[tuple[str, str]]:
        """Return the warnings as labelled lines."""
        sentences = [NOT_SECURE] if self.parameters.get("insecure_noise") else []
        return [(WARNING, sentence) for sentence in (*sentences, *self.warnings)]

    def privacy_lines(self) -> list[tuple[str, str]]:
        """Return the guarantee, and what a ledger charged, as labelled lines."""
        lines = [("Privacy", f"{self.budget} for each user. {self.guarantee}")]
        return lines if self.receipt is None else [*lines, ("Ledger", str(self.receipt))]

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


def largest_factor(epsilon: float) -> str:
    """Return the factor by which one user may change the probability of a result, rounded up.

    >>> largest_factor(1.0), largest_factor(50.0)
    ('2.72', 'e^50')
    """
    if epsilon > _PLAIN_EPSILON:
        return f"e^{number(epsilon)}"
    return rounded_up(math.nextafter(math.exp(epsilon), math.inf))


def state_guarantee(epsilon: float, delta: float, neighbors: Neighbors, *, grouped: bool = False) -> str:
    """Return the guarantee in one sentence, and what it leaves public in another."""
    failure = f", plus {number(delta)}" if delta > 0 else ""
    change = neighbors.grouped_change if grouped else neighbors.change
    sentence = f"{change} changes the probability of any result by at most a factor of "
    sentence += f"{largest_factor(epsilon)}{failure}."
    return f"{sentence} {neighbors.public_numbers}".rstrip()


def format_values(statistic: str, value: float, *ends: Any) -> list[str]:
    """Return a value and the ends of its interval as text; counts are whole numbers."""
    whole = statistic == "count"
    if ends:
        return list(to_width(value, *ends, whole=whole))
    return [f"{value:,.0f}" if whole else number(value)]
