"""Tuning without peeking: how far users are spread, chosen privately."""

from hubermean.tuning.scale import LENGTHS, PER_OCTAVE, SHORTEST, ScaleSearch, most_within

__all__ = ["LENGTHS", "PER_OCTAVE", "SHORTEST", "ScaleSearch", "most_within"]
