"""Permute-and-flip: its output distribution, its exact sampler, its privacy loss (proofs/adaptive.md, Lemma 8)."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hubermean.auditing.compare import compare
from hubermean.distributions.output import PermuteAndFlip
from hubermean.noise import exponential_mechanism as selection
from hubermean.noise.exponential_mechanism import permute_and_flip

IntArray = NDArray[np.int64]
Bytes = Callable[[int], bytes]

N_DRAWS = 20_000
SIGNIFICANCE = 1e-6
"""Of each chi-square test; the sampler with a rate 30% too large is rejected by a wide margin (see below)."""


def distribution(costs: list[int] | IntArray, rate: Fraction) -> PermuteAndFlip:
    return PermuteAndFlip(costs=np.asarray(costs, dtype=np.int64), rate=rate)


def by_permutations(costs: list[int], rate: float) -> list[float]:
    """McKenna & Sheldon (2020, Alg. 1), word by word: go through every order, flip until a coin shows heads."""
    heads = [math.exp(-rate * (cost - min(costs))) for cost in costs]
    found = [0.0] * len(costs)
    orders = list(itertools.permutations(range(len(costs))))
    for order in orders:
        reached = 1.0 / len(orders)
        for candidate in order:
            found[candidate] += reached * heads[candidate]
            reached *= 1.0 - heads[candidate]
    return found


@pytest.mark.parametrize("seed", range(40))
def test_probabilities_are_those_of_all_permutations(seed: int) -> None:
    rng = random.Random(seed)
    costs = [rng.randrange(0, rng.choice([2, 5, 40])) for _ in range(rng.randrange(1, 7))]
    rate = Fraction(rng.choice([1, 3, 10, 77]), rng.choice([1, 7, 50]))
    expected = by_permutations(costs, float(rate))
    found = np.exp(distribution(costs, rate).log_probabilities())
    # Also the small ones, to nine digits of their own.
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=0.0)
    assert found.sum() == pytest.approx(1.0, abs=1e-9)


def test_probabilities_of_many_candidates_add_up() -> None:
    costs = np.random.default_rng(0).integers(0, 3000, 104 * 104)
    found = distribution(costs, Fraction(1, 40)).log_probabilities()
    assert np.exp(found).sum() == pytest.approx(1.0, abs=1e-9)
    assert (np.diff(found[np.argsort(costs)]) <= 1e-12).all()  # a dearer candidate is never likelier


def p_value(costs: list[int], rate: Fraction, sampled: Fraction, seed: int) -> float:
    """Of a chi-square test of `N_DRAWS` draws at the rate `sampled` against the law at `rate`."""
    source = random.Random(seed)
    array = np.array(costs, dtype=np.int64)
    drawn = [permute_and_flip(source.randbytes, array, sampled) for _ in range(N_DRAWS)]
    expected = N_DRAWS * np.exp(distribution(costs, rate).log_probabilities())
    seen = np.bincount(drawn, minlength=len(costs))
    rare = expected < 10.0  # together, so that the approximation holds
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        seen = np.append(seen[~rare], seen[rare].sum())
    statistic = float(((seen - expected) ** 2 / np.maximum(expected, 1e-12)).sum())
    return float(stats.chi2.sf(statistic, len(seen) - 1))


CASES = [
    ([0, 1, 2, 3, 5, 8], Fraction(1, 3)),
    ([7, 7, 7, 9, 9, 30], Fraction(1, 2)),
    ([100, 0, 50, 25, 75, 60], Fraction(1, 50)),
]


@pytest.mark.parametrize(("costs", "rate"), CASES)
def test_the_sampler_follows_the_law(costs: list[int], rate: Fraction) -> None:
    assert p_value(costs, rate, rate, seed=1) > SIGNIFICANCE


@pytest.mark.parametrize(("costs", "rate"), CASES)
@pytest.mark.parametrize("times", [Fraction(13, 10), Fraction(10, 13)])
def test_a_sampler_with_another_rate_is_rejected(costs: list[int], rate: Fraction, times: Fraction) -> None:
    """30% more or less, in the same test, is far beyond the significance: its power is no matter of luck."""
    assert p_value(costs, rate, rate * times, seed=1) < SIGNIFICANCE / 1e3


# --- coins that floats do not decide ----------------------------------------------------------------------------------


def scripted(*words: int) -> tuple[Bytes, Iterator[int]]:
    """Random bytes that spell these 64-bit words, then none."""
    rest = iter(words)

    def random_bytes(size: int) -> bytes:
        return b"".join(next(rest).to_bytes(8, "big") for _ in range(-(-size // 8)))[:size]

    return random_bytes, rest


def bits_of_exp(exponent: Fraction, bits: int) -> int:
    """The first binary digits of exp(-exponent), by a series of its own."""
    term, total, number = Fraction(1), Fraction(0), 0
    while abs(term) > Fraction(1, 1 << (bits + 40)) or number <= exponent:
        total += term
        number += 1
        term = -term * exponent / number
    return math.floor(total * (1 << bits))


@pytest.mark.parametrize(
    "exponent", [Fraction(1, 3), Fraction(1), Fraction(37, 10), Fraction(45), Fraction(1, 10**12)]
)
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_a_coin_on_the_edge_takes_more_bits(exponent: Fraction, offset: int) -> None:
    """The first 64 bits are those of exp(-x) itself, the next decide."""
    exact = bits_of_exp(exponent, 128)
    first, second = exact >> 64, exact & (2**64 - 1)
    following = min(max(second + 2 * offset, 0), 2**64 - 1)
    random_bytes, rest = scripted(following, 0)
    heads = selection._below_exp(random_bytes, first, exponent)
    assert (
        heads == (offset < 0) or offset == 0
    )  # a third word decides where the second is that of exp(-x) too
    # Neighbors of the first 64 bits need no more.
    random_bytes, rest = scripted()
    assert selection._below_exp(random_bytes, first - 1, exponent) if first else True
    assert not selection._below_exp(random_bytes, first + 1, exponent)
    assert list(rest) == []


@pytest.mark.parametrize("first", [0, 5])
def test_a_coin_that_hardly_ever_shows_heads_is_soon_tossed(first: int) -> None:
    """53 bits of zero do not make the power of e to thousands of millions."""
    random_bytes, _ = scripted(7, 0)
    assert not selection._below_exp(random_bytes, first, Fraction(10**12, 3))


def test_a_draw_reaches_the_coins_that_floats_do_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[Fraction] = []
    made = selection._below_exp

    def watched(random_bytes: Bytes, drawn: int, exponent: Fraction) -> bool:
        reached.append(exponent)
        return made(random_bytes, drawn, exponent)

    monkeypatch.setattr(selection, "_below_exp", watched)
    rate, costs = Fraction(1, 3), np.array([0, 1], dtype=np.int64)
    exact = bits_of_exp(rate, 128)
    for below in (True, False):
        # The cheapest is accepted; the other's 64 bits are those of exp(-1/3), and the next decide.
        words = [0, exact >> 64, 0 if below else 2**64 - 1, *([2**63] if below else [])]
        random_bytes, rest = scripted(*words)
        chosen = permute_and_flip(random_bytes, costs, rate)
        assert reached.pop() == rate
        assert reached == []
        # Both are accepted: one more bit chooses between them, and it is 1. Else there is one, and nothing to choose.
        assert chosen == (1 if below else 0)
        assert list(rest) == []


@pytest.mark.parametrize("gap", [0, 1, 60, 61, 1000, 2**40])
def test_floats_decide_only_what_is_certain(gap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the first bits, what is decided without further bits is what exact bounds on exp(-x) say."""
    asked: list[int] = []
    monkeypatch.setattr(selection, "_below_exp", lambda *given: bool(asked.append(given[1])))
    rate, costs = Fraction(7, 10), np.array([0, gap], dtype=np.int64)
    threshold = bits_of_exp(rate * gap, 64) if gap < 2000 else 0
    around = {
        min(max(threshold + shift, 0), 2**64 - 1) for shift in (-(2**30), -(2**12), -1, 0, 1, 2**12, 2**30)
    }
    for word in sorted(around | {0, 2**63, 2**64 - 1}):
        asked.clear()
        drawn: list[int] = []

        def lone(random_bytes: Bytes, limit: int, drawn: list[int] = drawn) -> int:
            drawn.append(limit)
            return 0

        monkeypatch.setattr(selection, "uniform_below", lone)
        permute_and_flip(scripted(0, word)[0], costs, rate)
        if not asked:
            accepted = drawn == [2]
            assert accepted == (word < threshold or gap == 0), (gap, word, threshold)


