"""Rules and attacks that are written down here, beside the packages that they describe, on random updates.

The packages run in environments of their own: `make flower` makes Flower's, `make federated` byzfl's. What has no
environment is left out.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from federated.attacks import poison_updates
from federated.images import Floats
from federated.models import Weights
from federated.results import Checked
from federated.rules import (
    BrokenRuleError,
    CenteredClipping,
    FlowerAdaptive,
    FlowerFixed,
    GeometricMedian,
    Rule,
)
from peers.runners.make_environments import HERE as RUNNERS
from peers.runners.make_environments import python_of

FLOWER = RUNNERS.parents[2] / ".venv-flower" / "bin" / "python"
BYZFL = python_of("byzfl")
ROUNDS, CLIENTS, SIZE = 6, 12, 40
SEED = 5


@dataclass(frozen=True, kw_only=True)
class Case:
    """Attributes:
    rule: what is written down here.
    python, runner: the environment of the package and the script that runs in it.
    given: what the script is given besides the updates.
    ours: the same here; returns one vector per round.
    special: what the first client does: "", "zero" or "false weights".
    """

    rule: str
    package: str
    python: Path
    runner: str
    given: dict[str, Any]
    ours: Callable[[Floats, Weights], list[Weights]]
    special: str = ""


def random_updates(special: str = "") -> tuple[Floats, Weights]:
    """Return updates whose lengths vary, and how many images each client claims."""
    generator = np.random.default_rng(SEED)
    lengths = generator.lognormal(0.0, 1.0, (ROUNDS, CLIENTS, 1))
    updates = generator.normal(0.2, 1.0, (ROUNDS, CLIENTS, SIZE)) * lengths / math.sqrt(SIZE)
    claimed = np.full(CLIENTS, 60.0)
    if special == "zero":
        updates[2, 0] = 0.0
    if special == "false weights":
        claimed[0] = 1e6
    return updates, claimed


def _follow(rule: Rule) -> Callable[[Floats, Weights], list[Weights]]:
    """Return models after each round, as long as there are any."""

    def run(updates: Floats, claimed: Weights) -> list[Weights]:
        model, models = np.zeros(updates.shape[2]), []
        for sent in updates:
            try:
                model = model + rule.aggregate(sent, claimed)
            except BrokenRuleError:
                break
            models.append(model)
        return models

    return run


def _answers(rule: Rule) -> Callable[[Floats, Weights], list[Weights]]:
    return lambda updates, claimed: [rule.aggregate(sent, claimed) for sent in updates]


def _attack(name: str) -> Callable[[Floats, Weights], list[Weights]]:
    """Return what the first client sends; the others are honest."""

    def run(updates: Floats, claimed: Weights) -> list[Weights]:
        found = []
        for sent in updates:
            poisoned = np.concatenate([sent[:1], sent])
            poison_updates(poisoned, np.arange(len(poisoned)) == 0, name)
            found.append(poisoned[0])
        return found

    return run


def _flower(name: str, rule: Rule, strategy: str, special: str = "", **options: Any) -> Case:
    given = {"strategy": strategy, "seed": SEED, "options": options}
    return Case(
        rule=name,
        package="flwr",
        python=FLOWER,
        runner="round_flower",
        given=given,
        ours=_follow(rule),
        special=special,
    )


def _byzfl(name: str, ours: Callable[[Floats, Weights], list[Weights]], of: str, **options: Any) -> Case:
    given = {"name": of, "options": options}
    return Case(rule=name, package="byzfl", python=BYZFL, runner="round_byzfl", given=given, ours=ours)


def cases() -> list[Case]:
    def fixed() -> FlowerFixed:
        return FlowerFixed(2.0, CLIENTS, SEED, clip=0.8)

    def adaptive(noise: float) -> FlowerAdaptive:
        return FlowerAdaptive(noise, CLIENTS, SEED, clip=0.5, quantile=0.3, rate=0.4)

    fixed_options = {"noise_multiplier": 2.0, "clipping_norm": 0.8}
    adaptive_options = {"initial_clipping_norm": 0.5, "target_clipped_quantile": 0.3, "clip_norm_lr": 0.4}
    return [
        _flower("fixed clip", fixed(), "fixed", **fixed_options),
        _flower("fixed clip, false weights", fixed(), "fixed", "false weights", **fixed_options),
        _flower("fixed clip, zero update", fixed(), "fixed", "zero", **fixed_options),
        _flower("adaptive clip", adaptive(0.0), "adaptive", noise_multiplier=0.0, **adaptive_options),
        _flower(
            "adaptive clip, with noise", adaptive(1.0), "adaptive", noise_multiplier=1.0, **adaptive_options
        ),
        _byzfl("geometric median", _answers(GeometricMedian()), "GeometricMedian", nu=0.1, T=3),
        _byzfl(
            "centered clipping",
            _answers(CenteredClipping(clip=0.5, steps=2)),
            "CenteredClipping",
            tau=0.5,
            L=2,
        ),
        _byzfl("sign flip", _attack("sign flip"), "SignFlipping"),
        _byzfl("inner product", _attack("inner product"), "InnerProductManipulation", tau=10.0),
        _byzfl("a little is enough", _attack("a little is enough"), "ALittleIsEnough", tau=-1.5),
    ]


def run_package(case: Case) -> list[Weights]:
    """Return the vectors of the package itself."""
    updates, claimed = random_updates(case.special)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.npz"
        np.savez(file, updates=updates, claimed=claimed, case=json.dumps(case.given))
        done = subprocess.run(
            [str(case.python), str(RUNNERS / f"{case.runner}.py"), str(file)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"{case.runner} failed: {done.stderr[-2000:]}")
    return [np.array(model) for model in json.loads(done.stdout.splitlines()[-1])["models"]]


def largest_difference(ours: Sequence[Weights], theirs: Sequence[Weights]) -> float:
    """Return the largest difference of any number, in multiples of the largest; infinite for unequal rounds."""
    if len(ours) != len(theirs):
        return math.inf
    one, other = np.array(ours), np.array(theirs)
    return float(np.abs(one - other).max() / np.abs(other).max())


def check(case: Case) -> Checked:
    difference = largest_difference(case.ours(*random_updates(case.special)), run_package(case))
    return Checked(rule=case.rule, package=case.package, cases=ROUNDS, difference=difference)


def check_rules() -> list[Checked]:
    found = []
    for case in cases():
        if case.python.exists():
            found.append(check(case))
            print(found[-1], flush=True)
        else:
            print(f"{case.package} has no environment; {case.rule} is not checked", flush=True)
    return found
