"""What other libraries make people guess, found privately: scale, center, bounds, contribution bound."""

from hubermean.tuning.cap import CAPS, LARGEST_TUNED_CAP, CapSearch, Census, public_cap, share_above
from hubermean.tuning.center import CenterSearch, Windows
from hubermean.tuning.lattice import heaviest
from hubermean.tuning.line import HeldLine, Line, OwnLine
from hubermean.tuning.many_lines import JointLine, line_of
from hubermean.tuning.rank import RankSearch
from hubermean.tuning.rounded_line import RoundedLine
from hubermean.tuning.scale import LENGTHS, PER_OCTAVE, SHORTEST, ScaleSearch
from hubermean.tuning.tails import (
    DISTANCES,
    Sides,
    TailSearch,
    beyond_distances,
    expected_cut_off,
)

__all__ = [
    "CAPS",
    "DISTANCES",
    "LARGEST_TUNED_CAP",
    "LENGTHS",
    "PER_OCTAVE",
    "SHORTEST",
    "CapSearch",
    "Census",
    "CenterSearch",
    "HeldLine",
    "JointLine",
    "Line",
    "OwnLine",
    "RankSearch",
    "RoundedLine",
    "ScaleSearch",
    "Sides",
    "TailSearch",
    "Windows",
    "beyond_distances",
    "expected_cut_off",
    "heaviest",
    "line_of",
    "public_cap",
    "share_above",
]
