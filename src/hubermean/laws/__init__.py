"""Laws: what a release is drawn from, as an object that can be drawn from and compared."""

from hubermean.laws.law import (
    Choice,
    Gate,
    Independent,
    Law,
    NoisySum,
    Selection,
    Staged,
    Uniform,
    costs_apart,
)

__all__ = [
    "Choice",
    "Gate",
    "Independent",
    "Law",
    "NoisySum",
    "Selection",
    "Staged",
    "Uniform",
    "costs_apart",
]
