"""Aggregation rules: what the server makes of the updates of a round.

hubermean's is `hubermean.federated.PrivateAverage` itself. Flower's and byzfl's are written down here from what they
document, because a thousand clients a round are far too many messages for the packages; `checks.py` compares them with
the real packages, in their own environments, on random updates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from federated.images import Floats
from federated.models import Weights
from hubermean.federated import AdaptiveThreshold, PrivateAverage
from hubermean.noise.seeded import InsecureSeededNoise


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The privacy budget of a run, for rules that have one."""

    epsilon: float = 4.0
    delta: float = 1e-5
    rounds: int = 30


class BrokenRuleError(Exception):
    """The rule raised an exception, so training ends here."""


class Rule(Protocol):
    def aggregate(self, updates: Floats, claimed: Weights) -> Weights:
        """Return the average of a round; `claimed` is how many images each client says it has."""
        ...


# --- hubermean ------------------------------------------------------------------------------------------------------


WHOLE_QUANTILE = {"initial": 0.1, "fraction": 1.0, "first_rate": 2.0}
"""The quantile itself, where its target is tuned: what the tuned ways were measured with."""


class Hubermean:
    """`PrivateAverage` with any of its options; its noise is seeded, and otherwise as it is used.

    With options it returns averages, whose step is tuned; without any, its defaults choose the step.
    """

    def __init__(self, budget: Budget, clients: int, seed: int, **options: Any) -> None:
        if "target" in options:
            names = set(AdaptiveThreshold.__dataclass_fields__)
            rule = {name: options.pop(name) for name in list(options) if name in names}
            options["threshold"] = AdaptiveThreshold(**(WHOLE_QUANTILE | rule))
        if options:
            options = {"step_size": 1.0} | options
        self.average = PrivateAverage(
            epsilon=budget.epsilon,
            delta=budget.delta,
            rounds=budget.rounds,
            population=clients,
            noise=lambda number: InsecureSeededNoise(seed * 1_000 + number),
            **options,
        )

    def aggregate(self, updates: Floats, claimed: Weights) -> Weights:
        return np.asarray(self.average.aggregate(updates), dtype=np.float64)


# --- Flower ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def renyi_noise_multiplier(budget: Budget) -> float:
    """Return the least noise multiplier that a Renyi accountant without amplification, Flower's, finds enough."""
    from dp_accounting import GaussianDpEvent, SelfComposedDpEvent, calibrate_dp_mechanism
    from dp_accounting.rdp import RdpAccountant

    return float(
        calibrate_dp_mechanism(
            RdpAccountant,
            lambda multiplier: SelfComposedDpEvent(GaussianDpEvent(multiplier), budget.rounds),
            budget.epsilon,
            budget.delta,
        )
    )


def weighted_average(updates: Floats, claimed: Weights) -> Weights:
    """Flower's FedAvg weighs every client by the number of examples that it claims."""
    return np.asarray((claimed / claimed.sum()) @ updates.astype(np.float64))


def _norms(updates: Floats) -> Weights:
    norms = np.linalg.norm(updates.astype(np.float64), axis=1)
    if (norms == 0.0).any():
        raise BrokenRuleError("ZeroDivisionError")  # of clipping_norm / input_norm
    return np.asarray(norms)


class FlowerFixed:
    """DifferentialPrivacyServerSideFixedClipping around FedAvg: clip, weigh, average, add noise."""

    def __init__(self, noise_multiplier: float, clients: int, seed: int, *, clip: float) -> None:
        self.noise_multiplier, self.clients, self.clip = noise_multiplier, clients, clip
        self.random = np.random.RandomState(seed)

    def aggregate(self, updates: Floats, claimed: Weights) -> Weights:
        scaled = updates * np.minimum(1.0, self.clip / _norms(updates))[:, None]
        return weighted_average(scaled, claimed) + self._noise(updates.shape[1], self.clip)

    def _noise(self, size: int, clip: float) -> Weights:
        return self.random.normal(0.0, self.noise_multiplier * clip / self.clients, size)


