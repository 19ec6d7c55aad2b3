"""Budgets of data sets: total, spent and remaining, and what a release would cost."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hubermean.accounting.budget import PrivacyCost
from hubermean.errors import BudgetExhausted, InputError, LedgerDamaged
from hubermean.ledger.amounts import Cost, as_written, float_within, plain
from hubermean.ledger.composition import Composition, changes_between, composition_named
from hubermean.ledger.entries import Entry, Question, check_name
from hubermean.ledger.store import Rows
from hubermean.types.clients import Relation, parse_relation
from hubermean.types.formatting import one_sided


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The budget of a data set at one moment.

    Attributes:
        name: the data set.
        epsilon, delta: its total.
        neighbors: the change of the data that the total is about.
        composition: how costs add up.
        users: the columns that identify a user; None until the first release decides.
        limit, spent: in the unit of the composition, exact.
        opened: the time at which it was opened, by the clock of that machine.
        number, digest: of the entry that opened it.
    """

    name: str
    number: int
    digest: str
    epsilon: float
    delta: float
    neighbors: Relation
    composition: Composition
    users: tuple[str, ...] | None
    limit: Cost
    spent: Cost
    opened: str

    @property
    def left(self) -> Cost:
        """What remains, in the unit of the composition."""
        return self.spent.left_of(self.limit)

    @property
    def left_in_words(self) -> str:
        """What remains, as text, rounded down."""
        return self.composition.format_cost(self.left, up=False)

    @property
    def spent_as_epsilon(self) -> tuple[Decimal, Decimal]:
        """The (epsilon, delta) spent, rounded up; at most the total, which holds in any case."""
        epsilon, delta = self.composition.as_epsilon(self.spent, self.limit)
        if self.spent.within(self.limit):
            return min(epsilon, as_written(self.epsilon)), min(delta, as_written(self.delta))
        return epsilon, delta

    def to_dict(self) -> dict[str, Any]:
        """Return the budget as plain data; amounts are exact decimals, as text."""
        epsilon, delta = self.spent_as_epsilon
        return {
            "dataset": self.name,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbors": self.neighbors.value,
            "composition": self.composition.name,
            "user": None if self.users is None else list(self.users),
            "opened": self.opened,
            "unit": self.composition.unit,
            "total": self.limit.to_dict(),
            "spent": self.spent.to_dict(),
            "left": self.left.to_dict(),
            "spent_epsilon": plain(epsilon),
            "spent_delta": plain(delta),
        }

    def compute_cost(self, question: Question, privacy_cost: PrivacyCost, relation: Relation | None) -> Cost:
        """Return what a release costs this data set.

        Raises:
            InputError: the release does not protect what the total is about: its users are identified by other
                columns, or it hides a smaller change.
        """
        if self.users is not None and question.user_columns and question.user_columns != self.users:
            raise InputError(
                f"the data set {self.name!r} identifies users by {', '.join(self.users)}; "
                "use the same user columns, or open another data set"
            )
        return self.composition.cost(
            privacy_cost, changes_between(relation or self.neighbors, self.neighbors)
        )

    def users_after(self, question: Question | None) -> list[str] | None:
        """Return the user columns after a question: fixed when the data set was opened, or by its first release."""
        users = self.users
        if users is None and question is not None:
            users = question.user_columns or None
        return None if users is None else list(users)

    def budget_exhausted(self, cost: Cost) -> BudgetExhausted:
        """Return the error for a cost that exceeds what remains."""
        left, largest = self.left, self.composition.epsilon_left(self.left)
        requested = self.composition.format_cost(cost)
        sentence = (
            f"the data set {self.name!r} has {self.left_in_words} left, but this release costs {requested}"
        )
        if self.composition.unit != "epsilon":
            sentence += f" (a release with a pure epsilon of {one_sided(largest, up=False)} would fit)"
        action = "use a smaller budget" if left.loss > 0 else "nothing more can be released from it"
        return BudgetExhausted(
            f"{sentence}; {action}",
            dataset=self.name,
            epsilon=float_within(largest),
            delta=float_within(left.delta),
        )


def read_dataset(rows: Rows, name: str) -> Dataset:
    """Return the budget of a data set, from its last entry and the opening entry that this one names."""
    last = rows.last(check_name(name, "dataset"))
    if last is None:
        raise InputError(f"there is no data set {name!r} in this ledger; open it with hubermean ledger init")
    if last.kind == "opened":
        return dataset_from_entries(last, last)
    try:
        number, digest = last.content["opened"]
        opened = rows.entry(number) if type(number) is int else None
    except (KeyError, TypeError, ValueError):
        opened, digest = None, None
    if opened is None or opened.digest != digest or not opened.is_intact or opened.dataset != name:
        raise LedgerDamaged(
            f"entry {last.number} does not name the entry that opened its data set", entry=last.number
        )
    return dataset_from_entries(opened, last)


def dataset_from_entries(opened: Entry, last: Entry) -> Dataset:
    """Return the budget of a data set from its opening and its last entry."""
    content, users = opened.content, last.content.get("user")
    try:
        composition, limit = composition_named(content["composition"]), opened.read_cost("limit")
        if not limit.loss > 0:
            raise ValueError("no total")
        return Dataset(
            name=opened.dataset,
            number=opened.number,
            digest=opened.digest,
            epsilon=_check_total(content["epsilon"], 1e9),
            delta=_check_total(content["delta"], 1.0),
            neighbors=parse_relation(content["neighbors"]),
            composition=composition,
            users=None if users is None else tuple(map(str, users)),
            limit=limit,
            spent=last.spent,
            opened=str(content["at"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise LedgerDamaged(
            f"entry {opened.number} does not describe the data set that it opens", entry=opened.number
        ) from None


def _check_total(total: Any, largest: float) -> float:
    if type(total) is not float or not 0.0 <= total <= largest:
        raise ValueError("not a total")
    return total
