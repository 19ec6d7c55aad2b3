"""Public intervals of many lengths, and the heaviest of each length.

The intervals of a length start at the multiples of a power of two, between 32 and 64 of them to a length: so there is
one that holds any given users who lie within 31/32 of the length. Only intervals that hold an eighth of all weight are
told from each other; such a one holds a mark of the line (`Line.survey`), and few do.
Proof: proofs/adaptive.md, Lemma 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubermean.tuning.line import IntArray, Line

Floats = NDArray[np.float64]

LEAST_PART = 8
"""Intervals that hold no more than one in so many parts of the weight are not told apart."""

_STEP_BITS = 5  # 2^5 to 2^6 steps to a length
_TWICE = 9  # lengths further on, by 2^(1/8) each, one is more than twice as long


def steps_of(lengths: Floats) -> Floats:
    """From one start to the next: the largest power of two that is at most 1/32 of the length."""
    _, exponents = np.frexp(lengths)
    steps: Floats = np.ldexp(1.0, exponents - 1 - _STEP_BITS)
    return steps


def last_start(points: Floats, steps: Floats) -> Floats:
    """The last start that is at most the point, exactly: of the floats that are multiples of the step."""
    with np.errstate(over="ignore"):
        starts = np.floor(points / steps) * steps
    starts = np.where(starts > points, starts - steps, starts)  # a quotient too small for a float
    # All floats so large are multiples of the step.
    return np.where(np.abs(points) >= steps * 2.0**53, points, starts)


@np.errstate(over="ignore", under="ignore")  # intervals may end beyond all numbers, or next to 0
def heaviest(line: Line, lengths: Floats, *, least: int = 0, most: int | None = None) -> IntArray:
    """For each length the largest weight in one of its intervals, an eighth of all, or `least`: what is most.

    `lengths` ascend by a factor of 2^(1/8) or more. Weights above `most` are not told apart and count as that.

    Formal guarantees, without `least` and `most`: rises by at least 0 and at most a user's weight when that user is
    added, and does not fall from one length to the next (proofs/adaptive.md, Lemma 1).
    """
    survey = line.survey(LEAST_PART)
    marks = survey.marks
    found = np.full(len(lengths), max(survey.total // LEAST_PART, least), dtype=np.int64)
    most = max(survey.total, least) if most is None else most
    if not len(marks):
        return np.minimum(found, most)
    steps = steps_of(lengths)
    # Whatever holds a mark lies between these two.
    by_length = lengths[:, np.newaxis]
    lows = marks - by_length - 2.0 * np.spacing(np.maximum(np.abs(marks), by_length))
    highs = marks + by_length
    around = line.within(lows.ravel(), highs.ravel()).reshape(lows.shape)
    # An interval of twice the length holds all of that, if it is no shorter for being rounded.
    longer = slice(_TWICE, None)
    starts = last_start(lows[:-_TWICE], steps[longer, np.newaxis])
    held = np.where(starts + by_length[longer] >= highs[:-_TWICE], around[:-_TWICE], 0)
    found[longer] = np.maximum(found[longer], held.max(axis=1, initial=0))
    found = np.maximum.accumulate(found)
    # What is found so far is there; what may hold more than that, and more than is told apart, is looked at.
    length, mark = np.nonzero((around > found[:, np.newaxis]) & (found < most)[:, np.newaxis])
    if len(length):
        owners, lows = _holding(marks[mark], lengths, length)
        np.maximum.at(found, owners, line.within(lows, lows + lengths[owners]))
    return np.minimum(found, most)


def _holding(marks: Floats, lengths: Floats, which: IntArray) -> tuple[IntArray, Floats]:
    """(which, starts) of the intervals that hold marks, each one once; `which` of the lengths goes with each mark."""
    steps = steps_of(lengths)[which]
    starts = last_start(marks, steps)
    owners, found = [], []
    while (holds := starts + lengths[which] >= marks).any():  # some sixty times
        owners.append(which[holds])
        found.append(starts[holds])
        starts = last_start(np.nextafter(starts, -np.inf), steps)
    owner, start = np.concatenate(owners), np.concatenate(found)
    order = np.lexsort([start, owner])
    owner, start = owner[order], start[order]
    new = np.append(True, (owner[1:] != owner[:-1]) | (start[1:] != start[:-1]))
    return owner[new], start[new]
