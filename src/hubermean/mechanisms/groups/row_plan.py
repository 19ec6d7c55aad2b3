"""How the budget of means by group is split over the queries on users' rows; all of it from public or released numbers.

A bound on the norm of rows costs bias where rows exceed it, and noise in every group. One user beyond the bound is
missed in its own groups only, while noise is added to all: so with G groups, noise of s bounds per group and users in L
groups, the error is least where about s G / sqrt(L) users exceed the bound, hundreds of them where groups are many.
The search for a bound at such a rank costs little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from hubermean.mechanisms.groups.row_queries import Accounting
from hubermean.searches.bounds import RankSearch

# By how many bounds rows beyond a bound exceed it; a usual row is exceeded by this share of users.
_LARGEST_EXCESS, _LEAST_EXCESS, _MANY = 1.3, 0.3, 8.0
_WITHIN_USUAL, _SHORTEST_TAIL = 0.3, 2.0
_NATS = 50.0  # that outweigh the base measure of a search whose grid begins at a part of a usual row
_HEAVIEST = 128.0  # usual rows: a bound found further out is stretched no more


@dataclass(frozen=True, kw_only=True)
class _Shares:
    """Parts of the budget, tuned on the tables that docs/evidence/groups.md names as such.

    Attributes:
        weights: for the weights of all groups, by what they count: records or users.
        passes: for the sums of each pass, of what searches leave.
        squares: of the last pass, for squares.
        search: the least and the most that one search may cost, of the whole.
        rank: times s G / sqrt(L): the rank of the bound.
        stretch: the power of a Pareto tail with which a bound is stretched to that rank, if it was found at a larger
            one: real tails bend.
    """

    weights: dict[str, Fraction]
    passes: tuple[Fraction, ...]
    squares: Fraction
    search: tuple[float, float]
    rank: float
    stretch: float


# Budgets in concentrated privacy can be cut in more parts: half of one has 1.4 times its noise, not twice.
_CONCENTRATED = _Shares(
    weights={"user": Fraction(8, 100), "record": Fraction(16, 100)},
    passes=(Fraction(2, 10), Fraction(3, 10), Fraction(5, 10)),
    squares=Fraction(8, 100),
    search=(0.004, 0.08),
    rank=1.0,
    stretch=0.3,
)
_PURE = _Shares(
    weights={"user": Fraction(12, 100), "record": Fraction(20, 100)},
    passes=(Fraction(3, 10), Fraction(7, 10)),
    squares=Fraction(12, 100),
    search=(0.004, 0.08),
    rank=1.0,
    stretch=0.5,
)


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    """What each query on rows may cost.

    Attributes:
        accounting: its budget is what all queries together may cost.
        groups: how many there are.
        users: about how many users there are, rather fewer.
        columns: how many columns share the budget.
        hostile: the share of the users that must not stretch a bound.
        per: what the weight of a group counts, "user" or "record".
        counting: whether weights are all that is released.
    """

    accounting: Accounting
    groups: int
    users: float
    columns: int
    hostile: float
    per: str
    counting: bool = False

    @property
    def shares(self) -> _Shares:
        return _CONCENTRATED if self.accounting.concentrated else _PURE

    @property
    def passes(self) -> int:
        return len(self.shares.passes)

    @property
    def longest_row(self) -> float:
        """The norm of a row with a 1 in every group, rounded up."""
        if not self.accounting.concentrated:
            return float(self.groups)
        return math.nextafter(math.sqrt(self.groups), math.inf)

    def weights_cost(self, search_cost: Fraction) -> Fraction:
        """What the weights may cost, after a search that cost so much."""
        total = self.accounting.budget.total
        return total - search_cost if self.counting else total * self.shares.weights[self.per]

    def weights_search(self) -> RankSearch:
        """The bound on a user's row of weights, at as small a rank as its part can find."""
        return self._search(1.0, self.accounting.budget.total)

    def column_budget(self, spent: Fraction) -> Fraction:
        """What each column may spend, after the weights."""
        return (self.accounting.budget.total - spent) / self.columns

    def search(self, number: int, budget: Fraction, groups_per_user: float) -> RankSearch:
        """The search before a pass, for a column with this budget."""
        return self._search(self.rank(number, budget, groups_per_user), budget, nats=_NATS)

    def rank(self, number: int, budget: Fraction, groups_per_user: float) -> float:
        """About how many rows should exceed the bound of a pass."""
        expected = budget * self.shares.passes[number] * Fraction(9, 10)
        noise = self.accounting.noise_stddev(expected, nonnegative=True)
        return self.shares.rank * noise * self.spread(groups_per_user)

    def stretch(self, found: float, search: RankSearch, rank: float, *, usual: float) -> tuple[float, float]:
        """Return (the bound of a pass, about how many rows exceed it at most), from the bound that its search found.

        Where a search cannot afford the rank that a pass should have, the bound is stretched from there along a tail
        through a usual row and what was found.
        """
        beyond = min(search.expected_beyond, self.users)
        wanted = max(rank + self.hostile * self.users, 1.0)
        if wanted >= beyond:
            return found, beyond
        nats = math.log(max(_WITHIN_USUAL * self.users / beyond, _SHORTEST_TAIL))
        seen = min(max(found / usual, 1.0), _HEAVIEST)
        stretch = self.shares.stretch
        bound = found * seen ** (stretch * math.log(beyond / wanted) / nats)
        return bound, beyond * (wanted / beyond) ** stretch

    def spread(self, groups_per_user: float) -> float:
        """For how many groups' noise one user's share of a bound stands: G / sqrt(L), or G in 1-norm."""
        return self.groups / (math.sqrt(groups_per_user) if self.accounting.concentrated else 1.0)

    def missed(self, beyond: float, *, bound: float, usual: float, groups_per_user: float) -> float:
        """Return about how much clipping takes off the sum of a group of average size, in the units of the bound.

        So many rows are `beyond` the bound.

        Rows beyond the bound are further out by a part of it that a Pareto tail from the norm of a usual row to the
        bound would have, at most by `_LARGEST_EXCESS`, or more where many rows are beyond: an assumption on the tail.
        """
        beyond = min(beyond, self.users)
        share = beyond / self.users
        nats = math.log(max(_WITHIN_USUAL / share, _SHORTEST_TAIL))
        index = nats / math.log(max(bound / usual, 1.05))
        largest = _LARGEST_EXCESS * (1.0 + _MANY * max(share - 0.05, 0.0))
        excess = min(max(1.0 / max(index - 1.0, 1e-3), _LEAST_EXCESS), largest)
        return excess * beyond / self.spread(groups_per_user) * bound

    def _search(self, rank: float, budget: Fraction, **nats: float) -> RankSearch:
        least, most = (self.accounting.budget.largest_selection(budget, part) for part in self.shares.search)
        return RankSearch.plan_for_rank(
            self.users, rank=rank, least=least, most=most, hostile=self.hostile, **nats
        )

    def pass_cost(self, number: int, left: Fraction) -> Fraction:
        """The cost of a pass, where so much is left for it and all later ones."""
        shares = self.shares.passes[number:]
        return left * shares[0] / sum(shares)
