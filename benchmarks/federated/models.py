"""Two models, trained by all clients at once: an update of 1,000 clients is a few batches of matrix products.

A model is one vector of parameters. A client starts from the server's model, makes one pass over its images by
stochastic gradient descent, and sends the difference.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from federated.images import CLASSES, PIXELS, ClientImages, Floats, Integers

Weights = np.ndarray[Any, np.dtype[np.float64]]


_AT_ONCE = 100
"""Clients that are trained at a time: their models stay in the processor's cache."""


class Model(Protocol):
    size: int

    def start(self, generator: np.random.Generator) -> Weights: ...

    def write_gradients(self, rows: Floats, images: Floats, labels: Integers, into: Floats) -> None:
        """Write the gradients of clients' mean cross-entropies into rows; `rows` holds a model for each client."""
        ...

    def predict(self, weights: Weights, images: Floats) -> Integers: ...


def local_updates(
    model: Model, weights: Weights, clients: ClientImages, *, steps: int, learning_rate: float
) -> Floats:
    """Return what clients send after one pass over their images in so many steps, a row per client."""
    start = weights.astype(np.float32)
    rows = np.repeat(start[None, :], len(clients.labels), axis=0)
    each = clients.labels.shape[1] // steps
    scratch = np.empty_like(rows[:_AT_ONCE])
    for first in range(0, len(rows), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        mine = rows[some]
        gradients = scratch[: len(mine)]
        for step in range(steps):
            batch = slice(step * each, (step + 1) * each)
            model.write_gradients(mine, clients.images[some, batch], clients.labels[some, batch], gradients)
            gradients *= np.float32(learning_rate)
            mine -= gradients
        mine -= start
    return rows


def accuracy(model: Model, weights: Weights, images: Floats, labels: Integers) -> float:
    """Return the share of images that the model knows; a model that is not finite knows none."""
    if not np.isfinite(weights).all():
        return 0.0
    return float((model.predict(weights, images) == labels).mean())


def _errors(logits: Floats, labels: Integers) -> Floats:
    """Return the gradient of each client's mean cross-entropy by its logits, (clients, images, classes)."""
    logits -= logits.max(axis=2, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=2, keepdims=True)
    n_clients, each = labels.shape
    logits[np.arange(n_clients)[:, None], np.arange(each)[None, :], labels] -= 1.0
    logits /= np.float32(each)
    return logits


class Softmax:
    """Multinomial logistic regression."""

    size = (PIXELS + 1) * CLASSES
    _shapes = ((CLASSES, PIXELS), (1, CLASSES))

    def start(self, generator: np.random.Generator) -> Weights:
        return np.zeros(self.size)

    def write_gradients(self, rows: Floats, images: Floats, labels: Integers, into: Floats) -> None:
        matrix, bias = _parts(rows, *self._shapes)
        errors = _errors(images @ matrix.transpose(0, 2, 1) + bias, labels)
        _write_layer(errors, images, *_parts(into, *self._shapes))

    def predict(self, weights: Weights, images: Floats) -> Integers:
        matrix, bias = _parts(weights.astype(np.float32)[None, :], *self._shapes)
        return np.argmax(images @ matrix[0].T + bias[0], axis=1)


class Network:
    """One hidden layer of tanh units."""

    hidden = 32
    size = (PIXELS + 1) * hidden + (hidden + 1) * CLASSES
    _shapes = ((hidden, PIXELS), (1, hidden), (CLASSES, hidden), (1, CLASSES))

    def start(self, generator: np.random.Generator) -> Weights:
        first = generator.normal(0.0, PIXELS**-0.5, (self.hidden, PIXELS))
        second = generator.normal(0.0, self.hidden**-0.5, (CLASSES, self.hidden))
        return np.concatenate([first.ravel(), np.zeros(self.hidden), second.ravel(), np.zeros(CLASSES)])

    def write_gradients(self, rows: Floats, images: Floats, labels: Integers, into: Floats) -> None:
        first, first_bias, second, second_bias = _parts(rows, *self._shapes)
        units = np.tanh(images @ first.transpose(0, 2, 1) + first_bias)
        errors = _errors(units @ second.transpose(0, 2, 1) + second_bias, labels)
        parts = _parts(into, *self._shapes)
        _write_layer((errors @ second) * (1.0 - units * units), images, *parts[:2])
        _write_layer(errors, units, *parts[2:])

    def predict(self, weights: Weights, images: Floats) -> Integers:
        first, first_bias, second, second_bias = _parts(weights.astype(np.float32)[None, :], *self._shapes)
        units = np.tanh(images @ first[0].T + first_bias[0])
        return np.argmax(units @ second[0].T + second_bias[0], axis=1)


def _write_layer(errors: Floats, inputs: Floats, matrix: Floats, bias: Floats) -> None:
    """Write the gradients of a layer, (clients, outputs, inputs) and (clients, 1, outputs)."""
    np.matmul(errors.transpose(0, 2, 1), inputs, out=matrix)
    errors.sum(axis=1, keepdims=True, out=bias)


def _parts(rows: Floats, *shapes: tuple[int, int]) -> list[Floats]:
    """Return views of rows of parameters as stacks of matrices."""
    ends = np.cumsum([height * width for height, width in shapes])
    pieces = np.split(rows, ends[:-1], axis=1)
    return [piece.reshape(len(rows), *shape) for piece, shape in zip(pieces, shapes, strict=True)]


MODELS: dict[str, Model] = {"softmax": Softmax(), "network": Network()}
