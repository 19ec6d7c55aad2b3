"""The paper's mechanism exactly as printed: Clip(c, R_c) + N(0, (S/alpha)^2 I) (Zhao et al. 2024, eq. final).

For science: to reproduce its figures and to measure what its constants are worth. docs/paper.md lists what does
not hold. Deviations, none of which changes the error that anyone could measure:

- the location is solved to the limit of float64 with a certificate, not until an update is small;
- the result lives on a public grid at least 2^10 times finer than the noise, and the noise is discrete;
- Delta(D) is exact where an algorithm is known, else an upper bound (`outliers`, `witness`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from hubermean.errors import InputError
from hubermean.location import huber_location
from hubermean.noise import LARGEST_SCALE, NoiseSource, SystemNoise
from hubermean.privacy import gaussian_delta
from hubermean.privacy.arguments import positive
from hubermean.reproduce.constants import PrintedConstants, printed_constants
from hubermean.reproduce.imbalance import Floats, Users
from hubermean.reproduce.result import PaperLiteral, UnsafePaperLiteral
from hubermean.reproduce.sensitivity import Outliers, Reading, printed_sensitivity, sensitivity_range

_FINE_BITS, _COARSE_BITS = 30, 10  # how many times finer than the least noise the grid is, in powers of two


def paper_literal(
    means: npt.ArrayLike,
    counts: npt.ArrayLike | None = None,
    *,
    threshold: float,
    radius: float,
    epsilon: float,
    delta: float,
    gamma: float | Fraction | None = None,
    k_0: int | None = None,
    reading: Reading = "lemma",
    outliers: Outliers = "lipschitz",
    noise: NoiseSource | None = None,
) -> PaperLiteral:
    """Run the paper's mechanism as printed, with the delta that its constants really give.

    Args:
        means: one mean per user, shape (n,) or (n, d).
        counts: records per user, which the paper takes as public. Left out: users are equal, Definition G.
            Given: Definition Gunb, with weights and thresholds of Thm mseunb.
        threshold: T; with counts the A in T_i = A / sqrt(min(m_i, m_c)). The paper tunes it on the true
            answer; `bounded_threshold`, `heavy_tail_threshold` and `imbalanced_scale` are those of its theorems.
        radius: R_c, the radius that the estimate is clipped to.
        epsilon, delta: what the paper claims.
        gamma: degree of imbalance; by default the smallest that Assumption unbalance allows.
        k_0: design parameter of eq. deltaunb; by default floor(n / (8 gamma)) as in Thm mseunb.
        reading: eq. deltaunb has Z_i(D) where its own lemma has Z_i(D*). "lemma" takes the latter; "printed"
            the former, with which a single outlier makes the noise scale 2 R_c and delta close to 1.
        outliers: how Delta(D) is found where no exact way is known (several columns, unequal users). "lipschitz" bounds
            it so that the proof of smoothness holds; "witness" is closer to the print and has no such proof.
        noise: where randomness comes from; the operating system by default.

    Formal guarantees: none. `actual_delta` is a statement about the printed alpha and beta; the error of the
    solver, rounding and time are not covered, and the sensitivity is granted as printed.

    >>> from hubermean.noise.insecure import InsecureSeededNoise
    >>> run = paper_literal(
    ...     [0.1, -0.2, 0.3] * 1000, threshold=1.0, radius=10.0, epsilon=1.0, delta=1e-5, noise=InsecureSeededNoise(1)
    ... )
    >>> abs(run.value - 0.2 / 3) < 0.02
    True
    >>> print(str(run).splitlines()[0])
    The paper as printed, for science: not private at the claimed delta.
    >>> f"{run.claimed_delta:.1e} {run.actual_delta:.2e}"
    '1.0e-05 1.28e-03'
    """
    source = SystemNoise() if noise is None else noise
    setting = _Setting.build(means, counts, threshold, radius, epsilon, delta, gamma, k_0, reading, outliers)
    grid = setting.grid()
    found = setting.run()
    draws = source.discrete_gaussian(found.stddev / grid, setting.dimension)
    centre = np.atleast_1d(found.clipped).tolist()
    values = tuple(
        float((round(Fraction(x) / Fraction(grid)) + draw) * Fraction(grid))
        for x, draw in zip(centre, draws, strict=True)
    )
    return PaperLiteral(
        values=values,
        claimed_epsilon=setting.epsilon,
        claimed_delta=setting.delta,
        actual_delta=setting.actual_delta(),
        balanced=setting.users.k_0 is None,
        parameters=setting.parameters(),
        secure_noise=source.secure,
    )


def unsafe_paper_literal_diagnostics(
    means: npt.ArrayLike,
    counts: npt.ArrayLike | None = None,
    *,
    threshold: float,
    radius: float,
    epsilon: float,
    delta: float,
    gamma: float | Fraction | None = None,
    k_0: int | None = None,
    reading: Reading = "lemma",
    outliers: Outliers = "lipschitz",
) -> UnsafePaperLiteral:
    """What `paper_literal` computes before it adds noise. Private: to study the mechanism, never to publish.

    >>> inner = unsafe_paper_literal_diagnostics(
    ...     [0.0] * 999 + [10.0], threshold=1.0, radius=10.0, epsilon=1.0, delta=1e-5
    ... )
    >>> inner.Delta, round(inner.S, 6), round(inner.c, 6)
    (1, 0.002002, 0.001001)
    """
    return _Setting.build(
        means, counts, threshold, radius, epsilon, delta, gamma, k_0, reading, outliers
    ).run()


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """One call with its arguments checked. Only `points` is private."""

    points: Floats = field(repr=False)  # (n, d)
    users: Users
    threshold: float
    radius: float
    epsilon: float
    delta: float
    constants: PrintedConstants
    reading: Reading
    outliers: Outliers

    @staticmethod
    def build(
        means: npt.ArrayLike,
        counts: npt.ArrayLike | None,
        threshold: float,
        radius: float,
        epsilon: float,
        delta: float,
        gamma: float | Fraction | None,
        k_0: int | None,
        reading: Reading,
        outliers: Outliers,
    ) -> _Setting:
        points = _checked_means(means)
        threshold, radius = positive("threshold", threshold), positive("radius", radius)
        if reading not in get_args(Reading):
            raise InputError(f"reading must be 'lemma' or 'printed', not {reading!r}")
        if outliers not in get_args(Outliers):
            raise InputError(f"outliers must be 'lipschitz' or 'witness', not {outliers!r}")
        if counts is None:
            if gamma is not None or k_0 is not None:
                raise InputError("gamma and k_0 belong to unequal users: give counts, or leave them out")
            users = Users.balanced(len(points), threshold)
        else:
            users = Users.imbalanced(counts, threshold, gamma=gamma, k_0=k_0)
            if users.n_users != len(points):
                raise InputError("counts must hold one number per row of means")
        return _Setting(
            points=points,
            users=users,
            threshold=threshold,
            radius=radius,
            epsilon=float(epsilon),
            delta=float(delta),
            constants=printed_constants(epsilon, delta, dimension=points.shape[1]),
            reading=reading,
            outliers=outliers,
        )

    @property
    def dimension(self) -> int:
        return int(self.points.shape[1])

    def run(self) -> UnsafePaperLiteral:
        users = self.users
        located = huber_location(self.points, weights=users.weights, thresholds=users.thresholds)
        centre = np.atleast_1d(np.asarray(located.point))
        norm = float(np.linalg.norm(centre))
        clipped = centre * min(1.0, self.radius / norm) if norm > 0 else centre  # Clip, below eq. final
        found = printed_sensitivity(
            users,
            self.points,
            radius=self.radius,
            beta=self.constants.beta,
            reading=self.reading,
            counted=self.outliers,
        )
        one = self.dimension == 1
        return UnsafePaperLiteral(
            c=float(centre[0]) if one else centre,
            clipped=float(clipped[0]) if one else clipped,
            Z=found.distances,
            Delta=found.outliers,
            G=found.by_distance,
            S=found.smooth,
            stddev=found.smooth / self.constants.alpha,
        )

    def grid(self) -> float:
        """A public grid, far finer than the least noise that any data could get."""
        least, largest = sensitivity_range(self.users, self.radius)
        bits = min(_FINE_BITS, math.floor(math.log2(LARGEST_SCALE * least / largest)) - 1)
        if bits < _COARSE_BITS:
            raise InputError(
                f"radius={self.radius:g} is too large beside threshold={self.threshold:g} for one grid to hold both; "
                "give a smaller radius"
            )
        return 2.0 ** (math.floor(math.log2(least / self.constants.alpha)) - bits)

    def actual_delta(self) -> float:
        """The delta of the printed alpha and beta (proofs/gaussian-calibration.md), both directions."""
        return gaussian_delta(
            self.epsilon, alpha=self.constants.alpha, beta=self.constants.beta, dimension=self.dimension
        )

    def parameters(self) -> dict[str, Any]:
        public: dict[str, Any] = {
            "n_users": self.users.n_users,
            "threshold": self.threshold,
            "radius": self.radius,
            "alpha": self.constants.alpha,
            "beta": self.constants.beta,
        }
        if self.users.gamma is not None:
            public |= {"gamma": float(self.users.gamma), "k_0": self.users.k_0, "reading": self.reading}
        return public


def _checked_means(means: npt.ArrayLike) -> Floats:
    try:
        points = np.asarray(means, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("means must be numbers, shape (n,) or (n, d)") from None
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or 0 in points.shape:
        raise InputError("means must have shape (n,) or (n, d) with n >= 1 and d >= 1")
    if not np.all(np.isfinite(points)):
        raise InputError(
            "means must be finite; leave out users without one, whose absence the paper takes as public"
        )
    return points
