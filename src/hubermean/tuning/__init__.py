"""What other libraries make people guess, found privately: record cap, spread and place."""

from hubermean.tuning.binned_line import BinnedLine, HeldUsers, UsersOnLine, line_on, own_line
from hubermean.tuning.cap import CAPS, LARGEST_TUNED_CAP, CapSearch, Census, public_cap, share_above
from hubermean.tuning.lattice import heaviest
from hubermean.tuning.line import HeldLine, Line, OwnLine
from hubermean.tuning.many_lines import JointLine, PartedLine, line_of
from hubermean.tuning.place import PlaceSearch, Windows
from hubermean.tuning.spread import LARGEST_SHARE, LENGTHS, PER_OCTAVE, SHORTEST, SpreadSearch

__all__ = [
    "CAPS",
    "LARGEST_SHARE",
    "LARGEST_TUNED_CAP",
    "LENGTHS",
    "PER_OCTAVE",
    "SHORTEST",
    "BinnedLine",
    "CapSearch",
    "Census",
    "HeldLine",
    "HeldUsers",
    "JointLine",
    "Line",
    "OwnLine",
    "PartedLine",
    "PlaceSearch",
    "SpreadSearch",
    "UsersOnLine",
    "Windows",
    "heaviest",
    "line_of",
    "line_on",
    "own_line",
    "public_cap",
    "share_above",
]
