"""Where the users are: the Huber location of their means, certified in floats or exact in integers."""

from hubermean.location.blocks import attainable_gradient
from hubermean.location.huber import HuberLocation, SmallGradient, huber_location, small_gradient
from hubermean.location.integer import IntegerHuberLocation, integer_gradient, integer_huber_location
from hubermean.location.rows import Rows

__all__ = [
    "HuberLocation",
    "IntegerHuberLocation",
    "Rows",
    "SmallGradient",
    "attainable_gradient",
    "huber_location",
    "integer_gradient",
    "integer_huber_location",
    "small_gradient",
]
