"""Integer Gaussian noise whose scale depends on the data: which shift it hides, from which scale on.

`discrete.py` covers one public scale. Here the two neighbours may have scales apart by e^beta, as they do under
a smooth sensitivity bound (proofs/smooth.md, Lemma 6, which extends Lemma 7 of proofs/gaussian-calibration.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hubermean.privacy.arguments import non_negative, positive, probability, whole_positive
from hubermean.privacy.discrete import SMALLEST_DISCRETE_SIGMA
from hubermean.privacy.gaussian import gaussian_alpha

# Share of delta spent on the tail, and the relative slack that covers float rounding of the terms.
_TAIL_SHARE = 2.0**-20
# Share of epsilon that discreteness may cost; the smallest scale is chosen accordingly.
_DISCRETENESS_SHARE = 2.0**-10


@dataclass(frozen=True, kw_only=True)
class SmoothNoise:
    """What the noise must keep to: shift <= alpha * min(sigma, sigma') and sigma >= smallest_sigma."""

    alpha: float
    smallest_sigma: float


def smooth_noise(epsilon: float, delta: float, *, beta: float, dimension: int) -> SmoothNoise:
    """How wide a discrete Gaussian on Z^d must be where its scale follows the data.

    Args:
        epsilon: above 0.
        delta: strictly between 0 and 1.
        beta: bound on |ln sigma - ln sigma'| for neighbours.
        dimension: number of coordinates d.

    Formal guarantees:
        - Discrete Gaussian noise of parameter sigma on D and sigma' on D', added to integer answers at most
          alpha * min(sigma, sigma') apart, is (epsilon, delta)-DP if both are at least `smallest_sigma` and
          within e^beta of each other (proofs/smooth.md, Lemma 6).
        - Discreteness costs at most one part in 1,024 of min(epsilon, 1), and one part in 2^18 of delta.

    Raises:
        InputError: no amount of noise reaches delta with this beta and dimension.

    >>> noise = smooth_noise(1.0, 1e-5, beta=0.01644, dimension=3)
    >>> round(noise.alpha, 3), noise.smallest_sigma
    (0.206, 1024.0)
    """
    eps = positive("epsilon", epsilon)
    target = probability("delta", delta)
    b = non_negative("beta", beta)
    d = whole_positive("dimension", dimension)

    continuous = gaussian_alpha(eps, target, beta=b, dimension=d)
    log_tail = -math.log(_TAIL_SHARE * target)
    # On the tail's ball |x - shift| <= (sqrt(R) e^beta + alpha) sigma': the scales differ (Lemma 6).
    radius = math.sqrt(d + 2.0 * math.sqrt(d * log_tail) + 2.0 * log_tail) * math.exp(b) + continuous
    slack = 1.0 + _TAIL_SHARE
    cost = slack * (d / 24.0 + radius * radius / 8.0)  # times 1 / sigma^2
    least = math.sqrt(cost / (_DISCRETENESS_SHARE * min(eps, 1.0)))
    sigma = max(SMALLEST_DISCRETE_SIGMA, 2.0 ** math.ceil(math.log2(least)))
    square = sigma * sigma
    remaining = target * (1.0 - 2.0 * _TAIL_SHARE) * (1.0 - slack * d / (24.0 * square))
    alpha = gaussian_alpha(eps - slack * cost / square, remaining, beta=b, dimension=d)
    return SmoothNoise(alpha=min(alpha, continuous), smallest_sigma=sigma)
