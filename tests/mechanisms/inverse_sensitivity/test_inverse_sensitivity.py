"""`inverse-sensitivity` keeps its guarantee, and its level sets are what their definition says.

Level sets are compared with brute force over the definition on small integer datasets. The privacy loss of a pair
of data sets is computed exactly: scores differ only at the ends of level sets, so the distribution is known at
every point of the grid, and normalisers are sums of exponentials in 200-bit arithmetic. All datasets of a small
grid are in `tests/privacy/`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubermean as hm
from helpers.neighbors import Records, iterate_neighbors, table_of
from hubermean.data.user_table import UserTable
from hubermean.huber.level_sets import SortedUsers, add_remove_level_set_ends, level_set_ends
from hubermean.huber.solver import huber_location
from hubermean.mechanisms.contributions import parse_threshold_power
from hubermean.mechanisms.inverse_sensitivity.grid import LevelSets
from hubermean.mechanisms.inverse_sensitivity.mechanism import (
    InverseSensitivity,
    PreparedInverseSensitivity,
)
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.release.path import release_user_table
from hubermean.types.request import Neighbors, PublicFacts, Request

NAN = float("nan")


def influence(weight: int, threshold: int, power: float) -> int:
    """The integer part of threshold * weight^(1 - power), for powers of 0, 1/2 and 1."""
    if power == 1.0:
        return threshold if weight else 0
    return weight * threshold if power == 0.0 else math.isqrt(threshold**2 * weight)


def clipped_gradient(s: int, value: int, weight: int, bound: int) -> int:
    return max(-bound, min(bound, weight * (s - value)))


def changes_needed(gradients: list[int], max_influences: list[int]) -> int:
    """The definition: the least number of users to replace, each by anything within its reach, to cross zero."""
    for size in range(len(gradients) + 1):
        for changed in itertools.combinations(range(len(gradients)), size):
            rest = sum(gradient for user, gradient in enumerate(gradients) if user not in changed)
            reach = sum(max_influences[user] for user in changed)
            if rest - reach <= 0 <= rest + reach:
                return size
    raise AssertionError("replacing everyone always crosses zero")


small_users = st.lists(st.tuples(st.integers(-12, 12), st.integers(0, 7)), min_size=1, max_size=5)


@given(
    small_users,
    st.integers(1, 5),
    st.integers(1, 15),
    st.booleans(),
    st.sampled_from([None, 0.0, 0.5, 1.0]),
)
@settings(max_examples=500, deadline=None)
def test_level_sets_match_their_definition(
    users: list[tuple[int, int]], threshold: int, radius: int, public_counts: bool, power: float | None
) -> None:
    """Weight 0 stands for a user without usable records; under public counts it has a public weight of 2.

    No power stands for users who all weigh one.
    """
    equal, theta = power is None, power or 0.0
    if equal:
        users = [(value, min(weight, 1)) for value, weight in users]
    most = influence(1 if equal else 7, threshold, theta)
    inactive_weight = 1 if equal else 2
    max_influences = [
        influence(weight or inactive_weight, threshold, theta) if public_counts else most
        for _, weight in users
    ]
    active = [(value, weight) for value, weight in users if weight]
    built = SortedUsers.build(
        np.array([value for value, _ in active], dtype=np.int64),
        None if equal else np.array([weight for _, weight in active], dtype=np.int64),
        inactive=np.array(
            [reach for (_, weight), reach in zip(users, max_influences, strict=True) if not weight],
            dtype=np.int64,
        ),
        threshold=threshold,
        max_influence=None if public_counts else most,
        power=parse_threshold_power(theta),
    )
    first, last = level_set_ends(built, radius=radius, n_levels=len(users))
    flat_first, flat_last = add_remove_level_set_ends(built, radius=radius, n_levels=4, influence_cap=most)
    for s in range(-radius, radius + 1):
        gradients = [
            clipped_gradient(s, value, weight, influence(weight, threshold, theta)) for value, weight in users
        ]
        needed = changes_needed(gradients, max_influences)
        assert [bool(first[k] <= s <= last[k]) for k in range(len(users))] == [
            needed <= k for k in range(len(users))
        ]
        flat = -(-abs(sum(gradients)) // most)
        assert [bool(flat_first[k] <= s <= flat_last[k]) for k in range(4)] == [flat <= k for k in range(4)]


def test_runs_spell_out_the_score_of_every_point() -> None:
    """The innermost shell is empty; the next holds one point; beyond the last all points share a score."""
    level_sets = LevelSets(first=np.array([3, 2, -4]), last=np.array([2, 2, 6]), radius=8)
    scores, sizes = level_sets.runs()
    assert sizes.sum() == 17
    assert np.repeat(scores, sizes).tolist() == [score(level_sets, s) for s in range(-8, 9)]
    empty = LevelSets(first=np.array([9, 9]), last=np.array([-9, -9]), radius=8)
    assert [part.tolist() for part in empty.runs()] == [[2], [17]]


def prepared(table: UserTable, relation: Neighbors, per: str, epsilon: float) -> PreparedInverseSensitivity:
    """`per` is "user", "record", or "record" with a power; with the power 1 there is no cap."""
    per, _, power = per.partition(" ")
    cap = 3 if per == "record" and relation is not Neighbors.REPLACE_VALUES and power != "1" else None
    request = Request(columns=("v",), epsilon=epsilon, delta=0.0, neighbors=relation, per=per)  # type: ignore[arg-type]
    mechanism = InverseSensitivity(
        threshold=1.0, radius=9.0, max_records=cap, threshold_power=float(power) if power else None
    )
    return mechanism.prepare(request, PublicFacts.of(table, relation))


def loss(
    dataset: tuple[Records, ...], other: tuple[Records, ...], relation: Neighbors, per: str, epsilon: float
) -> mpmath.mpf:
    """The exact privacy loss of a pair, in both directions."""
    tables = [table_of(w) for w in (dataset, other)]
    mine, theirs = (prepared(table, relation, per, epsilon) for table in tables)
    assert mine == theirs, "public decisions differ between neighbors"
    distributions = [mine.level_sets(table, 0) for table in tables]
    rate = mpmath.mpf(mine.rate.numerator) / mine.rate.denominator
    with mpmath.workprec(200):
        normalisers = [
            mpmath.fsum(
                int(size) * mpmath.exp(-rate * int(score))
                for score, size in zip(*distribution.runs(), strict=True)
            )
            for distribution in distributions
        ]
        corners = {-mine.grid.radius, mine.grid.radius}
        for distribution in distributions:
            corners |= {
                int(end) + step for end in (*distribution.first, *distribution.last) for step in (-1, 0, 1)
            }
        gap = max(
            abs(score(distributions[0], s) - score(distributions[1], s)) * sign
            for s in corners
            if -mine.grid.radius <= s <= mine.grid.radius
            for sign in (1,)
        )
        signed = {
            score(distributions[1], s) - score(distributions[0], s)
            for s in corners
            if abs(s) <= mine.grid.radius
        }
        assert gap <= 1
        ratio = mpmath.log(normalisers[1] / normalisers[0])
        return max(abs(rate * difference + ratio) for difference in signed)


def score(distribution: LevelSets, s: int) -> int:
    inside = (distribution.first <= s) & (s <= distribution.last)
    return int(np.argmax(inside)) if inside.any() else len(distribution.first)


CONTENTS: list[Records] = [
    (-50.0,),
    (0.0,),
    (0.4,),
    (50.0,),
    (NAN,),
    (-50.0, 50.0),
    (0.4,) * 5,
    (50.0,) * 5,
    (-50.0,) * 5,
    (0.4,) * 10_000,
    (-50.0,) * 10_000,
]


@pytest.mark.fair_sample(0.34)
@pytest.mark.parametrize("per", ["record", "record 0.5", "record 1", "user"])
@pytest.mark.parametrize("relation", list(Neighbors))
def test_no_pair_of_small_datasets_exceeds_epsilon(relation: Neighbors, per: str) -> None:
    epsilon = 0.8
    pairs = [
        (dataset, other)
        for dataset in itertools.combinations_with_replacement(CONTENTS, 3)
        for other in iterate_neighbors(dataset, relation, CONTENTS)
    ]
    chosen = np.random.default_rng(1).permutation(len(pairs))[:250]
    worst = max(loss(*pairs[i], relation, per, epsilon) for i in chosen)
    assert worst <= epsilon
    assert worst > 0.45 * epsilon, "no pair comes near the guarantee: the search is blind"


@given(
    st.lists(st.tuples(st.floats(-30, 30), st.integers(1, 9)), min_size=2, max_size=12),
    st.tuples(st.floats(-30, 30), st.integers(1, 9)),
    st.sampled_from(list(Neighbors)),
    st.sampled_from(["record", "record 0.3", "record 0.5", "record 1"]),
)
@settings(max_examples=200, deadline=None)
def test_random_neighbors_stay_within_epsilon(
    users: list[tuple[float, int]], other: tuple[float, int], relation: Neighbors, per: str
) -> None:
    dataset = tuple((value,) * count for value, count in users)
    if relation is Neighbors.REPLACE_VALUES:
        other = (other[0], users[-1][1])
    changed = dataset[:-1] if relation is Neighbors.ADD_REMOVE else (*dataset[:-1], (other[0],) * other[1])
    assert loss(dataset, changed, relation, per, 0.5) <= 0.5


def test_a_score_of_sensitivity_two_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is not blind: twice the rate breaks the guarantee on some pair."""
    real = InverseSensitivity.prepare

    def doubled(self: InverseSensitivity, request: Request, facts: PublicFacts) -> PreparedInverseSensitivity:
        inner = real(self, request, facts)
        return dataclasses.replace(inner, rate=2 * inner.rate)

    monkeypatch.setattr(InverseSensitivity, "prepare", doubled)
    pairs = [
        (((0.4,), (0.4,), (50.0,)), ((0.4,), (0.4,), (-50.0,))),
        (((50.0,), (-50.0,), (50.0,)), ((50.0,), (-50.0,), (-50.0,))),
    ]
    assert max(loss(*pair, Neighbors.REPLACE_USER, "user", 0.8) for pair in pairs) > 0.8


