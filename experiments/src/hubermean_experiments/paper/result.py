"""Results of the paper's mechanism: a value with its claimed and actual delta; diagnostics only as `Unsafe`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hubermean_experiments.paper.users import Floats

_BALANCED_NOTE = (
    "the largest delta over all pairs of outputs that the paper's framework allows with its printed constants, "
    "its sensitivity bound taken for granted; for one column, data sets reach it as n grows"
)
_IMBALANCED_NOTE = (
    "a lower bound: the delta of the printed constants with the printed sensitivity bound taken for granted, "
    "which is itself too small for users of unequal size"
)


@dataclass(frozen=True, kw_only=True, repr=False)
class PaperLiteral:
    """One run of the paper's mechanism as printed. Not a `Release`: its claim is not the package's guarantee.

    Attributes:
        values: the noisy estimate, one number per column.
        claimed_epsilon, claimed_delta: the guarantee of Theorems dp and dpunb.
        actual_delta: the delta that the printed alpha and beta give at claimed_epsilon.
        actual_delta_note: the meaning of that number; a lower bound where the printed sensitivity is too small.
        balanced: Definition G (True) or Definition Gunb (False).
        parameters: public parameters only; neither S(D) nor the noise it scaled is among them.
        secure_noise: whether the noise came from the operating system; False for seeded simulations.
    """

    values: tuple[float, ...]
    claimed_epsilon: float
    claimed_delta: float
    actual_delta: float
    balanced: bool
    parameters: Mapping[str, Any] = field(default_factory=dict)
    secure_noise: bool = True

    @property
    def value(self) -> float | list[float]:
        """The estimate: a number for one column, a list for several."""
        return self.values[0] if len(self.values) == 1 else list(self.values)

    @property
    def actual_delta_note(self) -> str:
        return _BALANCED_NOTE if self.balanced else _IMBALANCED_NOTE

    @property
    def warning(self) -> str:
        """One line: this is the paper as printed, and whether its claim holds."""
        if self.balanced and self.actual_delta <= self.claimed_delta:
            return "The paper as printed, for research: no proof covers its arithmetic, so not a private release."
        return "The paper as printed, for research: not private at the claimed delta."

    def to_dict(self) -> dict[str, Any]:
        return {
            "warning": self.warning,
            "mechanism": "paper-literal",
            "value": self.value,
            "claimed_epsilon": self.claimed_epsilon,
            "claimed_delta": self.claimed_delta,
            "actual_delta": self.actual_delta,
            "actual_delta_note": self.actual_delta_note,
            "neighbors": "replace-values",
            "parameters": dict(self.parameters),
            "secure_noise": self.secure_noise,
        }

    def to_json(self, *, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def __repr__(self) -> str:
        lines = [
            self.warning,
            f"value            {self.value}",
            f"claimed          epsilon = {self.claimed_epsilon:g}, delta = {self.claimed_delta:.4g}",
            f"actual delta     {self.actual_delta:.4g} ({self.actual_delta_note})",
            "neighbors       replace-values: one user's values change, counts are public",
        ]
        lines += [f"{name.replace('_', ' '):<16} {given}" for name, given in self.parameters.items()]
        if not self.secure_noise:
            lines.append("noise            seeded, for simulations")
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class UnsafePaperLiteral:
    """Intermediate values of the mechanism. Every field is private data: never publish, log or store it.

    Attributes:
        c: the Huber location (eq. mu0unb), a number for one column; `clipped` is Clip(c, R_c).
        Z: the Z_i(D), one per user; their maximum is Z(D) of eq. zdf.
        Delta: the number of outliers, exact or an upper bound (paper/outliers.py); None where undefined.
        G: G(D, k) for k = 0, 1, ... up to the first k of case (c).
        S: S(D), the printed smooth sensitivity (eq. S).
        stddev: S(D) / alpha, the standard deviation of the noise.
    """

    c: float | Floats = field(repr=False)
    clipped: float | Floats = field(repr=False)
    Z: Floats = field(repr=False)
    Delta: int | None = field(repr=False)
    G: Floats = field(repr=False)
    S: float = field(repr=False)
    stddev: float = field(repr=False)