def test_the_same_bytes_are_never_used_twice() -> None:
    """Every coin has 64 bits of its own: a draw among n candidates takes 8 n bytes before it chooses."""
    taken: list[int] = []

    def random_bytes(size: int) -> bytes:
        taken.append(size)
        return b"\xff" * size if len(taken) == 1 else b"\x00" * size

    permute_and_flip(random_bytes, np.arange(50), Fraction(2))
    assert taken[0] == 8 * 50


@pytest.mark.parametrize(("costs", "rate"), [([], Fraction(1)), ([1], Fraction(-1))])
def test_what_is_no_choice_is_refused(costs: list[int], rate: Fraction) -> None:
    with pytest.raises(ValueError, match="permute-and-flip needs"):
        permute_and_flip(random.Random(0).randbytes, np.array(costs, dtype=np.int64), rate)


# --- privacy ----------------------------------------------------------------------------------------------------------


def losses(costs: IntArray, others: IntArray, rate: Fraction) -> float:
    one, two = distribution(costs, rate), distribution(others, rate)
    return max(compare(one, two).largest, compare(two, one).largest)


@pytest.mark.parametrize("monotone", [True, False])
def test_the_loss_of_neighbors_is_bounded_and_nearly_reached(monotone: bool) -> None:
    """rate = epsilon / (2 sensitivity), and epsilon / sensitivity where costs only rise or only fall."""
    rng = np.random.default_rng(3)
    epsilon, worst = 1.5, 0.0
    for _ in range(400):
        size, sensitivity = int(rng.integers(1, 30)), int(rng.choice([1, 3, 100]))
        rate = Fraction(epsilon) / (sensitivity * (1 if monotone else 2))
        costs = rng.integers(0, sensitivity * int(rng.choice([2, 20])), size)
        low = 0 if monotone else -sensitivity
        if rng.random() < 0.5:
            change = rng.integers(low, sensitivity + 1, size)
        else:  # as far as they may
            change = rng.choice([low, sensitivity], size)
        worst = max(worst, losses(costs, costs + change, rate))
    assert worst <= epsilon * (1 + 1e-9)
    assert worst >= 0.95 * epsilon


def test_the_rate_for_one_way_changes_is_too_large_for_others() -> None:
    """So the tests above would notice."""
    costs, others = np.array([1, *[5] * 20]), np.array([0, *[6] * 20])
    assert losses(costs, others, Fraction(1)) <= 2.0
    costs = np.array([5, *[5] * 20])
    others = np.array([6, *[4] * 20])
    assert losses(costs, others, Fraction(1)) > 1.5


def test_a_shift_of_all_costs_changes_nothing() -> None:
    costs = np.array([3, 9, 4, 4])
    assert losses(costs, costs + 1000, Fraction(1, 3)) == 0.0
