"""Everything that is fixed before the first round: parameters, noise, denominator. Never sees an update."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, get_args

from hubermean.accounting.arguments import check_positive, check_positive_integer, is_real
from hubermean.accounting.budget import PrivacyCost, not_above
from hubermean.accounting.rounds import largest_shift
from hubermean.errors import InputError, parameter
from hubermean.federated.threshold import AdaptiveThreshold
from hubermean.types.clients import ClientNeighbors

Sampling = Literal["all", "poisson"]
Center = Literal["zero", "last"]

MOST_VALUES = 10**9
"""Numbers in an update, at most: what the accounting of discrete noise allows for (proofs/federated.md, Lemma 5)."""

_SLACK = 2.0**-20  # relative, of epsilon and of delta: what discrete noise may cost beyond continuous noise
_FINEST, _COARSEST = 2**40, 2**10  # units that a threshold is divided into
_NOISE_UNITS = (
    2.0**44
)  # standard deviation aimed at, in units: half of the digits of 64 bits are for many clients
_TARGET_ERROR = 0.05  # of the noisy fraction that an adaptive threshold follows


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """The public parameters of a run and the noise that follows from them.

    Attributes:
        epsilon, delta: guarantee of all rounds together.
        rounds, steps: number of rounds, and of Huber steps in each.
        population: number of clients, for the denominator.
        sampling_rate: probability of a client to be in a round; 1 without sampling.
        neighbors: the change that is hidden.
        threshold: fixed, or the rule that moves it.
        center: what updates are clipped around: zero, or the last average.
        step_size: multiple of each step, or "adaptive" for one that is learned from the averages.
    """

    epsilon: float
    delta: float
    rounds: int
    population: int
    sampling_rate: float
    neighbors: ClientNeighbors
    threshold: float | AdaptiveThreshold
    center: Center
    steps: int
    step_size: float | Literal["adaptive"]

    @classmethod
    def checked(
        cls,
        *,
        epsilon: float,
        delta: float,
        rounds: int,
        population: int,
        sampling: str,
        sampling_rate: float | None,
        neighbors: str | ClientNeighbors,
        threshold: str | float | AdaptiveThreshold,
        center: str,
        steps: int,
        step_size: float | str | None,
    ) -> RoundPlan:
        """Return the plan, or raise InputError for an argument that is out of range."""
        if not (is_real(epsilon) and 1e-6 <= epsilon <= 1e6):
            raise InputError(f"{parameter('epsilon')} must be a number from 1e-6 to 1e6, not {epsilon!r}")
        if not (is_real(delta) and 1e-100 <= delta < 1):
            raise InputError(
                f"{parameter('delta')} must be at least 1e-100 and below 1, not {delta!r}; a tenth of "
                "one over the number of clients is usual at most"
            )
        if sampling not in get_args(Sampling):
            raise InputError(f"{parameter('sampling')} must be 'all' or 'poisson', not {sampling!r}")
        if (sampling == "poisson") != (sampling_rate is not None):
            raise InputError(
                f"{parameter('sampling', 'poisson')} and {parameter('sampling_rate')} go together: the probability "
                "with which each client is drawn into a round"
            )
        if center not in get_args(Center):
            raise InputError(f"{parameter('center')} must be 'zero' or 'last', not {center!r}")
        if sampling_rate is not None and not (is_real(sampling_rate) and 0.0 < sampling_rate < 1.0):
            raise InputError(
                f"{parameter('sampling_rate')} must lie strictly between 0 and 1, not {sampling_rate!r}"
            )
        if threshold == "adaptive":
            threshold = AdaptiveThreshold()
        if not isinstance(threshold, AdaptiveThreshold):
            if isinstance(threshold, str) or not (is_real(threshold) and 2.0**-300 <= threshold <= 2.0**300):
                raise InputError(
                    f"{parameter('threshold')} must be 'adaptive', an AdaptiveThreshold or a number above 0, "
                    f"not {threshold!r}"
                )
            threshold = float(threshold)
        plan = cls(
            epsilon=float(epsilon),
            delta=float(delta),
            rounds=_check_count("rounds", rounds, 10**6),
            population=_check_count("population", population, 2**40),
            sampling_rate=1.0 if sampling_rate is None else float(sampling_rate),
            neighbors=ClientNeighbors.parse(neighbors),
            threshold=threshold,
            center="zero" if center == "zero" else "last",
            steps=_check_count("steps", steps, 1000),
            step_size=_check_step_size(step_size, isinstance(threshold, AdaptiveThreshold), center),
        )
        if plan.denominator < 1.0:
            raise InputError(
                f"{parameter('sampling_rate')} must draw at least one client per round on average: at least "
                f"{1.0 / plan.population:g}, not {sampling_rate!r}"
            )
        plan._check_discreteness()
        return plan

    # --- what is made of a round -------------------------------------------------------------------------------------

    @property
    def step_multiple(self) -> float:
        """What each step within a round is multiplied by; the adaptive step begins after the last one."""
        return 1.0 if self.step_size == "adaptive" else self.step_size

    def length(self, threshold: float) -> float:
        """Return the distance within which clients are counted at a threshold."""
        return (
            self.threshold.length(threshold) if isinstance(self.threshold, AdaptiveThreshold) else threshold
        )

    def noise_square(self, size: int) -> float:
        """Return the expected squared length of the noise in an average of so many numbers, in thresholds."""
        return self.steps * size * (self.noise_multiplier / self.denominator) ** 2

    # --- what one client may move -----------------------------------------------------------------------------------

    @property
    def sampled(self) -> bool:
        """Whether each round is made with a secret Poisson sample of the clients."""
        return self.sampling_rate < 1.0

    @property
    def denominator(self) -> float:
        """The public number of clients that sums are divided by: expected, never counted."""
        return self.sampling_rate * self.population

    @cached_property
    def shift(self) -> float:
        """How far one client moves a round at most, in standard deviations of all its noise together."""
        return largest_shift(
            not_above(self.epsilon) * (1.0 - _SLACK),
            not_above(self.delta) * (1.0 - 4.0 * _SLACK),
            rounds=self.rounds,
            sampling_rate=self.sampling_rate,
            replace=self.neighbors.replaces,
        )

    @cached_property
    def count_share(self) -> float:
        """The part of the squared shift that the noisy count has; 0 with a fixed threshold."""
        rule = self.threshold
        if not isinstance(rule, AdaptiveThreshold):
            return 0.0
        if rule.count_share is not None:
            return float(rule.count_share)
        wanted = (max(rule.target, 1.0 - rule.target) / (_TARGET_ERROR * self.denominator * self.shift)) ** 2
        return min(max(wanted, 0.001), 0.1)

    @cached_property
    def noise_multiplier(self) -> float:
        """The standard deviation of the noise of one step, in thresholds."""
        return math.sqrt(self.steps / (1.0 - self.count_share)) / self.shift * (1.0 + 1e-14)

    # --- integers ---------------------------------------------------------------------------------------------------

    @cached_property
    def threshold_units(self) -> int:
        """The integer that stands for the threshold: the largest norm of a clipped update."""
        finest = min(_FINEST, 2**61 // self.population)
        return max(min(int(_NOISE_UNITS / self.noise_multiplier), finest), _COARSEST)

    @cached_property
    def sum_stddev(self) -> float:
        """The parameter of the discrete Gaussian noise of one step, in units."""
        return self.noise_multiplier * self.threshold_units * (1.0 + 1e-14)

    @cached_property
    def count_units(self) -> tuple[int, int]:
        """What a client within the length that is counted adds to the count, and what one beyond it takes away.

        The target and its complement, so that a client that does not reply moves the threshold neither way.
        """
        rule = self.threshold
        if not isinstance(rule, AdaptiveThreshold):
            return 0, 0
        finest = 2 ** min(36, 61 - self.population.bit_length())
        within = round(Fraction(1.0 - rule.target) * finest)
        return within, finest - within

    @cached_property
    def count_stddev(self) -> float:
        """The parameter of the discrete Gaussian noise of the count, in its units; 0 with a fixed threshold."""
        if self.count_share == 0.0:
            return 0.0
        return max(self.count_units) / (math.sqrt(self.count_share) * self.shift) * (1.0 + 1e-14)

    @cached_property
    def rho(self) -> Fraction:
        """The concentrated cost (zCDP) of all rounds without sampling, of one client against none; exact."""
        one = Fraction(self.threshold_units) ** 2 / (2 * Fraction(self.sum_stddev) ** 2) * self.steps
        if self.count_share:
            one += Fraction(max(self.count_units)) ** 2 / (2 * Fraction(self.count_stddev) ** 2)
        return self.rounds * one * (4 if self.neighbors.replaces else 1)

    @property
    def privacy_cost(self) -> PrivacyCost:
        """What the whole run is charged."""
        return PrivacyCost(epsilon=self.epsilon, delta=self.delta, rho=None if self.sampled else self.rho)

    def _check_discreteness(self) -> None:
        """Refuse a run whose discrete noise is not as private as continuous noise within the slack (Lemma 5)."""
        samples = self.rounds * (self.steps + (self.count_share > 0.0))
        log_tail = math.log(samples) - math.log(not_above(self.delta)) + 21.0 * math.log(2.0)
        values = MOST_VALUES
        stddev = self.sum_stddev
        if self.count_share and self.count_stddev < stddev:
            stddev = self.count_stddev
        radius = math.sqrt(values + 2.0 * math.sqrt(values * log_tail) + 2.0 * log_tail) + 2.0 * self.shift
        pointwise = samples * values / (24.0 * stddev * stddev)
        in_ball = samples * radius * radius / (8.0 * stddev * stddev)
        too_fine = (
            min(stddev, self.count_stddev or stddev) < 1024.0
            or max(self.sum_stddev, self.count_stddev) > 2.0**50
        )
        if too_fine or 1.01 * (pointwise + in_ball) > _SLACK * min(self.epsilon, 1.0):
            raise InputError(
                f"these rounds need noise that cannot be sampled exactly: {parameter('epsilon')} is too large or too "
                "small for so many rounds, steps and clients; choose a budget nearer to 1, or fewer rounds"
            )

    # --- as text ----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as plain data; equal for equal plans."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        found["neighbors"] = self.neighbors.value
        if isinstance(self.threshold, AdaptiveThreshold):
            found["threshold"] = asdict(self.threshold)
        return found

    def to_text(self) -> str:
        """Return the parameters as canonical JSON, which a saved run is recognised by."""
        return json.dumps(self.to_dict(), sort_keys=True)


def _check_step_size(
    given: float | str | None, adaptive_threshold: bool, center: str
) -> float | Literal["adaptive"]:
    if given is None:
        given = "adaptive" if adaptive_threshold and center == "zero" else 1.0
    if not isinstance(given, str):
        if not 1e-6 <= check_positive("step_size", given) <= 1e6:
            raise InputError(f"{parameter('step_size')} must lie between 1e-6 and 1e6, not {given!r}")
        return float(given)
    if given != "adaptive":
        raise InputError(f"{parameter('step_size')} must be 'adaptive' or a number above 0, not {given!r}")
    if not (adaptive_threshold and center == "zero"):
        raise InputError(
            f"{parameter('step_size', 'adaptive')} needs an adaptive {parameter('threshold')}, which says how long "
            f"updates are, and {parameter('center', 'zero')}; give a number"
        )
    return "adaptive"


def _check_count(name: str, value: int, most: int) -> int:
    count = check_positive_integer(name, value)
    if count > most:
        raise InputError(f"{parameter(name)} must be at most {most:,}, not {count!r}")
    return count
