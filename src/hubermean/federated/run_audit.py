"""Audit a federated run: measure how far one client moves what is released, and compare it with what is accounted for.

Nothing is taken from the plan but the claim: how far a client moves each released number, and how far a unit of noise
does, are differences between real runs whose noise is scripted. A run on a neighbor is brought to the same released
numbers round by round, by scripting its noise, so that later rounds are compared after equal histories, as the
likelihoods of a composition are. All clients are synthetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.accounting.rounds import run_delta
from hubermean.data.arrays import FloatArray, IntArray
from hubermean.errors import InputError, parameter
from hubermean.federated.average import PrivateAverage
from hubermean.federated.plan import RoundPlan
from hubermean.types.clients import ClientNeighbors

History = list[tuple[FloatArray, float]]
"""Released so far: an average and the threshold after it, for each round."""
Clients = Callable[[History], dict[int, Any]]
"""What the clients send, given what was released."""
Script = list[list[list[int]]]
"""Noise of each round: a row for the sums, and one for the count where there is one."""

SIZE = 2  # numbers in an update
_ROUNDS = 3
_FAR = 1e12
_TOLERANCE = 1e-6  # of a measured shift: differences of floats


class ScriptedNoise:
    """Noise that was written down, and the same coin for every client."""

    secure = False

    def __init__(self, rows: list[list[int]], coin: bool) -> None:
        self._rows, self._coin = list(rows), coin
        self.stddevs: list[float] = []

    def discrete_gaussian(self, stddev: float, size: int) -> list[int]:
        self.stddevs += [stddev] * size
        return self._rows.pop(0)

    def below(self, limit: int) -> int:
        return 0 if self._coin else limit - 1

    def discrete_laplace(self, scale: float, size: int) -> list[int]:
        raise NotImplementedError

    def choose(self, costs: IntArray, sizes: IntArray, rate: Any) -> int:
        raise NotImplementedError

    def permute_and_flip(self, costs: IntArray, rate: Any) -> int:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Released:
    """What a run released, and the last round of it as numbers that are linear in its noise."""

    numbers: FloatArray
    stddevs: FloatArray
    history: History


@dataclass(frozen=True, kw_only=True)
class ScriptedRun:
    """A run whose parameters and clients are given; its noise is scripted. Every client is drawn in every round."""

    parameters: dict[str, Any]
    clients: Clients

    def replay(self, script: Script) -> Released:
        """Make as many rounds as the script has."""
        sources: list[ScriptedNoise] = []

        def noise(number: int) -> ScriptedNoise:
            sources.append(ScriptedNoise(script[number - 1], coin=True))
            return sources[-1]

        average = PrivateAverage(like=np.zeros(SIZE), noise=noise, **self.parameters)
        history: History = []
        before = average.threshold
        for _ in script:
            updates = self.clients(history)
            before = average.threshold
            average.draw_cohort(updates)
            history = [*history, (np.asarray(average.aggregate(updates)), average.threshold)]
        moved = [math.log(average.threshold / before)] if len(script[-1]) > 1 else []
        return Released(
            numbers=np.append(history[-1][0], moved), stddevs=np.array(sources[-1].stddevs), history=history
        )


def measure_round(
    mine: ScriptedRun,
    other: ScriptedRun,
    past: Script,
    past_other: Script,
    count: int = 0,
    count_other: int = 0,
) -> tuple[FloatArray, FloatArray]:
    """Return how far two runs are apart in each number of a round, and the noise's deviation, in units of the noise.

    Args:
        mine, other: the runs.
        past, past_other: noise of the rounds before, which makes both release the same.
        count, count_other: noise of the count, so that sums are compared after equal thresholds.
    """
    adaptive = not isinstance(mine.parameters["threshold"], float)
    rows = [[0] * SIZE, [count]] if adaptive else [[0] * SIZE]
    rows_other = [[0] * SIZE, [count_other]] if adaptive else rows
    here, there = mine.replay([*past, rows]), other.replay([*past_other, rows_other])
    effects: list[float] = []
    for number, row in enumerate(rows):
        for index in range(len(row)):
            moved = [list(one) for one in rows]
            unit = round(here.stddevs[len(effects)] / 4)
            moved[number][index] += unit
            effects.append(float((mine.replay([*past, moved]).numbers - here.numbers)[len(effects)] / unit))
    with np.errstate(divide="ignore", invalid="ignore"):  # a clamped number shows nothing
        apart = np.where(np.array(effects) == 0.0, 0.0, (here.numbers - there.numbers) / effects)
    return apart, here.stddevs


@dataclass(frozen=True, kw_only=True)
class RunAudit:
    """What an audit of a federated run found.

    Attributes:
        neighbors: the change that was made.
        claimed, measured: shift of a round, in standard deviations of its noise: what the budget allows, and the
            largest that was found.
        epsilon, delta: the guarantee.
        measured_delta: delta at `epsilon` of a run whose every round has the measured shift.
        histories: number of histories of releases after which neighbors were compared.
    """

    neighbors: ClientNeighbors
    claimed: float
    measured: float
    epsilon: float
    delta: float
    measured_delta: float
    histories: int

    @property
    def kept(self) -> bool:
        """Whether no pair of neighbors lost more than was claimed."""
        return self.measured <= self.claimed * (1.0 + _TOLERANCE)

    def __str__(self) -> str:
        """Say it in a sentence."""
        found = "kept" if self.kept else "BROKEN"
        return (
            f"{found}: {self.neighbors.change[0].lower()}{self.neighbors.change[1:]} shifts a round by "
            f"{self.measured:.4g} standard deviations (claimed {self.claimed:.4g}): delta = "
            f"{self.measured_delta:.3g} of {self.delta:g} at epsilon = {self.epsilon:g} over all rounds"
        )


def audit(
    *,
    epsilon: float,
    delta: float,
    rounds: int,
    population: int,
    histories: int = 8,
    neighbors: str | ClientNeighbors = ClientNeighbors.ZERO_OUT,
    threshold: Any = "adaptive",
    **more: Any,
) -> RunAudit:
    """Measure the privacy loss of a federated run on adversarial neighbors that react to what was released.

    Args:
        epsilon, delta, rounds, population, neighbors, threshold: as for `PrivateAverage`.
        histories: scripts of noise that earlier rounds are made with, for each pair.
        more: further parameters of `PrivateAverage`: sampling, sampling_rate, center, step_size.

    Returns:
        The largest shift of a round that was found; `.kept` says whether it is within what is accounted for.

    Raises:
        InputError: a parameter is out of range, or there are several steps per round, of which only the last is seen.

    >>> found = audit(epsilon=4, delta=1e-5, rounds=30, population=1000, histories=2)
    >>> print(found)  # doctest: +ELLIPSIS
    kept: throwing away all of one client's replies shifts a round by 0.1689 standard deviations (claimed 0.1689): ...
    """
    if more.get("steps", 1) != 1:
        raise InputError(
            f"an audit is of {parameter('steps', 1)}: of more, only the last average of a round is seen"
        )
    relation = ClientNeighbors.parse(neighbors)
    given = {
        "epsilon": epsilon,
        "delta": delta,
        "rounds": rounds,
        "population": population,
        "neighbors": relation,
        "threshold": float(threshold) if isinstance(threshold, int) else threshold,
        **more,
    }
    average = PrivateAverage(**given)
    plan = average.plan
    largest = 0.0
    for first, second in _pairs(relation, average.threshold):
        mine, other = (ScriptedRun(parameters=given, clients=clients) for clients in (first, second))
        for number in range(histories):
            largest = max(largest, _largest_shift(mine, other, _draws(number), min(rounds, _ROUNDS)))
    # Replacing a client is accounted for by its shift against none, which is half of what is seen.
    measured = largest / (2.0 if relation.replaces else 1.0)
    return RunAudit(
        neighbors=relation,
        claimed=plan.shift,
        measured=measured,
        epsilon=plan.epsilon,
        delta=plan.delta,
        measured_delta=0.0 if measured == 0.0 else _delta_at(measured, plan),
        histories=histories,
    )


def _largest_shift(mine: ScriptedRun, other: ScriptedRun, draws: NDArray[Any], rounds: int) -> float:
    """The largest shift of a round along one history: of the count, then of the sums given the count."""
    past: Script = []
    past_other: Script = []
    largest = 0.0
    for draw in draws[:rounds]:
        apart, stddevs = measure_round(mine, other, past, past_other)
        noise = [round(one) for one in (draw[: len(stddevs)] * stddevs).tolist()]
        if len(apart) > SIZE:
            count = noise[-1]
            given_count, _ = measure_round(mine, other, past, past_other, count, count + round(apart[-1]))
            apart[:-1] = given_count[:-1]
        largest = max(largest, float(np.linalg.norm(apart / stddevs)))
        noise_other = [one + round(moved) for one, moved in zip(noise, apart.tolist(), strict=True)]
        past, past_other = [*past, _rows(noise)], [*past_other, _rows(noise_other)]
    return largest


def _rows(noise: list[int]) -> list[list[int]]:
    return [noise[:SIZE], noise[SIZE:]] if len(noise) > SIZE else [noise]


def _draws(number: int) -> FloatArray:
    """Standard noise of a history, spread evenly: multiples of square roots modulo 1, as quantiles."""
    roots = np.sqrt([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0, 23.0]).reshape(_ROUNDS, SIZE + 1)
    from scipy.stats import norm

    found: FloatArray = norm.ppf(0.01 + 0.98 * ((number + 1) * roots % 1.0))
    return found


def _pairs(relation: ClientNeighbors, initial: float) -> Iterator[tuple[Clients, Clients]]:
    """Neighbors whose client 0 is far away, at the threshold, or turns around, among clients that react."""

    def others(history: History) -> dict[int, Any]:
        threshold = history[-1][1] if history else initial
        last = history[-1][0] if history else np.zeros(SIZE)
        return {1: np.array([threshold, 0.0]), 2: 3.0 * last, 3: np.full(SIZE, np.nan)}

    def direction(history: History) -> FloatArray:
        last = history[-1][0] if history else np.array([1.0, 0.0])
        return np.array([1.0, 0.0]) if last[1] > 0 else np.array([-0.6, 0.8])

    def far(history: History) -> Any:
        return _FAR * direction(history)

    def near(history: History) -> Any:
        return (1.0 - 1e-9) * (history[-1][1] if history else initial) * direction(history)

    def changed(history: History, sent: Callable[[History], Any]) -> Any:
        if relation is ClientNeighbors.REPLACE_USER:
            return -_FAR * direction(history) if sent is far else far(history)
        return None  # thrown away; to be absent looks the same

    for sent in (far, near):

        def first(history: History, sent: Callable[[History], Any] = sent) -> dict[int, Any]:
            return others(history) | {0: sent(history)}

        def second(history: History, sent: Callable[[History], Any] = sent) -> dict[int, Any]:
            reply = changed(history, sent)
            return others(history) | (
                {} if reply is None and relation is ClientNeighbors.ADD_REMOVE else {0: reply}
            )

        yield first, second


def _delta_at(shift: float, plan: RoundPlan) -> float:
    return run_delta(
        plan.epsilon,
        shift=shift,
        rounds=plan.rounds,
        sampling_rate=plan.sampling_rate,
        replace=plan.neighbors.replaces,
    )
