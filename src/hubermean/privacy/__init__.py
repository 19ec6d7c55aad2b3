"""Privacy accounting: from (epsilon, delta) to the scale of the noise and back. Never sees data."""

from hubermean.privacy.concentrated import concentrated_sigma, largest_rho
from hubermean.privacy.discrete import (
    SMALLEST_DISCRETE_SIGMA,
    discrete_gaussian_sigma,
    discrete_gaussian_sigmas,
    laplace_scale,
)
from hubermean.privacy.gated_noise import GatedNoise, gated_noise
from hubermean.privacy.gaussian import gaussian_alpha, gaussian_delta
from hubermean.privacy.rounding import float_down
from hubermean.privacy.smooth_noise import SmoothNoise, smooth_noise
from hubermean.privacy.smoothness import BetaChoice, choose_beta, expected_sensitivity

__all__ = [
    "SMALLEST_DISCRETE_SIGMA",
    "BetaChoice",
    "GatedNoise",
    "SmoothNoise",
    "choose_beta",
    "concentrated_sigma",
    "discrete_gaussian_sigma",
    "discrete_gaussian_sigmas",
    "expected_sensitivity",
    "float_down",
    "gated_noise",
    "gaussian_alpha",
    "gaussian_delta",
    "laplace_scale",
    "largest_rho",
    "smooth_noise",
]
