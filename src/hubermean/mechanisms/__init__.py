"""Mechanisms: from a private table to a release. Each is one file behind the protocol in `protocol`."""

from hubermean.mechanisms.clipped import Clipped
from hubermean.mechanisms.protocol import Column, Mechanism, Outcome, Prepared, PublicFacts, Request

__all__ = ["Clipped", "Column", "Mechanism", "Outcome", "Prepared", "PublicFacts", "Request"]
