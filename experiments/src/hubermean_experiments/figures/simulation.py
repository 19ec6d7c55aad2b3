"""One point of a panel: every method in both settings, tuned on some data sets and measured on others.

Tuning eliminates candidates. All candidates of a method see the same data sets, so that they are compared in pairs.
After each stage, those that are clearly worse than the best are dropped. Each of the few that remain might be the best.
All of them are measured later, which shows what the paper gains by choosing on the data that it reports.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from hubermean_experiments.figures.data import (
    DataSet,
    Purpose,
    derive_seed,
    measure_span,
    non_private_variance,
    simulate_data_sets,
)
from hubermean_experiments.figures.methods import (
    NON_PRIVATE,
    Candidate,
    Evaluation,
    Method,
    Problem,
    methods_for,
)
from hubermean_experiments.figures.panels import SETTINGS, Effort, PanelPoint
from hubermean_experiments.figures.records import Floats, RecordDistribution
from hubermean_experiments.figures.rows import MeanEstimate, ResultRow, estimate_mean, mean_squared_error

MIN_RELEASE_PROBABILITY = 0.99
"""A candidate must release with at least this probability."""

_CLEARLY_WORSE = 3.0  # standard errors of the difference
_PERHAPS_BEST = 1.0
_MOST_FINALISTS = 3

DataSets = Callable[[int, int], Iterable[Mapping[str, DataSet]]]
"""(first, size) -> data sets, each by the name of its setting."""


def tune(
    methods: Sequence[Method], stages: Iterable[int], data: DataSets
) -> dict[tuple[Method, str], tuple[Candidate, ...]]:
    """Return the final candidates of each method and each of its names, the best first."""
    found: dict[tuple[Method, str], dict[Candidate, list[Evaluation]]] = defaultdict(
        lambda: defaultdict(list)
    )
    alive = {method: method.grid for method in methods if method.tunes}
    done = 0
    for stage in stages:
        for sets in data(done, stage - done):
            for method, grid in alive.items():
                one = sets[method.problem.setting.name]
                for factor in grid:
                    for candidate, evaluated in method.evaluate(factor, one):
                        found[method, candidate.method][candidate].append(evaluated)
        done = stage
        for key, evaluated_by in found.items():
            found[key] = defaultdict(list, _not_clearly_worse(evaluated_by, done))
        alive = {method: tuple(_remaining_factors(method, found)) for method in alive}
    return {key: tuple(_finalists(evaluated_by)) for key, evaluated_by in found.items()}


def _remaining_factors(
    method: Method, found: Mapping[tuple[Method, str], Mapping[Candidate, list[Evaluation]]]
) -> Iterator[float]:
    """The thresholds that some candidate of the method still needs."""
    needed = {candidate.factor for name in method.names for candidate in found.get((method, name), ())}
    return (factor for factor in method.grid if factor in needed)


def _not_clearly_worse(
    found: Mapping[Candidate, list[Evaluation]], size: int
) -> Iterator[tuple[Candidate, list[Evaluation]]]:
    """Best first. Candidates that were dropped before stay dropped, even if they share a threshold with others."""
    complete = {candidate: evaluated for candidate, evaluated in found.items() if len(evaluated) == size}
    ranked = sorted(complete, key=lambda candidate: _rank(complete[candidate]))
    best = complete[ranked[0]]
    for candidate in ranked:
        evaluated = complete[candidate]
        if candidate is ranked[0] or (
            _releases_enough(evaluated) and _behind(evaluated, best) <= _CLEARLY_WORSE
        ):
            yield candidate, evaluated


def _finalists(found: Mapping[Candidate, list[Evaluation]]) -> list[Candidate]:
    ranked = list(found)
    best = found[ranked[0]]
    return [one for one in ranked if one is ranked[0] or _behind(found[one], best) <= _PERHAPS_BEST][
        :_MOST_FINALISTS
    ]


def _rank(evaluated: Sequence[Evaluation]) -> float:
    """The mean error; where releases are too rare, a number above any error that falls with their probability."""
    if not _releases_enough(evaluated):
        return 1e200 * (2.0 - _release_probability(evaluated))
    return float(_errors(evaluated).mean())


def _releases_enough(evaluated: Sequence[Evaluation]) -> bool:
    return _release_probability(evaluated) >= MIN_RELEASE_PROBABILITY


def _release_probability(evaluated: Sequence[Evaluation]) -> float:
    return float(np.mean([one.probability for one in evaluated]))


def _errors(evaluated: Sequence[Evaluation]) -> Floats:
    return np.array([one.error for one in evaluated])


def _behind(evaluated: Sequence[Evaluation], best: Sequence[Evaluation]) -> float:
    """How much larger the error is, in standard errors of the difference."""
    difference = _errors(evaluated) - _errors(best)
    mean, error = float(difference.mean()), float(difference.std(ddof=1)) / math.sqrt(len(difference))
    return 0.0 if mean <= 0.0 else math.inf if error == 0.0 else mean / error


def run_point(
    point: PanelPoint, distribution: RecordDistribution, effort: Effort, *, seed: int
) -> list[ResultRow]:
    """Compute all rows of a point; they depend on the arguments alone."""

    def data(purpose: Purpose, first: int, size: int) -> Iterator[dict[str, DataSet]]:
        return simulate_data_sets(
            point, distribution, SETTINGS, seed=seed, purpose=purpose, first=first, size=size
        )

    span = measure_span(sets[SETTINGS[0].name] for sets in data("tuning", 0, effort.tuning[0]))
    problems = [
        Problem(
            point=point, distribution=distribution, setting=setting, span=span, thresholds=effort.thresholds
        )
        for setting in SETTINGS
    ]
    tuned = tune(_methods(problems, seed, "tuning"), effort.tuning, partial(data, "tuning"))
    finalists = {
        (method.problem.setting.name, name): candidates for (method, name), candidates in tuned.items()
    }
    measured = [
        _MeasuredMethod(method, name, finalists, variance=non_private_variance(point, distribution))
        for method in _methods(problems, seed, "evaluation")
        for name in method.names
    ]
    plain: dict[str, list[float]] = defaultdict(list)
    for batch in range(effort.most_batches):
        going = [one for one in measured if not one.done]
        if batch >= effort.batches and not going and _precise(plain, effort.precision):
            break
        for sets in data("evaluation", batch * effort.batch, effort.batch):
            for setting, data_set in sets.items():
                plain[setting].append(data_set.non_private_error)
            for method in dict.fromkeys(one.method for one in going):
                _evaluate(method, [one for one in going if one.method is method], sets)
        if batch + 1 >= effort.batches:
            for one in going:
                one.done = one.is_precise(plain, effort.precision)
    return list(_rows(point, measured, plain))


def _methods(problems: list[Problem], seed: int, purpose: Purpose) -> list[Method]:
    """One method of each kind per setting, each with its own noise."""
    return [
        kind(problem, derive_seed(seed, problem.point.key, problem.setting.name, purpose, *kind.names))
        for problem in problems
        for kind in methods_for(problem.point)
    ]


class _MeasuredMethod:
    """The evaluations of a method under one of its names."""

    def __init__(
        self,
        method: Method,
        name: str,
        finalists: Mapping[tuple[str, str], tuple[Candidate, ...]],
        *,
        variance: float,
    ) -> None:
        self.method, self.name, self.variance = method, name, variance
        self.setting = method.problem.setting.name
        untuned = () if method.tunes else (Candidate(method=name),)
        self.candidates = finalists.get((self.setting, name), untuned)
        self.evaluated: dict[Candidate, list[Evaluation]] = {candidate: [] for candidate in self.candidates}
        self.done = not self.candidates

    def estimate(self, candidate: Candidate, plain: Mapping[str, list[float]]) -> MeanEstimate:
        evaluated = self.evaluated[candidate]
        errors, probabilities = np.array([(one.error, one.probability) for one in evaluated]).T
        non_private: Floats = np.array(plain[self.setting][: len(evaluated)])
        return mean_squared_error(errors, probabilities, non_private, self.variance)

    def is_precise(self, plain: Mapping[str, list[float]], precision: float) -> bool:
        """Whether no more batches are needed: precise enough, or never released, which public numbers decide."""
        evaluated = self.evaluated[self.candidates[0]]
        if not any(one.probability > 0.0 for one in evaluated):
            return True
        return self.estimate(self.candidates[0], plain).relative <= precision

    def row(self, point: PanelPoint, plain: Mapping[str, list[float]]) -> ResultRow:
        nothing = _empty_row(point, self.setting, self.name, self.variance)
        evaluated = self.evaluated[self.candidates[0]] if self.candidates else []
        if not evaluated:
            return nothing
        best = self.candidates[0]
        found = {candidate: self.estimate(candidate, plain) for candidate in self.candidates}
        least = min(self.candidates, key=lambda candidate: found[candidate].value)
        row = replace(
            nothing, released=float(np.mean([one.probability for one in evaluated])), runs=len(evaluated)
        )
        if math.isnan(found[best].value):
            return row
        row = replace(row, mse=found[best].value, mse_error=found[best].error)
        if not self.method.tunes:
            return row
        return replace(
            row,
            factor=best.factor,
            share=best.share,
            same_draws_mse=found[least].value,
            same_draws_factor=least.factor,
        )


def _empty_row(point: PanelPoint, setting: str, method: str, variance: float) -> ResultRow:
    """The row of a method that has released nothing."""
    return ResultRow(
        panel=point.panel.name,
        setting=setting,
        users=point.users,
        x=point.x,
        method=method,
        mse=None,
        mse_error=None,
        non_private=variance,
        released=0.0,
        runs=0,
    )


def _precise(plain: Mapping[str, list[float]], precision: float) -> bool:
    """Whether the measured error of the non-private mean is precise as well; it has no control variate."""
    return all(estimate_mean(errors).relative <= precision for errors in plain.values())


def _evaluate(method: Method, measured: list[_MeasuredMethod], sets: Mapping[str, DataSet]) -> None:
    data = sets[method.problem.setting.name]
    by_candidate = {candidate: one for one in measured for candidate in one.candidates}
    for factor in dict.fromkeys(candidate.factor for candidate in by_candidate):
        for candidate, evaluated in method.evaluate(factor, data):
            if candidate in by_candidate:
                by_candidate[candidate].evaluated[candidate].append(evaluated)


def _rows(
    point: PanelPoint, measured: list[_MeasuredMethod], plain: Mapping[str, list[float]]
) -> Iterator[ResultRow]:
    for setting in plain:
        of_setting = [one for one in measured if one.setting == setting]
        found = estimate_mean(plain[setting])
        yield replace(
            _empty_row(point, setting, NON_PRIVATE, of_setting[0].variance),
            mse=found.value,
            mse_error=found.error,
            released=1.0,
            runs=len(plain[setting]),
        )
        for one in of_setting:
            yield one.row(point, plain)
