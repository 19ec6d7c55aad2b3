"""How the budget of a grouped release is split between partition selection and the groups.

Without a bound on the groups of a user, the norm of a user's row over all groups bounds what it adds (`row_means`), and
partition selection shares one unit of a user over its groups (`row_selection`).

With a bound, a user counts in at most `max_groups` groups. Adding or removing the user changes that many groups by one
user each. Replacing the user may remove it from that many groups and add it to as many others, or change its records
where it stays, which is no more than removing and adding it: twice as many changes. Every group is therefore protected
as under `add-remove`, its number of users included, and the budget covers all changes that one user can make. Proof:
proofs/groups.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from hubermean.accounting.arguments import round_down
from hubermean.accounting.budget import (
    THE_GROUPS,
    THE_MEAN,
    BudgetEntry,
    Claim,
    PrivacyBudget,
    whole_budget,
)
from hubermean.errors import InputError, parameter
from hubermean.mechanisms.groups.noise_choice import equal_groups, few_groups
from hubermean.mechanisms.groups.partition_selection import PartitionSelection
from hubermean.mechanisms.groups.row_selection import RowSelection
from hubermean.noise.batch import LARGEST_SCALE
from hubermean.types.request import Neighbors, Request

MOST_GROUPS = 10_000
_SELECTION_PART = Fraction(1, 5)  # of epsilon: for the selection of private groups
_ROW_SELECTION_PART = Fraction(15, 100)  # of rho
_USUAL_ROW = 16  # groups per user, where nothing is known
_ROUNDING = 1.0 - 2.0**-40  # more than the rounding of a handful of float operations


@dataclass(frozen=True, kw_only=True)
class GroupBudgetSplit:
    """What each part of a grouped release may spend, from public numbers alone.

    Attributes:
        max_groups: the contribution bound, how many groups a user counts in at most; None for no bound.
        groups: how many groups there are, where they are public.
        changes: how many times one user can be added to or removed from a group; 0 without a bound.
        selection: the rule for which groups appear, where that is private.
        means: the request for the values of all groups together; groups are protected as under `add-remove`.
        estimation: the request for what is measured of users as a whole, in the caller's neighbor relation. It may
            spend all that `means` may.
        whole: the caller's request, all of which is spent where nothing can be released.
    """

    max_groups: int | None
    groups: int | None
    changes: int
    selection: PartitionSelection | RowSelection | None
    means: Request
    estimation: Request
    whole: Request

    @classmethod
    def of(
        cls,
        request: Request,
        *,
        max_groups: int | None,
        groups: int | None,
        delta_for: Literal["all", "keys"] = "all",
    ) -> GroupBudgetSplit:
        """Split the budget; `delta_for` says whether the means use delta as well, or partition selection alone.

        `groups` is the number of public groups; None where they are selected privately.
        """
        twice = request.neighbors is not Neighbors.ADD_REMOVE
        changes = (max_groups or 0) * (2 if twice else 1)
        selection: PartitionSelection | RowSelection | None = None
        epsilon, delta = request.epsilon, request.delta
        if groups is None:
            if request.delta == 0.0:
                raise InputError(
                    f"selecting groups privately needs delta > 0; give {parameter('delta')}, or "
                    f"{parameter('keys')} if the groups are public"
                )
            own = Fraction(request.epsilon) * _SELECTION_PART
            parts = 2 if delta_for == "all" or max_groups is None else 1
            delta = request.delta / 2.0 if parts == 2 else 0.0
            if max_groups is None:  # one budget in rho for all, of which selection takes its part first
                total = PrivacyBudget.concentrated(epsilon, delta).total
                selection = RowSelection(
                    rho=total * _ROW_SELECTION_PART, delta=Fraction(request.delta) / 2, add_remove=not twice
                )
                if total <= 0 or selection.noise.scale > LARGEST_SCALE:
                    raise InputError(
                        f"{parameter('epsilon')} and {parameter('delta')} are too small to select groups privately; "
                        f"raise them, or give {parameter('keys')}"
                    )
            else:
                selection = PartitionSelection(
                    epsilon=own / changes, delta=Fraction(request.delta) / (parts * changes)
                )
                epsilon = round_down(Fraction(request.epsilon) - own)
        # Which groups a user is in is private, so its number of records in each group is private too.
        within = Neighbors.REPLACE_USER if twice else Neighbors.ADD_REMOVE
        return cls(
            max_groups=max_groups,
            groups=groups,
            changes=changes,
            selection=selection,
            means=replace(request, epsilon=epsilon, delta=delta, neighbors=Neighbors.ADD_REMOVE),
            estimation=replace(request, epsilon=epsilon, delta=delta, neighbors=within),
            whole=request,
        )

    def parameters(self) -> dict[str, Any]:
        """Public numbers for the release."""
        return {} if self.selection is None else {"users_for_a_group": self.selection.usual_users}

    def break_down_budget(self, means: tuple[BudgetEntry, ...]) -> tuple[BudgetEntry, ...]:
        """What was spent on partition selection, followed by the entries of the means."""
        if self.selection is None:
            return means
        if isinstance(self.selection, RowSelection):
            return (*self.selection.entries(), *means)
        # Rounded down, so that all entries together are never more than the whole.
        epsilon, delta = map(round_down, self.selection_cost)
        return (*whole_budget(epsilon, delta, what=THE_GROUPS), *means)

    def selection_claim(self) -> Claim | None:
        """What partition selection costs."""
        if self.selection is None:
            return None
        if isinstance(self.selection, RowSelection):
            return self.selection.claim()
        epsilon, delta = self.selection_cost
        return Claim(what=THE_GROUPS, epsilon=epsilon, delta=delta)

    def means_claim(self) -> Claim:
        """What the means of all groups cost together."""
        return Claim(what=THE_MEAN, epsilon=self.means.epsilon, delta=self.means.delta)

    @property
    def selection_cost(self) -> tuple[Fraction, Fraction]:
        """Epsilon and delta of partition selection, beside the budget of `row_budget`; nothing for public groups."""
        if self.selection is None:
            return Fraction(0), Fraction(0)
        if isinstance(self.selection, RowSelection):
            return Fraction(0), self.selection.delta
        return self.selection.epsilon * self.changes, self.selection.delta * self.changes

    @property
    def row_budget(self) -> tuple[PrivacyBudget, Fraction]:
        """The budget of means by rows, and what partition selection has taken of it.

        With delta it is in concentrated privacy, unless a user is in so few groups that Laplace noise is smaller: for
        sure, or, where `few_groups` is not 0, as a private count shows.
        """
        request = self.means
        pure = PrivacyBudget.pure(request.epsilon)
        if request.delta == 0.0:
            return pure, Fraction(0)
        concentrated = PrivacyBudget.concentrated(request.epsilon, request.delta)
        if isinstance(self.selection, RowSelection):
            return concentrated, self.selection.rho
        counts = [_USUAL_ROW, *(one for one in (self.max_groups, self.groups) if one is not None)]
        if min(counts) < equal_groups(request.epsilon, concentrated.total):
            return pure, Fraction(0)
        if few_groups(request.epsilon, concentrated.total):
            return replace(concentrated, pure_total=pure.total), Fraction(0)
        return concentrated, Fraction(0)

    def one_group(self) -> Request:
        """The request for each group, for a mechanism that runs group by group; one user is added or removed.

        The losses of all groups that one user contributes to add up. A user that is replaced within a group makes two
        changes to it, for which delta counts (1 + e^epsilon) times (proofs/groups.md, Lemma 3).
        """
        if self.changes == 1:
            return self.means
        epsilon = round_down(Fraction(self.means.epsilon) / self.changes)
        times = float(self.changes)
        if self.estimation.neighbors is Neighbors.REPLACE_USER:
            times *= (1.0 + math.exp(min(epsilon, 700.0))) / 2.0
        delta = self.means.delta / times * _ROUNDING
        return replace(self.means, epsilon=epsilon, delta=delta if delta >= 1e-100 else 0.0)


def check_max_groups(max_groups: int | None) -> int | None:
    """The bound itself, None for none; InputError if it is not a whole number in range."""
    if max_groups is None:
        return None
    whole = isinstance(max_groups, int) and not isinstance(max_groups, bool)
    if not whole or not 1 <= max_groups <= MOST_GROUPS:
        raise InputError(
            f"{parameter('max_groups')} must be a whole number from 1 to {MOST_GROUPS:,}, not {max_groups!r}"
        )
    return max_groups
