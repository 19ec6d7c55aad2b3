"""What other libraries make people guess, found privately: record cap, spread and place."""

from hubermean.tuning.cap import CAPS, LARGEST_TUNED_CAP, CapSearch, public_cap, share_above
from hubermean.tuning.place import PlaceSearch, Windows
from hubermean.tuning.spread import LARGEST_SHARE, LENGTHS, PER_OCTAVE, SHORTEST, SpreadSearch, most_within

__all__ = [
    "CAPS",
    "LARGEST_SHARE",
    "LARGEST_TUNED_CAP",
    "LENGTHS",
    "PER_OCTAVE",
    "SHORTEST",
    "CapSearch",
    "PlaceSearch",
    "SpreadSearch",
    "Windows",
    "most_within",
    "public_cap",
    "share_above",
]
