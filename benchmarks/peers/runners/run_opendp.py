"""OpenDP's clipped mean of user means: clamp, mean of a vector of known size, Laplace noise.

Neighbors differ in one user's mean, and the number of users is public. OpenDP counts additions and removals, so that
replacing one is distance 2; at distance 1 no two data sets of one size exist, and next to no noise would be added.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import opendp.prelude as dp
from exchange import serve

_REPLACING_ONE = 2

dp.enable_features("contrib")


@functools.cache
def _space(n_users: int) -> Any:
    return dp.vector_domain(dp.atom_domain(T=float, nan=False), size=n_users), dp.symmetric_distance()


def release_means(means: Any, low: float, high: float, epsilon: float, releases: int) -> Sequence[float]:
    clipped_mean = _space(len(means)) >> dp.t.then_clamp((low, high)) >> dp.t.then_mean()
    scale = clipped_mean.map(_REPLACING_ONE) / epsilon
    noise = clipped_mean.output_space >> dp.m.then_laplace(scale)
    spent = (clipped_mean >> noise).map(_REPLACING_ONE)
    if not epsilon * (1 - 1e-9) <= spent <= epsilon * (1 + 1e-9):
        raise AssertionError(f"epsilon is {spent!r} by OpenDP's own account, not {epsilon!r}")
    # The measurement is `clipped_mean >> noise`; its first half is the same for all releases of a data set.
    exact = clipped_mean(means)
    return [noise(exact) for _ in range(releases)]


if __name__ == "__main__":
    serve(release_means, package="opendp")
