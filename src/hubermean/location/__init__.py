"""Where the users are: the Huber location of their means, certified in floats or exact in integers."""

from hubermean.location.blocks import attainable_gradient
from hubermean.location.distances import Distances, distances_from
from hubermean.location.huber import HuberLocation, SmallGradient, huber_location, small_gradient
from hubermean.location.integer import IntegerHuberLocation, integer_gradient, integer_huber_location
from hubermean.location.rounds import Crowd, Search
from hubermean.location.rows import Rows
from hubermean.location.sections import gradients_at, small_gradient_by_sections

__all__ = [
    "Crowd",
    "Distances",
    "HuberLocation",
    "IntegerHuberLocation",
    "Rows",
    "Search",
    "SmallGradient",
    "attainable_gradient",
    "distances_from",
    "gradients_at",
    "huber_location",
    "integer_gradient",
    "integer_huber_location",
    "small_gradient",
    "small_gradient_by_sections",
]