@pytest.mark.parametrize("neighbors", list(Neighbors))
@pytest.mark.parametrize("per", ["record", "user"])
def test_a_huge_epsilon_gives_the_huber_location(neighbors: Neighbors, per: str) -> None:
    generator = np.random.default_rng(2)
    means, counts = generator.normal(40, 2, 300), generator.integers(1, 9, 300)
    means[:20] = 1e9
    weights = np.minimum(counts, 4) if per == "record" else np.ones(300)
    truth = hm.huber.huber_location(means, weights=weights, thresholds=3.0).point
    release = hm.mean_of_user_means(
        means,
        counts,
        epsilon=1e5,
        per=per,  # type: ignore[arg-type]
        neighbors=neighbors,
        mechanism="inverse-sensitivity",
        threshold=3.0,
        radius=1e9,
        max_records=4 if per == "record" else None,
    )
    assert release.value == pytest.approx(truth, abs=0.05)


def test_noise_is_small_and_outliers_are_bounded() -> None:
    """Gaussian users at epsilon = 1: the error is near the sampling error, and a hostile tenth moves it boundedly."""
    generator = np.random.default_rng(3)
    noise = InsecureSeededNoise(4)
    request = Request(columns=("mean",), epsilon=1.0, delta=0.0, neighbors=Neighbors.REPLACE_USER, per="user")
    mechanism = InverseSensitivity(threshold=3.0, radius=1e6)
    clean, hostile, plain = [], [], []
    for _ in range(150):
        means = generator.normal(0, 1, 1000)
        plain.append(means.mean() ** 2)
        clean.append(
            release_user_table(UserTable.from_means(means), request, mechanism, noise).values[0] ** 2
        )
        means[:100] = 1e9
        hostile.append(release_user_table(UserTable.from_means(means), request, mechanism, noise).values[0])
    assert np.mean(clean) < 1.6 * np.mean(plain)
    assert max(map(abs, hostile)) < 3.0 * 0.25


