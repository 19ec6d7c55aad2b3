"""How data sets stand: their totals, what was spent, and what a release would cost them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hubermean.errors import BudgetExhausted, InputError, LedgerDamaged
from hubermean.ledger.amounts import Cost, as_written, float_within, plain
from hubermean.ledger.composition import Composition, changes_between, composition_named
from hubermean.ledger.entries import Entry
from hubermean.ledger.question import Question, checked_name
from hubermean.ledger.store import Rows
from hubermean.readable import one_sided
from hubermean.relations import Neighbors
from hubermean.spending import Price


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """How a data set stands.

    Attributes:
        name: the data set.
        epsilon, delta: its total.
        neighbors: the change of the data that the total is about.
        composition: how costs add up.
        users: the columns that identify a user, once that is known.
        limit, spent: in the unit of the composition, exact.
        opened: when it was opened, as the clock said.
        number, digest: of the entry that opened it.
    """

    name: str
    number: int
    digest: str
    epsilon: float
    delta: float
    neighbors: Neighbors
    composition: Composition
    users: tuple[str, ...] | None
    limit: Cost
    spent: Cost
    opened: str

    @property
    def left(self) -> Cost:
        return self.spent.left_of(self.limit)

    @property
    def left_in_words(self) -> str:
        return self.composition.worded(self.left, up=False)

    @property
    def spent_as_epsilon(self) -> tuple[Decimal, Decimal]:
        """The (epsilon, delta) that was spent, rounded up; never more than the total, which is sure to hold."""
        epsilon, delta = self.composition.as_epsilon(self.spent, self.limit)
        if self.spent.within(self.limit):
            return min(epsilon, as_written(self.epsilon)), min(delta, as_written(self.delta))
        return epsilon, delta

    def to_dict(self) -> dict[str, Any]:
        """As plain data; amounts are exact decimals, as text."""
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

    def cost(self, question: Question, price: Price, relation: Neighbors | None) -> Cost:
        """What a release costs here.

        Raises:
            InputError: it does not protect what the total is about: other users, or a smaller change.
        """
        if self.users is not None and question.users and question.users != self.users:
            raise InputError(
                f"in the data set {self.name!r} a user is told by {', '.join(self.users)}; "
                "name the same columns as user, or open another data set"
            )
        return self.composition.cost(price, changes_between(relation or self.neighbors, self.neighbors))

    def users_after(self, question: Question | None) -> list[str] | None:
        """Who is a user from now on: as it was decided when the data set was opened, or by the first release."""
        users = self.users
        if users is None and question is not None:
            users = question.users or None
        return None if users is None else list(users)

    def exhausted(self, cost: Cost) -> BudgetExhausted:
        """That a cost is more than is left."""
        left, largest = self.left, self.composition.epsilon_left(self.left)
        asked = self.composition.worded(cost)
        told = f"the data set {self.name!r} has {self.left_in_words} left, and {asked} was asked for"
        if self.composition.unit != "epsilon":
            told += f" (a pure epsilon of {one_sided(largest, up=False)} would fit)"
        lower = "ask for less" if left.loss > 0 else "nothing more can be released from it"
        return BudgetExhausted(
            f"{told}; {lower}",
            dataset=self.name,
            epsilon=float_within(largest),
            delta=float_within(left.delta),
        )


def standing(rows: Rows, name: str) -> Dataset:
    """How a data set stands by its last entry, which names the one that opened it."""
    last = rows.last(checked_name(name, "dataset"))
    if last is None:
        raise InputError(f"there is no data set {name!r} in this ledger; open it with hubermean ledger init")
    if last.kind == "opened":
        return standing_of(last, last)
    try:
        number, digest = last.content["opened"]
        opened = rows.entry(number) if type(number) is int else None
    except (KeyError, TypeError, ValueError):
        opened, digest = None, None
    if opened is None or opened.digest != digest or not opened.is_whole or opened.dataset != name:
        raise LedgerDamaged(f"entry {last.number} does not name what opened its data set", entry=last.number)
    return standing_of(opened, last)


def standing_of(opened: Entry, last: Entry) -> Dataset:
    """How a data set stands by the entry that opened it and its last one."""
    content, users = opened.content, last.content.get("user")
    try:
        composition, limit = composition_named(content["composition"]), opened.cost_of("limit")
        if not limit.loss > 0:
            raise ValueError("no total")
        return Dataset(
            name=opened.dataset,
            number=opened.number,
            digest=opened.digest,
            epsilon=_total(content["epsilon"], 1e9),
            delta=_total(content["delta"], 1.0),
            neighbors=Neighbors(content["neighbors"]),
            composition=composition,
            users=None if users is None else tuple(map(str, users)),
            limit=limit,
            spent=last.spent,
            opened=str(content["at"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise LedgerDamaged(f"entry {opened.number} opens no data set", entry=opened.number) from None


def _total(written: Any, most: float) -> float:
    if type(written) is not float or not 0.0 <= written <= most:
        raise ValueError("no total")
    return written
