"""`PrivateFedAvg`: FedAvg for Flower with privacy for whole clients."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from logging import INFO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from hubermean.accounting.arguments import check_positive
from hubermean.errors import InputError, parameter
from hubermean.federated import AdaptiveThreshold, PrivacySpent, PrivateAverage
from hubermean.flower.records import Model, read_replies
from hubermean.flower.saved_model import SavedModel
from hubermean.ledger import BudgetLedger

MetricsFunction = Callable[[list[RecordDict], str], MetricRecord]


class PrivateFedAvg(FedAvg):  # type: ignore[misc]
    """Federated averaging that is differentially private for each client and survives poisoned ones.

    Use it in place of `flwr.serverapp.strategy.FedAvg`. The clients need no change: each trains the arrays it gets and
    sends them back. The strategy subtracts what it sent, clips each client's update, averages with noise, and adds a
    multiple of the average to the global arrays. Integer arrays, such as counters of batch normalization, keep their
    initial value.

    Args:
        epsilon, delta: privacy budget of the whole run, for each client (each SuperNode) with all its replies.
        num_rounds: number of rounds that the budget is for; `start` makes all of them by default, and never more.
        population: number of clients, which sums are divided by. A client that does not reply counts as an update of
            zero.
        sampling, sampling_rate, neighbors, threshold, center, steps: as for `hubermean.federated.PrivateAverage`.
            With "poisson" the strategy tosses the coins itself, over all nodes that are connected when a round begins.
        step_size: as for `PrivateAverage`; by default it is learned from the averages where the threshold is adaptive,
            and 1 where it is not.
        server_learning_rate: multiplies what is added to the global arrays; needed with a fixed threshold alone.
        min_available_nodes: rounds wait until so many nodes are connected; default 2.
        fraction_evaluate: share of the nodes that evaluate the model; by default none, since nothing of it is
            returned, or all with `unsafe_evaluate_metrics_aggr_fn`.
        min_evaluate_nodes, arrayrecord_key, configrecord_key: as in FedAvg.
        weighted_by_key: passed to the unsafe functions, used by nothing else: no client has a weight.
        state_file: file that keeps the run across crashes; the model is kept beside it. Start the same program again,
            and it goes on with the next round.
        ledger, dataset, by_whom: charge the whole run to a data set of a ledger before the first round.
        unsafe_train_metrics_aggr_fn, unsafe_evaluate_metrics_aggr_fn: functions that aggregate metrics of clients, as
            in FedAvg. What they return is not private and not covered by epsilon, and a hostile client can make it
            say anything. By default no metric of a client leaves. Evaluate on data of your own, with `evaluate_fn`.

    **Formal guarantees**
    - All global arrays of the run together are (epsilon, delta)-DP for the stated change of one client
      (proofs/federated.md), if no unsafe function is given and `evaluate_fn` uses no client's data.
    - Nothing in the strategy's own log depends on a reply. Flower itself logs how many and which nodes replied. With
      "poisson" that is the cohort: keep Flower's log as secret as the cohort itself.
    - With "poisson" a round without drawn clients ends at once. Clients can see that in the time between two rounds;
      with a cohort of many clients on average it is too rare to matter.

    >>> strategy = PrivateFedAvg(epsilon=4, delta=1e-5, num_rounds=30, population=1000)  # doctest: +SKIP
    >>> result = strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()))  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        num_rounds: int,
        population: int,
        sampling: str = "all",
        sampling_rate: float | None = None,
        neighbors: str = "zero-out",
        threshold: str | float | AdaptiveThreshold = "adaptive",
        center: str = "zero",
        steps: int = 1,
        step_size: float | str | None = None,
        server_learning_rate: float = 1.0,
        min_available_nodes: int = 2,
        fraction_evaluate: float | None = None,
        min_evaluate_nodes: int = 2,
        weighted_by_key: str = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        state_file: str | os.PathLike[str] | None = None,
        ledger: BudgetLedger | str | os.PathLike[str] | None = None,
        dataset: str | None = None,
        by_whom: str | None = None,
        unsafe_train_metrics_aggr_fn: MetricsFunction | None = None,
        unsafe_evaluate_metrics_aggr_fn: MetricsFunction | None = None,
        noise: Any = None,
    ) -> None:
        if fraction_evaluate is None:
            fraction_evaluate = 0.0 if unsafe_evaluate_metrics_aggr_fn is None else 1.0
        super().__init__(
            fraction_evaluate=fraction_evaluate,
            min_evaluate_nodes=min_evaluate_nodes,
            min_available_nodes=min_available_nodes,
            weighted_by_key=weighted_by_key,
            arrayrecord_key=arrayrecord_key,
            configrecord_key=configrecord_key,
        )
        self.server_learning_rate = check_positive("server_learning_rate", server_learning_rate)
        self.average = PrivateAverage(
            epsilon=epsilon,
            delta=delta,
            rounds=num_rounds,
            population=population,
            sampling=sampling,
            sampling_rate=sampling_rate,
            neighbors=neighbors,
            threshold=threshold,
            center=center,
            steps=steps,
            step_size=step_size,
            state_file=state_file,
            ledger=ledger,
            dataset=dataset,
            by_whom=by_whom,
            noise=noise,
        )
        self.unsafe_train_metrics_aggr_fn = unsafe_train_metrics_aggr_fn
        self.unsafe_evaluate_metrics_aggr_fn = unsafe_evaluate_metrics_aggr_fn
        self._saved = SavedModel(state_file)
        self._skipped = self.average.rounds_done  # rounds that were made before this process
        self._model: Model | None = None
        self._asked: dict[int, int] = {}

    def privacy_spent(self) -> PrivacySpent:
        """Return what the run has cost: all of its budget from the first round on."""
        return self.average.privacy_spent()

    def summary(self) -> None:
        """Log the guarantee; all of it is public."""
        plan = self.average.plan
        log(INFO, "\t├──> Privacy: epsilon=%g, delta=%g for each client", plan.epsilon, plan.delta)
        log(INFO, "\t│\t├── Rounds: %d of %d done", self.average.rounds_done, plan.rounds)
        log(INFO, "\t│\t├── Hidden: %s", plan.neighbors.change.lower())
        log(INFO, "\t│\t├── Population: %d, sampling rate %g", plan.population, plan.sampling_rate)
        log(
            INFO,
            "\t│\t└── Noise multiplier: %.3f, threshold %.3g",
            plan.noise_multiplier,
            self.average.threshold,
        )
        log(INFO, "\t└──> Keys in records: '%s', '%s'", self.arrayrecord_key, self.configrecord_key)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Make the rounds, as `Strategy.start` does; a saved run goes on with its model where it stopped.

        Args:
            grid, timeout, train_config, evaluate_config, evaluate_fn: as in Flower.
            initial_arrays: the initial model. A run that goes on from a `state_file` has its own; one that goes on in
                the same process without a file takes this one.
            num_rounds: the last round to make; by default all rounds that were paid for.

        Raises:
            InputError: `num_rounds` exceeds what the budget is for; nothing was sent.
        """
        planned = self.average.plan.rounds
        last = planned if num_rounds is None else num_rounds
        if last > planned:
            raise InputError(
                f"{parameter('num_rounds', last)} exceeds the {planned} rounds that the budget is for; give "
                "PrivateFedAvg so many rounds"
            )
        self._skipped = skipped = self.average.rounds_done
        arrays = self._restore(initial_arrays)
        shifted = None if evaluate_fn is None else lambda number, model: evaluate_fn(number + skipped, model)
        result = super().start(
            grid=grid,
            initial_arrays=arrays,
            num_rounds=max(last - skipped, 0),
            timeout=timeout,
            train_config=train_config,
            evaluate_config=evaluate_config,
            evaluate_fn=shifted,
        )
        if skipped:
            for found in (
                "train_metrics_clientapp",
                "evaluate_metrics_clientapp",
                "evaluate_metrics_serverapp",
            ):
                setattr(
                    result, found, {number + skipped: one for number, one in getattr(result, found).items()}
                )
        if not result.arrays:
            result.arrays = arrays
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask all nodes, or a secret Poisson sample of them, to train."""
        number = server_round + self._skipped
        self._model = Model({name: array.numpy() for name, array in arrays.items()})
        self._saved.save(self.average.rounds_done, self._model.arrays)
        nodes = _wait_for_nodes(grid, self.min_available_nodes)
        drawn = self.average.draw_cohort(nodes)
        self._asked = dict.fromkeys(drawn, number)
        config["server-round"] = number
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return [
            Message(content=record, message_type=MessageType.TRAIN, dst_node_id=node, group_id=str(number))
            for node in drawn
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next global arrays; no reply can raise, weigh more than one client, or end the round."""
        if self._model is None:
            raise InputError(
                "call configure_train before aggregate_train: an update is relative to what was sent"
            )
        messages = list(replies)
        moved = self.average.aggregate(
            read_replies(messages, self._model, self.arrayrecord_key, self._asked),
            like=self._model.floats,
            round=server_round + self._skipped,
        )
        return self._move(self._model, moved), self._unsafe(self.unsafe_train_metrics_aggr_fn, messages)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return nothing, or what the unsafe function makes of the metrics of clients."""
        return self._unsafe(self.unsafe_evaluate_metrics_aggr_fn, replies)

    def _unsafe(self, function: MetricsFunction | None, messages: Iterable[Message]) -> MetricRecord | None:
        if function is None:
            return None
        contents = [message.content for message in messages if not message.has_error()]
        return function(contents, self.weighted_by_key) if contents else None

    def _move(self, model: Model, average: dict[str, Any]) -> ArrayRecord:
        by = {name: self.server_learning_rate * array.astype(np.float64) for name, array in average.items()}
        return ArrayRecord({name: Array(np.asarray(array)) for name, array in model.moved(by).items()})

    def _restore(self, initial_arrays: ArrayRecord) -> ArrayRecord:
        """Return the model after the last finished round of a saved run."""
        done, saved = self.average.rounds_done, self._saved.load()
        if done == 0 or not self._saved.is_kept:  # without a file, the caller has the model
            return initial_arrays
        if saved is None or saved[0] not in (done, done - 1):
            raise InputError(
                f"the model of round {done} was not found beside {parameter('state_file')}; restore the file that "
                "ends in .model.npz"
            )
        model = Model(saved[1])
        if saved[0] == done:
            return ArrayRecord({name: Array(np.asarray(array)) for name, array in model.arrays.items()})
        last = self.average.aggregate([], like=model.floats, round=done)  # again, as it was released
        return self._move(model, last)


def _wait_for_nodes(grid: Grid, least: int) -> list[int]:
    while len(nodes := list(grid.get_node_ids())) < least:
        log(INFO, "Waiting for at least %d nodes", least)
        time.sleep(1)
    return nodes
