"""One point of a panel: all methods in both settings, tuned on some data sets and measured on others."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hubermean.reproduce.figures.data import (
    DataSet,
    Purpose,
    data_sets,
    plain_variance,
    seed_for,
    typical_span,
)
from hubermean.reproduce.figures.estimate import Estimate, mean_squared_error, plain_estimate
from hubermean.reproduce.figures.methods import NON_PRIVATE, Choice, Judged, Method, Task, methods_of
from hubermean.reproduce.figures.panels import SETTINGS, Effort, Point
from hubermean.reproduce.figures.records import Floats, RecordLaw
from hubermean.reproduce.figures.tuning import tune


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one method did at one point in one setting; None where it cannot serve, or where nothing is tuned.

    Attributes:
        x: records of each user, or gamma.
        mse: mean squared error, all columns together; `mse_error` its standard error.
        non_private: that of the mean over all records, by formula.
        released: how often it released.
        runs: data sets it was measured on.
        factor: the threshold chosen on separate data sets, in deviations of a user mean; of a record for HLM in
            figure 2.
        share: for `tested`, the share of users within the threshold.
        same_draws_mse, same_draws_factor: the least of the finalists' errors on the measured data sets themselves,
            which is the paper's way, and its threshold.
    """

    panel: str
    setting: str
    users: int
    x: int
    method: str
    mse: float | None
    mse_error: float | None
    non_private: float
    released: float
    runs: int
    factor: float | None = None
    share: float | None = None
    same_draws_mse: float | None = None
    same_draws_factor: float | None = None

    @property
    def ratio(self) -> float | None:
        """Times the non-private error."""
        return None if self.mse is None else self.mse / self.non_private

    @property
    def ratio_error(self) -> float | None:
        return None if self.mse_error is None else self.mse_error / self.non_private


def run_point(point: Point, law: RecordLaw, effort: Effort, *, seed: int) -> list[Row]:
    """All rows of a point; a function of its arguments alone."""

    def data(purpose: Purpose, first: int, size: int) -> Iterator[dict[str, DataSet]]:
        return data_sets(point, law, SETTINGS, seed=seed, purpose=purpose, first=first, size=size)

    span = typical_span(sets[SETTINGS[0].name] for sets in data("tuning", 0, effort.tuning[0]))
    tasks = [
        Task(point=point, law=law, setting=setting, span=span, thresholds=effort.thresholds)
        for setting in SETTINGS
    ]
    tuned = tune(_methods(tasks, seed, "tuning"), effort.tuning, partial(data, "tuning"))
    finalists = {(method.task.setting.name, name): choices for (method, name), choices in tuned.items()}
    measured = [
        _Measured(method, name, finalists, variance=plain_variance(point, law))
        for method in _methods(tasks, seed, "evaluation")
        for name in method.names
    ]
    plain: dict[str, list[float]] = defaultdict(list)
    for batch in range(effort.most_batches):
        going = [one for one in measured if not one.done]
        if batch >= effort.batches and not going and _precise(plain, effort.precision):
            break
        for sets in data("evaluation", batch * effort.batch, effort.batch):
            for setting, data_set in sets.items():
                plain[setting].append(data_set.plain_error)
            for method in dict.fromkeys(one.method for one in going):
                _judge(method, [one for one in going if one.method is method], sets)
        if batch + 1 >= effort.batches:
            for one in going:
                one.done = one.settled(plain, effort.precision)
    return list(_rows(point, measured, plain))


def _methods(tasks: list[Task], seed: int, purpose: Purpose) -> list[Method]:
    """One of each kind in every setting, with noise of its own."""
    return [
        kind(task, seed_for(seed, task.point.key, task.setting.name, purpose, *kind.names))
        for task in tasks
        for kind in methods_of(task.point)
    ]


class _Measured:
    """What has been measured of a method under one of its names."""

    def __init__(
        self,
        method: Method,
        name: str,
        finalists: Mapping[tuple[str, str], tuple[Choice, ...]],
        *,
        variance: float,
    ) -> None:
        self.method, self.name, self.variance = method, name, variance
        self.setting = method.task.setting.name
        nothing_to_choose = () if method.tunes else (Choice(method=name),)
        self.choices = finalists.get((self.setting, name), nothing_to_choose)
        self.judged: dict[Choice, list[Judged]] = {choice: [] for choice in self.choices}
        self.done = not self.choices

    def estimate(self, choice: Choice, plain: Mapping[str, list[float]]) -> Estimate:
        judged = self.judged[choice]
        errors, chances = np.array([(one.error, one.chance) for one in judged]).T
        beside: Floats = np.array(plain[self.setting][: len(judged)])
        return mean_squared_error(errors, chances, beside, self.variance)

    def settled(self, plain: Mapping[str, list[float]], precision: float) -> bool:
        """Precise enough; or sure to refuse, since that is decided by public numbers."""
        judged = self.judged[self.choices[0]]
        if not any(one.chance > 0.0 for one in judged):
            return True
        return self.estimate(self.choices[0], plain).relative <= precision

    def row(self, point: Point, plain: Mapping[str, list[float]]) -> Row:
        nothing = _nothing(point, self.setting, self.name, self.variance)
        judged = self.judged[self.choices[0]] if self.choices else []
        if not judged:
            return nothing
        best = self.choices[0]
        found = {choice: self.estimate(choice, plain) for choice in self.choices}
        least = min(self.choices, key=lambda choice: found[choice].value)
        row = replace(nothing, released=float(np.mean([one.chance for one in judged])), runs=len(judged))
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


def _nothing(point: Point, setting: str, method: str, variance: float) -> Row:
    """A method that has not released anything."""
    return Row(
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
    """Whether the plain mean's own error is known well enough, too; nothing is averaged out of it."""
    return all(plain_estimate(errors).relative <= precision for errors in plain.values())


def _judge(method: Method, measured: list[_Measured], sets: Mapping[str, DataSet]) -> None:
    data = sets[method.task.setting.name]
    by_choice = {choice: one for one in measured for choice in one.choices}
    for factor in dict.fromkeys(choice.factor for choice in by_choice):
        for choice, judged in method.judge(factor, data):
            if choice in by_choice:
                by_choice[choice].judged[choice].append(judged)


def _rows(point: Point, measured: list[_Measured], plain: Mapping[str, list[float]]) -> Iterator[Row]:
    for setting in plain:
        of_setting = [one for one in measured if one.setting == setting]
        found = plain_estimate(plain[setting])
        yield replace(
            _nothing(point, setting, NON_PRIVATE, of_setting[0].variance),
            mse=found.value,
            mse_error=found.error,
            released=1.0,
            runs=len(plain[setting]),
        )
        for one in of_setting:
            yield one.row(point, plain)
