"""Laws: what a release is drawn from, as an object that can be drawn from and compared."""

from hubermean.laws.claim import Amount, Claim
from hubermean.laws.law import (
    Choice,
    Gate,
    Independent,
    Law,
    NoisySum,
    PermuteAndFlip,
    Selection,
    Staged,
    Uniform,
    claim_of,
    claiming,
    costs_apart,
    select,
    without_claims,
)

__all__ = [
    "Amount",
    "Choice",
    "Claim",
    "Gate",
    "Independent",
    "Law",
    "NoisySum",
    "PermuteAndFlip",
    "Selection",
    "Staged",
    "Uniform",
    "claim_of",
    "claiming",
    "costs_apart",
    "select",
    "without_claims",
]
