"""The Huber location of user means: certified in floating point, exact in integers."""

from hubermean.huber.integer import IntegerHuberLocation, integer_huber_location
from hubermean.huber.solver import HuberLocation, huber_location

__all__ = ["HuberLocation", "IntegerHuberLocation", "huber_location", "integer_huber_location"]