class FlowerAdaptive(FlowerFixed):
    """DifferentialPrivacyServerSideAdaptiveClipping around FedAvg.

    It counts clients that were clipped and lowers the clip where they are many, where Andrew et al. (2021) count those
    that were not: it moves the wrong way. Its noise is that of the clip after the move, not of the one that the sum
    was made with. `corrected` does both as in the paper.
    """

    def __init__(
        self,
        noise_multiplier: float,
        clients: int,
        seed: int,
        *,
        clip: float = 0.1,
        quantile: float = 0.5,
        rate: float = 0.2,
        corrected: bool = False,
    ) -> None:
        self.count_stddev = clients / 20 if noise_multiplier else 0.0
        if noise_multiplier:
            noise_multiplier = (noise_multiplier**-2 - (2.0 * self.count_stddev) ** -2) ** -0.5
        super().__init__(noise_multiplier, clients, seed, clip=clip)
        self.quantile, self.rate, self.corrected = quantile, rate, corrected

    def aggregate(self, updates: Floats, claimed: Weights) -> Weights:
        scales = np.minimum(1.0, self.clip / _norms(updates))
        average = weighted_average(updates * scales[:, None], claimed)
        clipped = scales < 1.0
        counted = int((~clipped if self.corrected else clipped).sum())
        share = self.random.normal(counted, self.count_stddev) / len(updates)
        used = self.clip
        self.clip *= math.exp(-self.rate * (share - self.quantile))
        return average + self._noise(updates.shape[1], used if self.corrected else self.clip)


# --- without privacy ------------------------------------------------------------------------------------------------


class Mean:
    """The plain mean."""

    def aggregate(self, updates: Floats, claimed: Weights) -> Weights:
        return np.asarray(updates.mean(axis=0, dtype=np.float64))


class GeometricMedian:
    """byzfl's GeometricMedian: steps of the smoothed Weiszfeld algorithm from zero."""

    def __init__(self, *, smoothing: float = 0.1, steps: int = 3) -> None:
        self.smoothing, self.steps = np.float32(smoothing), steps

    def aggregate(self, updates: Floats, claimed: Weights) -> Weights:
        squares = np.einsum("ij,ij->i", updates, updates)
        center = np.zeros(updates.shape[1], updates.dtype)
        for _ in range(self.steps):
            distances = np.sqrt(np.maximum(squares - 2.0 * (updates @ center) + center @ center, 0.0))
            shares = 1.0 / np.where(distances < self.smoothing, self.smoothing, distances)
            center = (shares @ updates) / shares.sum()
        return center.astype(np.float64)


class CenteredClipping:
    """byzfl's CenteredClipping: steps of clipping around the last average (Karimireddy et al. 2021)."""

    def __init__(self, *, clip: float = 100.0, steps: int = 1) -> None:
        self.clip, self.steps = clip, steps
        self.center: Floats | None = None

    def aggregate(self, updates: Floats, claimed: Weights) -> Weights:
        center = np.zeros(updates.shape[1], updates.dtype) if self.center is None else self.center
        squares = np.einsum("ij,ij->i", updates, updates)
        for _ in range(self.steps):
            distances = np.sqrt(np.maximum(squares - 2.0 * (updates @ center) + center @ center, 0.0))
            with np.errstate(divide="ignore"):
                factors = np.minimum(1.0, self.clip / distances) / len(updates)
            center = center + factors @ updates - factors.sum() * center
        self.center = center.astype(updates.dtype)
        return np.asarray(center, dtype=np.float64)


def make_rule(kind: str, options: Mapping[str, Any], budget: Budget, clients: int, seed: int) -> Rule:
    """Return a rule for one run."""
    if kind == "hubermean":
        return Hubermean(budget, clients, seed, **options)
    if kind in ("flower-fixed", "flower-adaptive"):
        multiplier = renyi_noise_multiplier(budget)
        if kind == "flower-fixed":
            return FlowerFixed(multiplier, clients, seed, **options)
        return FlowerAdaptive(multiplier, clients, seed, **options)
    return {"mean": Mean, "geometric-median": GeometricMedian, "centered-clipping": CenteredClipping}[kind](
        **options
    )
