"""What hostile clients send. They know the honest updates of the round, and act together.

    sign flip             minus the mean of the honest updates (byzfl's SignFlipping)
    inner product         the same ten times as long (Xie et al. 2020)
    a little is enough    the honest mean minus 1.5 standard deviations in every coordinate (Baruch et al. 2019)
    min-max               as far against the honest mean as two honest updates are apart (Shejwalkar & Houmansadr 2021)
    label flip            an honest update on images whose label is 9 minus the true one
    NaN                   not a number everywhere
    zero                  the model as it was
    false weights         inner product, said to stand for a million images each

The last three are replies that a rule has to withstand rather than to outweigh.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from federated.images import CLASSES, ClientImages, Floats

STRENGTH = 10.0
"""Of the inner product, in honest means."""
DEVIATIONS = 1.5
CLAIMED = 1_000_000
LABEL_FLIP = "label flip"
NO_ATTACK = "none"

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def _sign_flip(honest: Floats) -> Floats:
    return -honest.mean(axis=0)


def _inner_product(honest: Floats) -> Floats:
    return -STRENGTH * honest.mean(axis=0)


def _little(honest: Floats) -> Floats:
    return honest.mean(axis=0) - DEVIATIONS * honest.std(axis=0, ddof=1)


def _min_max(honest: Floats) -> Floats:
    """Return mean - gamma * direction, the farthest whose distance to no honest update exceeds theirs to each other.

    The direction is the mean's. In it, |mean - gamma u - x|^2 = |mean - x|^2 - 2 gamma u.(mean - x) + gamma^2 for each
    x, so the largest gamma is a minimum of roots.
    """
    mean = honest.mean(axis=0)
    centered = honest - mean
    squares = np.einsum("ij,ij->i", centered, centered)
    apart = float((squares[:, None] + squares[None, :] - 2.0 * (centered @ centered.T)).max())
    length = float(np.linalg.norm(mean))
    if length == 0.0:
        return mean
    along = centered @ (mean / length)  # u.(x - mean)
    # gamma^2 + 2 gamma along + squares = apart
    roots = -along + np.sqrt(np.maximum(along * along + apart - squares, 0.0))
    return mean - np.float32(roots.min() / length) * mean


def _not_a_number(honest: Floats) -> Floats:
    return np.full(honest.shape[1], np.nan, np.float32)


def _zero(honest: Floats) -> Floats:
    return np.zeros(honest.shape[1], np.float32)


_SENT: dict[str, Callable[[Floats], Floats]] = {
    "sign flip": _sign_flip,
    "inner product": _inner_product,
    "a little is enough": _little,
    "min-max": _min_max,
    "NaN": _not_a_number,
    "zero": _zero,
    "false weights": _inner_product,
}

DIRECTED = ("sign flip", "inner product", "a little is enough", "min-max", LABEL_FLIP)
WITHSTOOD = ("NaN", "zero", "false weights")
ATTACKS = (*DIRECTED, *WITHSTOOD)


def poison_labels(clients: ClientImages, hostile: Mask, attack: str) -> ClientImages:
    """Return the clients' images with the labels that hostile clients train on."""
    if attack != LABEL_FLIP:
        return clients
    labels = clients.labels.copy()
    labels[hostile] = CLASSES - 1 - labels[hostile]
    return replace(clients, labels=labels)


def poison_updates(updates: Floats, hostile: Mask, attack: str) -> None:
    """Write what hostile clients send into their rows."""
    if attack in _SENT and hostile.any():
        updates[hostile] = _SENT[attack](updates[~hostile])


def claimed_images(
    clients: ClientImages, hostile: Mask, attack: str
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return how many images each client says it has."""
    claimed = np.full(len(clients.labels), float(clients.labels.shape[1]))
    if attack == "false weights":
        claimed[hostile] = CLAIMED
    return claimed
