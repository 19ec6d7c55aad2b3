"""Tune every contestant in a setting with the same number of runs, then judge all on other seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import numpy as np

from federated.aims import CENTRAL
from federated.attacks import NO_ATTACK, WITHSTOOD
from federated.contestants import CONTESTANTS, Contestant
from federated.results import Measured, Tuned, judging_attacks
from federated.training import Rate, Run, Setting, train

TUNING_SEEDS = (101, 102)
JUDGING_SEEDS = (11, 12, 13, 14, 15)
"""Neither is a seed that anything else was chosen on."""
WITHSTOOD_SEEDS = JUDGING_SEEDS[:2]
"""Of replies without strength: a rule breaks on them or does not."""
TUNING_ATTACKS = ("inner product", "label flip")
FINALISTS = 5
"""Ways to run a contestant that meet the second tuning seed and attack."""


def tuning_attacks(setting: Setting) -> tuple[str, str]:
    return TUNING_ATTACKS if setting.hostile else (NO_ATTACK, NO_ATTACK)


def tune(setting: Setting, pool: Executor, contestants: Sequence[Contestant] = CONTESTANTS) -> list[Tuned]:
    """Choose how to run each contestant: all ways under one attack, the best few under another, the least counts."""
    first, second = (
        partial(_final, setting, attack, seed)
        for attack, seed in zip(tuning_attacks(setting), TUNING_SEEDS, strict=True)
    )
    tuned = [contestant for contestant in contestants if len(contestant.rates) > 1]
    jobs = [(contestant.name, rate) for contestant in tuned for rate in contestant.rates]
    scores: dict[str, list[tuple[float, Rate]]] = {}
    for (name, rate), score in zip(jobs, pool.map(first, [rate for _, rate in jobs]), strict=True):
        scores.setdefault(name, []).append((score, rate))
        print(f"  {name}: {score:.1%} with {rate}", flush=True)
    finals = [
        (name, score, rate)
        for name, found in scores.items()
        for score, rate in sorted(found, key=lambda pair: -pair[0])[:FINALISTS]
    ]
    again = pool.map(second, [rate for *_, rate in finals])
    best = {
        contestant.name: Tuned(
            setting=setting, contestant=contestant.name, rate=contestant.rates[0], score=None
        )
        for contestant in contestants
    }
    for (name, score, rate), other in zip(finals, again, strict=True):
        least, known = min(score, other), best[name].score
        if known is None or least > known:
            best[name] = Tuned(setting=setting, contestant=name, rate=rate, score=least)
    return list(best.values())


def judge(tuned: Iterable[Tuned], pool: Executor, attacks: Sequence[str] | None = None) -> list[Measured]:
    """Train on the judging seeds under these attacks, or all of the setting."""
    cases = [
        (choice, attack, seed)
        for choice in tuned
        for attack in (judging_attacks(choice.setting) if attacks is None else attacks)
        for seed in (WITHSTOOD_SEEDS if attack in WITHSTOOD else JUDGING_SEEDS)
    ]
    runs = pool.map(_train_case, [(c.setting, c.rate, attack, seed) for c, attack, seed in cases])
    found: dict[tuple[str, str], list[Run]] = {}
    settings: dict[str, Setting] = {}
    for (choice, attack, _), run in zip(cases, runs, strict=True):
        found.setdefault((choice.contestant, attack), []).append(run)
        settings[choice.contestant] = choice.setting
    return [
        Measured(
            setting=settings[name],
            contestant=name,
            attack=attack,
            finals=[round(run.final, 4) for run in these],
            rounds=[round(float(mean), 4) for mean in np.mean([run.accuracy for run in these], axis=0)],
            broken=next((run.broken for run in these if run.broken), ""),
        )
        for (name, attack), these in found.items()
    ]


def _final(setting: Setting, attack: str, seed: int, rate: Rate) -> float:
    return train(setting, rate, attack, seed, every_round=False).final


def _train_case(case: tuple[Any, ...]) -> Run:
    setting = case[0]
    return train(*case, every_round=(setting.images, setting.model, setting.split) == CENTRAL)
