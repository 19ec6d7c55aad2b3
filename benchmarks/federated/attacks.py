"""What hostile clients send. They know the honest updates of the round, and act together.

    sign flip             minus the mean of the honest updates (byzfl's SignFlipping)
    inner product         the same ten times as long (Xie et al. 2020)
    a little is enough    the honest mean minus 1.5 standard deviations in every coordinate (Baruch et al. 2019)
    min-max               as far against the honest mean as two honest updates are apart (Shejwalkar & Houmansadr 2021)
    first direction       in every round ten times the opposite of the first round's honest mean
    fixed direction       in every round the same random direction, ten times as long as the honest mean
    label flip            an honest update on images whose label is 9 minus the true one
    NaN                   not a number everywhere
    zero                  the model as it was
    false weights         inner product, said to stand for a million images each

The last three are replies that a rule has to withstand rather than to outweigh. What pushes the same way in every
round uses that rules remember: a center, a threshold, the length of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from federated.images import CLASSES, ClientImages, Floats

STRENGTH = 10.0
"""Of the inner product, in honest means."""
DEVIATIONS = 1.5
CLAIMED = 1_000_000
_DIRECTION_SEED = 7
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


@dataclass(kw_only=True)
class Memory:
    """What hostile clients know of the rounds before."""

    first: Floats | None = None
    """The honest mean of the first round."""


def _first_direction(honest: Floats, memory: Memory) -> Floats:
    if memory.first is None:
        memory.first = honest.mean(axis=0)
    return -STRENGTH * memory.first


def _fixed_direction(honest: Floats, memory: Memory) -> Floats:
    direction = np.random.default_rng(_DIRECTION_SEED).normal(size=honest.shape[1])
    length = STRENGTH * np.linalg.norm(honest.mean(axis=0)) / np.linalg.norm(direction)
    return (length * direction).astype(np.float32)


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
_SENT_AGAIN: dict[str, Callable[[Floats, Memory], Floats]] = {
    "first direction": _first_direction,
    "fixed direction": _fixed_direction,
}

DIRECTED = ("sign flip", "inner product", "a little is enough", "min-max", *_SENT_AGAIN, LABEL_FLIP)
WITHSTOOD = ("NaN", "zero", "false weights")
ATTACKS = (*DIRECTED, *WITHSTOOD)


def poison_labels(clients: ClientImages, hostile: Mask, attack: str) -> ClientImages:
    """Return the clients' images with the labels that hostile clients train on."""
    if attack != LABEL_FLIP:
        return clients
    labels = clients.labels.copy()
    labels[hostile] = CLASSES - 1 - labels[hostile]
    return replace(clients, labels=labels)


def poison_updates(updates: Floats, hostile: Mask, attack: str, memory: Memory) -> None:
    """Write what hostile clients send into their rows; `memory` is that of one run."""
    if not hostile.any():
        return
    if attack in _SENT:
        updates[hostile] = _SENT[attack](updates[~hostile])
    elif attack in _SENT_AGAIN:
        updates[hostile] = _SENT_AGAIN[attack](updates[~hostile], memory)


def claimed_images(
    clients: ClientImages, hostile: Mask, attack: str
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return how many images each client says it has."""
    claimed = np.full(len(clients.labels), float(clients.labels.shape[1]))
    if attack == "false weights":
        claimed[hostile] = CLAIMED
    return claimed
