"""Where a search for the Huber location may start: at the mean, or at the medians of a few users.

Any start is correct. From the mean, users who all lie within their threshold of it need no search at all: it is their
Huber location, and one look from there confirms it. A few users who lie very far away can move the mean away from all
others; the medians they cannot.
"""

from __future__ import annotations

import numpy as np

from hubermean.location.blocks import Problem
from hubermean.location.rows import BLOCK_ELEMENTS, Floats, block_rows
from hubermean.location.sums import added_up, strip_sum
from hubermean.threads import shared_out

# The sample that medians are taken of: so many users at most, fewer where rows are long, but never very few.
SAMPLE_ROWS, SAMPLE_ELEMENTS, SAMPLE_LEAST = 4096, 2**20, 32


def mean(problem: Problem) -> Floats:
    """The weighted mean of all users, in one pass; not finite where a point is not."""
    with np.errstate(all="ignore"):
        return np.asarray(total(problem) / problem.total_weight)


def total(problem: Problem) -> Floats:
    """The weighted sum of all users, in one pass; not finite where a point is not.

    *Formal guarantees*
    - A term passes at most `additions(problem)` roundings (proofs/huber-location.md, Lemma 2.8).
    """
    n, d = problem.points.shape
    # Points that are too large or not finite are refused by whoever looks at distances from here.
    with np.errstate(all="ignore"):
        return added_up(shared_out(lambda share: _sum(problem.part(share)), n, d))


def additions(problem: Problem) -> int:
    """In a block and over blocks, in any order; one product with a weight, and two for the sums of threads."""
    n, d = problem.points.shape
    rows = max(min(n, block_rows(d)), 1)
    return rows + -(-n // rows) + 3


def _sum(problem: Problem) -> Floats:
    n, d = problem.points.shape
    size = max(min(n, block_rows(d)), 1)
    buffer, added = np.empty((size, d)), np.zeros(d)
    for start in range(0, n, size):
        window = slice(start, min(start + size, n))
        if problem.weights is not None:
            added += strip_sum(problem.weights[window], problem.points.read(window, buffer))
        elif problem.points.are_as_stored(window):
            added += np.add.reduce(problem.points.stored(window), axis=0, dtype=np.float64)
        else:
            added += np.add.reduce(problem.points.read(window, buffer), axis=0)
    return added


def medians(problem: Problem) -> Floats:
    """The weighted median of each column, of a spread-out sample of users."""
    n, d = problem.points.shape
    most = min(SAMPLE_ROWS, max(SAMPLE_LEAST, SAMPLE_ELEMENTS // d))
    if problem.weights is None:
        chosen = np.arange(0, n, -(-n // most))
        masses = np.ones(chosen.size)
    else:
        users = np.flatnonzero(problem.weights)
        chosen = users[:: -(-users.size // most)]
        # A user who outweighs everyone must not be missed by the sample.
        chosen = np.union1d(chosen, [np.argmax(problem.weights)])
        masses = problem.weights[chosen]
    sample = problem.points[chosen]
    width = max(1, BLOCK_ELEMENTS // chosen.size)
    return np.concatenate([_medians(sample[:, left : left + width], masses) for left in range(0, d, width)])


def _medians(sample: Floats, masses: Floats) -> Floats:
    order = np.argsort(sample, axis=0, kind="stable")
    below = np.cumsum(masses[order], axis=0)
    middle = np.argmax(below >= 0.5 * below[-1], axis=0)
    columns = np.arange(sample.shape[1])
    return np.asarray(sample[order[middle, columns], columns])