@pytest.mark.parametrize("neighbors", ["replace-user", "replace-values", "add-remove"])
@pytest.mark.parametrize("where", [10.5, 12.0, 1e9, -1e9])
def test_a_location_beyond_the_radius_is_taken_at_its_edge(where: float, neighbors: str) -> None:
    release = hm.mean_of_user_means(
        np.full(2000, where),
        epsilon=5,
        mechanism="inverse-sensitivity",
        neighbors=neighbors,
        threshold=1,
        radius=10,
    )
    assert release.value == pytest.approx(math.copysign(10.0, where), abs=0.05)


def test_the_answer_stays_within_the_radius() -> None:
    release = hm.mean_of_user_means(
        [5.0] * 50, epsilon=10, mechanism="inverse-sensitivity", threshold=1.0, radius=0.3
    )
    assert abs(release.value) <= 0.3
    with pytest.raises(hm.InputError, match="radius is too small"):
        hm.mean_of_user_means(
            [5.0] * 50, epsilon=10, mechanism="inverse-sensitivity", threshold=1e6, radius=1e-6
        )


def test_an_epsilon_out_of_reach_is_refused_from_public_numbers() -> None:
    for neighbors in ("add-remove",):
        with pytest.raises(hm.InputError, match="epsilon is too small"):
            hm.mean_of_user_means(
                [1.0],
                epsilon=1e-5,
                mechanism="inverse-sensitivity",
                neighbors=neighbors,
                threshold=1,
                radius=10,
            )


