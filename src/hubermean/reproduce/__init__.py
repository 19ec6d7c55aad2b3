"""The paper as printed, for science. Nothing here is reachable from `hubermean.mean`."""

from hubermean.reproduce.constants import (
    PrintedConstants,
    bounded_threshold,
    bounded_users_suffice,
    heavy_tail_threshold,
    heavy_tail_users_suffice,
    imbalanced_scale,
    imbalanced_thresholds,
    imbalanced_users_suffice,
    printed_constants,
)
from hubermean.reproduce.imbalance import imbalance_gamma
from hubermean.reproduce.literal import paper_literal, unsafe_paper_literal_diagnostics
from hubermean.reproduce.mechanism import PaperMechanism
from hubermean.reproduce.result import PaperLiteral, UnsafePaperLiteral

__all__ = [
    "PaperLiteral",
    "PaperMechanism",
    "PrintedConstants",
    "UnsafePaperLiteral",
    "bounded_threshold",
    "bounded_users_suffice",
    "heavy_tail_threshold",
    "heavy_tail_users_suffice",
    "imbalance_gamma",
    "imbalanced_scale",
    "imbalanced_thresholds",
    "imbalanced_users_suffice",
    "paper_literal",
    "printed_constants",
    "unsafe_paper_literal_diagnostics",
]
