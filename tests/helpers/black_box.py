"""An independent check of a privacy guarantee from samples of outputs alone; no test here.

The checker knows no law and no mechanism. It is given outputs of two neighboring data sets and the guarantee
(epsilon, delta), and asks whether an event E exists with P(E) > e^epsilon Q(E) + delta, either way round. The
first half of the samples chooses events, of several kinds; the second half, independent of that choice,
bounds P(E) and Q(E) by Clopper & Pearson. `refuted` means that the guarantee is broken with confidence
1 - significance, whatever the mechanism; the opposite proves nothing.

An output is a tuple of numbers, or None for "not released". Numbers that are not finite and tuples of
another length are distinguished too.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

Output = tuple[float, ...] | None
Samples = NDArray[np.float64] | Sequence[Output]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

SIGNIFICANCE = 1e-3
KINDS = ("half-line", "interval", "ratio", "grid", "kind of answer")
_CUTS = 24  # of the quantiles of a feature: the finer, the better half-lines fit, and the more ratios overfit
_COARSE_CUTS = 6  # of each of the two features of a grid
_MOST_COORDINATES = 8  # beyond, only projections look at a coordinate
_CHOOSING_Z = (
    4.0  # how sure, on the first half, an event should look; about the confidence asked of the second
)
_ROBUST = 8.0  # in spreads: what lies further out does not bend a projection


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the samples say about a guarantee.

    Attributes:
        refuted: whether the guarantee is broken, with confidence 1 - significance.
        excess: the largest lower confidence bound of P(E) - e^epsilon Q(E) - delta.
        event: the event that attains it, in words.
    """

    refuted: bool
    excess: float
    event: str


def check(
    first: Samples, second: Samples, epsilon: float, delta: float = 0.0, *, significance: float = SIGNIFICANCE
) -> Verdict:
    """Whether independent samples of two neighboring data sets refute the guarantee (epsilon, delta).

    *Formal guarantees*
    - If the guarantee holds, `refuted` is true with probability at most `significance`: each of the at most
      len(KINDS) events of each direction was fixed before its test half was looked at, and its two
      Clopper-Pearson bounds fail with probability at most significance / (4 len(KINDS)) each.
    """
    factor = math.exp(epsilon)
    error = significance / (2 * len(KINDS) * 2)
    choosing, testing = _halves(first, second)
    counted = [
        (partition, (partition.counts(choosing[0]), partition.counts(choosing[1])))
        for partition in _partitions(choosing)
    ]
    found = Verdict(refuted=False, excess=-math.inf, event="none")
    for direction, this, other in (("first over second", 0, 1), ("second over first", 1, 0)):
        sides = [(partition, counts[this], counts[other]) for partition, counts in counted]
        for event in _nominated(sides, factor, delta):
            more, less = testing[this], testing[other]
            low = least_probability(event.count(more), len(more), error)
            high = largest_probability(event.count(less), len(less), error)
            excess = low - factor * high - delta
            if excess > found.excess:
                found = Verdict(refuted=excess > 0.0, excess=excess, event=f"{direction}: {event.words}")
    return found


def least_probability(hits: int, trials: int, error: float) -> float:
    """The lower bound of Clopper & Pearson: above the true probability with probability at most `error`."""
    return 0.0 if hits == 0 else float(special.betaincinv(hits, trials - hits + 1, error))


