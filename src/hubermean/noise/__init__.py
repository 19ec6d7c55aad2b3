"""Randomness for releases: exact integer noise from the operating system's entropy, made in this package only."""

from hubermean.noise.source import NoiseSource
from hubermean.noise.system import SystemNoise

__all__ = ["NoiseSource", "SystemNoise"]
