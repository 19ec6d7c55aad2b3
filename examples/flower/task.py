"""What the clients learn: a classifier of points around ten centers. No download, no framework, only NumPy."""

from __future__ import annotations

import numpy as np

CLASSES, FEATURES, EXAMPLES = 10, 20, 60
CLIENTS = 100
HOSTILE = 10  # of the clients


def initial_model() -> dict[str, np.ndarray]:
    return {"weight": np.zeros((FEATURES, CLASSES), np.float32), "bias": np.zeros(CLASSES, np.float32)}


def examples_of(client: int, number: int = EXAMPLES) -> tuple[np.ndarray, np.ndarray]:
    """Draw a client's examples; client -1 is the server's own test set, which belongs to nobody."""
    centers = np.random.default_rng(0).normal(0, 1, (CLASSES, FEATURES))
    rng = np.random.default_rng(client + 1_000_000)
    labels = rng.integers(0, CLASSES, number)
    return centers[labels] + rng.normal(0, 1.3, (number, FEATURES)), labels


def train(
    model: dict[str, np.ndarray], client: int, steps: int = 10, rate: float = 0.3
) -> dict[str, np.ndarray]:
    """Return the model after a few steps on a client's examples."""
    points, labels = examples_of(client)
    weight, bias = model["weight"].astype(float), model["bias"].astype(float)
    for _ in range(steps):
        scores = points @ weight + bias
        odds = np.exp(scores - scores.max(1, keepdims=True))
        error = odds / odds.sum(1, keepdims=True) - np.eye(CLASSES)[labels]
        weight -= rate * points.T @ error / len(points)
        bias -= rate * error.mean(0)
    return {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}


def accuracy(model: dict[str, np.ndarray]) -> float:
    points, labels = examples_of(-1, 5_000)
    return float(np.mean((points @ model["weight"] + model["bias"]).argmax(1) == labels))