def largest_probability(hits: int, trials: int, error: float) -> float:
    """The upper bound: below the true probability with probability at most `error`."""
    return 1.0 - least_probability(trials - hits, trials, error)


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Outputs as arrays: rows of kind 0 are numbers; the others are of a kind of their own, with zeros."""

    values: Floats
    kinds: Integers
    n_kinds: int

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def numbers(self) -> Floats:
        return self.values[self.kinds == 0]


Pair = tuple[Outputs, Outputs]


def _halves(first: Samples, second: Samples) -> tuple[Pair, Pair]:
    """The halves that choose and the halves that test."""
    first, second = (
        samples.reshape(len(samples), -1) if isinstance(samples, np.ndarray) else samples
        for samples in (first, second)
    )
    parts = [(samples[: len(samples) // 2], samples[len(samples) // 2 :]) for samples in (first, second)]
    if min(len(part) for halves in parts for part in halves) == 0:
        raise ValueError("a check needs at least two samples of each data set")
    if all(isinstance(one, np.ndarray) and np.isfinite(one).all() for one in (first, second)):
        a, b = (
            [
                Outputs(values=np.asarray(part), kinds=np.zeros(len(part), dtype=np.int64), n_kinds=1)
                for part in halves
            ]
            for halves in parts
        )
        return (a[0], b[0]), (a[1], b[1])
    # Kinds are numbered by the choosing halves alone; one more number stands for what only the others hold.
    seen = Counter(_kind(output) for halves in parts for output in halves[0])
    whole = Counter({kind: number for kind, number in seen.items() if kind is not None and not any(kind)})
    main = whole.most_common(1)[0][0] if whole else ()
    numbers = {main: 0} | {kind: place for place, kind in enumerate((k for k in seen if k != main), start=1)}
    a, b = ([_outputs(part, numbers, len(main or ())) for part in halves] for halves in parts)
    return (a[0], b[0]), (a[1], b[1])


def _kind(output: Output) -> tuple[str, ...] | None:
    """None, or which of the numbers are not finite, and what they are instead."""
    if output is None:
        return None
    return tuple("" if math.isfinite(number) else str(float(number)) for number in output)


def _outputs(outputs: Sequence[Output], numbers: dict[tuple[str, ...] | None, int], width: int) -> Outputs:
    kinds = np.array([numbers.get(_kind(output), len(numbers)) for output in outputs], dtype=np.int64)
    values = np.zeros((len(outputs), width))
    for row in np.flatnonzero(kinds == 0).tolist():
        values[row] = outputs[row]
    return Outputs(values=values, kinds=kinds, n_kinds=len(numbers) + 1)


# ---- features: numbers made of an output, in ways fitted to the choosing half ----

Feature = Callable[[Floats], Floats]


def _features(first: Floats, second: Floats) -> Iterator[tuple[str, Feature]]:
    """Names and functions of rows of outputs."""
    everything = np.concatenate([first, second])
    if len(everything) == 0:
        return
    moving = np.flatnonzero(np.ptp(everything, axis=0) > 0.0)
    for column in moving[:_MOST_COORDINATES].tolist():
        yield f"coordinate {column}", lambda rows, column=column: rows[:, column]
        yield f"lowest bit of coordinate {column}", lambda rows, column=column: lowest_bit(rows[:, column])
    if len(moving) == 0 or min(len(first), len(second)) < 2:
        return
    center = np.median(everything[:, moving], axis=0)
    spread = np.median(np.abs(everything[:, moving] - center), axis=0)
    # Where more than half of all outputs are the same number, the mean distance from it says more.
    spread = np.where(spread > 0.0, spread, np.mean(np.abs(everything[:, moving] - center), axis=0))

    def scaled(rows: Floats) -> Floats:
        found: Floats = (rows[:, moving] - center) / spread
        return found

    one, two = (np.clip(scaled(rows), -_ROBUST, _ROBUST) for rows in (first, second))
    for name, middle in (("first", np.median(one, axis=0)), ("second", np.median(two, axis=0))):
        yield (
            f"distance from the middle of the {name}",
            lambda rows, middle=middle: _length(scaled(rows) - middle),
        )
    distributions = [_normal_law(rows) for rows in (one, two)]
    yield (
        "ratio of fitted normal laws",
        lambda rows: _energy(scaled(rows), *distributions[1]) - _energy(scaled(rows), *distributions[0]),
    )
    if len(moving) > 1:
        gap = one.mean(axis=0) - two.mean(axis=0)
        pooled = _spread_matrix(one) + _spread_matrix(two)
        yield "difference of the means", lambda rows: _along(scaled(rows), gap)
        yield "linear discriminant", lambda rows: _along(scaled(rows), np.linalg.solve(pooled, gap))


def lowest_bit(numbers: Floats) -> Floats:
    """The power of two of the last bit in use: floating point gives away what was added to what.

    Mironov (2012): 1 + noise has no bits below 2^-53, however small the sum; 0 + noise has.
    """
    fractions, powers = np.frexp(numbers)
    bits = np.abs(fractions * 2.0**53).astype(np.int64)
    last = np.where(bits == 0, 1, bits & -bits)
    return np.where(bits == 0, 1024.0, powers - 53.0 + np.log2(last.astype(np.float64)))


def _along(rows: Floats, direction: Floats) -> Floats:
    """Rows times a vector, in a fixed order: equal rows give equal numbers, which a matrix product need not."""
    total = np.zeros(len(rows))
    for column, weight in enumerate(direction.tolist()):
        total += weight * rows[:, column]
    return total


def _length(rows: Floats) -> Floats:
    square = np.zeros(len(rows))
    for column in range(rows.shape[1]):
        square += rows[:, column] * rows[:, column]
    found: Floats = np.sqrt(square)
    return found


def _spread_matrix(rows: Floats) -> Floats:
    """The covariance, and a little more, since outputs may lie on a line or on one point."""
    return np.atleast_2d(np.cov(rows, rowvar=False)) + 1e-4 * np.eye(rows.shape[1])


def _normal_law(rows: Floats) -> tuple[Floats, Floats]:
    """Mean and whitening matrix."""
    return rows.mean(axis=0), np.linalg.inv(np.linalg.cholesky(_spread_matrix(rows)))


def _energy(rows: Floats, middle: Floats, whitening: Floats) -> Floats:
    """Minus the log density of a normal law, up to a constant."""
    total = np.zeros(len(rows))
    for direction in whitening:
        place = _along(rows - middle, direction)
        total += 0.5 * place * place
    return total


# ---- partitions: outputs fall into cells, and an event is a set of cells ----


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A feature cut at values that occur: cells are the values themselves and the gaps between, so atoms are seen."""

    name: str
    feature: Feature
    cuts: Floats

    @property
    def size(self) -> int:
        return 2 * len(self.cuts) + 1

    def cells(self, rows: Floats) -> Integers:
        place = self.feature(rows)
        found: Integers = np.searchsorted(self.cuts, place) + np.searchsorted(self.cuts, place, side="right")
        return found

    @classmethod
    def fitted(cls, name: str, feature: Feature, rows: Floats, number: int) -> Cut:
        ordered = np.sort(feature(rows))
        # As many outputs beyond the outermost cuts as in a few hundredths of a bin: tails get events too.
        shares = np.concatenate([[0.003, 0.01], np.linspace(0.0, 1.0, number + 2)[1:-1], [0.99, 0.997]])
        return cls(name=name, feature=feature, cuts=np.unique(ordered[(shares * len(ordered)).astype(int)]))


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Cells of one feature (in order) or of two (a grid); then one cell for each kind of output without numbers."""

    name: str
    axes: tuple[Cut, ...]

    @property
    def size(self) -> int:
        """How many cells outputs with numbers have."""
        return math.prod(axis.size for axis in self.axes)

    def cells(self, outputs: Outputs) -> Integers:
        found = self.size + outputs.kinds - 1
        inside = np.zeros(int((outputs.kinds == 0).sum()), dtype=np.int64)
        for axis in self.axes:
            inside = inside * axis.size + axis.cells(outputs.numbers)
        found[outputs.kinds == 0] = inside
        return found

    def counts(self, outputs: Outputs) -> Integers:
        return np.bincount(self.cells(outputs), minlength=self.size + outputs.n_kinds - 1)


@dataclass(frozen=True, kw_only=True)
class Event:
    words: str
    partition: Partition
    mask: Mask

    def count(self, outputs: Outputs) -> int:
        return int(self.mask[self.partition.cells(outputs)].sum())


def _partitions(choosing: Pair) -> list[Partition]:
    first, second = (outputs.numbers for outputs in choosing)
    rows = np.concatenate([first, second])
    features = list(_features(first, second))
    found = [Partition(name=name, axes=(Cut.fitted(name, f, rows, _CUTS),)) for name, f in features]
    coarse = [Cut.fitted(name, feature, rows, _COARSE_CUTS) for name, feature in features]
    by_name = {cut.name: cut for cut in coarse}
    coordinates = [cut for cut in coarse if cut.name.startswith("coordinate")][:3]
    crossed = [
        *itertools.combinations(coordinates, 2),
        *((cut, by_name["lowest bit of " + cut.name]) for cut in coordinates),
        *itertools.pairwise(cut for cut in coarse if cut.name.startswith(("distance", "linear"))),
    ]
    found += [Partition(name=f"{one.name} x {two.name}", axes=(one, two)) for one, two in crossed]
    return found or [Partition(name="nothing", axes=())]


# ---- nomination: the most promising event of each kind, by the choosing half ----


def _nominated(
    counted: Sequence[tuple[Partition, Integers, Integers]], factor: float, delta: float
) -> Iterator[Event]:
    best: dict[str, tuple[float, Partition, Mask]] = {}
    for partition, p, q in counted:
        trials, other_trials = int(p.sum()), int(q.sum())
        for kind, masks, hits, others in _candidates(partition, p, q):
            low = _wilson(hits, trials, -_CHOOSING_Z)
            gaps = low - factor * _wilson(others, other_trials, _CHOOSING_Z) - delta
            place = int(np.argmax(gaps))
            if kind not in best or gaps[place] > best[kind][0]:
                best[kind] = float(gaps[place]), partition, masks(place)
    for kind, (_, partition, mask) in best.items():
        yield Event(words=f"{kind} of {partition.name}", partition=partition, mask=mask)


Candidates = tuple[str, Callable[[int], Mask], Integers, Integers]


def _candidates(partition: Partition, p: Integers, q: Integers) -> Iterator[Candidates]:
    """Per kind: the mask of the so-manieth event, and how many outputs of each side the events hold."""
    cells = np.arange(len(p))
    # Cells in falling order of their smoothed ratio: what a test by likelihood ratio would take first.
    order = np.argsort(-(p + 0.5) / (q + 0.5), kind="stable")
    order = order[(p + q)[order] > 0]
    yield (
        "grid" if len(partition.axes) == 2 else "ratio",
        lambda place: np.isin(cells, order[: place + 1]),
        np.cumsum(p[order]),
        np.cumsum(q[order]),
    )
    special_cells = cells[partition.size :]
    if len(special_cells):
        yield (
            "kind of answer",
            lambda place: cells == special_cells[place],
            p[partition.size :],
            q[partition.size :],
        )
    if len(partition.axes) != 1:
        return
    size = partition.size
    sums = [np.concatenate([[0], np.cumsum(counts[:size])]) for counts in (p, q)]
    # The first `size` half-lines hold the cells up to their own, the others what lies above.
    yield (
        "half-line",
        lambda place: (cells <= place) if place < size else (cells > place - size) & (cells < size),
        *(np.concatenate([up_to[1:], up_to[-1] - up_to[1:]]) for up_to in sums),
    )
    starts, ends = _stretches(size)
    yield (
        "interval",
        lambda place: (starts[place] <= cells) & (cells <= ends[place]),
        *(up_to[ends + 1] - up_to[starts] for up_to in sums),
    )


@cache
def _stretches(size: int) -> tuple[Integers, Integers]:
    """First and last cell of every stretch of cells."""
    starts, ends = np.triu_indices(size)
    return starts, ends


def _wilson(hits: Integers, trials: int, z: float) -> Floats:
    """Wilson's bound, upper for z > 0 and lower for z < 0: close to Clopper & Pearson's, and fast."""
    share = hits / trials
    half = z * np.sqrt(share * (1.0 - share) / trials + z * z / (4.0 * trials * trials))
    found: Floats = (share + z * z / (2.0 * trials) + half) / (1.0 + z * z / trials)
    return found
