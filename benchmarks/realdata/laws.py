"""Simulated laws of user means: those that constants were tuned on, and those that none was tuned on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from realdata.tables import Floats

Generator = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class SimulatedLaw:
    """User means with a known mean and standard deviation.

    Attributes:
        tail: "light", "heavy" (finite variance) or "very heavy" (no aim but its own).
        sizes: numbers of users; None for the usual ones.
        covered: the aim on coverage applies.
        least_released: the aim on the share of runs that are released, at n = 1,000.
    """

    name: str
    draw: Callable[[Generator, int], Floats]
    mean: float
    deviation: float
    tail: str = "light"
    sizes: tuple[int, ...] | None = None
    covered: bool = True
    least_released: float = 0.99


def _log_normal(sigma: float, **words: object) -> SimulatedLaw:
    return SimulatedLaw(
        name=f"log-normal({sigma:g})",
        draw=lambda generator, n: generator.lognormal(0.0, sigma, n),
        mean=math.exp(sigma**2 / 2.0),
        deviation=math.sqrt(math.expm1(sigma**2) * math.exp(sigma**2)),
        **words,  # type: ignore[arg-type]
    )


def _lomax(alpha: float, name: str, **words: object) -> SimulatedLaw:
    return SimulatedLaw(
        name=name,
        draw=lambda generator, n: generator.pareto(alpha, n),
        mean=1.0 / (alpha - 1.0),
        deviation=math.sqrt(alpha / (alpha - 2.0)) / (alpha - 1.0),
        tail="heavy",
        **words,  # type: ignore[arg-type]
    )


def _gamma(shape: float, name: str, scale: float = 1.0) -> SimulatedLaw:
    return SimulatedLaw(
        name=name,
        draw=lambda generator, n: generator.gamma(shape, scale, n),
        mean=shape * scale,
        deviation=math.sqrt(shape) * scale,
    )


def _with_zeros(share: float, law: SimulatedLaw, name: str, **words: object) -> SimulatedLaw:
    """A share of the users has exactly zero."""
    kept = 1.0 - share
    square = law.deviation**2 + law.mean**2
    return SimulatedLaw(
        name=name,
        draw=lambda generator, n: law.draw(generator, n) * (generator.random(n) < kept),
        mean=kept * law.mean,
        deviation=math.sqrt(kept * square - (kept * law.mean) ** 2),
        **{"tail": law.tail, **words},  # type: ignore[arg-type]
    )


def _normal_and_far(share: float, distance: float, name: str, **words: object) -> SimulatedLaw:
    """Normal, and a share of the users further up."""
    return SimulatedLaw(
        name=name,
        draw=lambda generator, n: generator.normal(size=n) + distance * (generator.random(n) < share),
        mean=share * distance,
        deviation=math.sqrt(1.0 + share * (1.0 - share) * distance**2),
        **words,  # type: ignore[arg-type]
    )


def _student(freedom: float, **words: object) -> SimulatedLaw:
    return SimulatedLaw(
        name=f"Student t({freedom:g})",
        draw=lambda generator, n: generator.standard_t(freedom, n),
        mean=0.0,
        deviation=math.sqrt(freedom / (freedom - 2.0)),
        tail="heavy",
        **words,  # type: ignore[arg-type]
    )


def _inverse_gamma(shape: float) -> SimulatedLaw:
    mean = 1.0 / (shape - 1.0)
    return SimulatedLaw(
        name=f"inverse gamma({shape:g})",
        draw=lambda generator, n: 1.0 / generator.gamma(shape, size=n),
        mean=mean,
        deviation=mean / math.sqrt(shape - 2.0),
        tail="heavy",
    )


def _plain(
    name: str, draw: Callable[[Generator, int], Floats], mean: float, deviation: float, tail: str = "light"
) -> SimulatedLaw:
    return SimulatedLaw(name=name, draw=draw, mean=mean, deviation=deviation, tail=tail)


def _by_moments(
    name: str, draw: Callable[[Generator, int], Floats], moment: Callable[[int], float]
) -> SimulatedLaw:
    """A heavy-tailed law from its first two moments about zero."""
    mean = moment(1)
    return _plain(name, draw, mean, math.sqrt(moment(2) - mean**2), "heavy")


_EXPONENTIAL = SimulatedLaw(
    name="exponential",
    draw=lambda generator, n: generator.exponential(size=n),
    mean=1.0,
    deviation=1.0,
)

TUNED_ON = (
    SimulatedLaw(
        name="normal",
        draw=lambda generator, n: generator.normal(size=n),
        mean=0.0,
        deviation=1.0,
    ),
    SimulatedLaw(
        name="half-normal",
        draw=lambda generator, n: np.abs(generator.normal(size=n)),
        mean=math.sqrt(2.0 / math.pi),
        deviation=math.sqrt(1.0 - 2.0 / math.pi),
    ),
    _EXPONENTIAL,
    _with_zeros(0.3, _gamma(2.0, ""), "gamma(2), 30% zeros"),
    _lomax(4.0, "Lomax(4)"),
    _log_normal(1.0, tail="heavy"),
    _student(3.0),
    _log_normal(2.0, tail="very heavy", covered=False),
    SimulatedLaw(
        name="uniform",
        draw=lambda generator, n: generator.random(n),
        mean=0.5,
        deviation=1.0 / math.sqrt(12.0),
    ),
    SimulatedLaw(
        name="beta(0.5, 0.5)",
        draw=lambda generator, n: generator.beta(0.5, 0.5, n),
        mean=0.5,
        deviation=math.sqrt(1.0 / 8.0),
    ),
    _normal_and_far(0.4, 10.0, "bimodal"),
    SimulatedLaw(
        name="Laplace",
        draw=lambda generator, n: generator.laplace(size=n),
        mean=0.0,
        deviation=math.sqrt(2.0),
    ),
    _gamma(1.5, "chi-square(3)", 2.0),
    _gamma(0.5, "gamma(0.5)"),
    _with_zeros(0.5, _EXPONENTIAL, "exponential, 50% zeros", least_released=0.95),
    _with_zeros(0.9, _EXPONENTIAL, "exponential, 90% zeros", sizes=(4_500, 10_000)),
    SimulatedLaw(
        name="Weibull(0.7)",
        draw=lambda generator, n: generator.weibull(0.7, n),
        mean=math.gamma(1.0 + 1.0 / 0.7),
        deviation=math.sqrt(math.gamma(1.0 + 2.0 / 0.7) - math.gamma(1.0 + 1.0 / 0.7) ** 2),
        tail="heavy",
    ),
    _log_normal(1.5, tail="heavy"),
    _with_zeros(0.6, _log_normal(1.0, tail="heavy"), "log-normal(1), 60% zeros"),
    _student(4.0),
    _inverse_gamma(4.0),
    _lomax(2.5, "Pareto(2.5)"),
    _normal_and_far(0.02, 20.0, "normal, 2% far", tail="far users", covered=False),
)

NEVER_TUNED_ON = (
    _plain("logistic", lambda generator, n: generator.logistic(size=n), 0.0, math.pi / math.sqrt(3.0)),
    _plain(
        "Rayleigh",
        lambda generator, n: generator.rayleigh(size=n),
        math.sqrt(math.pi / 2.0),
        math.sqrt(2.0 - math.pi / 2.0),
    ),
    _plain(
        "triangular", lambda generator, n: generator.triangular(0.0, 0.0, 1.0, n), 1 / 3, 1 / math.sqrt(18.0)
    ),
    _plain(
        "Gumbel",
        lambda generator, n: generator.gumbel(size=n),
        float(np.euler_gamma),
        math.pi / math.sqrt(6.0),
    ),
    _plain("Poisson(2)", lambda generator, n: generator.poisson(2.0, n).astype(float), 2.0, math.sqrt(2.0)),
    _plain(
        "geometric counts",
        lambda generator, n: generator.geometric(0.2, n) - 1.0,
        4.0,
        math.sqrt(0.8) / 0.2,
    ),
    _plain(
        "three modes",
        lambda generator, n: (
            generator.normal(size=n) + generator.choice([0.0, 6.0, 15.0], n, p=[0.5, 0.3, 0.2])
        ),
        4.8,
        math.sqrt(56.8 - 4.8**2),
    ),
    _with_zeros(0.4, _gamma(3.0, ""), "gamma(3), 40% zeros"),
    _with_zeros(0.85, _gamma(2.0, ""), "gamma(2), 85% zeros", sizes=(4_500, 10_000)),
    _plain(
        "contaminated normal",
        lambda generator, n: generator.normal(size=n) * np.where(generator.random(n) < 0.1, 5.0, 1.0),
        0.0,
        math.sqrt(3.4),
        "heavy",
    ),
    _by_moments(
        "log-logistic(3.5)",
        lambda generator, n: np.exp(generator.logistic(size=n) / 3.5),
        lambda power: (power * math.pi / 3.5) / math.sin(power * math.pi / 3.5),
    ),
    _by_moments(
        "Frechet(3.5)",
        lambda generator, n: generator.exponential(size=n) ** (-1.0 / 3.5),
        lambda power: math.gamma(1.0 - power / 3.5),
    ),
    _by_moments(
        "Burr(2, 2.5)",
        lambda generator, n: np.sqrt(generator.random(n) ** (-1.0 / 2.5) - 1.0),
        lambda power: 2.5 * math.gamma(2.5 - power / 2.0) * math.gamma(1.0 + power / 2.0) / math.gamma(3.5),
    ),
    _by_moments(
        "Weibull(0.6)",
        lambda generator, n: generator.weibull(0.6, n),
        lambda power: math.gamma(1.0 + power / 0.6),
    ),
    _log_normal(1.2, tail="heavy"),
    _with_zeros(0.5, _lomax(3.2, ""), "Lomax(3.2), 50% zeros", least_released=0.95),
)
"""Chosen before any of them was measured."""

LAWS = {law.name: law for law in (*TUNED_ON, *NEVER_TUNED_ON)}
