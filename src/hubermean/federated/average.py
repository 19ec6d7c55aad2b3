"""`PrivateAverage`: the averages of a run of federated rounds, under one privacy budget."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from hubermean.accounting.arguments import check_integer
from hubermean.data.arrays import FloatArray
from hubermean.errors import BudgetExhausted, InputError, parameter
from hubermean.federated.charging import RunCharge
from hubermean.federated.clipping import ClippedTotals, clip_and_add
from hubermean.federated.cohort import Cohort, select_updates
from hubermean.federated.influence import bound_influence
from hubermean.federated.plan import RoundPlan
from hubermean.federated.saved_run import FileStore, MemoryStore, Progress, RunStore
from hubermean.federated.spent import PrivacySpent
from hubermean.federated.threshold import AdaptiveThreshold
from hubermean.federated.updates import UpdateShape
from hubermean.ledger.ledger import BudgetLedger
from hubermean.noise.source import NoiseSource
from hubermean.noise.system import SystemNoise
from hubermean.types.clients import ClientNeighbors


class PrivateAverage:
    """Average client updates round after round, privately for whole clients, and robustly against poisoned ones.

    Args:
        epsilon, delta: privacy budget of all rounds together, for each client with everything it sends.
        rounds: number of rounds that the budget is for.
        population: number of clients, the public denominator; see `neighbors`.
        sampling: "all" asks every client in every round. "poisson" has `draw_cohort` toss a secret coin for each
            client in each round, which makes the same noise cost far less.
        sampling_rate: with "poisson", the probability of each client to be drawn.
        neighbors: what is hidden. "zero-out" (default): throwing away all of one client's replies; the number of
            clients is public. "add-remove": adding or removing one client; `population` must then be a number that
            was fixed without counting. "replace-user": replacing all of one client's replies by any others; twice
            the noise.
        threshold: the largest distance from the center at which an update counts in full. "adaptive" (default)
            follows a private quantile of the distances and pays for it from the budget; an `AdaptiveThreshold` sets
            its details; a number stays fixed.
        center: what updates are clipped around: "zero" (default), or the "last" released average, which suits
            replies that stay alike from round to round.
        steps: Huber steps per round. One step is clipping. More steps find the center of updates when the threshold
            is below their spread, and share the budget of the round.
        step_size: multiple of each step. A threshold below the spread shortens the average; a larger step makes up
            for it.
        like: the model or an example update. Its shape is public; replies of another shape count as nothing. Not
            needed where updates come as one array with a row per client.
        state_file: file that keeps the run across crashes. A run with the same parameters goes on where it stopped.
        ledger, dataset, by_whom: charge the whole run to a data set of a ledger before the first round.
        noise: noise of each round, for tests; by default the operating system's.

    Raises:
        InputError: a parameter is out of range, or `state_file` holds another run.

    **Formal guarantees** (proofs/federated.md)
    - All averages and thresholds of the run together are (epsilon, delta)-DP for the stated change of one client,
      whatever the clients send and however later updates depend on earlier averages. The budget of the noisy count
      that an adaptive threshold follows is included.
    - Sums are exact integers, noise is exact discrete Gaussian noise of the operating system. A client's influence on
      a step is at most threshold / denominator, whatever it sends.
    - `sampling="poisson"` relies on two things that the library cannot see: nobody outside the server learns who was
      drawn, and `draw_cohort` was called with all clients that could be drawn.
    - Of a round, at most one answer leaves, and none before it is saved, where there is a `state_file`.

    | a reply that is | counts as |
    |---|---|
    | missing, unreadable, of another shape or type, NaN or infinite anywhere | nothing: zero |
    | from a client that replied twice, late, or was not drawn | nothing: zero |
    | far away, up to the largest float | a step of length `threshold` in its direction |
    | said to stand for a million examples | one client; example counts are not read |

    >>> import numpy as np
    >>> updates = [{"weight": np.ones((2, 2)), "bias": np.zeros(2)} for client in range(1000)]
    >>> updates[0] = {"weight": np.full((2, 2), np.nan), "bias": np.zeros(2)}
    >>> average = PrivateAverage(epsilon=1e4, delta=1e-5, rounds=3, population=1000, threshold=2.0, like=updates[1])
    >>> average.aggregate(updates)["weight"].round(2)
    array([[1., 1.],
           [1., 1.]])
    >>> average.influence_bound(hostile=0.1)
    0.2
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        rounds: int,
        population: int,
        sampling: str = "all",
        sampling_rate: float | None = None,
        neighbors: str | ClientNeighbors = ClientNeighbors.ZERO_OUT,
        threshold: str | float | AdaptiveThreshold = "adaptive",
        center: str = "zero",
        steps: int = 1,
        step_size: float = 1.0,
        like: Any = None,
        state_file: str | os.PathLike[str] | None = None,
        ledger: BudgetLedger | str | os.PathLike[str] | None = None,
        dataset: str | None = None,
        by_whom: str | None = None,
        noise: Callable[[int], NoiseSource] | None = None,
    ) -> None:
        self.plan = RoundPlan.checked(
            epsilon=epsilon,
            delta=delta,
            rounds=rounds,
            population=population,
            sampling=sampling,
            sampling_rate=sampling_rate,
            neighbors=neighbors,
            threshold=threshold,
            center=center,
            steps=steps,
            step_size=step_size,
        )
        self._shape = None if like is None else UpdateShape(like)
        self._charge = RunCharge.checked(ledger, dataset, by_whom)
        self._noise = noise or _system_noise
        self._secure = True
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._cohort: Cohort | None = None
        self._source: tuple[int, NoiseSource] | None = None
        self._store: RunStore = MemoryStore() if state_file is None else FileStore(state_file)
        self._progress = self._resume()

    def _resume(self) -> Progress:
        saved = self._store.load()
        if saved is None:
            # Not a secret: a name that no other run has.
            saved = Progress(run_id=os.urandom(16).hex(), plan=self.plan.to_text())
            self._store.begin(saved)
        if saved.plan != self.plan.to_text():
            raise InputError(
                f"{parameter('state_file')} holds a run with other parameters; give the same parameters to go on, or "
                "another file for a new run"
            )
        if self._shape is not None:
            self._check_shape(saved, self._shape)
        return saved

    # --- where the run stands ---------------------------------------------------------------------------------------

    @property
    def rounds_done(self) -> int:
        """Number of finished rounds."""
        return self._progress.rounds

    @property
    def rounds_left(self) -> int:
        """Number of rounds that are paid for and not made."""
        return self.plan.rounds - self._progress.rounds

    @property
    def threshold(self) -> float:
        """The threshold of the next round; it is released with the averages."""
        if self._progress.threshold is not None:
            return self._progress.threshold
        rule = self.plan.threshold
        return float(rule.initial if isinstance(rule, AdaptiveThreshold) else rule)

    @property
    def last(self) -> Any:
        """The average of the last finished round, in the shape of updates; None before the first.

        After a crash it is what the last round released, whether or not the program got to use it.
        """
        if self._progress.answer is None:
            return None
        if self._shape is None:
            raise InputError(f"give {parameter('like')} to restore the last average of a saved run")
        return self._shape.restore(self._progress.answer)

    @property
    def noise_stddev(self) -> float:
        """The standard deviation of the noise in each number of the next average, from its last step; public."""
        plan = self.plan
        return plan.noise_multiplier * self.threshold * plan.step_size / plan.denominator

    def privacy_spent(self) -> PrivacySpent:
        """Return what the run has cost: all of its budget from the first round on, whether or not it goes on."""
        plan, begun = (
            self.plan,
            self._progress.rounds > 0 or self._progress.charged or self._cohort is not None,
        )
        return PrivacySpent(
            epsilon=plan.epsilon if begun else 0.0,
            delta=plan.delta if begun else 0.0,
            rounds_done=self._progress.rounds,
            rounds=plan.rounds,
            neighbors=plan.neighbors,
            noise_multiplier=plan.noise_multiplier,
            secure=self._secure,
        )

    def influence_bound(self, hostile: float) -> float:
        """Return how far a share of hostile clients can move the next average, whatever they send.

        Args:
            hostile: share of the population, from 0 to 1.

        Returns:
            The largest Euclidean distance between the average with and without their replies, for the same replies
            of the others and the same noise. With Poisson sampling it holds except with probability 1e-9 over the
            cohort. What hostile clients do to later rounds, through the model, is not part of it.
        """
        return bound_influence(self.plan, self.threshold, hostile)

    def __repr__(self) -> str:
        plan = self.plan
        return (
            f"PrivateAverage(epsilon={plan.epsilon:g}, delta={plan.delta:g}, neighbors={plan.neighbors.value!r}, "
            f"{self.rounds_done} of {plan.rounds} rounds done)"
        )

    # --- a round ----------------------------------------------------------------------------------------------------

    def draw_cohort(self, clients: Iterable[Hashable]) -> list[Any]:
        """Return the clients to ask in the next round, by secret coins of the operating system.

        Args:
            clients: all clients that could be asked, whoever they are; not a choice made from their data.

        Calling it again in the same round tosses no coin twice. With `sampling="all"` everybody is drawn.
        """
        with self._lock:
            self._check_process()
            self._next_round()
            if not self.plan.sampled:
                return list(dict.fromkeys(clients))
            self._begin()
            if self._cohort is None:
                self._cohort = Cohort(self.plan.sampling_rate, self._round_noise())
            return self._cohort.draw(clients)

    def aggregate(self, updates: Any, *, like: Any = None, round: int | None = None) -> Any:
        """Return the private average of one round, in the shape of an update.

        Args:
            updates: one update per client: a list of updates, a dictionary of updates by client, a list of `Reply`,
                or an array with a row per client. An update is an array, a list of arrays or a dictionary of arrays,
                of NumPy, PyTorch, JAX or whatever converts to NumPy.
            like: the shape of updates, if it was not given before.
            round: number of the round, from 1. If that round was the last one finished, its average is returned again
                and nothing is computed: so a program that stopped in a round can repeat it.

        Raises:
            BudgetExhausted: all rounds were made, or the ledger has too little left.
            InputError: the shape is unknown, or a cohort was to be drawn first. Nothing was released.
        """
        with self._lock:
            self._check_process()
            if round is not None and check_integer("round", round, least=1) == self._progress.rounds:
                self._settle_shape(updates, like)
                return self.last
            number = self._next_round()
            if round is not None and round != number:
                raise InputError(
                    f"{parameter('round', round)} cannot be made: {self._progress.rounds} of {self.plan.rounds} rounds "
                    "are done, and each has one answer"
                )
            if self.plan.sampled and self._cohort is None:
                raise InputError(
                    f"call draw_cohort before aggregate: with {parameter('sampling', 'poisson')} only clients that "
                    "were drawn by it may be in a round"
                )
            shape = self._settle_shape(updates, like)
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # a warning about one reply would tell of it
                selected = self._select(updates, number, shape)
                self._begin()
                answer, threshold = self._compute_round(selected, number, shape)
            self._store.finish_round(number, shape=shape.text, threshold=threshold, answer=answer)
            self._progress = replace(
                self._progress, rounds=number, threshold=threshold, answer=answer, shape=shape.text
            )
            self._cohort = None
            return self.last

    def _compute_round(
        self, selected: list[Any] | NDArray[Any], number: int, shape: UpdateShape
    ) -> tuple[FloatArray, float]:
        """Return the average of a round and the threshold of the next one; the only place that sees updates."""
        plan, noise, threshold = self.plan, self._round_noise(), self.threshold
        center = self._progress.answer if plan.center == "last" else None
        units, next_threshold = plan.threshold_units, threshold
        for step in range(plan.steps):
            totals = clip_and_add(
                shape.blocks(selected),
                size=shape.size,
                center=center,
                threshold=threshold,
                threshold_units=units,
                count_units=plan.count_units if step == 0 else (0, 0),
            )
            noisy = totals.sums + np.array(
                noise.discrete_gaussian(plan.sum_stddev, shape.size), dtype=np.int64
            )
            move: FloatArray = noisy.astype(np.float64) * (
                plan.step_size * threshold / units / plan.denominator
            )
            center = move if center is None else center + move
            if step == 0:
                next_threshold = self._follow_quantile(totals, threshold, number, noise)
        if center is None:
            raise AssertionError("a round has at least one step")
        return center, next_threshold

    def _follow_quantile(
        self, totals: ClippedTotals, threshold: float, number: int, noise: NoiseSource
    ) -> float:
        plan, rule = self.plan, self.plan.threshold
        if not isinstance(rule, AdaptiveThreshold):
            return threshold
        noisy = totals.count + noise.discrete_gaussian(plan.count_stddev, 1)[0]
        above = noisy / sum(plan.count_units) / plan.denominator
        return rule.next_threshold(threshold, round=number, above_target=above)

    # --- checks -----------------------------------------------------------------------------------------------------

    def _next_round(self) -> int:
        if self.rounds_left <= 0:
            raise BudgetExhausted(
                f"all {self.plan.rounds} rounds of this run were made; its budget covers no further one. Plan a run "
                f"with more {parameter('rounds')} beforehand",
                dataset=self._charge.dataset if self._charge else "",
                epsilon=0.0,
                delta=0.0,
            )
        return self._progress.rounds + 1

    def _begin(self) -> None:
        """Charge the whole run, once, before anything private is computed."""
        if self._charge is None or self._progress.charged:
            return
        self._charge.charge(self.plan, self._progress.run_id)
        self._store.note_charge()
        self._progress = replace(self._progress, charged=True)

    def _select(self, updates: Any, number: int, shape: UpdateShape) -> list[Any] | NDArray[Any]:
        selected = select_updates(updates, round=number, cohort=self._cohort)
        if isinstance(selected, np.ndarray):
            row_shape = shape.row_shape
            if selected.shape[1:] != row_shape or selected.dtype.kind not in "fiu":
                raise InputError(
                    f"{parameter('updates')} has rows of shape {selected.shape[1:]} and type {selected.dtype}, not "
                    f"numbers of the shape {row_shape or 'of'} {parameter('like')}"
                )
        return selected

    def _settle_shape(self, updates: Any, like: Any) -> UpdateShape:
        """Return the public shape of updates, from what the caller declared."""
        shape = self._shape if like is None else UpdateShape(like)
        if (
            shape is None
            and isinstance(updates, np.ndarray)
            and updates.ndim > 1
            and updates.dtype.kind == "f"
        ):
            shape = UpdateShape(np.empty(updates.shape[1:], updates.dtype))
        if shape is None:
            raise InputError(
                f"give {parameter('like')}: the model, or any update, for its shape. It is public, and reading it off "
                "the replies would let one client decide it"
            )
        self._check_shape(self._progress, shape)
        self._shape = shape
        return shape

    def _check_shape(self, progress: Progress, shape: UpdateShape) -> None:
        known = progress.shape
        if known is None and self._shape is not None:
            known = self._shape.text
        if known is not None and shape.text != known:
            raise InputError(f"{parameter('like')} has another shape than the updates of this run so far")

    def _round_noise(self) -> NoiseSource:
        """The noise of the next round: one source for its coins and its sums."""
        number = self._progress.rounds + 1
        if self._source is None or self._source[0] != number:
            self._source = number, self._noise(number)
            self._secure = self._secure and self._source[1].secure
        return self._source[1]

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise InputError(
                "this run belongs to the process that made it: in another one it could answer a round twice. Give it "
                f"a {parameter('state_file')}, and open the run there anew"
            )

    def __reduce__(self) -> NoReturn:
        raise InputError(
            f"a run cannot be copied or pickled: both could answer a round. Use {parameter('state_file')} to save it"
        )

    def __copy__(self) -> Self:
        return self.__reduce__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__reduce__()


def _system_noise(round: int) -> NoiseSource:
    return SystemNoise()
