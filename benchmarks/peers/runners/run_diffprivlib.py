"""diffprivlib's mean of user means.

It clips to the bounds and adds Laplace noise of scale (high - low) / (n epsilon): neighbors differ in one user's mean,
and the number of users is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diffprivlib.tools import mean
from exchange import serve


def release_means(means: Any, low: float, high: float, epsilon: float, releases: int) -> Sequence[float]:
    return [mean(means, epsilon=epsilon, bounds=(low, high)) for _ in range(releases)]


if __name__ == "__main__":
    serve(release_means, package="diffprivlib")
