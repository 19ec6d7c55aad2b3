"""`winsorized` keeps its guarantee, and the pieces it is made of do what they say.

Privacy is checked exactly. In one column the pair (chosen bin, noisy sum) is released; for a pair of data sets the
loss at a bin is the log-ratio of the exponential mechanism, taken in 200 bits, plus the difference of the sums
over the scale of the noise, and the supremum over outputs is the maximum over bins: both are attained.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import stats

from helpers.neighbors import table_of
from helpers.winsorized_runs import (
    CONTENTS,
    NAN,
    REPLACE,
    Dataset,
    iterate_neighbors,
    prepared,
    public_facts,
    public_run,
    request,
)
from hubermean.accounting.concentrated import largest_rho
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.winsorized.bins import Bins
from hubermean.mechanisms.winsorized.budget_split import (
    TwoStageProblem,
    TwoStageSplit,
    _candidate_splits,
    choose_split,
)
from hubermean.mechanisms.winsorized.mechanism import PreparedWinsorized
from hubermean.mechanisms.winsorized.rotation import Rotation, padded_dimension
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.request import Neighbors, Request

# --- the exact privacy loss -----------------------------------------------------------------------------------


def all_costs(bins: Bins, values: np.ndarray, beyond: int = 2**61) -> list[int]:
    costs, sizes = bins.costs(bins.positions(values), beyond=beyond)
    assert (np.diff(costs) != 0).all()
    return np.repeat(costs, sizes).tolist()


def choice_law(run: PreparedWinsorized, values: np.ndarray) -> list[Any]:
    """The exact probability of every bin, in the current precision."""
    rate = mpf(run.split.rate.numerator) / run.split.rate.denominator
    weights = [mp.exp(-rate * cost) for cost in all_costs(run.bins, values)]
    return [weight / mp.fsum(weights) for weight in weights]


def loss(dataset: Dataset, other: Dataset, asked: Request) -> Any:
    """The exact privacy loss of a pair, over all outputs, in the order given."""
    tables = [table_of(one) for one in (dataset, other)]
    assert public_facts(tables[0], asked) == public_facts(tables[1], asked)
    run = public_run(*public_facts(tables[0], asked))
    assert run.bins.count > 1
    coordinates = [run.coordinates(table, Rotation(signs=(1,)))[0] for table in tables]
    with mp.workprec(200):
        first, second = (
            choice_law(run, values[table.counts > 0])
            for values, table in zip(coordinates, tables, strict=True)
        )
        losses = []
        for index, (mine, theirs) in enumerate(zip(first, second, strict=True)):
            sums = [
                run.clipped_sum(table, values, run.bins.midpoint(index))
                for table, values in zip(tables, coordinates, strict=True)
            ]
            noise = abs(sums[0] - sums[1]) / mpf(run.noise.scale)
            losses.append(mp.log(mine / theirs) + noise)
        return max(losses)


@pytest.mark.parametrize("per", ["record", "user"])
@pytest.mark.parametrize("relation", REPLACE)
def test_no_pair_of_small_datasets_exceeds_epsilon(relation: Neighbors, per: str) -> None:
    if per == "record" and relation is Neighbors.REPLACE_USER:
        return
    asked = request(relation, per)
    worst = max(
        loss(dataset, other, asked)
        for users in (1, 2)
        for dataset in itertools.combinations_with_replacement(CONTENTS, users)
        for other in iterate_neighbors(dataset, relation)
    )
    # Three bins do not attain all of the first stage's half; the noise alone attains its own.
    assert 0.75 * asked.epsilon < worst <= asked.epsilon


@pytest.mark.slow
@pytest.mark.parametrize(("relation", "per"), [*((one, "user") for one in REPLACE), (REPLACE[1], "record")])
@pytest.mark.parametrize("users", [3, 4])
def test_no_pair_of_more_users_exceeds_epsilon(relation: Neighbors, per: str, users: int) -> None:
    asked = request(relation, per, epsilon=1.3)
    datasets = list(itertools.combinations_with_replacement(CONTENTS, users))
    for dataset in datasets[:: 1 if users == 3 else 7]:
        for other in iterate_neighbors(dataset, relation):
            assert loss(dataset, other, asked) <= asked.epsilon


def test_the_whole_first_stage_is_attained_where_costs_move_both_ways() -> None:
    """A user crosses from the far left to the far right: costs fall on a million bins right of the median and rise
    on four left of it, where the log-ratio comes close to the whole budget."""
    asked = request(Neighbors.REPLACE_USER, epsilon=1.0)
    fixed = [-999_999.0] * 2 + [-999_990.0] * 5 + [999_999.0] * 2
    tables = [UserTable.from_means([*fixed, last]) for last in (-999_999.0, 999_999.0)]
    run = prepared(tables[0], asked, tau=1.0, radius=1e6, selection_share=0.5)
    values = [run.coordinates(table, Rotation(signs=(1,)))[0] for table in tables]
    costs = [run.bins.costs(run.bins.positions(one), beyond=2**61) for one in values]
    with mp.workprec(200):
        rate = mpf(run.split.rate.numerator) / run.split.rate.denominator
        totals = [
            mp.fsum(int(s) * mp.exp(-rate * int(c)) for c, s in zip(*one, strict=True)) for one in costs
        ]
        starts = [np.concatenate([[0], np.cumsum(sizes)]) for _, sizes in costs]

        def log_probability(side: int, index: int) -> Any:
            place = int(np.searchsorted(starts[side], index, side="right")) - 1
            return -rate * int(costs[side][0][place]) - mp.log(totals[side])

        edges = sorted({int(edge) for one in starts for edge in one[:-1]})
        worst = max(abs(log_probability(0, index) - log_probability(1, index)) for index in edges)
    assert 0.95 * run.split.selection_epsilon < worst <= run.split.selection_epsilon


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 0.7, 3.0, 1e9])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.3])
@pytest.mark.parametrize("dimension", [1, 2, 8, 64])
def test_every_plan_keeps_its_budget_in_exact_arithmetic(
    epsilon: float, delta: float, dimension: int
) -> None:
    for share in (Fraction(0), Fraction(1, 10), Fraction(1, 2), Fraction(0.9)):
        for plan in _candidate_splits(share, epsilon, delta, dimension):
            choice, rest = Fraction(plan.selection_epsilon), Fraction(plan.noise_budget)
            match plan.accounting:
                case "pure":
                    assert dimension * (choice + rest) <= Fraction(epsilon)
                case "gaussian":
                    assert dimension * choice + rest <= Fraction(epsilon)
                case "concentrated":
                    assert dimension * choice**2 / 8 + rest <= Fraction(largest_rho(epsilon, delta))
                    sigma = Fraction(plan.noise_distribution(2**20, delta).scale)
                    assert dimension * Fraction(2**40) / (2 * sigma**2) <= rest
            assert plan.rate * 2 == choice
            assert (delta == 0.0) <= (plan.accounting == "pure")


# --- composition in several dimensions ------------------------------------------------------------------------


def hockey_stick(epsilon: float, shift: float) -> float:
    """The delta of a Gaussian shifted by so many standard deviations, at any epsilon, negative ones included."""
    if shift == 0:
        return max(0.0, 1.0 - math.exp(epsilon))
    upper = stats.norm.logcdf(shift / 2 - epsilon / shift)
    lower = epsilon + stats.norm.logcdf(-shift / 2 - epsilon / shift)
    return float(max(math.exp(upper) - math.exp(lower), 0.0))


def accountings(epsilon: float, delta: float, dimension: int) -> dict[str, TwoStageSplit]:
    return {plan.accounting: plan for plan in _candidate_splits(Fraction(1, 2), epsilon, delta, dimension)}


@pytest.mark.parametrize("accounting", ["pure", "gaussian", "concentrated"])
@pytest.mark.parametrize("relation", REPLACE)
def test_two_columns_compose_to_epsilon_and_delta(relation: Neighbors, accounting: str) -> None:
    """All pairs of a small dataset, all signs: the delta at epsilon of both coordinates together, no bound used."""
    epsilon, delta = 0.9, 0.05
    asked = request(relation, epsilon=epsilon, delta=delta, columns=2)
    points = [*itertools.product((-50.0, 0.4, 50.0), repeat=2), (NAN, 0.0)]
    plan = accountings(epsilon, delta, 2)[accounting]
    run = prepared(UserTable.from_means([points[0]] * 2), asked, tau=1.0, radius=2.5)
    run = dataclasses.replace(
        run, split=plan, noise=plan.noise_distribution(4 * run.bins.half_width * run.cap, delta)
    )
    worst = 0.0
    for one, other, anchor in itertools.product(points, points[::3], points[1::3]):
        tables = [UserTable.from_means([anchor, changed]) for changed in (one, other)]
        for signs in ((1, 1), (1, -1)):
            worst = max(worst, composed_delta(run, tables, Rotation(signs=signs), epsilon))
    assert worst <= (delta if accounting != "pure" else 1e-12)
    assert accounting == "pure" or worst > 0.02 * delta


def composed_delta(
    run: PreparedWinsorized, tables: list[UserTable], rotation: Rotation, epsilon: float
) -> float:
    usable = [table.counts > 0 for table in tables]
    coordinates = [run.coordinates(table, rotation) for table in tables]
    ratios, shifts = [], []
    for mine, theirs in zip(*coordinates, strict=True):
        first, second = choice_law(run, mine[usable[0]]), choice_law(run, theirs[usable[1]])
        ratios.append([(float(p), float(mp.log(p / q))) for p, q in zip(first, second, strict=True)])
        shifts.append(
            [
                abs(
                    run.clipped_sum(tables[0], mine, run.bins.midpoint(index))
                    - run.clipped_sum(tables[1], theirs, run.bins.midpoint(index))
                )
                / run.noise.scale
                for index in range(run.bins.count)
            ]
        )
    total = 0.0
    for (p, first_ratio), first_shift in zip(ratios[0], shifts[0], strict=True):
        for (q, second_ratio), second_shift in zip(ratios[1], shifts[1], strict=True):
            left = epsilon - first_ratio - second_ratio
            if run.noise.kind == "laplace":
                assert first_shift + second_shift <= left * (1 + 1e-12)
            else:
                total += p * q * hockey_stick(left, math.hypot(first_shift, second_shift))
    return total


@pytest.mark.parametrize("accounting", ["gaussian", "concentrated"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.2, 1e-3), (4.0, 1e-8)])
@pytest.mark.parametrize("dimension", [1, 4, 32])
def test_the_worst_choices_compose_with_the_noise(
    dimension: int, epsilon: float, delta: float, accounting: str
) -> None:
    """D choices whose log-ratio takes the two ends of a range of length `choice`, the worst of their kind
    (Dong, Durfee & Rogers 2020), then Gaussian noise at full sensitivity: delta is a binomial sum, exactly."""
    for share in (Fraction(1, 20), Fraction(1, 2), Fraction(9, 10)):
        plans = {plan.accounting: plan for plan in _candidate_splits(share, epsilon, delta, dimension)}
        plan = plans[accounting]
        sensitivity = 2**20
        shift = math.sqrt(dimension) * sensitivity / plan.noise_distribution(sensitivity, delta).scale
        worst = 0.0
        for top in np.linspace(0.01, 0.99, 25) * plan.selection_epsilon:
            bottom = top - plan.selection_epsilon
            chance = (1 - math.exp(bottom)) / (math.exp(top) - math.exp(bottom)) * math.exp(top)
            weights = stats.binom.pmf(np.arange(dimension + 1), dimension, chance)
            losses = top * np.arange(dimension + 1) + bottom * np.arange(dimension, -1, -1)
            worst = max(
                worst,
                sum(w * hockey_stick(epsilon - at, shift) for w, at in zip(weights, losses, strict=True)),
            )
        assert worst <= delta
        assert share > Fraction(1, 20) or worst > 0.05 * delta


def test_choices_are_as_concentrated_as_claimed() -> None:
    """Renyi divergences of real choices stay below alpha choice^2 / 8, and come close."""
    rng = np.random.default_rng(5)
    bins, rate = Bins(half_width=10, count=21), 0.4
    closest = 0.0
    for _ in range(300):
        values = rng.integers(-210, 210, size=int(rng.integers(1, 8)))
        other = values.copy()
        other[0] = rng.integers(-210, 210)
        distributions = [
            np.exp(-rate * np.array(all_costs(bins, one), dtype=float)) for one in (values, other)
        ]
        p, q = (distribution / distribution.sum() for distribution in distributions)
        for alpha in (1.01, 1.5, 3.0, 20.0):
            divergence = math.log(float(np.sum(p**alpha * q ** (1 - alpha)))) / (alpha - 1)
            bound = alpha * (2 * rate) ** 2 / 8
            assert divergence <= bound
            closest = max(closest, divergence / bound)
    assert closest > 0.5


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-8), (5.0, 0.01)])
def test_largest_rho_against_a_direct_search(epsilon: float, delta: float) -> None:
    """The conversion evaluated forwards: at the rho returned the least delta over orders is delta."""
    rho = largest_rho(epsilon, delta)

    def converted(rho: float) -> float:
        orders = 1 + np.exp(np.linspace(-8, 8, 40_001))
        exponent = (
            (orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
        )
        return float(np.exp(exponent.min()))

    assert converted(rho) == pytest.approx(delta, rel=1e-5)
    # A Gaussian mechanism of that rho has less delta: the conversion is on the private side.
    assert hockey_stick(epsilon, math.sqrt(2 * rho)) < delta


@pytest.mark.parametrize("dimension", [2, 4, 8, 64, 512])
def test_composition_beats_the_printed_one(dimension: int) -> None:
    """Levy et al.: each coordinate has epsilon / sqrt(8 d ln(1/delta)), half of it for Laplace noise."""
    epsilon, delta = 1.0, 1e-5
    printed = epsilon / math.sqrt(8 * dimension * math.log(1 / delta)) / 2
    plans = [
        one
        for one in _candidate_splits(Fraction(1, 2), epsilon, delta, dimension)
        if one.selection_epsilon >= printed
    ]
    assert min(plan.noise_ratio(delta) for plan in plans) < math.sqrt(2) / printed


# --- the pieces -----------------------------------------------------------------------------------------------


@given(
    values=st.lists(st.integers(-200, 200), max_size=12),
    half_width=st.integers(1, 9),
    count=st.integers(1, 12),
)
@settings(max_examples=200, deadline=None)
def test_costs_count_the_users_beside_each_bin(values: list[int], half_width: int, count: int) -> None:
    bins = Bins(half_width=half_width, count=count)
    low = -count * half_width
    places = [
        next((index for index in range(count - 1) if value < low + 2 * half_width * (index + 1)), count - 1)
        for value in values
    ]
    expected = [max(sum(at < j for at in places), sum(at > j for at in places)) for j in range(count)]
    assert all_costs(bins, np.array(values, dtype=np.int64)) == expected
    assert [bins.midpoint(j) for j in range(count)] == [low + (2 * j + 1) * half_width for j in range(count)]
    for beyond in (1, 2, 5):
        distinguished = [min(cost, min(expected) + beyond) for cost in expected]
        assert all_costs(bins, np.array(values, dtype=np.int64), beyond) == distinguished


@given(
    values=st.lists(st.integers(-200, 200), min_size=1, max_size=12),
    other=st.integers(-200, 200),
    beyond=st.integers(1, 5),
)
@settings(max_examples=200, deadline=None)
def test_costs_that_are_distinguished_change_by_at_most_one(
    values: list[int], other: int, beyond: int
) -> None:
    bins = Bins(half_width=5, count=30)
    distributions = [
        np.array(all_costs(bins, np.array(users, dtype=np.int64), beyond))
        for users in (values, [*values[1:], other], values[1:])
    ]
    assert max(np.abs(distributions[0] - distribution).max() for distribution in distributions) <= 1


def test_bins_cover_the_radius_and_midpoints_reach_every_mean() -> None:
    for reach, half_width in ((Fraction(1000), 7), (Fraction(7, 2), 7), (Fraction(70), 7), (Fraction(71), 7)):
        bins = Bins.covering(reach, half_width)
        assert (bins.count - 1) * half_width < max(reach, half_width) <= bins.count * half_width


@pytest.mark.parametrize("dimension", [1, 2, 3, 5, 8, 33])
def test_the_rotation_is_orthogonal_and_undoes_itself(dimension: int) -> None:
    rotation = Rotation.numbered(
        Rotation.distribution(dimension).sample(InsecureSeededNoise(dimension)), dimension
    )
    padded = padded_dimension(dimension)
    assert len(rotation.signs) == padded
    assert set(rotation.signs) <= {-1, 1}
    matrix = rotation.apply(list(np.eye(padded, dtype=np.int64)))
    assert (matrix @ matrix.T == padded * np.eye(padded)).all()
    assert (np.abs(matrix) == 1).all()
    rng = np.random.default_rng(0)
    columns = list(rng.integers(-(2**50), 2**50, size=(dimension, 4)))
    rotated = rotation.apply(columns)
    for user in range(4):
        back = rotation.undo(rotated[:, user].tolist())
        assert back == [padded * int(column[user]) for column in columns] + [0] * (padded - dimension)
        alone = rotation.apply([column[user : user + 1] for column in columns])
        assert (alone[:, 0] == rotated[:, user]).all(), "a user's rotation looked at others"


def test_signs_are_fresh_and_fair() -> None:
    noise = InsecureSeededNoise(1)
    drawn = np.array(
        [Rotation.numbered(Rotation.distribution(8).sample(noise), 8).signs for _ in range(2000)]
    )
    assert np.abs(drawn.mean(axis=0)).max() < 5 / math.sqrt(2000)
    assert len({tuple(one) for one in drawn}) > 200


def test_budget_is_split_by_public_numbers_and_never_more_than_half_chooses() -> None:
    def plan(n_users: int, bins: int = 100) -> TwoStageSplit:
        task = TwoStageProblem(
            dimension=1, n_users=n_users, bins=bins, half_width=1.0, weight_share=1 / n_users
        )
        return choose_split(task, 1.0, 0.0)

    choices = [plan(n).selection_epsilon for n in (50, 300, 1000, 10_000, 100_000)]
    assert choices[0] == 0.5
    assert sorted(choices, reverse=True) == choices
    assert choices[-1] < 0.01
    assert plan(1000, bins=1).selection_epsilon == 0.0
    assert plan(1000, bins=10**6).selection_epsilon > plan(1000).selection_epsilon
