"""`exact` keeps its promise, and its shells are what their definition says.

Shells are compared with brute force over the definition on small integer worlds. The privacy loss of a pair of data
sets is computed exactly: scores differ only at the ends of shells, so the law is known at every point of the grid, and
normalisers are sums of exponentials in 200-bit arithmetic. All worlds of a small grid are in `test_exact_worlds`.
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
from hubermean.api import release_table
from hubermean.location import huber_location
from hubermean.mechanisms import PublicFacts, Request
from hubermean.mechanisms.exact import Exact, PreparedExact, Shells
from hubermean.mechanisms.shells import Users, flat_shell_ends, shell_ends
from hubermean.mechanisms.thresholds import checked_power
from hubermean.noise.insecure import InsecureSeededNoise
from hubermean.relations import Neighbors
from hubermean.user_table import UserTable
from worlds import Records, neighbours, table_of

NAN = float("nan")


def influence(weight: int, threshold: int, power: float) -> int:
    """The integer part of threshold * weight^(1 - power), for powers of 0, 1/2 and 1."""
    if power == 1.0:
        return threshold if weight else 0
    return weight * threshold if power == 0.0 else math.isqrt(threshold**2 * weight)


def pull(s: int, value: int, weight: int, bound: int) -> int:
    return max(-bound, min(bound, weight * (s - value)))


def changes_needed(pulls: list[int], reaches: list[int]) -> int:
    """The definition: the least number of users to replace, each by anything within its reach, to cross zero."""
    for size in range(len(pulls) + 1):
        for changed in itertools.combinations(range(len(pulls)), size):
            rest = sum(pulled for user, pulled in enumerate(pulls) if user not in changed)
            reach = sum(reaches[user] for user in changed)
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
def test_shells_match_their_definition(
    users: list[tuple[int, int]], threshold: int, radius: int, public_counts: bool, power: float | None
) -> None:
    """Weight 0 stands for a user without usable records; under public counts it has a public weight of 2.

    No power stands for users who all weigh one.
    """
    equal, theta = power is None, power or 0.0
    if equal:
        users = [(value, min(weight, 1)) for value, weight in users]
    most = influence(1 if equal else 7, threshold, theta)
    idle_weight = 1 if equal else 2
    reaches = [
        influence(weight or idle_weight, threshold, theta) if public_counts else most for _, weight in users
    ]
    active = [(value, weight) for value, weight in users if weight]
    built = Users.build(
        np.array([value for value, _ in active], dtype=np.int64),
        None if equal else np.array([weight for _, weight in active], dtype=np.int64),
        idle=np.array(
            [reach for (_, weight), reach in zip(users, reaches, strict=True) if not weight], dtype=np.int64
        ),
        threshold=threshold,
        reach=None if public_counts else most,
        power=checked_power(theta),
    )
    first, last = shell_ends(built, radius=radius, depth=len(users))
    flat_first, flat_last = flat_shell_ends(built, radius=radius, depth=4, pull_cap=most)
    for s in range(-radius, radius + 1):
        pulls = [pull(s, value, weight, influence(weight, threshold, theta)) for value, weight in users]
        needed = changes_needed(pulls, reaches)
        assert [bool(first[k] <= s <= last[k]) for k in range(len(users))] == [
            needed <= k for k in range(len(users))
        ]
        flat = -(-abs(sum(pulls)) // most)
        assert [bool(flat_first[k] <= s <= flat_last[k]) for k in range(4)] == [flat <= k for k in range(4)]


def test_runs_spell_out_the_score_of_every_point() -> None:
    """The innermost shell is empty; the next holds one point; beyond the last all points share a score."""
    shells = Shells(first=np.array([3, 2, -4]), last=np.array([2, 2, 6]), radius=8)
    scores, sizes = shells.runs()
    assert sizes.sum() == 17
    assert np.repeat(scores, sizes).tolist() == [score(shells, s) for s in range(-8, 9)]
    empty = Shells(first=np.array([9, 9]), last=np.array([-9, -9]), radius=8)
    assert [part.tolist() for part in empty.runs()] == [[2], [17]]


def prepared(table: UserTable, relation: Neighbors, per: str, epsilon: float) -> PreparedExact:
    """`per` is "user", "record", or "record" with a power; with the power 1 there is no cap."""
    per, _, power = per.partition(" ")
    cap = 3 if per == "record" and relation is not Neighbors.REPLACE_VALUES and power != "1" else None
    request = Request(columns=("v",), epsilon=epsilon, delta=0.0, neighbors=relation, per=per)  # type: ignore[arg-type]
    mechanism = Exact(
        threshold=1.0, radius=9.0, record_cap=cap, threshold_power=float(power) if power else None
    )
    return mechanism.prepare(request, PublicFacts.of(table, relation))


def loss(
    world: tuple[Records, ...], other: tuple[Records, ...], relation: Neighbors, per: str, epsilon: float
) -> mpmath.mpf:
    """The exact privacy loss of a pair, in both directions."""
    tables = [table_of(w) for w in (world, other)]
    mine, theirs = (prepared(table, relation, per, epsilon) for table in tables)
    assert mine == theirs, "public decisions differ between neighbours"
    laws = [mine.shells(table, 0) for table in tables]
    rate = mpmath.mpf(mine.rate.numerator) / mine.rate.denominator
    with mpmath.workprec(200):
        normalisers = [
            mpmath.fsum(
                int(size) * mpmath.exp(-rate * int(score)) for score, size in zip(*law.runs(), strict=True)
            )
            for law in laws
        ]
        corners = {-mine.grid.radius, mine.grid.radius}
        for law in laws:
            corners |= {int(end) + step for end in (*law.first, *law.last) for step in (-1, 0, 1)}
        gap = max(
            abs(score(laws[0], s) - score(laws[1], s)) * sign
            for s in corners
            if -mine.grid.radius <= s <= mine.grid.radius
            for sign in (1,)
        )
        signed = {score(laws[1], s) - score(laws[0], s) for s in corners if abs(s) <= mine.grid.radius}
        assert gap <= 1
        ratio = mpmath.log(normalisers[1] / normalisers[0])
        return max(abs(rate * difference + ratio) for difference in signed)


def score(law: Shells, s: int) -> int:
    inside = (law.first <= s) & (s <= law.last)
    return int(np.argmax(inside)) if inside.any() else len(law.first)


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


@pytest.mark.parametrize("per", ["record", "record 0.5", "record 1", "user"])
@pytest.mark.parametrize("relation", list(Neighbors))
def test_no_pair_of_small_worlds_exceeds_epsilon(relation: Neighbors, per: str) -> None:
    epsilon = 0.8
    pairs = [
        (world, other)
        for world in itertools.combinations_with_replacement(CONTENTS, 3)
        for other in neighbours(world, relation, CONTENTS)
    ]
    chosen = np.random.default_rng(1).permutation(len(pairs))[:500]
    worst = max(loss(*pairs[i], relation, per, epsilon) for i in chosen)
    assert worst <= epsilon
    assert worst > 0.45 * epsilon, "no pair comes near the promise: the search is blind"


@given(
    st.lists(st.tuples(st.floats(-30, 30), st.integers(1, 9)), min_size=2, max_size=12),
    st.tuples(st.floats(-30, 30), st.integers(1, 9)),
    st.sampled_from(list(Neighbors)),
    st.sampled_from(["record", "record 0.3", "record 0.5", "record 1"]),
)
@settings(max_examples=200, deadline=None)
def test_random_neighbours_stay_within_epsilon(
    users: list[tuple[float, int]], other: tuple[float, int], relation: Neighbors, per: str
) -> None:
    world = tuple((value,) * count for value, count in users)
    if relation is Neighbors.REPLACE_VALUES:
        other = (other[0], users[-1][1])
    changed = world[:-1] if relation is Neighbors.ADD_REMOVE else (*world[:-1], (other[0],) * other[1])
    assert loss(world, changed, relation, per, 0.5) <= 0.5


def test_a_score_of_sensitivity_two_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is not blind: twice the rate breaks the promise on some pair."""
    real = Exact.prepare

    def doubled(self: Exact, request: Request, facts: PublicFacts) -> PreparedExact:
        inner = real(self, request, facts)
        return dataclasses.replace(inner, rate=2 * inner.rate)

    monkeypatch.setattr(Exact, "prepare", doubled)
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
    truth = hm.location.huber_location(means, weights=weights, thresholds=3.0).point
    release = hm.mean_of_user_means(
        means,
        counts,
        epsilon=1e5,
        per=per,  # type: ignore[arg-type]
        neighbors=neighbors,
        mechanism="exact",
        threshold=3.0,
        radius=1e9,
        record_cap=4 if per == "record" else None,
    )
    assert release.value == pytest.approx(truth, abs=0.05)


