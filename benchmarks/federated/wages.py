"""A wage regression by natural persons: 4,697 women of the National Longitudinal Survey, each a client with her years.

A woman's update is the negative gradient of the squared error, averaged over her years, so every woman counts once. The
scale of each variable is a public guess, a round number. A fifth of the women is kept aside; R^2 is over their years.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from federated.attacks import poison_updates
from federated.measuring import JUDGING_SEEDS
from federated.results import WageRun
from federated.rules import Budget, Hubermean
from realdata.tables import rdataset

SCALES = {
    "grade": (12.0, 3.0),
    "age": (30.0, 8.0),
    "ttl_exp": (6.0, 5.0),
    "tenure": (3.0, 4.0),
    "south": (0.5, 0.5),
    "not_smsa": (0.5, 0.5),
    "black": (0.5, 0.5),
}
"""Variables, with the guessed middle and scale of each: years of school, age, experience, tenure; where; race."""
WOMEN = 4_697
BUDGET = Budget(epsilon=1.0, delta=1e-5, rounds=40)
STEP = 0.5
HELD_OUT = 0.2
HOSTILE = 0.1

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, kw_only=True)
class Years:
    """One row per woman and year; `person` numbers the women from 0."""

    person: np.ndarray[Any, np.dtype[np.int64]]
    variables: Array
    log_wage: Array

    @property
    def persons(self) -> int:
        return int(self.person.max()) + 1

    def of(self, kept: np.ndarray[Any, np.dtype[np.bool_]]) -> Years:
        """Return the years of some women."""
        rows = kept[self.person]
        numbers = np.unique(self.person[rows], return_inverse=True)[1]
        return Years(person=numbers, variables=self.variables[rows], log_wage=self.log_wage[rows])

    def updates(self, weights: Array) -> Array:
        errors = self.log_wage - self.variables @ weights
        sums = np.zeros((self.persons, self.variables.shape[1]))
        np.add.at(sums, self.person, self.variables * errors[:, None])
        return np.asarray(sums / np.bincount(self.person)[:, None])

    def least_squares(self) -> Array:
        """Without privacy, every woman counting once."""
        share = 1.0 / np.sqrt(np.bincount(self.person)[self.person])
        return np.asarray(
            np.linalg.lstsq(self.variables * share[:, None], self.log_wage * share, rcond=None)[0]
        )

    def r_squared(self, weights: Array) -> float:
        errors = self.log_wage - self.variables @ weights
        return float(1.0 - (errors**2).mean() / self.log_wage.var())


def load_years() -> Years:
    table = rdataset("sampleSelection", "nlswork")
    table = table.assign(black=table["race"] == 2).dropna(subset=["idcode", "ln_wage", *SCALES])
    scaled = [(table[name].to_numpy(float) - middle) / scale for name, (middle, scale) in SCALES.items()]
    return Years(
        person=np.unique(table["idcode"].to_numpy(), return_inverse=True)[1],
        variables=np.column_stack([np.ones(len(table)), *scaled]),
        log_wage=table["ln_wage"].to_numpy(float),
    )


def measure_wages() -> list[WageRun]:
    years = load_years()
    assert years.persons == WOMEN
    methods: dict[str, tuple[str, Callable[[Years, int], Array]]] = {
        "least squares": ("without privacy, exact", lambda kept, seed: kept.least_squares()),
        "gradient descent": (
            f"without privacy, {BUDGET.rounds} rounds",
            lambda kept, seed: descend(kept, lambda updates: updates.mean(axis=0)),
        ),
        "hubermean, defaults": (
            f"epsilon = {BUDGET.epsilon:g}, delta = 1e-5, {BUDGET.rounds} rounds",
            lambda kept, seed: descend(kept, private_average(kept, seed)),
        ),
        "gradient descent, hostile": (
            f"without privacy, {HOSTILE:.0%} of the women hostile",
            lambda kept, seed: descend(kept, lambda updates: updates.mean(axis=0), hostile=HOSTILE),
        ),
        "hubermean, defaults, hostile": (
            f"epsilon = {BUDGET.epsilon:g}, {HOSTILE:.0%} of the women hostile",
            lambda kept, seed: descend(kept, private_average(kept, seed), hostile=HOSTILE),
        ),
    }
    found = []
    for name, (what, fit) in methods.items():
        scores = []
        for seed in JUDGING_SEEDS:
            aside = np.random.default_rng(seed).random(years.persons) < HELD_OUT
            scores.append(round(years.of(aside).r_squared(fit(years.of(~aside), seed)), 4))
        found.append(WageRun(method=name, what=what, scores=scores))
        print(found[-1], flush=True)
    return found


def private_average(years: Years, seed: int) -> Callable[[Array], Array]:
    rule = Hubermean(BUDGET, years.persons, seed)
    return lambda updates: rule.aggregate(updates, np.ones(len(updates)))


def descend(years: Years, average: Callable[[Array], Array], hostile: float = 0.0) -> Array:
    """Gradient descent from zero; hostile women send ten times the opposite of the others' mean."""
    weights = np.zeros(years.variables.shape[1])
    mask = np.arange(years.persons) < hostile * years.persons
    for _ in range(BUDGET.rounds):
        updates = years.updates(weights)
        poison_updates(updates, mask, "inner product")
        weights = weights + STEP * average(updates)
    return weights
