"""The mechanism and the baseline of Zhao et al. (2024) as printed, for research. Not for releases."""

from hubermean_experiments.paper.constants import (
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
from hubermean_experiments.paper.literal import (
    PaperMechanism,
    paper_literal,
    unsafe_paper_literal_diagnostics,
)
from hubermean_experiments.paper.result import PaperLiteral, UnsafePaperLiteral
from hubermean_experiments.paper.users import imbalance_gamma

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
