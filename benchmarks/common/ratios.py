"""Ratios of errors over simulated data sets, each with its standard error."""

from __future__ import annotations

import math

import numpy as np


def adjusted(errors: np.ndarray, plain: np.ndarray, unit: float, weights: np.ndarray) -> tuple[float, float]:
    """E[errors] / unit: E[plain] = unit is known, so what the draws add to `plain` tells what they add to `errors`."""
    if len(errors) < 2:
        return math.nan, math.nan
    slope = np.cov(errors, plain)[0, 1] / plain.var(ddof=1)
    return mean_and_error((errors - slope * (plain - unit)) / unit, weights)


def paired_ratio(errors: np.ndarray, plain: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """A ratio of means over the same draws, and its standard error by the delta method."""
    ratio = float(np.average(errors, weights=weights) / plain.mean())
    return ratio, mean_and_error((errors - ratio * plain) / plain.mean(), weights)[1]


def mean_and_error(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    return float(np.average(values, weights=weights)), float(values.std(ddof=1) / len(values) ** 0.5)
