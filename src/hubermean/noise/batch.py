"""Large batches of exact integer noise: rejection sampling in numpy, in exact arithmetic where floats cannot decide.

OpenDP's samplers work in rationals, one sample after another, at about twenty microseconds each. For a vector of a
hundred thousand columns the noise would take longer than the mean. Here the same distributions are sampled in arrays.
Floats only decide whether a coin lies below a number that is known within a proved bound; where they cannot decide,
integers of any length do, so the distribution is exact. Proof: proofs/noise.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hubermean.noise.exponential_mechanism import RandomBytes, uniform_below
from hubermean.noise.exponentials import exponential_bounds, multiply_bounds

Kind = Literal["laplace", "gaussian"]

_PICK_BITS = 62  # of the number that picks a bin: the weights of all bins add up to at most 2^62
_COIN_BITS = 64
_BOUND_BITS = 256  # of the bounds on exponentials that weights are made of
_LAST_EXPONENT = 44  # numbers less likely than e^-44 < 2^-63 times the likeliest are sampled one by one
_TAIL_BINS = 8  # of such a stretch the weight at least halves (proofs/noise.md, 2)
_TAIL_WEIGHT = 2 * _TAIL_BINS
_TERMS = 20  # of the series for exp(-x), x <= 2.4: the remainder is below 2^-38
_DOUBT = 2.0**-30
"""Coins nearer than this to what decides them are decided in integers; floats are off by less than 2^-37 (3)."""

LARGEST_SCALE = 2.0**50
"""Noise has 64 bits and saturates there: at this scale with probability below e^-8000."""

_AT_A_TIME = 2**16  # proposals: what is computed of them stays in the processor's cache
_COEFFICIENTS = [(-1.0) ** term / math.factorial(term) for term in range(_TERMS + 1)]


def sample_many(
    random_bytes: RandomBytes, kind: Kind, scale: float, size: int, *, doubt: float = _DOUBT
) -> NDArray[np.int64]:
    """Return independent integers k with probability proportional to exp(-|k| / scale), or exp(-k^2 / (2 scale^2)).

    Args:
        random_bytes: source of uniform bytes.
        kind: "laplace" or "gaussian".
        scale: in grid units, above 0 and at most 2^50.
        size: number of samples.
        doubt: coins nearer than this to their threshold are decided in integers. A larger value takes more time and
            changes nothing else.

    **Formal guarantees** (proofs/noise.md)
    - The distribution is exact for every scale in (0, 2^50], up to samples beyond 64 bits, whose probability is below
      e^-8000.
    - The running time depends on the random bytes, on `size`, and slightly on the scale. It does not depend on what
      the noise is added to, nor on earlier samples. The scale, which may be private, is not stored.
    """
    if kind not in get_args(Kind):
        raise ValueError("noise must be 'laplace' or 'gaussian'")
    if not 0.0 < scale <= LARGEST_SCALE:
        raise ValueError("a noise scale must lie in (0, 2^50] grid units; choose a coarser grid")
    bins, size, doubt = _ProposalBins.of(kind, float(scale)), int(size), max(doubt, _DOUBT)
    found = np.empty(size, dtype=np.int64)
    held = 0
    while held < size:
        wanted = size - held
        accepted = bins.sample_proposals(random_bytes, min(wanted + wanted // 8 + 16, _AT_A_TIME), doubt)[
            :wanted
        ]
        found[held : held + accepted.size] = accepted
        held += accepted.size
    return found


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # a scale may be private
class _ProposalBins:
    """What k and -k for k >= 0 are proposed from: stretches of 2^bits numbers, then a tail.

    Attributes:
        bits: bin m holds k from m 2^bits on.
        ends: the weights of all bins, added up; the last entry is the tail's.
        weights: w_m, at least multiple * exp(-g) of the first number of a bin; the last entry is the tail's first.
        multiple: Z of the proof.
        steepness: of g within a bin: 2^bits / scale, or 2^(2 bits) / (2 scale^2).
        ratios: multiple * exp(-g) / weight of the first number of a bin.
    """

    kind: Kind
    scale: Fraction
    bits: int
    ends: NDArray[np.uint64]
    weights: list[int]
    multiple: int
    steepness: float
    ratios: NDArray[np.float64]

    @classmethod
    def of(cls, kind: Kind, scale: float) -> _ProposalBins:
        exact = Fraction(scale)
        # A bin is a quarter of the scale at most and more than an eighth, but one number at least.
        bits = max(math.frexp(scale)[1] - 3, 0)
        lows, highs = zip(*_exponentials(kind, exact, bits), strict=True)
        room = 2**_PICK_BITS - len(highs) - _TAIL_WEIGHT
        multiple = (room << _BOUND_BITS) // (sum(highs[:-1]) + _TAIL_WEIGHT * highs[-1])
        weights = [-(-multiple * high >> _BOUND_BITS) for high in highs]
        ratios = [multiple * low / (weight << _BOUND_BITS) for low, weight in zip(lows, weights, strict=True)]
        return cls(
            kind=kind,
            scale=exact,
            bits=bits,
            ends=np.cumsum([*weights[:-1], _TAIL_WEIGHT * weights[-1]], dtype=np.uint64),
            weights=weights,
            multiple=multiple,
            # With bins of one number there is nothing within one, however small the scale is.
            steepness=float(_exponent(kind, exact, 1 << bits)) if bits else 0.0,
            ratios=np.array(ratios[:-1]),
        )

    def sample_proposals(self, random_bytes: RandomBytes, number: int, doubt: float) -> NDArray[np.int64]:
        """Those of so many proposals that are accepted, in their order."""
        drawn = np.frombuffer(random_bytes(3 * 8 * number), dtype=np.uint64).reshape(3, number)
        bin_index = np.searchsorted(self.ends, drawn[0] >> np.uint64(64 - _PICK_BITS), side="right")
        tail = len(self.ends) - 1
        inside = (drawn[1] & np.uint64((1 << self.bits) - 1)).astype(np.int64)
        negative = drawn[1] >= np.uint64(1 << 63)
        coin = drawn[2]
        chance = self._chances(np.minimum(bin_index, tail - 1), inside)
        gap = coin * 2.0**-_COIN_BITS - chance
        accepted = (gap < 0.0) & (bin_index < tail)
        magnitude = (bin_index.astype(np.int64) << self.bits) + inside
        doubtful = ((np.abs(gap) <= doubt) & (bin_index < tail)) | (bin_index == tail)
        for place in np.flatnonzero(doubtful).tolist():
            if bin_index[place] == tail:
                exact = self._in_tail(random_bytes, int(coin[place]))
                accepted[place], magnitude[place] = exact is not None, exact or 0
            else:
                accepted[place] = self._accepts(
                    random_bytes,
                    int(coin[place]),
                    int(magnitude[place]),
                    Fraction(self.weights[int(bin_index[place])]),
                )
        accepted &= ~(negative & (magnitude == 0))  # 0 would be proposed with both signs
        found: NDArray[np.int64] = np.where(negative, -magnitude, magnitude)[accepted]
        return found

    def _chances(self, bin_index: NDArray[np.intp], inside: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of being accepted, within 2^-37: multiple * exp(-g) / weight."""
        ratio: NDArray[np.float64] = self.ratios[bin_index]
        if self.bits == 0:
            return ratio
        part = inside * 2.0**-self.bits
        exponent = part * self.steepness
        if self.kind == "gaussian":
            exponent *= part + 2.0 * bin_index
        # By additions and products alone, whose rounding is known.
        series = np.full(exponent.shape, _COEFFICIENTS[-1])
        for coefficient in reversed(_COEFFICIENTS[:-1]):
            series *= exponent
            series += coefficient
        series *= ratio
        return series

    def _in_tail(self, random_bytes: RandomBytes, coin: int) -> int | None:
        """A number beyond the table if it is accepted: stretches of 2^bits * _TAIL_BINS, each half as likely."""
        stretch = 0
        while uniform_below(random_bytes, 2):
            stretch += 1
        width = _TAIL_BINS << self.bits
        first = (len(self.ends) - 1) << self.bits
        magnitude = first + stretch * width + uniform_below(random_bytes, width)
        weight = Fraction(self.weights[-1], 2**stretch)
        if not self._accepts(random_bytes, coin, magnitude, weight):
            return None
        return min(magnitude, 2**63 - 1)

    def _accepts(self, random_bytes: RandomBytes, coin: int, magnitude: int, weight: Fraction) -> bool:
        """Whether a uniform number whose first bits are the coin lies below multiple * exp(-g) / weight, exactly.

        More bits are drawn, and tighter bounds taken, until it is decided.
        """
        exponent = _exponent(self.kind, self.scale, magnitude)
        coin_bits, bound_bits = _COIN_BITS, _BOUND_BITS
        while True:
            low, high = exponential_bounds(exponent, bound_bits)
            unit = weight * 2**bound_bits / 2**coin_bits
            if (coin + 1) * unit <= self.multiple * low:
                return True
            if coin * unit >= self.multiple * high:
                return False
            coin = (coin << 64) | uniform_below(random_bytes, 2**64)
            coin_bits, bound_bits = coin_bits + 64, 2 * bound_bits


