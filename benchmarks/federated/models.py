"""Two models, trained by all clients at once: an update of 1,000 clients is a few batches of matrix products.

A model is one vector of parameters. A client starts from the server's model, makes one pass over its images by
stochastic gradient descent, and sends the difference.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from federated.images import CLASSES, PIXELS, ClientImages, Floats, Integers

Weights = np.ndarray[Any, np.dtype[np.float64]]


class Model(Protocol):
    size: int

    def start(self, generator: np.random.Generator) -> Weights: ...

    def gradients(self, rows: Floats, images: Floats, labels: Integers) -> Floats:
        """Return the gradients of mean cross-entropies, a row per client; `rows` is a model each, or one for all."""
        ...

    def predict(self, weights: Weights, images: Floats) -> Integers: ...


def local_updates(
    model: Model, weights: Weights, clients: ClientImages, *, steps: int, learning_rate: float
) -> Floats:
    """Return what clients send after one pass over their images in so many steps, a row per client."""
    start = weights.astype(np.float32)
    rows = np.repeat(start[None, :], len(clients.labels), axis=0) if steps > 1 else start[None, :]
    each = clients.labels.shape[1] // steps
    for step in range(steps):
        batch = slice(step * each, (step + 1) * each)
        gradients = model.gradients(rows, clients.images[:, batch], clients.labels[:, batch])
        gradients *= np.float32(learning_rate)
        rows = rows - gradients
    return rows - start


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

    def start(self, generator: np.random.Generator) -> Weights:
        return np.zeros(self.size)

    def gradients(self, rows: Floats, images: Floats, labels: Integers) -> Floats:
        matrix, bias = _parts(rows, (PIXELS, CLASSES), (1, CLASSES))
        errors = _errors(images @ matrix + bias, labels)
        found = np.empty((len(images), self.size), np.float32)
        products, sums = _parts(found, (PIXELS, CLASSES), (1, CLASSES))
        np.matmul(images.transpose(0, 2, 1), errors, out=products)
        errors.sum(axis=1, keepdims=True, out=sums)
        return found

    def predict(self, weights: Weights, images: Floats) -> Integers:
        matrix, bias = _parts(weights.astype(np.float32)[None, :], (PIXELS, CLASSES), (1, CLASSES))
        return np.argmax(images @ matrix[0] + bias[0], axis=1)


class Network:
    """One hidden layer of tanh units."""

    hidden = 32
    size = (PIXELS + 1) * hidden + (hidden + 1) * CLASSES
    _shapes = ((PIXELS, hidden), (1, hidden), (hidden, CLASSES), (1, CLASSES))

    def start(self, generator: np.random.Generator) -> Weights:
        first = generator.normal(0.0, PIXELS**-0.5, (PIXELS, self.hidden))
        second = generator.normal(0.0, self.hidden**-0.5, (self.hidden, CLASSES))
        return np.concatenate([first.ravel(), np.zeros(self.hidden), second.ravel(), np.zeros(CLASSES)])

    def gradients(self, rows: Floats, images: Floats, labels: Integers) -> Floats:
        first, first_bias, second, second_bias = _parts(rows, *self._shapes)
        units = np.tanh(images @ first + first_bias)
        errors = _errors(units @ second + second_bias, labels)
        below = (errors @ second.transpose(0, 2, 1)) * (1.0 - units * units)
        found = np.empty((len(images), self.size), np.float32)
        parts = _parts(found, *self._shapes)
        np.matmul(images.transpose(0, 2, 1), below, out=parts[0])
        below.sum(axis=1, keepdims=True, out=parts[1])
        np.matmul(units.transpose(0, 2, 1), errors, out=parts[2])
        errors.sum(axis=1, keepdims=True, out=parts[3])
        return found

    def predict(self, weights: Weights, images: Floats) -> Integers:
        first, first_bias, second, second_bias = _parts(weights.astype(np.float32)[None, :], *self._shapes)
        return np.argmax(np.tanh(images @ first[0] + first_bias[0]) @ second[0] + second_bias[0], axis=1)


def _parts(rows: Floats, *shapes: tuple[int, int]) -> list[Floats]:
    """Return views of rows of parameters as stacks of matrices."""
    ends = np.cumsum([height * width for height, width in shapes])
    pieces = np.split(rows, ends[:-1], axis=1)
    return [piece.reshape(len(rows), *shape) for piece, shape in zip(pieces, shapes, strict=True)]


MODELS: dict[str, Model] = {"softmax": Softmax(), "network": Network()}
