"""The paper's mechanism exactly as printed: Clip(c, R_c) + N(0, (S/alpha)^2 I) (Zhao et al. 2024, eq. final).

For research: it reproduces the paper's figures and measures what its constants guarantee. docs/concepts/paper.md lists
what does not hold. Deviations from the print, none with a measurable effect on the error:

- the location is solved to the limit of float64 with a certificate, not until an update is small;
- the result is on a public grid at least 2^10 times finer than the noise, and the noise is discrete;
- Delta(D) is exact where an algorithm is known, and an upper bound elsewhere (`outliers`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from hubermean.accounting.arguments import check_positive
from hubermean.accounting.gaussian import gaussian_delta
from hubermean.data.user_table import PrivateTable
from hubermean.distributions.output import NoiseDistribution, NoisySum
from hubermean.errors import InputError
from hubermean.huber.solver import huber_location
from hubermean.mechanisms.base import Outcome, Prepared
from hubermean.noise.batch import LARGEST_SCALE
from hubermean.noise.source import NoiseSource
from hubermean.noise.system import SystemNoise
from hubermean.types.options import PublicParameters
from hubermean.types.request import PublicFacts, Request
from hubermean_experiments.paper.constants import PrintedConstants, printed_constants
from hubermean_experiments.paper.result import PaperLiteral, UnsafePaperLiteral
from hubermean_experiments.paper.sensitivity import (
    DeltaReading,
    OutlierCount,
    printed_sensitivity,
    sensitivity_range,
)
from hubermean_experiments.paper.users import Floats, PaperUsers

_FINE_BITS, _COARSE_BITS = 30, 10  # bits by which the grid is finer than the least noise


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
    reading: DeltaReading = "lemma",
    outliers: OutlierCount = "lipschitz",
    noise: NoiseSource | None = None,
) -> PaperLiteral:
    """Run the paper's mechanism as printed, and report the delta that its constants actually give.

    Args:
        means: one mean per user, shape (n,) or (n, d).
        counts: records per user, which the paper takes as public. None: users of equal size, Definition G. Otherwise
            Definition Gunb, with weights and thresholds of Thm mseunb.
        threshold: T; with counts the A in T_i = A / sqrt(min(m_i, m_c)). The paper tunes it on the true
            mean; `bounded_threshold`, `heavy_tail_threshold` and `imbalanced_scale` are those of its theorems.
        radius: R_c, the radius that the estimate is clipped to.
        epsilon, delta: the guarantee that the paper claims.
        gamma: degree of imbalance; by default the smallest that Assumption unbalance allows.
        k_0: design parameter of eq. deltaunb; by default floor(n / (8 gamma)) as in Thm mseunb.
        reading: eq. deltaunb has Z_i(D) where its own lemma has Z_i(D*). "lemma" takes the latter; "printed"
            the former, with which a single outlier makes the noise scale 2 R_c and delta close to 1.
        outliers: how Delta(D) is computed where no exact algorithm is known (several columns, unequal users).
            "lipschitz" is a bound for which the proof of smoothness holds; "witness" is closer to the print and has no
            such proof.
        noise: the source of randomness; the operating system by default.

    Formal guarantees: none. `actual_delta` is the delta of the printed alpha and beta with the printed sensitivity
    taken for granted. It does not cover the error of the solver, rounding or timing.

    >>> from hubermean.noise.seeded import InsecureSeededNoise
    >>> run = paper_literal(
    ...     [0.1, -0.2, 0.3] * 1000, threshold=1.0, radius=10.0, epsilon=1.0, delta=1e-5, noise=InsecureSeededNoise(1)
    ... )
    >>> abs(run.value - 0.2 / 3) < 0.02
    True
    >>> print(str(run).splitlines()[0])
    The paper as printed, for research: not private at the claimed delta.
    >>> f"{run.claimed_delta:.1e} {run.actual_delta:.2e}"
    '1.0e-05 1.28e-03'
    """
    source = SystemNoise() if noise is None else noise
    run = _PaperRun.build(means, counts, threshold, radius, epsilon, delta, gamma, k_0, reading, outliers)
    grid = run.grid()
    found = run.run()
    draws = source.discrete_gaussian(found.stddev / grid, run.dimension)
    center = np.atleast_1d(found.clipped).tolist()
    values = tuple(
        float((round(Fraction(x) / Fraction(grid)) + draw) * Fraction(grid))
        for x, draw in zip(center, draws, strict=True)
    )
    return PaperLiteral(
        values=values,
        claimed_epsilon=run.epsilon,
        claimed_delta=run.delta,
        actual_delta=run.actual_delta(),
        balanced=run.users.k_0 is None,
        parameters=run.parameters(),
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
    reading: DeltaReading = "lemma",
    outliers: OutlierCount = "lipschitz",
) -> UnsafePaperLiteral:
    """The values that `paper_literal` computes before it adds noise. Private: for study, never to be published.

    >>> inner = unsafe_paper_literal_diagnostics(
    ...     [0.0] * 999 + [10.0], threshold=1.0, radius=10.0, epsilon=1.0, delta=1e-5
    ... )
    >>> inner.Delta, round(inner.S, 6), round(inner.c, 6)
    (1, 0.002002, 0.001001)
    """
    return _PaperRun.build(
        means, counts, threshold, radius, epsilon, delta, gamma, k_0, reading, outliers
    ).run()


@dataclass(frozen=True, kw_only=True)
class _PaperRun:
    """The checked arguments of one call. Only `points` is private."""

    points: Floats = field(repr=False)  # (n, d)
    users: PaperUsers
    threshold: float
    radius: float
    epsilon: float
    delta: float
    constants: PrintedConstants
    reading: DeltaReading
    outliers: OutlierCount

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
        reading: DeltaReading,
        outliers: OutlierCount,
    ) -> _PaperRun:
        points = _check_means(means)
        threshold, radius = check_positive("threshold", threshold), check_positive("radius", radius)
        if reading not in get_args(DeltaReading):
            raise InputError(f"reading must be 'lemma' or 'printed', not {reading!r}")
        if outliers not in get_args(OutlierCount):
            raise InputError(f"outliers must be 'lipschitz' or 'witness', not {outliers!r}")
        if counts is None:
            if gamma is not None or k_0 is not None:
                raise InputError("gamma and k_0 belong to unequal users: give counts, or leave them out")
            users = PaperUsers.balanced(len(points), threshold)
        else:
            users = PaperUsers.imbalanced(counts, threshold, gamma=gamma, k_0=k_0)
            if users.n_users != len(points):
                raise InputError("counts must hold one number per row of means")
        return _PaperRun(
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
        center = np.atleast_1d(np.asarray(located.point))
        norm = float(np.linalg.norm(center))
        clipped = center * min(1.0, self.radius / norm) if norm > 0 else center  # Clip, below eq. final
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
            c=float(center[0]) if one else center,
            clipped=float(clipped[0]) if one else clipped,
            Z=found.distances,
            Delta=found.outliers,
            G=found.by_distance,
            S=found.smooth,
            stddev=found.smooth / self.constants.alpha,
        )

    def grid(self) -> float:
        """The spacing of a public grid, far finer than the least noise on any data."""
        least, largest = sensitivity_range(self.users, self.radius)
        bits = min(_FINE_BITS, math.floor(math.log2(LARGEST_SCALE * least / largest)) - 1)
        if bits < _COARSE_BITS:
            raise InputError(
                f"radius={self.radius:g} is too large for threshold={self.threshold:g}: no grid can represent both; "
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


def _check_means(means: npt.ArrayLike) -> Floats:
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
            "means must be finite; leave out users without a mean (the paper takes their absence as public)"
        )
    return points


@dataclass(frozen=True, kw_only=True)
class PaperMechanism:
    """The paper's mechanism for users of equal size, as an object for `hubermean.audit`. It is never registered.

    Audits show that its guarantee does not hold: `hubermean.audit(PaperMechanism(threshold=1.0, radius=10.0), ...)`.
    """

    threshold: float
    radius: float
    name = "paper-literal"

    @classmethod
    def from_parameters(cls, known: PublicParameters) -> PaperMechanism:
        threshold, radius = known.threshold_and_radius(of=cls.name)
        return cls(threshold=threshold, radius=radius)

    def check(self, request: Request) -> None:
        if request.delta == 0.0 or request.per != "user" or not request.neighbors.users_are_public:
            raise InputError(
                "'paper-literal' needs delta > 0, per='user' and a relation with a public number of users"
            )

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedPaper:
        self.check(request)
        return PreparedPaper(request=request, threshold=self.threshold, radius=self.radius)


@dataclass(frozen=True, kw_only=True)
class PreparedPaper(Prepared):
    request: Request
    threshold: float
    radius: float

    def distribution(self, table: PrivateTable) -> NoisySum:
        """The clipped location with noise as printed. Users without a mean, which the paper does not have, are at 0."""
        table = table.collect()
        means = np.clip(table.means.reshape(table.n_users, -1), -1e60, 1e60)
        means[table.counts == 0] = 0.0
        found = unsafe_paper_literal_diagnostics(
            means,
            threshold=self.threshold,
            radius=self.radius,
            epsilon=self.request.epsilon,
            delta=self.request.delta,
        )
        position: list[float] = np.atleast_1d(np.asarray(found.clipped)).tolist()
        return NoisySum(position=position, noise=NoiseDistribution(kind="gaussian", scale=found.stddev))

    def outcome(self, sample: Any) -> Outcome:
        raise InputError(
            "the paper's mechanism is for audits only; to run it, call hubermean_experiments.paper.paper_literal"
        )
