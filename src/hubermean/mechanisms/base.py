"""The interface of every mechanism: check, prepare, output distribution, outcome.

A mechanism receives what is public (`Request`, `PublicFacts`) and decides everything it can from that alone. Only then
does it see the private table, which it turns into an output distribution; a sample from that distribution is all it may
release. To add a mechanism, write a class with `name`, `check` and `prepare`, and pass an instance as
`hubermean.mean(..., mechanism=YourMechanism())`.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

from hubermean.accounting.budget import BudgetEntry, PrivacyCost
from hubermean.data.user_table import PrivateTable
from hubermean.distributions.output import OutputDistribution
from hubermean.errors import InputError, NotReleased, parameter
from hubermean.noise.source import NoiseSource
from hubermean.types.dry_run import Prospect
from hubermean.types.release import Denominator, IntervalRule
from hubermean.types.request import PublicFacts, Request
from hubermean.types.timings import stage


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a mechanism: all of it released or public.

    Attributes:
        values: one per column.
        parameters: public or released numbers that describe the release.
        interval_rule: makes a confidence interval for any level; None where none is offered.
        mechanism: the name of the mechanism that made the release, where that is not the requested one.
        denominator: the weight that sums were divided by, if it was released.
        budget_breakdown: what the budget was spent on; empty where all of the budget went to one step.
        warnings: sentences for the reader of the number, made of released quantities only.
    """

    values: tuple[float, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    interval_rule: IntervalRule | None = None
    mechanism: str | None = None
    denominator: Denominator | None = None
    budget_breakdown: tuple[BudgetEntry, ...] = ()
    warnings: tuple[str, ...] = ()


def refuse(reason: str, advice: str, *, charged: Request, used: PrivacyCost | None = None) -> NotReleased:
    """Return the refusal that a sample calls for.

    Args:
        reason, advice: what happened, from released numbers at most, and what would help.
        charged: the request whose budget was charged.
        used: what the steps that ran cost, fixed before they ran; None for the whole budget.
    """
    used = used or PrivacyCost(epsilon=charged.epsilon, delta=charged.delta)
    spent = f"epsilon = {charged.epsilon:g}"
    if used.epsilon < charged.epsilon:
        spent = f"epsilon = {used.epsilon:g} of {charged.epsilon:g}"
    spent += f" and delta = {used.delta:g} were" if used.delta > 0 else " was"
    return NotReleased(
        f"{reason}; {spent} spent; {advice}", epsilon=used.epsilon, delta=used.delta, rho=used.rho
    )


@contextlib.contextmanager
def refusals_cost_everything() -> Iterator[None]:
    """Where private data are at hand, a refusal may depend on them: an InputError, which costs the whole budget."""
    try:
        yield
    except NotReleased as refusal:
        raise InputError(refusal.message) from None


class Prepared(ABC):
    """A mechanism with every public decision made."""

    @abstractmethod
    def distribution(self, table: PrivateTable) -> OutputDistribution:
        """The output distribution given the data: private, and all that private data decides.

        It is the same for the same users in any partitions. A mechanism that cannot work on partitions uses
        `table.collect()`.
        """

    @abstractmethod
    def outcome(self, sample: Any) -> Outcome:
        """Post-processing of a sample from the output distribution, with public numbers only.

        Raises:
            NotReleased: the sample is the decision not to release. What it says was spent stays charged; the rest is
                given back.
        """

    def claims(self, distribution: Any, neighbor: Any) -> Mapping[str, float]:
        """Quantities that the proof bounds for neighboring data sets, each divided by its bound.

        For audits: a number above 1 refutes the proof, whether or not this pair violates the guarantee.
        """
        return {}

    def concentrated(self) -> Fraction | None:
        """The rho for which the release is rho-zCDP, from public numbers alone; None where there is none.

        A ledger that composes concentrated losses charges it.
        """
        return None

    def concentrated_delta(self) -> float:
        """The probability of an event without which the release is concentrated; a ledger adds these up.

        0, the default, for a release that is concentrated altogether.
        """
        return 0.0

    def is_adaptive(self) -> bool:
        """Whether parameters are estimated in private steps; an audit then makes neighbor pairs for each step."""
        return False

    def prospect(self) -> Prospect:
        """What a release would do and need, in public terms, for dry runs."""
        return Prospect()

    def users_to_audit(self) -> int:
        """The least number of users an audit needs; with fewer the mechanism would only refuse."""
        return 1

    def predicted_noise(self) -> tuple[float, ...]:
        """The standard deviation of the noise in each column, in units of the values.

        From public numbers alone, for users of whom nearly all lie within the threshold. `auto` and `plan` compare
        mechanisms by it. Privacy does not depend on it.

        Raises:
            InputError: with these public numbers no useful release can be expected.
        """
        raise InputError(f"this mechanism does not predict its noise; name it with {parameter('mechanism')}")

    def predicted_noise_at(self, scale: float) -> tuple[float, ...]:
        """As `predicted_noise`, for user means whose standard deviation is `scale`; plans compare mechanisms by it."""
        return self.predicted_noise()

    def run(self, table: PrivateTable, noise: NoiseSource) -> Outcome:
        """Draw once and post-process the sample."""
        with refusals_cost_everything():
            with stage("distribution"):
                distribution = self.distribution(table)
            with stage("sample"):
                sample = distribution.sample(noise)
        with stage("outcome"):
            return self.outcome(sample)


class Mechanism(Protocol):
    """A way to release a mean."""

    @property
    def name(self) -> str: ...

    def check(self, request: Request) -> None:
        """Raise InputError for a request that cannot be served, before any data is read."""

    def prepare(self, request: Request, facts: PublicFacts) -> Prepared:
        """Decide everything that does not need private data."""
