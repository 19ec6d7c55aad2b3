"""One training run: rounds of updates, an attack, a rule, and the accuracy after each round."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from federated.attacks import NO_ATTACK, Memory, claimed_images, poison_labels, poison_updates
from federated.images import CLIENTS, ClientImages, load, split
from federated.models import MODELS, accuracy, local_updates
from federated.rules import BrokenRuleError, Budget, make_rule

LOCAL_STEPS = 6
"""Of a client in a round: one pass over its 60 images in batches of 10."""
LEARNING_RATE = 0.1


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Attributes:
    images: "MNIST" or "Fashion-MNIST".
    model: "softmax" or "network".
    split: "iid" or "two-shard".
    hostile: the share of clients that are.
    """

    images: str
    model: str
    split: str
    hostile: float

    @property
    def name(self) -> str:
        return f"{self.images}, {self.model}, {self.split}, {self.hostile:.0%} hostile"

    @property
    def order(self) -> tuple[int, int, int, float]:
        """MNIST, softmax and iid come first."""
        return len(self.images), -ord(self.model[0]), len(self.split), self.hostile


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How a rule is run.

    Attributes:
        kind: of the rule; see `make_rule`.
        step: the server adds this multiple of the average to the model, in the first round.
        decay: whether the step falls from round to round, in equal parts, toward zero after the last.
        options: of the rule.
    """

    kind: str
    step: float
    decay: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def step_of(self, number: int, rounds: int) -> float:
        """Return the server's step in a round, from 1."""
        return self.step * (1.0 - (number - 1) / rounds) if self.decay else self.step


@dataclass(frozen=True, kw_only=True)
class Run:
    """Attributes:
    accuracy: on all test images, after each round or after the last one alone.
    broken: "" or why training ended early; the rounds that were not made keep the accuracy before.
    """

    accuracy: list[float]
    broken: str

    @property
    def final(self) -> float:
        return self.accuracy[-1]


@lru_cache(maxsize=6)  # the judging seeds
def deal(images: str, kind: str, seed: int, clients: int) -> ClientImages:
    return split(load(images), kind, np.random.default_rng([seed, 0]), clients)


def train(
    setting: Setting,
    rate: Rate,
    attack: str,
    seed: int,
    budget: Budget | None = None,
    clients: int = CLIENTS,
    *,
    every_round: bool = True,
) -> Run:
    """Train for all rounds of the budget. Data, hostile clients and the model's start depend on the seed alone."""
    budget = budget or Budget()
    images, model = load(setting.images), MODELS[setting.model]
    hostile = np.zeros(clients, bool)
    if attack != NO_ATTACK:
        chosen = np.random.default_rng([seed, 1]).permutation(clients)
        hostile[chosen[: round(setting.hostile * clients)]] = True
    dealt = poison_labels(deal(setting.images, setting.split, seed, clients), hostile, attack)
    claimed = claimed_images(dealt, hostile, attack)
    weights = model.start(np.random.default_rng([seed, 2]))
    rule = make_rule(rate.kind, rate.options, budget, clients, seed)
    found, broken, memory = [], "", Memory()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of overflow, where an attack wins
        for number in range(1, budget.rounds + 1):
            if not broken:
                updates = local_updates(model, weights, dealt, steps=LOCAL_STEPS, learning_rate=LEARNING_RATE)
                poison_updates(updates, hostile, attack, memory)
                try:
                    step = rate.step_of(number, budget.rounds)
                    weights = weights + step * rule.aggregate(updates, claimed)
                except BrokenRuleError as error:
                    broken = f"{error} in round {number}"
                if not np.isfinite(weights).all():
                    broken = f"the model is not finite after round {number}"
            if every_round or number == budget.rounds:
                found.append(accuracy(model, weights, images.test, images.test_labels))
    return Run(accuracy=found, broken=broken)