def test_noise_is_small_and_outliers_are_bounded() -> None:
    """Gaussian users at epsilon = 1: the error is near the sampling error, and a hostile tenth moves it boundedly."""
    generator = np.random.default_rng(3)
    noise = InsecureSeededNoise(4)
    request = Request(columns=("mean",), epsilon=1.0, delta=0.0, neighbors=Neighbors.REPLACE_USER, per="user")
    mechanism = Exact(threshold=3.0, radius=1e6)
    clean, hostile, plain = [], [], []
    for _ in range(150):
        means = generator.normal(0, 1, 1000)
        plain.append(means.mean() ** 2)
        clean.append(release_table(UserTable.from_means(means), request, mechanism, noise).values[0] ** 2)
        means[:100] = 1e9
        hostile.append(release_table(UserTable.from_means(means), request, mechanism, noise).values[0])
    assert np.mean(clean) < 1.6 * np.mean(plain)
    assert max(map(abs, hostile)) < 3.0 * 0.25


@pytest.mark.parametrize("neighbors", ["replace-user", "replace-values", "add-remove"])
@pytest.mark.parametrize("where", [10.5, 12.0, 1e9, -1e9])
def test_a_location_beyond_the_radius_is_taken_at_its_edge(where: float, neighbors: str) -> None:
    release = hm.mean_of_user_means(
        np.full(2000, where), epsilon=5, mechanism="exact", neighbors=neighbors, threshold=1, radius=10
    )
    assert release.value == pytest.approx(math.copysign(10.0, where), abs=0.05)


