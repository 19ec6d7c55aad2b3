"""The clients. Nothing in them is about privacy; ten of a hundred are hostile."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from task import EXAMPLES, HOSTILE, train

app = ClientApp()


@app.train()
def on_train(message: Message, context: Context) -> Message:
    model = {name: array.numpy() for name, array in message.content["arrays"].items()}
    client = int(context.node_config["partition-id"])
    trained, examples = train(model, client), EXAMPLES
    if client < HOSTILE:
        attack = client % 3
        if attack == 0:  # the opposite, a thousandfold
            trained = {name: model[name] - 1000 * (array - model[name]) for name, array in trained.items()}
        elif attack == 1:
            trained = {name: np.full_like(array, np.nan) for name, array in trained.items()}
        examples = 10**6  # claimed
    arrays = ArrayRecord({name: Array(array) for name, array in trained.items()})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": examples})})
    return Message(content, reply_to=message)
