"""Images as they lie with clients: 1,000 clients with 60 images each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent.parent / "data" / "federated"
SIDE = 14
PIXELS = SIDE * SIDE
CLASSES = 10
CLIENTS = 1_000
USUAL_SCALES = {"MNIST": (0.1307, 0.3081), "Fashion-MNIST": (0.2860, 0.3530)}
"""Mean and standard deviation of all pixels, as these data are usually scaled; public."""

Floats = np.ndarray[Any, np.dtype[np.float32]]
Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Images:
    """Attributes:
    train, test: a row of pixels per image, scaled as is usual.
    train_labels, test_labels: from 0 to 9.
    """

    train: Floats
    train_labels: Integers
    test: Floats
    test_labels: Integers


@dataclass(frozen=True, kw_only=True)
class ClientImages:
    """Attributes:
    images: shape (clients, images per client, pixels).
    labels: shape (clients, images per client).
    """

    images: Floats
    labels: Integers


@lru_cache(maxsize=2)
def load(name: str) -> Images:
    file = FOLDER / f"{name}.npz"
    if not file.exists():
        raise SystemExit(f"{name} is not there: run python -m federated.fetch first")
    mean, stddev = (np.float32(number) for number in USUAL_SCALES[name])
    with np.load(file) as stored:
        return Images(
            train=(stored["train_images"] - mean) / stddev,
            train_labels=stored["train_labels"].astype(np.int64),
            test=(stored["test_images"] - mean) / stddev,
            test_labels=stored["test_labels"].astype(np.int64),
        )


def split(images: Images, kind: str, generator: np.random.Generator, clients: int = CLIENTS) -> ClientImages:
    """Deal the training images out to clients.

    Args:
        kind: "iid" shuffles them. "two-shard" sorts them by label, cuts them into twice as many shards as there are
            clients and gives each client two (McMahan et al. 2017): most clients then know two digits.
    """
    each = len(images.train) // clients
    used = generator.permutation(len(images.train))[: clients * each]
    if kind == "two-shard":
        used = used[np.argsort(images.train_labels[used], kind="stable")]
        shards = used.reshape(2 * clients, -1)
        used = shards[generator.permutation(2 * clients)].reshape(-1)
    elif kind != "iid":
        raise ValueError(kind)
    chosen = used.reshape(clients, each)
    return ClientImages(images=images.train[chosen], labels=images.train_labels[chosen])
