"""Choosing thresholds on data sets of their own, by elimination.

All choices of a method see the same data sets, so that they are compared pair by pair. After every stage those that are
clearly worse than the best are dropped. Some are left at the end: those that might be the best one. All of them are
evaluated later, which shows what choosing on the evaluated data itself, as the paper does, would have gained.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from hubermean.reproduce.figures.data import DataSet
from hubermean.reproduce.figures.methods import Choice, Judged, Method
from hubermean.reproduce.figures.records import Floats

LEAST_CHANCE = 0.99
"""A choice must release with at least this chance."""

_CLEARLY_WORSE = 3.0  # standard errors of the difference
_PERHAPS_BEST = 1.0
_MOST_FINALISTS = 3

DataSets = Callable[[int, int], Iterable[Mapping[str, DataSet]]]
"""So many data sets from a number on, each by the name of its setting."""


def tune(
    methods: Sequence[Method], stages: Iterable[int], data: DataSets
) -> dict[tuple[Method, str], tuple[Choice, ...]]:
    """For each method and each of its names the choices that might be the best, the likeliest first."""
    found: dict[tuple[Method, str], dict[Choice, list[Judged]]] = defaultdict(lambda: defaultdict(list))
    alive = {method: method.grid for method in methods if method.tunes}
    done = 0
    for stage in stages:
        for sets in data(done, stage - done):
            for method, grid in alive.items():
                one = sets[method.task.setting.name]
                for factor in grid:
                    for choice, judged in method.judge(factor, one):
                        found[method, choice.method][choice].append(judged)
        done = stage
        for key, judged_by in found.items():
            found[key] = defaultdict(list, _not_clearly_worse(judged_by, done))
        alive = {method: tuple(_factors(method, found)) for method in alive}
    return {key: tuple(_finalists(judged_by)) for key, judged_by in found.items()}


def _factors(
    method: Method, found: Mapping[tuple[Method, str], Mapping[Choice, list[Judged]]]
) -> Iterator[float]:
    """The thresholds that some choice of the method still needs."""
    needed = {choice.factor for name in method.names for choice in found.get((method, name), ())}
    return (factor for factor in method.grid if factor in needed)


def _not_clearly_worse(
    found: Mapping[Choice, list[Judged]], size: int
) -> Iterator[tuple[Choice, list[Judged]]]:
    """Best first; choices that were dropped before, and only shared a threshold with others, stay dropped."""
    complete = {choice: judged for choice, judged in found.items() if len(judged) == size}
    ranked = sorted(complete, key=lambda choice: _rating(complete[choice]))
    best = complete[ranked[0]]
    for choice in ranked:
        judged = complete[choice]
        if choice is ranked[0] or (_serves(judged) and _behind(judged, best) <= _CLEARLY_WORSE):
            yield choice, judged


def _finalists(found: Mapping[Choice, list[Judged]]) -> list[Choice]:
    ranked = list(found)
    best = found[ranked[0]]
    return [one for one in ranked if one is ranked[0] or _behind(found[one], best) <= _PERHAPS_BEST][
        :_MOST_FINALISTS
    ]


def _rating(judged: Sequence[Judged]) -> float:
    """The mean error; beyond any error, and less for more releases, where too few are made."""
    if not _serves(judged):
        return 1e200 * (2.0 - _chance(judged))
    return float(_errors(judged).mean())


def _serves(judged: Sequence[Judged]) -> bool:
    return _chance(judged) >= LEAST_CHANCE


def _chance(judged: Sequence[Judged]) -> float:
    return float(np.mean([one.chance for one in judged]))


def _errors(judged: Sequence[Judged]) -> Floats:
    return np.array([one.error for one in judged])


def _behind(judged: Sequence[Judged], best: Sequence[Judged]) -> float:
    """How much larger the error is, in standard errors of the difference."""
    difference = _errors(judged) - _errors(best)
    mean, spread = float(difference.mean()), float(difference.std(ddof=1)) / math.sqrt(len(difference))
    return 0.0 if mean <= 0.0 else math.inf if spread == 0.0 else mean / spread
