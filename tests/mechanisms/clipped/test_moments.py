"""The sums of `clipped`: no two users lie further apart than the sensitivity says; squares and weights come free."""

from __future__ import annotations

import itertools
import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubermean.mechanisms.clipped.estimates import estimate_mean
from hubermean.mechanisms.clipped.moments import Moments, Weights
from hubermean.mechanisms.intervals import half_widths, laplace_tail, noise_width
from hubermean.types.request import Neighbors

Kind = Literal["laplace", "gaussian"]
KINDS: tuple[Kind, ...] = ("laplace", "gaussian")
WEIGHTS: tuple[Weights, ...] = ("equal", "unequal")


def contribution(moments: Moments, weight: int, position: int) -> np.ndarray:
    return np.array(moments.sums(np.array([position]), np.array([weight])), dtype=float)[:, 0]


def apart(moments: Moments, first: np.ndarray, second: np.ndarray) -> float:
    return float(np.linalg.norm(first - second, 1 if moments.kind == "laplace" else 2))


def users(moments: Moments, weights: Weights) -> list[tuple[int, int]]:
    """Weights and positions that matter, extremes included."""
    cap, half = moments.cap, moments.half
    made = []
    for weight in sorted(
        {0, cap} if weights == "equal" else {0, 1, cap // 16, cap // 4, cap // 2, cap - 1, cap}
    ):
        made += [(weight, round(share * half)) for share in (-1.0, -0.7, -0.3, 0.0, 0.01, 0.5, 0.9, 1.0)]
    return made


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("relation", list(Neighbors))
@pytest.mark.parametrize(("half", "cap"), [(2**12, 1), (2**12 + 16, 64), (2**29, 640), (2**12, 2**32)])
def test_no_two_users_lie_further_apart_than_the_sensitivity(
    relation: Neighbors, kind: Kind, weights: Weights, centered: bool, half: int, cap: int
) -> None:
    moments = Moments.of(relation, kind, half=half, cap=cap, weights=weights, centered=centered)
    nobody = np.zeros(moments.terms)
    everybody = [(weight, contribution(moments, weight, x)) for weight, x in users(moments, weights)]
    worst = 0.0
    for (one, first), (two, second) in itertools.product(everybody, repeat=2):
        match relation:
            case Neighbors.ADD_REMOVE:
                worst = max(worst, apart(moments, first, nobody))
            case Neighbors.REPLACE_USER:
                worst = max(worst, apart(moments, first, second))
            case Neighbors.REPLACE_VALUES if one == two:
                worst = max(worst, apart(moments, first, second))
            case _:
                continue
    assert 0.99 * moments.sensitivity() <= worst <= moments.sensitivity()


@given(
    st.sampled_from(KINDS),
    st.sampled_from(WEIGHTS),
    st.booleans(),
    st.tuples(st.floats(0, 1), st.floats(-1, 1)),
    st.tuples(st.floats(0, 1), st.floats(-1, 1)),
)
@settings(max_examples=600, deadline=None)
def test_no_two_users_anywhere(
    kind: Kind, weights: Weights, centered: bool, one: tuple[float, float], two: tuple[float, float]
) -> None:
    half, cap = 2**20, 1000
    moments = Moments.of(Neighbors.REPLACE_USER, kind, half=half, cap=cap, weights=weights, centered=centered)

    def of(weight_share: float, share: float) -> np.ndarray:
        weight = round(weight_share) * cap if weights == "equal" else round(weight_share * cap)
        reach = half
        return contribution(moments, weight, math.floor(share * reach))

    assert apart(moments, of(*one), of(*two)) <= moments.sensitivity()


def test_squares_and_weights_cost_nothing_where_one_user_is_replaced() -> None:
    for weights, centered in itertools.product(WEIGHTS, (True, False)):
        moments = Moments.of(
            Neighbors.REPLACE_USER, "laplace", half=2**20, cap=8, weights=weights, centered=centered
        )
        assert moments.sensitivity() == pytest.approx(2 * 8 * 2**20, rel=1e-5)
        assert moments.square_part > 0
        assert moments.weight_part > 0


@pytest.mark.parametrize("relation", list(Neighbors))
def test_sums_without_noise_give_back_mean_weight_and_squares(relation: Neighbors) -> None:
    rng = np.random.default_rng(1)
    weights, positions = rng.integers(1, 9, 500), rng.integers(-(2**20), 2**20, 500)
    moments = Moments.of(relation, "laplace", half=2**20, cap=8, weights="unequal", centered=False)
    found = estimate_mean(moments, moments.sums(positions, weights), int(weights.sum()))
    assert found.share[0] * 2**20 == pytest.approx(np.average(positions, weights=weights), abs=1)
    assert found.weight[0] == pytest.approx(weights.sum())
    assert found.squares[0] == pytest.approx(float(((weights * positions) ** 2.0).sum()), rel=1e-3)


# --- intervals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deviation", [0.0, 0.05, 1.0, 3.0, 20.0])
def test_the_tail_of_laplace_plus_normal(deviation: float) -> None:
    rng = np.random.default_rng(2)
    errors = rng.laplace(size=400_000) + deviation * rng.normal(size=400_000)
    for distance in (0.1, 1.0, 3.0, 2.0 * deviation + 1.0):
        share = float((errors > distance).mean())
        (tail,) = laplace_tail(np.array([distance]), scale=np.ones(1), deviation=np.array([deviation]))
        assert tail == pytest.approx(share, abs=0.004)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("sampling", [0.0, 0.3, 4.0, 1e4, 1e8])
def test_half_widths_hold_what_they_say(level: float, sampling: float) -> None:
    rng = np.random.default_rng(3)
    errors = rng.laplace(size=200_000) + sampling**0.5 * rng.normal(size=200_000)
    variances = {"noise_variance": np.array([2.0, math.inf]), "sampling_variance": np.array([sampling, 1.0])}
    width, endless = half_widths(level, kind="laplace", **variances)
    assert (np.abs(errors) <= width).mean() >= level - 0.003
    assert width >= half_widths(level, kind="gaussian", **variances)[0]
    assert endless == math.inf
    for kind in KINDS:
        nothing = np.zeros(1)
        (alone,) = half_widths(level, kind=kind, noise_variance=np.array([2.0]), sampling_variance=nothing)
        assert noise_width(level, kind=kind, stddev=math.sqrt(2.0)) == pytest.approx(alone, rel=1e-6)


@pytest.mark.usefixtures("seeded_releases")
@pytest.mark.parametrize("neighbors", [one.value for one in Neighbors])
@pytest.mark.parametrize("per", ["user", "record"])
def test_intervals_of_given_bounds_cover_the_truth(neighbors: str, per: str) -> None:
    """With noise and sampling of like size; 95 per cent asked for, and not far more given."""
    import hubermean as hm

    rng = np.random.default_rng(4)
    covered, widths, errors = [], [], []
    for _ in range(600):
        truth = rng.uniform(-2, 2)
        means = rng.normal(truth, 1, 500)
        counts = np.full(500, 3) if per == "record" else None
        cap = 3 if per == "record" and neighbors != "replace-values" else None
        made = hm.mean_of_user_means(
            means, counts, epsilon=1, bounds=(-6, 6), max_records=cap, neighbors=neighbors
        )
        low, high = made.interval(0.95)  # type: ignore[misc]
        covered.append(low <= truth <= high)
        widths.append(high - low)
        errors.append(abs(made.value - truth))  # type: ignore[operator]
    assert np.mean(covered) >= 0.92
    # Where nobody knows how many users stand behind the records, squares around the middle are not corrected.
    # Where users are added or removed, two noisy sums stand behind the mean: 1.57 times as wide as needed on average.
    too_wide = {("record", "add-remove"): 2.2, ("user", "add-remove"): 1.8}.get((per, neighbors), 1.6)
    assert np.median(widths) <= too_wide * 2 * np.quantile(errors, 0.95)


def test_an_interval_does_not_depend_on_what_numpy_does_about_tiny_numbers() -> None:
    """It is made when the release is read, wherever that is."""
    sampling = np.geomspace(1e-5, 1.0, 200)
    noise = np.ones_like(sampling)
    usual = half_widths(0.95, kind="laplace", noise_variance=noise, sampling_variance=sampling)
    with np.errstate(all="raise"):
        strict = half_widths(0.95, kind="laplace", noise_variance=noise, sampling_variance=sampling)
    np.testing.assert_array_equal(usual, strict)
