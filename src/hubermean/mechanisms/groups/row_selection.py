"""Partition selection for users who may be in any number of groups: weights that share one unit, noise, a threshold.

A user in k groups adds 1 / sqrt(k) to each of them, so that its row has the Euclidean norm 1. A group appears if its
noisy sum reaches a threshold so high that groups which only one user is in appear with probability below delta
(Gopi, Gulhane, Kulkarni, Shen, Shokouhi & Yekhanin 2020, "Differentially private set union", Thm 5.1).
Proof: proofs/groups.md, Lemma 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist

import numpy as np

from hubermean.accounting.arguments import round_down
from hubermean.accounting.budget import THE_GROUPS, BudgetEntry, Claim
from hubermean.accounting.concentrated import concentrated_sigma
from hubermean.data.group_table import GroupTable
from hubermean.distributions.output import NoiseDistribution, ThresholdedSums
from hubermean.mechanisms.groups.rows import ROW_UNITS, UserRows

MOST_SELECTING = 1000
"""A user in more groups than this has no part in their selection, or the threshold would have to be higher."""
_SLACK = 1e-6  # of delta, for the rounding of normal quantiles


@dataclass(frozen=True, kw_only=True)
class RowSelection:
    """The selection rule: rho-zCDP but for an event of probability delta.

    Attributes:
        rho, delta: what it costs.
        add_remove: whether one row is added or removed; otherwise one is replaced by another.
    """

    rho: Fraction
    delta: Fraction
    add_remove: bool

    @cached_property
    def noise(self) -> NoiseDistribution:
        # Rows have no negative entries, so two of them differ by at most the root of two.
        squared = (1 if self.add_remove else 2) * ROW_UNITS**2
        return NoiseDistribution(
            kind="gaussian", scale=concentrated_sigma(round_down(self.rho), squared_sensitivity=squared)
        )

    @cached_property
    def threshold(self) -> int:
        """The least threshold for which, however many groups one user alone is in, one of them appears with
        probability at most delta."""
        delta = round_down(self.delta) * (1.0 - _SLACK)
        numbers = range(1, MOST_SELECTING + 1)
        # Noise is at least m with at most the probability of a normal variable at least m - 1.
        return max(
            math.ceil(ROW_UNITS / math.sqrt(k) - self.noise.scale * NormalDist().inv_cdf(delta / k)) + 2
            for k in numbers
        )

    @property
    def usual_users(self) -> int:
        """The number of users, each in one group only, with which a group appears half of the time."""
        return math.ceil(self.threshold / ROW_UNITS)

    def distribution(self, table: GroupTable) -> ThresholdedSums:
        in_groups = np.bincount(table.owners, minlength=table.n_owners)
        taking_part = np.flatnonzero(in_groups[table.owners] <= MOST_SELECTING)
        rows = UserRows(
            members=table.members.take(taking_part),
            owners=table.owners[taking_part],
            n_owners=table.n_owners,
            groups=table.membership.groups[taking_part],
            n_groups=table.membership.size,
        )
        sums = rows.totals(rows.clip(np.ones(len(taking_part)), bound=1.0, norm="L2"))
        # Only these may appear: noise would show some of the groups that are nobody's but one user's, if they are many.
        present = np.bincount(rows.groups, minlength=rows.n_groups) > 0
        pairs = zip(table.keys, sums, present.tolist(), strict=True)
        return ThresholdedSums(
            sums={key: total for key, total, has in pairs if has},
            noise=self.noise,
            threshold=self.threshold,
            claim=self.claim(),
        )

    def claim(self) -> Claim:
        return Claim(what=THE_GROUPS, rho=self.rho, delta=self.delta)

    def entries(self) -> tuple[BudgetEntry, ...]:
        """What it costs, for a budget breakdown."""
        return (
            BudgetEntry(what=THE_GROUPS, amount=round_down(self.rho), unit="rho"),
            BudgetEntry(what=THE_GROUPS, amount=round_down(self.delta), unit="delta"),
        )
