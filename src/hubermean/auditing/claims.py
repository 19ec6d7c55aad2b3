"""The privacy cost of every step of a release, as a share of its claim, and whether the claims add up.

A guarantee may hold although a step exceeds its claim, as long as the other steps leave room. The accounting of the
release is then wrong, and other data or another budget split violates the guarantee. So both neighbors' output
distributions are traversed together, at equal earlier outcomes, and each step is compared with its own claim:

- an exponential mechanism by its range, the largest minus the smallest log-ratio: at most epsilon, which gives
  epsilon-DP and epsilon^2/8-zCDP (Cesar & Rogers 2021);
- noise by the largest log-ratio, by delta at epsilon, or, for a budget in rho, by the squared shift over twice the
  variance (Bun & Steinke 2016);
- anything else by the loss that `compare` computes.

On every path the claims must add up to at most the claim, or the guarantee, that they are parts of. A step may claim
epsilon and rho at once; a path of such steps and of pure ones adds up in epsilon, whatever other paths do
(proofs/groups.md, Lemma 7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hubermean.accounting.budget import Claim
from hubermean.accounting.concentrated import largest_rho
from hubermean.auditing.compare import compare, list_outcomes, log_ratio_range
from hubermean.auditing.loss import GaussianShift, Loss
from hubermean.distributions.output import (
    ExponentialMechanism,
    Independent,
    NoisySum,
    NoisyTest,
    OutputDistribution,
    Staged,
    ThresholdedSums,
    get_claim,
)

ADDS_UP = "the steps add up to the guarantee"
_DEPENDS = "what {} costs does not depend on the data"


def measure_claims(
    first: OutputDistribution, second: OutputDistribution, guarantee: Claim
) -> dict[str, float]:
    """Return, for each step by name, the largest share of its claim that a sample uses; above 1 the claim is false.

    The distributions must be repeatable (`compare.make_repeatable`).
    """
    walk = _Walk()
    for total in walk.through(first, second, 0):
        walk.note(ADDS_UP, total.share_of(guarantee))
    return walk.used


@dataclass(frozen=True, kw_only=True)
class _Total:
    """The sum of claims: exact, in epsilon and delta, in rho, or in both.

    `pure` is the sum in epsilon alone; None if some claim is in rho alone.
    """

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    pure: Fraction | None = Fraction(0)

    @classmethod
    def of(cls, claim: Claim) -> _Total:
        pure = None if claim.epsilon is None else Fraction(claim.epsilon) / claim.among
        if claim.rho is not None:
            return cls(rho=Fraction(claim.rho), delta=Fraction(claim.delta), pure=pure)
        assert pure is not None
        return cls(epsilon=pure, delta=Fraction(claim.delta) / claim.among, pure=pure)

    def __add__(self, other: _Total) -> _Total:
        return _Total(
            epsilon=self.epsilon + other.epsilon,
            delta=self.delta + other.delta,
            rho=self.rho + other.rho,
            pure=None if self.pure is None or other.pure is None else self.pure + other.pure,
        )

    def share_of(self, claim: Claim) -> float:
        """Return the share of a claim that its parts use, in the accounting in which it is smaller."""
        mixed = self._mixed_share_of(claim)
        if claim.rho is not None or self.pure is None or self.rho == 0:
            return mixed
        return min(
            mixed,
            max(
                _share(float(self.pure), float(claim.epsilon or 0)),
                _share(float(self.delta), float(claim.delta)),
            ),
        )

    def _mixed_share_of(self, claim: Claim) -> float:
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
    """Records the largest share of every claim along the way."""

    def __init__(self) -> None:
        self.used: dict[str, float] = {}

    def note(self, what: str, share: float) -> None:
        self.used[what] = max(self.used.get(what, 0.0), share)

    def through(self, first: OutputDistribution, second: OutputDistribution, depth: int) -> frozenset[_Total]:
        """Return the totals claimed, of every path that is taken; none if nothing is claimed."""
        inside = self._inside(first, second, depth)
        claim, other = get_claim(first), get_claim(second)
        if claim is None and other is None:
            return inside
        if claim is None or claim != other:
            self.note(_DEPENDS.format((claim or other).what), math.inf)  # type: ignore[union-attr]
            return inside
        if not inside:
            self.note(
                claim.what, max(measure_share(claim, first, second), measure_share(claim, second, first))
            )
        else:  # its parts are checked separately, and all together against the guarantee
            self.note(claim.what, max(total.share_of(claim) for total in inside))
        return frozenset([_Total.of(claim)])

    def _inside(self, first: OutputDistribution, second: OutputDistribution, depth: int) -> frozenset[_Total]:
        match first, second:
            case Independent(), Independent():
                pairs = zip(first.parts, second.parts, strict=False)
                return _add([self.through(one, two, depth) for one, two in pairs])
            case NoisyTest(), NoisyTest() if first.passes and second.passes:
                return self.through(first.inner, second.inner, depth)
            case Staged(), Staged():
                start = self.through(first.first, second.first, depth)
                outcomes = list_outcomes(first, second, depth)
                if outcomes is None:
                    return start
                later_depth = outcomes.depth_after(depth)
                seen = [outcome for outcome, _, _ in outcomes.seen]
                ends = [self.through(first.then(one), second.then(one), later_depth) for one in seen]
                return _add([start, frozenset[_Total]().union(*ends)])
        return frozenset()


def _add(parts: Sequence[frozenset[_Total]]) -> frozenset[_Total]:
    """Return all sums of one total of each part; parts without any add nothing."""
    sums: frozenset[_Total] = frozenset()
    for part in parts:
        sums = frozenset(one + other for one in sums for other in part) if sums and part else sums | part
    return sums


def measure_share(claim: Claim, first: OutputDistribution, second: OutputDistribution) -> float:
    """Return the share of its claim that a sample from `first`, against `second`, uses."""
    if claim.epsilon is not None and claim.rho is not None:  # both hold
        each = (replace(claim, rho=None), replace(claim, epsilon=None))
        return max(measure_share(one, first, second) for one in each)
    if (
        isinstance(first, ExponentialMechanism)
        and isinstance(second, ExponentialMechanism)
        and claim.delta == 0
    ):
        allowed = (
            float(claim.epsilon) if claim.epsilon is not None else math.sqrt(8.0 * float(claim.rho or 0))
        )
        return _share(log_ratio_range(first, second), allowed)
    if isinstance(first, ThresholdedSums) and isinstance(second, ThresholdedSums) and claim.rho is not None:
        return _thresholded(claim, first, second)
    if claim.rho is not None:
        return _share(_concentrated(first, second), float(claim.rho))
    epsilon, delta = float(claim.epsilon or 0), float(claim.delta)
    loss: Loss = compare(first, second)
    if isinstance(loss, GaussianShift):
        loss = GaussianShift(shift=loss.shift * math.sqrt(claim.among))
    within = _share(loss.largest, epsilon)
    return within if delta == 0.0 or within <= 1.0 else _share(loss.delta(epsilon), delta)


def _concentrated(first: OutputDistribution, second: OutputDistribution) -> float:
    """Return the smallest rho for which noise on sums is rho-zCDP; infinite for other distributions."""
    if not (isinstance(first, NoisySum) and isinstance(second, NoisySum)):
        return math.inf
    if first.distributions() != second.distributions() or len(first.position) != len(second.position):
        return math.inf
    gaps = zip(first.position, second.position, first.distributions(), strict=True)
    # A shift of s Laplace scales is s-DP, and epsilon-DP implies epsilon^2/2-zCDP.
    return math.fsum((float(one - two) / distribution.scale) ** 2 / 2.0 for one, two, distribution in gaps)


def _thresholded(claim: Claim, first: ThresholdedSums, second: ThresholdedSums) -> float:
    """Return the share of a claim in rho, on keys that both have, and in delta, for keys that only the first has."""
    if (first.noise, first.threshold) != (second.noise, second.threshold):
        return math.inf
    common = [key for key in first.sums if key in second.sums]
    gaps = [(first.sums[key] - second.sums[key]) / first.noise.scale for key in common]
    rho = math.fsum(gap**2 for gap in gaps) / 2.0
    alone = math.fsum(math.log1p(-first.chance(key)) for key in first.sums if key not in second.sums)
    return max(_share(rho, float(claim.rho or 0)), _share(-math.expm1(alone), float(claim.delta)))


def _share(used: float, allowed: float) -> float:
    if allowed > 0.0:
        return used / allowed
    return 0.0 if used <= 0.0 else math.inf
