"""Every step of a release by itself: what it gives away, as a share of what it claims, and whether claims add up.

A promise may hold while a step breaks its claim, as long as the others leave room: then the account of the release is
wrong, and other data, or another split of the budget, breaks the promise. So both neighbours' laws are walked through
together, at equal earlier outcomes, and each step is judged against its own claim:

- an exponential mechanism by its range, the largest less the least log-ratio: at most epsilon, which gives epsilon-DP
  and epsilon^2/8-zCDP (Cesar & Rogers 2021);
- noise by the largest log-ratio, by delta at epsilon, or, for a budget in rho, by the squared shift over twice the
  variance (Bun & Steinke 2016);
- anything else by the loss that `compare` computes.

On every path the claims must add up to no more than the claim, or the promise, that they are parts of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from hubermean.auditing.compare import compare, outcomes_of, range_of
from hubermean.auditing.loss import GaussianShift, Loss
from hubermean.laws import Choice, Claim, Gate, Independent, Law, NoisySum, Staged, claim_of
from hubermean.privacy import largest_rho

ADDS_UP = "the steps add up to the promise"
_DEPENDS = "what {} costs does not depend on the data"


def shares_of_claims(first: Law, second: Law, promise: Claim) -> dict[str, float]:
    """For each step, by name, the largest share of its claim that a draw uses; above 1 the claim is false.

    The laws must be readable more than once (`compare.readable`).
    """
    walk = _Walk()
    total = walk.through(first, second, 0)
    if total is not None:
        walk.note(ADDS_UP, total.share_of(promise))
    return walk.used


@dataclass(frozen=True, kw_only=True)
class _Total:
    """Claims added up: exact, in epsilon and delta, in rho, or both where steps are booked in both."""

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)

    @classmethod
    def of(cls, claim: Claim) -> _Total:
        if claim.rho is not None:
            return cls(rho=Fraction(claim.rho))
        return cls(
            epsilon=Fraction(claim.epsilon or 0) / claim.among, delta=Fraction(claim.delta) / claim.among
        )

    def __add__(self, other: _Total) -> _Total:
        return _Total(
            epsilon=self.epsilon + other.epsilon, delta=self.delta + other.delta, rho=self.rho + other.rho
        )

    def share_of(self, claim: Claim) -> float:
        """How much of a claim they use, as parts of it."""
        if claim.rho is not None:
            if self.delta > 0:
                return math.inf
            return _share(float(self.rho + self.epsilon**2 / 2), float(claim.rho))
        shares = [_share(float(self.delta), float(claim.delta))]
        rest = float(claim.epsilon or 0) - float(self.epsilon)
        if self.rho == 0:
            shares.append(_share(float(self.epsilon), float(claim.epsilon or 0)))
        elif rest <= 0.0 or claim.delta <= self.delta:
            return math.inf
        else:
            shares.append(_share(float(self.rho), largest_rho(rest, float(claim.delta - self.delta))))
        return max(shares)


class _Walk:
    """Notes the largest share of every claim on the way."""

    def __init__(self) -> None:
        self.used: dict[str, float] = {}

    def note(self, what: str, share: float) -> None:
        self.used[what] = max(self.used.get(what, 0.0), share)

    def through(self, first: Law, second: Law, depth: int) -> _Total | None:
        """What is claimed in all on the dearest path; None where nothing is."""
        inside = self._inside(first, second, depth)
        claim, other = claim_of(first), claim_of(second)
        if claim is None and other is None:
            return inside
        if claim is None or claim != other:
            self.note(_DEPENDS.format((claim or other).what), math.inf)  # type: ignore[union-attr]
            return inside
        if inside is None:
            self.note(claim.what, max(share_used(claim, first, second), share_used(claim, second, first)))
        else:  # its parts are judged by themselves, and all together by the promise
            self.note(claim.what, inside.share_of(claim))
        return _Total.of(claim)

    def _inside(self, first: Law, second: Law, depth: int) -> _Total | None:
        match first, second:
            case Independent(), Independent():
                pairs = zip(first.parts, second.parts, strict=False)
                return _added([self.through(one, two, depth) for one, two in pairs])
            case Gate(), Gate() if first.passes and second.passes:
                return self.through(first.inner, second.inner, depth)
            case Staged(), Staged():
                start = self.through(first.first, second.first, depth)
                outcomes = outcomes_of(first, second, depth)
                if outcomes is None:
                    return start
                later_depth = outcomes.depth_after(depth)
                seen = [outcome for outcome, _, _ in outcomes.seen]
                ends = [self.through(first.then(one), second.then(one), later_depth) for one in seen]
                later = [end for end in ends if end is not None]
                dearest = max(later, key=lambda end: (end.rho, end.epsilon, end.delta), default=None)
                return _added([start, dearest])
        return None


def _added(totals: Sequence[_Total | None]) -> _Total | None:
    some = [total for total in totals if total is not None]
    return sum(some, start=_Total()) if some else None


def share_used(claim: Claim, first: Law, second: Law) -> float:
    """How much of its claim a draw from `first`, seen against `second`, uses."""
    if isinstance(first, Choice) and isinstance(second, Choice) and claim.delta == 0:
        allowed = (
            float(claim.epsilon) if claim.epsilon is not None else math.sqrt(8.0 * float(claim.rho or 0))
        )
        return _share(range_of(first, second), allowed)
    if claim.rho is not None:
        return _share(_concentrated(first, second), float(claim.rho))
    epsilon, delta = float(claim.epsilon or 0), float(claim.delta)
    loss: Loss = compare(first, second)
    if isinstance(loss, GaussianShift):
        loss = GaussianShift(shift=loss.shift * math.sqrt(claim.among))
    within = _share(loss.largest, epsilon)
    return within if delta == 0.0 or within <= 1.0 else _share(loss.delta(epsilon), delta)


def _concentrated(first: Law, second: Law) -> float:
    """The least rho for which noise on sums is rho-zCDP; infinite for laws of which it is not known."""
    if not (isinstance(first, NoisySum) and isinstance(second, NoisySum)):
        return math.inf
    if first.laws() != second.laws() or len(first.position) != len(second.position):
        return math.inf
    gaps = zip(first.position, second.position, first.laws(), strict=True)
    # A shift of so many Laplace scales is that epsilon, and epsilon-DP is epsilon^2/2-zCDP.
    return math.fsum((float(one - two) / law.scale) ** 2 / 2.0 for one, two, law in gaps)


def _share(used: float, allowed: float) -> float:
    if allowed > 0.0:
        return used / allowed
    return 0.0 if used <= 0.0 else math.inf