def test_the_answer_stays_within_the_radius() -> None:
    release = hm.mean_of_user_means([5.0] * 50, epsilon=10, mechanism="exact", threshold=1.0, radius=0.3)
    assert abs(release.value) <= 0.3
    with pytest.raises(hm.InputError, match="radius is too small"):
        hm.mean_of_user_means([5.0] * 50, epsilon=10, mechanism="exact", threshold=1e6, radius=1e-6)


def test_an_epsilon_out_of_reach_is_refused_from_public_numbers() -> None:
    for neighbors in ("add-remove",):
        with pytest.raises(hm.InputError, match="epsilon is too small"):
            hm.mean_of_user_means(
                [1.0], epsilon=1e-5, mechanism="exact", neighbors=neighbors, threshold=1, radius=10
            )


def test_wild_inputs_need_no_luck() -> None:
    for means in ([0.0], [1e300, -1e300], [NAN, NAN], [5.0] * 3):
        for neighbors in ("replace-user", "replace-values", "add-remove"):
            release = hm.mean_of_user_means(
                means, epsilon=0.3, mechanism="exact", neighbors=neighbors, threshold=1, radius=10
            )
            assert -10 <= release.value <= 10
    table = pa.table({"u": [1, 2, 3], "a": [1.0, 2.0, 3.0], "b": [4, 5, 6]})
    release = hm.mean(
        table, user="u", value=["a", "b"], epsilon=1e6, mechanism="exact", threshold=5, radius=9, record_cap=2
    )
    assert release.value == pytest.approx([2.0, 5.0], abs=1e-3)
    assert release.delta == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "takes about .* users here"),
        ({"threshold": 5}, "takes about .* users here, .*give radius="),
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
        hm.mean_of_user_means([1.0, 2.0], epsilon=1, mechanism="exact", neighbors="replace-user", **options)  # type: ignore[arg-type]


def test_the_rate_is_the_rational_number_that_epsilon_stands_for() -> None:
    assert prepared(table_of([(0.0,)]), Neighbors.REPLACE_USER, "user", 0.1).rate == Fraction(0.1) / 2


@pytest.mark.usefixtures("seeded_releases")
@pytest.mark.parametrize(("n", "threshold"), [(100, 2.0), (1000, 6.0)])
def test_intervals_hold_the_location_of_the_data(n: int, threshold: float) -> None:
    rng = np.random.default_rng(31)
    held, widths, errors = [], [], []
    for _ in range(150):
        means = rng.normal(size=n)
        centre = float(np.ravel(huber_location(means, thresholds=threshold).point)[0])
        release = hm.mean_of_user_means(
            means,
            epsilon=1,
            threshold=threshold,
            radius=100,
            mechanism="exact",
            neighbors="replace-user",
        )
        low, high = release.interval(0.95)  # type: ignore[misc]
        held.append(low <= centre <= high)
        widths.append((high - low) / 2)
        errors.append(abs(release.value - centre))  # type: ignore[operator]
    assert np.mean(held) >= 0.95
    assert np.median(widths) <= 3.0 * np.quantile(errors, 0.95)
    private = hm.mean_of_user_means(means, epsilon=1, threshold=2, radius=100, mechanism="exact")
    assert private.interval() is None, "nobody knows how many users there are"


def test_few_users_get_no_interval() -> None:
    """With 20 users and a large radius an answer goes astray every second time, and the interval held it not."""
    for n, offered in ((20, False), (500, True)):
        means = np.random.default_rng(32).normal(50, 5, n)
        release = hm.mean_of_user_means(
            means, epsilon=1, threshold=15, radius=1000, mechanism="exact", neighbors="replace-user"
        )
        assert (release.interval() is not None) == offered
