"""How far hostile clients can move the average of a round."""

from __future__ import annotations

from hubermean.accounting.arguments import is_real
from hubermean.errors import InputError, parameter
from hubermean.federated.plan import RoundPlan

_FAILURE = 5e-10  # of each of two bounds on the size of a cohort


def bound_influence(plan: RoundPlan, hostile: float, *, reach: float) -> float:
    """Return a bound on the distance between the answers of a round with and without hostile replies.

    `reach` is the answer's length per average of length `threshold`, as `PrivateAverage` knows it before the round.
    Each step adds step_size / denominator times a sum of clipped offsets. Hostile clients add at most `threshold` each.
    What the others add is the gradient of a convex function with curvature between 0 and their number, so the
    difference that was there before the step grows at most by a factor of
    max(1, step_size * replies / denominator - 1) (proofs/federated.md, Lemma 6).
    """
    if not (is_real(hostile) and 0.0 <= hostile <= 1.0):
        raise InputError(f"{parameter('hostile')} must lie between 0 and 1, not {hostile!r}")
    number = hostile * plan.population
    replies, bad = float(plan.population), number
    if plan.sampled:
        from scipy.stats import binom

        replies = float(binom.isf(_FAILURE, plan.population, plan.sampling_rate))
        bad = min(float(binom.isf(_FAILURE, -(-number // 1), plan.sampling_rate)), number) if number else 0.0
    growth = max(1.0, plan.step_multiple * replies / plan.denominator - 1.0)
    one_step = reach * bad / plan.denominator
    return one_step * sum(growth**step for step in range(plan.steps))
