"""Mechanisms: from a private table to a release. Each is one file behind the protocol in `protocol`."""

from hubermean.mechanisms.adaptive import Adaptive
from hubermean.mechanisms.auto import Auto, Option, best_option
from hubermean.mechanisms.clipped import Clipped
from hubermean.mechanisms.exact import Exact
from hubermean.mechanisms.protocol import (
    Bounds,
    Column,
    Known,
    Mechanism,
    OneOrTwoBounds,
    Outcome,
    Per,
    Prepared,
    PublicFacts,
    Request,
)
from hubermean.mechanisms.registry import choose
from hubermean.mechanisms.smooth import Smooth
from hubermean.mechanisms.tested import Tested
from hubermean.mechanisms.winsorized import Winsorized

__all__ = [
    "Adaptive",
    "Auto",
    "Bounds",
    "Clipped",
    "Column",
    "Exact",
    "Known",
    "Mechanism",
    "OneOrTwoBounds",
    "Option",
    "Outcome",
    "Per",
    "Prepared",
    "PublicFacts",
    "Request",
    "Smooth",
    "Tested",
    "Winsorized",
    "best_option",
    "choose",
]
