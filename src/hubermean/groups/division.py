"""How the budget of a grouped release is divided.

A user counts in at most `max_groups` groups. Adding or removing it changes that many groups by one user each; replacing
it may take it out of that many and put it into as many others, or change what it holds where it stays, which is no more
than out and in again: twice as many changes. Every group is therefore protected as under `add-remove`, its number of
users included, and the budget pays for all changes that one user can make. Proof: proofs/groups.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from hubermean.errors import InputError
from hubermean.groups.selection import KeySelection
from hubermean.laws import Claim
from hubermean.mechanisms import Request
from hubermean.privacy import float_down
from hubermean.relations import Neighbors
from hubermean.spending import THE_GROUPS, THE_MEAN, Spent, whole_budget

MOST_GROUPS = 10_000
_KEYS_PART = Fraction(1, 5)  # of epsilon: what private keys cost
_ROUNDING = 1.0 - 2.0**-40  # more than the rounding of a handful of float operations


@dataclass(frozen=True, kw_only=True)
class Division:
    """What the parts of a grouped release may spend, from public numbers alone.

    Attributes:
        max_groups: how many groups a user counts in at most.
        changes: how many times one user can be added to or removed from a group.
        selection: which groups appear, where that is private, for every change at a price of its own.
        means: what the means of all groups may spend together; groups are protected as under `add-remove`.
        whole: what was asked for, all of which is spent where nothing can be released.
        tuning: what tuning on one group of each user may spend, in the relation that was asked for: all that the means
            may, of which it takes its part first.
    """

    max_groups: int
    changes: int
    selection: KeySelection | None
    means: Request
    tuning: Request
    whole: Request

    @classmethod
    def of(
        cls,
        request: Request,
        *,
        max_groups: int,
        public_keys: bool,
        delta_for: Literal["all", "keys"] = "all",
    ) -> Division:
        """`delta_for` says whether the means have a use for delta, or only the choice of groups."""
        twice = request.neighbors is not Neighbors.ADD_REMOVE
        changes = max_groups * (2 if twice else 1)
        selection, epsilon, delta = None, request.epsilon, request.delta
        if not public_keys:
            if request.delta == 0.0:
                raise InputError(
                    "to choose groups privately takes delta > 0; give delta=, or keys= if the groups are public"
                )
            own = Fraction(request.epsilon) * _KEYS_PART
            parts = 2 if delta_for == "all" else 1
            selection = KeySelection(epsilon=own / changes, delta=Fraction(request.delta) / (parts * changes))
            epsilon = float_down(Fraction(request.epsilon) - own)
            delta = request.delta / 2.0 if delta_for == "all" else 0.0
        # Which groups a user is in is hidden, so its number of records in each is too.
        within = Neighbors.REPLACE_USER if twice else Neighbors.ADD_REMOVE
        return cls(
            max_groups=max_groups,
            changes=changes,
            selection=selection,
            means=replace(request, epsilon=epsilon, delta=delta, neighbors=Neighbors.ADD_REMOVE),
            tuning=replace(request, epsilon=epsilon, delta=delta, neighbors=within),
            whole=request,
        )

    def parameters(self) -> dict[str, Any]:
        """For the release."""
        return {} if self.selection is None else {"users_for_a_group": self.selection.usual_users}

    def account(self, means: tuple[Spent, ...]) -> tuple[Spent, ...]:
        """What choosing the groups cost, and then the means."""
        if self.selection is None:
            return means
        # Rounded down, so that all entries together are never more than the whole.
        epsilon, delta = map(float_down, self._price_of_keys(self.selection))
        return (*whole_budget(epsilon, delta, what=THE_GROUPS), *means)

    def claim_of_keys(self) -> Claim | None:
        """What choosing the groups costs."""
        if self.selection is None:
            return None
        epsilon, delta = self._price_of_keys(self.selection)
        return Claim(what=THE_GROUPS, epsilon=epsilon, delta=delta)

    def claim_of_means(self) -> Claim:
        """What the means of all groups cost together."""
        return Claim(what=THE_MEAN, epsilon=self.means.epsilon, delta=self.means.delta)

    def _price_of_keys(self, selection: KeySelection) -> tuple[Fraction, Fraction]:
        return selection.epsilon * self.changes, selection.delta * self.changes

    def one_group(self) -> Request:
        """What a mechanism that works on one group at a time may spend on each, for one user added or removed.

        The losses of all groups that one user touches add up. Where it may also be replaced within a group, that is two
        changes of one group, for which delta counts (1 + e^epsilon) times (proofs/groups.md, Lemma 3).
        """
        if self.changes == 1:
            return self.means
        epsilon = float_down(Fraction(self.means.epsilon) / self.changes)
        times = float(self.changes)
        if self.tuning.neighbors is Neighbors.REPLACE_USER:
            times *= (1.0 + math.exp(min(epsilon, 700.0))) / 2.0
        delta = self.means.delta / times * _ROUNDING
        return replace(self.means, epsilon=epsilon, delta=delta if delta >= 1e-100 else 0.0)


def check_max_groups(max_groups: int) -> int:
    whole = isinstance(max_groups, int) and not isinstance(max_groups, bool)
    if not whole or not 1 <= max_groups <= MOST_GROUPS:
        raise InputError(f"max_groups must be a whole number from 1 to {MOST_GROUPS:,}, not {max_groups!r}")
    return max_groups
