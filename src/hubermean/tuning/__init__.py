"""What other libraries make people guess, found privately: scale, center, bounds, contribution bound."""

from hubermean.tuning.binned_line import BinnedLine, HeldUsers, UsersOnLine, line_on, own_line
from hubermean.tuning.cap import CAPS, LARGEST_TUNED_CAP, CapSearch, Census, public_cap, share_above
from hubermean.tuning.center import CenterSearch, Windows
from hubermean.tuning.lattice import heaviest
from hubermean.tuning.line import HeldLine, Line, OwnLine
from hubermean.tuning.many_lines import JointLine, PartedLine, line_of
from hubermean.tuning.scale import LENGTHS, PER_OCTAVE, SHORTEST, ScaleSearch
from hubermean.tuning.tails import InfluenceSearch, Sides, TailSearch, beyond_distances

__all__ = [
    "CAPS",
    "LARGEST_TUNED_CAP",
    "LENGTHS",
    "PER_OCTAVE",
    "SHORTEST",
    "BinnedLine",
    "CapSearch",
    "Census",
    "CenterSearch",
    "HeldLine",
    "HeldUsers",
    "InfluenceSearch",
    "JointLine",
    "Line",
    "OwnLine",
    "PartedLine",
    "ScaleSearch",
    "Sides",
    "TailSearch",
    "UsersOnLine",
    "Windows",
    "beyond_distances",
    "heaviest",
    "line_of",
    "line_on",
    "own_line",
    "public_cap",
    "share_above",
]
