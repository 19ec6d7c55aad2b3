"""Many draws of exact integer noise at once: by rejection from shells, decided in floats where these are sure.

OpenDP's samplers work in rationals, one draw after another, at some twenty microseconds each; a vector of a hundred
thousand columns waits longer for its noise than for its mean. Here the same laws are drawn by whole arrays. Floats
only answer whether a coin lies below a number that is known within a proved bound; where they cannot tell, integers
of any length do, so that the law is exact. Proof: proofs/noise.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hubermean.noise.exponentials import exponential_bounds, times
from hubermean.noise.selection import RandomBytes, uniform_below

Kind = Literal["laplace", "gaussian"]

_PICK_BITS = 62  # of the number that picks a shell: the weights of all shells add up to at most 2^62
_COIN_BITS = 64
_BOUND_BITS = 256  # of the bounds on exponentials that weights are made of
_LAST_EXPONENT = 44  # numbers less likely than e^-44 < 2^-63 times the likeliest are drawn one by one
_TAIL_SHELLS = 8  # of such a stretch the weight at least halves (proofs/noise.md, 2)
_TAIL_WEIGHT = 2 * _TAIL_SHELLS
_TERMS = 20  # of the series for exp(-x), x <= 2.4: the rest is below 2^-38
_DOUBT = 2.0**-30
"""Coins nearer than this to what decides them are decided in integers; floats are off by less than 2^-37 (3)."""

LARGEST_SCALE = 2.0**50
"""Noise has 64 bits, and what does not fit is the largest that does: at this scale with probability below e^-8000."""

_AT_A_TIME = 2**16  # proposals: what is computed of them stays in the processor's cache
_COEFFICIENTS = [(-1.0) ** term / math.factorial(term) for term in range(_TERMS + 1)]


def many_draws(
    random_bytes: RandomBytes, kind: Kind, scale: float, size: int, *, doubt: float = _DOUBT
) -> NDArray[np.int64]:
    """Independent integers k with probability proportional to exp(-|k| / scale), or exp(-k^2 / (2 scale^2)).

    `doubt` may be more than it is, which takes more time and changes nothing.

    Formal guarantees (proofs/noise.md):
    - The law is exact for every scale in (0, 2^50], up to draws beyond 64 bits, whose probability is below e^-8000.
    - How long it takes depends on the random bytes, on `size`, and a little on the scale: not on what the noise is
      added to, nor on what was drawn before. Nothing is kept of a scale, which may be private.
    """
    if kind not in get_args(Kind):
        raise ValueError("noise must be 'laplace' or 'gaussian'")
    if not 0.0 < scale <= LARGEST_SCALE:
        raise ValueError("a noise scale must lie in (0, 2^50] grid units; choose a coarser grid")
    shells, size, doubt = _Shells.of(kind, float(scale)), int(size), max(doubt, _DOUBT)
    found = np.empty(size, dtype=np.int64)
    held = 0
    while held < size:
        wanted = size - held
        accepted = shells.proposed(random_bytes, min(wanted + wanted // 8 + 16, _AT_A_TIME), doubt)[:wanted]
        found[held : held + accepted.size] = accepted
        held += accepted.size
    return found


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # a scale may be private
class _Shells:
    """What k and -k for k >= 0 are proposed from: stretches of 2^bits numbers, then a tail.

    Attributes:
        bits: shell m holds k from m 2^bits on.
        ends: the weights of all shells, added up; the last entry is the tail's.
        weights: w_m, at least multiple * exp(-g) of the first number of a shell; the last entry is the tail's first.
        multiple: Z of the proof.
        steepness: of g within a shell: 2^bits / scale, or 2^(2 bits) / (2 scale^2).
        ratios: multiple * exp(-g) / weight of the first number of a shell.
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
    def of(cls, kind: Kind, scale: float) -> _Shells:
        exact = Fraction(scale)
        # A shell is a quarter of the scale at most and more than an eighth, but one number at least.
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
            # With shells of one number there is nothing within one, however small the scale is.
            steepness=float(_exponent(kind, exact, 1 << bits)) if bits else 0.0,
            ratios=np.array(ratios[:-1]),
        )

    def proposed(self, random_bytes: RandomBytes, number: int, doubt: float) -> NDArray[np.int64]:
        """Those of so many proposals that are accepted, in their order."""
        drawn = np.frombuffer(random_bytes(3 * 8 * number), dtype=np.uint64).reshape(3, number)
        shell = np.searchsorted(self.ends, drawn[0] >> np.uint64(64 - _PICK_BITS), side="right")
        tail = len(self.ends) - 1
        inside = (drawn[1] & np.uint64((1 << self.bits) - 1)).astype(np.int64)
        negative = drawn[1] >= np.uint64(1 << 63)
        coin = drawn[2]
        chance = self._chances(np.minimum(shell, tail - 1), inside)
        gap = coin * 2.0**-_COIN_BITS - chance
        accepted = (gap < 0.0) & (shell < tail)
        magnitude = (shell.astype(np.int64) << self.bits) + inside
        doubtful = ((np.abs(gap) <= doubt) & (shell < tail)) | (shell == tail)
        for place in np.flatnonzero(doubtful).tolist():
            if shell[place] == tail:
                exact = self._in_tail(random_bytes, int(coin[place]))
                accepted[place], magnitude[place] = exact is not None, exact or 0
            else:
                accepted[place] = self._accepts(
                    random_bytes,
                    int(coin[place]),
                    int(magnitude[place]),
                    Fraction(self.weights[int(shell[place])]),
                )
        accepted &= ~(negative & (magnitude == 0))  # 0 would be proposed with both signs
        found: NDArray[np.int64] = np.where(negative, -magnitude, magnitude)[accepted]
        return found

    def _chances(self, shell: NDArray[np.intp], inside: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of being accepted, within 2^-37: multiple * exp(-g) / weight."""
        ratio: NDArray[np.float64] = self.ratios[shell]
        if self.bits == 0:
            return ratio
        part = inside * 2.0**-self.bits
        exponent = part * self.steepness
        if self.kind == "gaussian":
            exponent *= part + 2.0 * shell
        # By additions and products alone, whose rounding is known.
        series = np.full(exponent.shape, _COEFFICIENTS[-1])
        for coefficient in reversed(_COEFFICIENTS[:-1]):
            series *= exponent
            series += coefficient
        series *= ratio
        return series

    def _in_tail(self, random_bytes: RandomBytes, coin: int) -> int | None:
        """A number beyond the table if it is accepted: stretches of 2^bits * _TAIL_SHELLS, each half as likely."""
        stretch = 0
        while uniform_below(random_bytes, 2):
            stretch += 1
        width = _TAIL_SHELLS << self.bits
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
    """g: the law is proportional to exp(-g)."""
    return magnitude / scale if kind == "laplace" else (magnitude / scale) ** 2 / 2


def _exponentials(kind: Kind, scale: Fraction, bits: int) -> list[tuple[int, int]]:
    """Bounds on exp(-g) of the first number of each shell, and at the end of the number that the tail begins with.

    From one shell to the next exp(-g) falls by a factor which, for a Gaussian, falls by a factor itself.
    """
    reach = scale / 2**bits  # in shells
    if kind == "laplace":
        last = math.ceil(_LAST_EXPONENT * reach)
    else:
        last = 1 + math.isqrt(math.ceil(2 * _LAST_EXPONENT * reach**2) - 1)
    one = 1 << _BOUND_BITS
    here, fall = (one, one), exponential_bounds(_exponent(kind, scale, 1 << bits), _BOUND_BITS)
    fall_again = (one, one) if kind == "laplace" else times(fall, fall, _BOUND_BITS)
    found = [here]
    for _ in range(last):
        here, fall = times(here, fall, _BOUND_BITS), times(fall, fall_again, _BOUND_BITS)
        found.append(here)
    return found
