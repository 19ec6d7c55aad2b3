"""Integers from the first record on: how values become integers, exact sums, exactly rounded means."""

from hubermean.exact.encoding import BINARY, Encoding
from hubermean.exact.rounding import rounded_means
from hubermean.exact.sums import ExactIntegers, ExactSums

__all__ = ["BINARY", "Encoding", "ExactIntegers", "ExactSums", "rounded_means"]
