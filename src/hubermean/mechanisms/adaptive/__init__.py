"""`adaptive`: what is not known is found privately, step by step; then one clipped step from the center that was found.

`mechanism` is the way in, `steps` the private questions in their order, `split` what each may cost, `last_step` the
mean itself with its interval. Proof: proofs/adaptive.md.
"""

from hubermean.mechanisms.adaptive.mechanism import Adaptive, PreparedAdaptive
from hubermean.mechanisms.adaptive.sequence import Learned, PreparedSteps
from hubermean.mechanisms.adaptive.split import TOO_FEW, BudgetSplit, Found, UnfitError
from hubermean.mechanisms.adaptive.steps import Purpose

__all__ = [
    "TOO_FEW",
    "Adaptive",
    "BudgetSplit",
    "Found",
    "Learned",
    "PreparedAdaptive",
    "PreparedSteps",
    "Purpose",
    "UnfitError",
]