def _exponent(kind: Kind, scale: Fraction, magnitude: int) -> Fraction:
    """Return g, where the probability is proportional to exp(-g)."""
    return magnitude / scale if kind == "laplace" else (magnitude / scale) ** 2 / 2


def _exponentials(kind: Kind, scale: Fraction, bits: int) -> list[tuple[int, int]]:
    """Bounds on exp(-g) of the first number of each bin, and at the end of the number that the tail begins with.

    From one bin to the next exp(-g) falls by a factor which, for a Gaussian, falls by a factor itself.
    """
    reach = scale / 2**bits  # in bins
    if kind == "laplace":
        last = math.ceil(_LAST_EXPONENT * reach)
    else:
        last = 1 + math.isqrt(math.ceil(2 * _LAST_EXPONENT * reach**2) - 1)
    one = 1 << _BOUND_BITS
    here, fall = (one, one), exponential_bounds(_exponent(kind, scale, 1 << bits), _BOUND_BITS)
    fall_again = (one, one) if kind == "laplace" else multiply_bounds(fall, fall, _BOUND_BITS)
    found = [here]
    for _ in range(last):
        here, fall = multiply_bounds(here, fall, _BOUND_BITS), multiply_bounds(fall, fall_again, _BOUND_BITS)
        found.append(here)
    return found
