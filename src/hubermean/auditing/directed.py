"""Pairs made for the steps of an adaptive mechanism: in each the score of one search moves as far as it can.

A search for a parameter shows what it gives away only on data on which it has something to decide. One pair is made for
each kind of search: how many records count, how wide the users lie, beyond a tie as well, and where they are. The share
of users that such a search turns on is scanned.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from hubermean.auditing.worlds import Pair, Scene, User
from hubermean.relations import Neighbors

DIRECTED = ("core", "tied", "elsewhere", "many records", "outlier")
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_BEYOND = 1e6  # lengths away: where no interval that holds most users reaches


def directed_pair(number: int, scene: Scene, rng: Generator) -> Pair:
    """The pair of a number: kinds take turns, and shares are scanned."""
    kind = DIRECTED[number % len(DIRECTED)]
    scanned = (number * _GOLDEN) % 1.0
    n, axis = scene.n_users - 1, scene.axis(rng)
    length = scene.lengths[0] * float(rng.choice([1.0, 1.0, 1e-3, 1e3]))
    offsets = length * np.linspace(-1.0, 1.0, n)
    first, second = 0.0, _BEYOND * length
    few = int(rng.choice([1, 2, 3]))
    records = np.full(n, few)
    most = max(scene.caps)
    own = (most, most)
    match kind:
        case "core":  # the rest lies around a core, but for a few: a user leaves the core
            inside = round((0.45 + 0.4 * scanned) * n)
            offsets[:inside] = 0.0
            offsets[round(0.97 * n) :] = 2.0 * second
        case "tied":  # so many tie that no spread is found at first
            offsets[: round((0.853 + 0.05 * scanned) * n)] = 0.0
            offsets[round(0.995 * n) :] = 2.0 * second
        case "elsewhere":  # a user moves to the few who lie far from the others
            offsets[: max(round((0.02 + 0.1 * scanned) * n), 1)] = second
        case "many records":  # a user of few records has more than anybody
            records = np.where(np.arange(n) < scanned * n, few, few + 1)
            first, second, own = 0.0, 0.0, (1, most)
        case _:  # from one end of everything to the other, or into nothing
            first, second = -second, float(rng.choice([second, math.nan]))
    means = scene.place(0.0, axis) + offsets[:, np.newaxis] * (axis * scene.units)
    users = [
        User(mean=tuple(scene.place(offset, axis).tolist()), records=count)
        for offset, count in zip((first, second), own, strict=True)
    ]
    before: User | None = users[0]
    after: User | None = users[1]
    if scene.neighbors is Neighbors.ADD_REMOVE:
        before = users[int(rng.integers(2))]
        after = None
    elif scene.neighbors is Neighbors.REPLACE_VALUES:
        after = User(mean=users[1].mean, records=own[0])
    if rng.random() < 0.5:  # what one direction shows another may not
        before, after = after, before
    return Pair(shape=kind, means=means, records=records.astype(np.int64), before=before, after=after)
