"""Tuning without peeking: how far users are spread, chosen privately."""

from hubermean.tuning.scale import LENGTHS, ScaleSearch, most_within

__all__ = ["LENGTHS", "ScaleSearch", "most_within"]
