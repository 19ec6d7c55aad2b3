from hubermean.privacy.integers import discrete_gaussian_sigma, laplace_scale

__all__ = ["discrete_gaussian_sigma", "laplace_scale"]
