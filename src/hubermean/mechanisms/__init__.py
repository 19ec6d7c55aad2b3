"""Mechanisms: from a private table to a release. One package per mechanism behind the protocol in `base`."""

from hubermean.mechanisms.adaptive.mechanism import Adaptive
from hubermean.mechanisms.base import Mechanism, Outcome, Prepared
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity
from hubermean.mechanisms.propose_test_release.mechanism import ProposeTestRelease
from hubermean.mechanisms.registry import Auto
from hubermean.mechanisms.smooth_sensitivity.mechanism import SmoothSensitivity
from hubermean.mechanisms.winsorized.mechanism import Winsorized

__all__ = [
    "Adaptive",
    "Auto",
    "Clipped",
    "InverseSensitivity",
    "Mechanism",
    "Outcome",
    "Prepared",
    "ProposeTestRelease",
    "SmoothSensitivity",
    "Winsorized",
]
