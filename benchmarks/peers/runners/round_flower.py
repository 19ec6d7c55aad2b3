"""Rounds of Flower's own wrappers, in Flower's environment: models after each round, on the standard output as JSON.

    python round_flower.py CASE.npz

CASE holds `updates` (rounds, clients, size), `claimed` (clients), and a JSON text `case`: strategy, seed, options.
"""

from __future__ import annotations

import json
import logging
import sys

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.supercore.task_identity import TaskIdentity

STRATEGIES = {
    "fixed": DifferentialPrivacyServerSideFixedClipping,
    "adaptive": DifferentialPrivacyServerSideAdaptiveClipping,
}


def reply(model, update, examples, node):
    asked = Message(content=RecordDict(), message_type="train", dst_node_id=node)
    arrays = ArrayRecord({"model": Array(model + update)})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": float(examples)})})
    return Message(content, reply_to=asked)


def main() -> None:
    logging.disable(logging.CRITICAL)
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 0  # set by a ServerApp otherwise
    with np.load(sys.argv[1]) as stored:
        updates, claimed, case = stored["updates"], stored["claimed"], json.loads(str(stored["case"]))
    strategy = STRATEGIES[case["strategy"]](FedAvg(), num_sampled_clients=len(claimed), **case["options"])
    np.random.seed(case["seed"])
    model, models, ended = np.zeros(updates.shape[2]), [], ""
    for number, sent in enumerate(updates, start=1):
        strategy.current_arrays = ArrayRecord({"model": Array(model)})
        replies = [
            reply(model, update, examples, node)
            for node, (update, examples) in enumerate(zip(sent, claimed, strict=True), start=1)
        ]
        try:
            arrays, _ = strategy.aggregate_train(number, replies)
        except ZeroDivisionError as error:
            ended = type(error).__name__
            break
        model = arrays["model"].numpy()
        models.append(model.tolist())
    print(json.dumps({"models": models, "ended": ended}))


if __name__ == "__main__":
    main()