def test_wild_inputs_need_no_luck() -> None:
    for means in ([0.0], [1e300, -1e300], [NAN, NAN], [5.0] * 3):
        for neighbors in ("replace-user", "replace-values", "add-remove"):
            release = hm.mean_of_user_means(
                means,
                epsilon=0.3,
                mechanism="inverse-sensitivity",
                neighbors=neighbors,
                threshold=1,
                radius=10,
            )
            assert -10 <= release.value <= 10
    table = pa.table({"u": [1, 2, 3], "a": [1.0, 2.0, 3.0], "b": [4, 5, 6]})
    release = hm.mean(
        table,
        user="u",
        value=["a", "b"],
        epsilon=1e6,
        mechanism="inverse-sensitivity",
        threshold=5,
        radius=9,
        max_records=2,
    )
    assert release.value == pytest.approx([2.0, 5.0], abs=1e-3)
    assert release.delta == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "takes about .* users here"),
        ({"threshold": 5}, "takes about .* users here, .*give radius"),
        ({"threshold": 5, "radius": 5, "threshold_power": 1}, "threshold_power is for per='record'"),
        (
            {"threshold": 5, "radius": 5, "threshold_power": 1.5},
            "threshold_power must be a number from 0 to 1",
        ),
        ({"threshold_power": 1}, "threshold_power is for a threshold that is known"),
        ({"threshold": 0, "radius": 5}, "threshold must be a positive"),
        ({"threshold": 1, "radius": math.inf}, "radius must be a positive"),
        ({"threshold": 1, "radius": 5, "bounds": (0, 1)}, "bounds is not used"),
        ({"threshold": 1e-9, "radius": 1e12}, "threshold is too small"),
        ({"threshold": 1, "radius": 1e13}, "radius and threshold reach"),
    ],
)
def test_refusals(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(hm.InputError, match=sentence):
        hm.mean_of_user_means(
            [1.0, 2.0], epsilon=1, mechanism="inverse-sensitivity", neighbors="replace-user", **options
        )  # type: ignore[arg-type]


def test_the_rate_is_the_rational_number_that_epsilon_stands_for() -> None:
    assert prepared(table_of([(0.0,)]), Neighbors.REPLACE_USER, "user", 0.1).rate == Fraction(0.1) / 2


@pytest.mark.usefixtures("seeded_releases")
@pytest.mark.parametrize(("n", "threshold"), [(100, 2.0), (1000, 6.0)])
def test_intervals_hold_the_location_of_the_data(n: int, threshold: float) -> None:
    rng = np.random.default_rng(31)
    held, widths, errors = [], [], []
    for _ in range(150):
        means = rng.normal(size=n)
        center = float(np.ravel(huber_location(means, thresholds=threshold).point)[0])
        release = hm.mean_of_user_means(
            means,
            epsilon=1,
            threshold=threshold,
            radius=100,
            mechanism="inverse-sensitivity",
            neighbors="replace-user",
        )
        low, high = release.interval(0.95)  # type: ignore[misc]
        held.append(low <= center <= high)
        widths.append((high - low) / 2)
        errors.append(abs(release.value - center))  # type: ignore[operator]
    assert np.mean(held) >= 0.95
    assert np.median(widths) <= 3.0 * np.quantile(errors, 0.95)
    private = hm.mean_of_user_means(
        means, epsilon=1, threshold=2, radius=100, mechanism="inverse-sensitivity"
    )
    assert private.interval() is None, "nobody knows how many users there are"


def test_few_users_get_no_interval() -> None:
    """With 20 users and a large radius an answer goes astray every second time, and the interval held it not."""
    for n, offered in ((20, False), (500, True)):
        means = np.random.default_rng(32).normal(50, 5, n)
        release = hm.mean_of_user_means(
            means,
            epsilon=1,
            threshold=15,
            radius=1000,
            mechanism="inverse-sensitivity",
            neighbors="replace-user",
        )
        assert (release.interval() is not None) == offered
