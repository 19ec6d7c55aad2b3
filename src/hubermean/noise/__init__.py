"""The one place where randomness is made: exact integer noise from the operating system's entropy."""

from hubermean.noise.law import NoiseLaw
from hubermean.noise.many import LARGEST_SCALE
from hubermean.noise.source import NoiseSource
from hubermean.noise.system import SystemNoise

__all__ = ["LARGEST_SCALE", "NoiseLaw", "NoiseSource", "SystemNoise"]
