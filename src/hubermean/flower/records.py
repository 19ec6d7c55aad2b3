"""Arrays of Flower's messages: what one client sent, minus the model that it was sent.

Nothing here imports Flower, and nothing that a client sent is believed: not its shapes, not its types, not its sizes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.federated import Reply

_HEADER_ROOM = 2**14  # bytes of a header of numpy's format, at most
_LARGEST_NUMBER = 16  # bytes


class Model:
    """The arrays of a model: floats, which are averaged, and the rest, which stays as it is.

    >>> model = Model({"weight": np.ones(2, np.float32), "batches": np.array(7)})
    >>> model.moved({"weight": np.array([0.5, 0.0])})["weight"]
    array([1.5, 1. ], dtype=float32)
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.arrays = dict(arrays)
        self.floats = {name: array for name, array in self.arrays.items() if array.dtype.kind == "f"}

    def moved(self, by: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the arrays after an average update, in their own types."""
        moved = dict(self.arrays)
        for name, array in self.floats.items():
            with np.errstate(over="ignore"):  # of float16, by released numbers
                moved[name] = (array.astype(np.float64) + by[name]).astype(array.dtype)
        return moved


class ClientUpdate(Mapping[str, NDArray[np.float64]]):
    """The update of a client, array by array as it is read; it raises where a reply cannot be used."""

    def __init__(self, record: Any, model: Model) -> None:
        if set(record) != set(model.arrays):
            raise ValueError("other arrays than those of the model")
        self._record = record
        self._model = model

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        sent = self._model.floats[name]
        update: NDArray[np.float64] = _read(self._record[name], sent.shape).astype(np.float64) - sent
        return update

    def __iter__(self) -> Iterator[str]:
        return iter(self._model.floats)

    def __len__(self) -> int:
        return len(self._model.floats)


def read_replies(messages: Iterable[Any], model: Model, key: str, asked: Mapping[int, int]) -> list[Reply]:
    """Return one reply per message of a client that was asked; None as its update where it cannot be used.

    Args:
        messages: what Flower received.
        model: what the clients were sent.
        key: name of the record with the arrays.
        asked: clients that were asked, with the round they were asked in.
    """
    replies = []
    for message in messages:
        try:
            client = message.metadata.src_node_id
            if client not in asked:
                continue
            replies.append(
                Reply(
                    client=client, update=_update(message, model, key), round=_round(message, asked[client])
                )
            )
        except Exception:  # noqa: BLE001 - what cannot be read is nobody's reply
            continue
    return replies


def _update(message: Any, model: Model, key: str) -> ClientUpdate | None:
    try:
        if message.has_error():
            return None
        records = message.content.array_records
        record = (
            records[key] if key in records else next(iter(records.values())) if len(records) == 1 else None
        )
        return ClientUpdate(record, model)
    except Exception:  # noqa: BLE001 - whatever a reply raises, it is not usable
        return None


def _round(message: Any, expected: int) -> int:
    group = message.metadata.group_id
    return int(group) if group else expected


def _read(array: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a serialized array if it has this shape; its header is checked before anything is allocated."""
    size = int(np.prod(shape, dtype=np.int64))
    if array.stype != "numpy.ndarray" or len(array.data) > size * _LARGEST_NUMBER + _HEADER_ROOM:
        raise ValueError("not an array of this shape")
    stream = io.BytesIO(array.data)
    version = np.lib.format.read_magic(stream)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    found, _, dtype = read_header(stream)
    if found != shape or dtype.kind not in "fiu":
        raise ValueError("not an array of this shape")
    stream.seek(0)
    read: NDArray[Any] = np.load(stream, allow_pickle=False)
    return read
