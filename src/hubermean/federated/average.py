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
from hubermean.federated.cohort import Cohort, check_names, select_updates
from hubermean.federated.influence import bound_influence
from hubermean.federated.plan import RoundPlan
from hubermean.federated.saved_run import FileStore, MemoryStore, Progress, RunStore
from hubermean.federated.server_step import ServerStep
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
        threshold: the largest distance from the center at which an update counts in full. "adaptive" (default) is a
            quarter of the median distance, which it follows privately and pays for from the budget; an
            `AdaptiveThreshold` sets its details; a number stays fixed.
        center: what updates are clipped around: "zero" (default), or the "last" released average, which suits
            replies that stay alike from round to round.
        steps: Huber steps per round. One step is clipping. More steps find the center of updates when the threshold
            is below their spread, and share the budget of the round.
        step_size: what averages are multiplied by. "adaptive", the default with an adaptive threshold around zero,
            learns it from the averages: add what `aggregate` returns to the model. Clipped averages are short; this
            makes up for it, and shrinks toward the last round. With a number, or by
            default with a fixed threshold (1), `aggregate` returns the average itself, times that number.
        like: the model, or arrays of its shape that the server made. The shape is public; replies of another shape
            count as nothing. Not needed where updates come as one array with a row per client.
        state_file: file that keeps the run across crashes. A run with the same parameters goes on where it stopped.
            Never put back an older copy of it: rounds that were answered since would be answered again. A copy that
            is behind the `ledger` is refused; without a ledger it is not recognised.
        ledger, dataset, by_whom: charge the whole run to a data set of a ledger before the first round. With a
            `state_file`, each answered round is noted there, at no cost.
        noise: noise of each round, for tests; by default the operating system's.

    Raises:
        InputError: a parameter is out of range, or `state_file` holds another run.

    **Formal guarantees** (proofs/federated.md)
    - All averages and thresholds of the run together are (epsilon, delta)-DP for the stated change of one client,
      whatever the clients send and however later updates depend on earlier averages. The budget of the noisy count
      that an adaptive threshold follows is included.
    - Sums are exact integers, noise is exact discrete Gaussian noise of the operating system. A client's influence on
      an average is at most threshold / denominator per step, whatever it sends. The adaptive step is a function of
      averages and thresholds that were released.
    - `sampling="poisson"` relies on two things that the library cannot see: nobody outside the server learns who was
      drawn, and `draw_cohort` was called with all clients that could be drawn.
    - Of a round, at most one answer leaves, and none before it is saved, where there is a `state_file`.

    | a reply that is | counts as |
    |---|---|
    | missing, unreadable, of another shape or type, NaN or infinite anywhere | nothing: zero |
    | from a client that replied twice, late, or was not drawn, where replies have names | nothing: zero |
    | far away, up to the largest float | a step of length `threshold` in its direction |
    | said to stand for a million examples | one client; example counts are not read |

    >>> import numpy as np
    >>> model = {"weight": np.zeros((2, 2)), "bias": np.zeros(2)}
    >>> updates = [{"weight": np.ones((2, 2)), "bias": np.zeros(2)} for client in range(1000)]
    >>> updates[0] = {"weight": np.full((2, 2), np.nan), "bias": np.zeros(2)}
    >>> average = PrivateAverage(epsilon=1e4, delta=1e-5, rounds=3, population=1000, threshold=2.0, like=model)
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
        step_size: float | str | None = None,
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
        self._cohort: tuple[int, Cohort] | None = None
        self._source: tuple[int, NoiseSource] | None = None
        self._finishing: str | None = None
        self._charged = False
        self._store: RunStore = MemoryStore() if state_file is None else FileStore(state_file)
        self._progress = self._resume()

    def _resume(self) -> Progress:
        saved = self._store.load()
        if saved is None:
            # Not a secret: a name that no other run has.
            saved = Progress(run_id=os.urandom(16).hex(), plan=self.plan.to_text())
            self._store.begin(saved)
            return saved
        if saved.plan != self.plan.to_text():
            raise InputError(
                f"{parameter('state_file')} holds a run with other parameters; give the same parameters to go on, or "
                "another file for a new run"
            )
        if saved.rounds and (saved.step is None) == (self.plan.step_size == "adaptive"):
            raise InputError(f"the {parameter('state_file')} is damaged: its step is missing; restore it")
        if self._shape is not None:
            self._check_shape(saved, self._shape)
        self._compare_with_ledger(saved)
        self._secure = saved.secure
        return saved

    def _compare_with_ledger(self, saved: Progress) -> None:
        """Refuse a file that ends before a round that was answered, as the ledger says."""
        if self._charge is None:
            return
        standing = self._charge.look_up(saved.run_id)
        if standing.answered > saved.rounds:
            raise InputError(
                f"{parameter('state_file')} is an older copy: it ends at round {saved.rounds}, but the ledger says "
                f"that round {standing.answered} was answered, and it would be answered again. Give the newest copy, "
                "or another file for a new run"
            )
        self._charged = standing.charged
        if standing.charged and standing.answered < saved.rounds:  # stopped between the file and the ledger
            self._charge.note_round(self.plan, saved.run_id, saved.rounds)

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
        """What the last finished round returned, in the shape of updates; None before the first.

        After a crash it is what the last round released, whether or not the program got to use it.
        """
        if self._progress.answer is None:
            return None
        if self._shape is None:
            raise InputError(f"give {parameter('like')} to restore the last average of a saved run")
        return self._shape.restore(self._progress.answer)

    @property
    def noise_stddev(self) -> float:
        """The standard deviation of the noise in each number of the next answer, from its last step; public."""
        return self.plan.noise_multiplier * self._reach / self.plan.denominator

    @property
    def _reach(self) -> float:
        """The length of the next answer per average of length `threshold`; known before the round."""
        step, plan = self._step, self.plan
        if step is None:
            return plan.step_multiple * self.threshold
        return step.factor(round=min(self.rounds_done + 1, plan.rounds), rounds=plan.rounds)

    @property
    def _step(self) -> ServerStep | None:
        """The adaptive step of the next round; None where it is a number."""
        if self.plan.step_size != "adaptive":
            return None
        if self._progress.step is not None:
            return self._progress.step
        return ServerStep(longest=self.plan.length(self.threshold))

    def privacy_spent(self) -> PrivacySpent:
        """Return what the run has cost: all of its budget from the first round on, whether or not it goes on."""
        plan, begun = (
            self.plan,
            self._progress.rounds > 0 or self._charged or self._cohort is not None,
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
        """Return how far a share of hostile clients can move what the next round returns, whatever they send.

        Args:
            hostile: share of the population, from 0 to 1.

        Returns:
            The largest Euclidean distance between the answer with and without their replies, for the same replies
            of the others and the same noise. With Poisson sampling it holds except with probability 1e-9 over the
            cohort. What hostile clients do to later rounds, through the model, is not part of it.
        """
        return bound_influence(self.plan, hostile, reach=self._reach)

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
        self._check_process()  # before the lock, which another thread may have held when the process was forked
        with self._lock:
            self._settle()
            number = self._next_round()
            named = check_names(clients)
            if not self.plan.sampled:
                return named
            self._begin()
            cohort = self._cohort_of(number)
            if cohort is None:
                cohort = Cohort(self.plan.sampling_rate, self._round_noise())
                self._cohort = number, cohort
            return cohort.draw(named)

    def aggregate(self, updates: Any, *, like: Any = None, round: int | None = None) -> Any:
        """Return the private average of one round, times the step, in the shape of an update: add it to the model.

        Args:
            updates: one update per client: a list of updates, a dictionary of updates by client, a list of `Reply`,
                or an array with a row per client. An update is an array, a list of arrays or a dictionary of arrays,
                of NumPy, PyTorch, JAX or whatever converts to NumPy. Pass replies as they are, in a list or a
                dictionary: stacking them into an array fails where one has another shape. They are decoded data, not
                objects that run code of a client.
            like: the shape of updates, if it was not given before.
            round: number of the round, from 1. If that round was the last one finished, its average is returned again
                and nothing is computed: so a program that stopped in a round can repeat it.

        Raises:
            BudgetExhausted: all rounds were made, or the ledger has too little left.
            InputError: the shape is unknown, or a cohort was to be drawn first. Nothing was released.
        """
        self._check_process()  # before the lock, which another thread may have held when the process was forked
        with self._lock:
            self._settle()
            if round is not None and check_integer("round", round, least=1) == self._progress.rounds:
                self._shape = self._settle_shape(updates, like)
                return self.last
            number = self._next_round()
            if round is not None and round != number:
                raise InputError(
                    f"{parameter('round', round)} cannot be made: {self._progress.rounds} of {self.plan.rounds} rounds "
                    "are done, and each has one answer"
                )
            if self.plan.sampled and self._cohort_of(number) is None:
                raise InputError(
                    f"call draw_cohort before aggregate: with {parameter('sampling', 'poisson')} only clients that "
                    "were drawn by it may be in a round"
                )
            shape = self._settle_shape(updates, like)
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # a warning about one reply would tell of it
                selected = self._select(updates, number, shape)
                self._begin()
                average, threshold = self._compute_round(selected, number, shape)
                answer, step = self._move(average, threshold, number)
                del average
            finished = replace(
                self._progress,
                rounds=number,
                token=os.urandom(16).hex(),
                threshold=threshold,
                answer=answer,
                step=step,
                shape=shape.text,
                secure=self._secure,
            )
            self._finishing, self._shape = finished.token, shape
            try:
                self._store.finish_round(finished)
            except InputError as error:
                # A second answer of a round must not be found in the frames of the error.
                del answer, finished, selected
                error.__context__ = None
                raise error.with_traceback(None) from None
            self._adopt(finished)
            return self.last

    def _adopt(self, finished: Progress) -> None:
        """Go on after a round that was saved."""
        if self._charge is not None and self._store.lasts:
            self._charge.note_round(self.plan, finished.run_id, finished.rounds)
        self._progress = finished
        self._finishing = None

    def _settle(self) -> None:
        """Find out whether a round whose end was interrupted was saved, and go on after it if it was."""
        if self._finishing is None:
            return
        saved = self._store.load()
        if saved is not None and saved.token == self._finishing:
            self._adopt(saved)
        self._finishing = None

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
                count_within=plan.length(threshold),
                count_units=plan.count_units if step == 0 else (0, 0),
            )
            noisy = totals.sums + np.array(
                noise.discrete_gaussian(plan.sum_stddev, shape.size), dtype=np.int64
            )
            move: FloatArray = noisy.astype(np.float64) * (
                plan.step_multiple * threshold / units / plan.denominator
            )
            center = move if center is None else center + move
            if step == 0:
                next_threshold = self._follow_quantile(totals, threshold, number, noise)
        if center is None:
            raise AssertionError("a round has at least one step")
        return center, next_threshold

    def _move(
        self, average: FloatArray, next_threshold: float, number: int
    ) -> tuple[FloatArray, ServerStep | None]:
        """Return what a round answers, and the step of the next one, from what was released alone."""
        step, plan = self._step, self.plan
        if step is None:
            return average, None
        return step.move(
            average / self.threshold,
            self._progress.answer,
            round=number,
            rounds=plan.rounds,
            noise_square=plan.noise_square(average.size),
            next_length=plan.length(next_threshold),
        )

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
        if self._charge is None or self._charged:
            return
        self._charge.charge(self.plan, self._progress.run_id)
        self._charged = True

    def _cohort_of(self, number: int) -> Cohort | None:
        """The cohort of a round; that of another one, which an interrupt may leave, is never used."""
        return self._cohort[1] if self._cohort is not None and self._cohort[0] == number else None

    def _select(self, updates: Any, number: int, shape: UpdateShape) -> list[Any] | NDArray[Any]:
        selected = select_updates(updates, round=number, cohort=self._cohort_of(number))
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
                f"give {parameter('like')}: the model, for the shape of updates. It is public, and reading it off the "
                "replies would let one client decide it"
            )
        self._check_shape(self._progress, shape)
        return shape

    def _check_shape(self, progress: Progress, shape: UpdateShape) -> None:
        if (
            progress.answer is not None
            and progress.answer.size != shape.size
            and progress.shape == shape.text
        ):
            raise InputError(f"the {parameter('state_file')} is damaged: its last average has another length")
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
