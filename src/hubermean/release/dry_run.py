"""Dry runs: everything a release does before its charge, and what the charge would be. No record is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from hubermean.accounting.budget import PrivacyCost
from hubermean.release.charging import LedgerCharge
from hubermean.types.dry_run import DryRun, DryRunReceipt, Prospect
from hubermean.types.request import Request

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class DryCharge:
    """Takes the place of a charge: says what would be charged, and computes nothing.

    Attributes:
        charge_of: the charge that a ledger would be asked for; None without a ledger.
        request, statistic, mechanism: what would be released.
        by, groups: the group columns, and the number of groups if they are public.
    """

    charge_of: LedgerCharge | None
    request: Request
    statistic: str
    mechanism: str
    by: tuple[str, ...] = ()
    groups: int | None = None

    def find_recorded(self, request: Request) -> DryRun | None:
        """Return the dry run of a question that was answered before.

        Raises:
            BudgetExhausted: too little budget is left; unlike that of a release, this is not recorded.
        """
        entry = None if self.charge_of is None else self.charge_of.find_answer()
        if entry is None or self.charge_of is None:
            return None
        left = self.charge_of.ledger.dataset(self.charge_of.dataset).left_in_words
        return self._describe(
            Prospect(),
            DryRunReceipt(dataset=self.charge_of.dataset, charged="nothing", left=left, entry=entry.number),
        )

    def charge(
        self, privacy_cost: PrivacyCost, compute: Callable[[], T], prospect: Callable[[], Prospect]
    ) -> T:
        """Return a `DryRun` in place of a release."""
        receipt = None
        if self.charge_of is not None:
            cost, left = self.charge_of.foresee(privacy_cost)
            receipt = DryRunReceipt(dataset=self.charge_of.dataset, charged=cost, left=left)
        return cast(T, self._describe(prospect(), receipt))

    def _describe(self, prospect: Prospect, receipt: DryRunReceipt | None) -> DryRun:
        request = self.request
        return DryRun(
            statistic=self.statistic,
            columns=request.columns,
            per=request.per,
            neighbors=request.neighbors,
            epsilon=request.epsilon,
            delta=request.delta,
            mechanism=prospect.mechanism or self.mechanism,
            steps=prospect.steps,
            needs=prospect.needs,
            receipt=receipt,
            by=self.by,
            groups=self.groups,
        )
