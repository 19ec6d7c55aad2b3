"""The one place where randomness is made: exact integer noise from the operating system's entropy."""

from hubermean.noise.law import NoiseLaw
from hubermean.noise.source import NoiseSource
from hubermean.noise.system import LARGEST_SCALE, SystemNoise

__all__ = ["LARGEST_SCALE", "NoiseLaw", "NoiseSource", "SystemNoise"]
