"""A grid of Flower whose nodes are functions in this process; real messages, records and arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 0  # set by the ServerApp otherwise

Client = Callable[[Message], Message | None]


class MemoryGrid(Grid):
    """Node number i runs clients[i]; one that returns None does not answer."""

    def __init__(self, clients: dict[int, Client]) -> None:
        self.clients = clients
        self.asked: list[list[int]] = []
        self.sent: list[Message] = []

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.clients)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        asked = list(messages)
        self.sent += asked
        self.asked.append([message.metadata.dst_node_id for message in asked])
        return list(self._replies(asked))

    def _replies(self, asked: list[Message]) -> Iterator[Message]:
        for message in asked:
            found = self.clients[message.metadata.dst_node_id](message)
            if isinstance(found, list):
                yield from found
            elif found is not None:
                yield found


def reply(
    message: Message, arrays: Any, *, examples: float = 1, key: str = "arrays", loss: float = 0.5
) -> Message:
    """What a client answers: arrays and the metrics that FedAvg wants."""
    record = (
        arrays
        if isinstance(arrays, ArrayRecord)
        else ArrayRecord({k: Array(np.asarray(a)) for k, a in arrays.items()})
    )
    metrics = MetricRecord({"num-examples": examples, "loss": loss})
    return Message(RecordDict({key: record, "metrics": metrics}), reply_to=message)


def moves(by: float) -> Client:
    """A client that moves every float of the model by the same amount."""

    def client(message: Message) -> Message:
        model = {name: array.numpy() for name, array in message.content["arrays"].items()}
        return reply(
            message, {n: a + np.asarray(by, a.dtype) if a.dtype.kind == "f" else a for n, a in model.items()}
        )

    return client
