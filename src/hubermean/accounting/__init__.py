"""Privacy accounting: from (epsilon, delta) to the scale of the noise and back. Never sees data."""

from hubermean.accounting.concentrated import concentrated_sigma, largest_rho
from hubermean.accounting.discrete import discrete_gaussian_sigma, laplace_scale
from hubermean.accounting.gaussian import gaussian_alpha, gaussian_delta

__all__ = [
    "concentrated_sigma",
    "discrete_gaussian_sigma",
    "gaussian_alpha",
    "gaussian_delta",
    "laplace_scale",
    "largest_rho",
]
