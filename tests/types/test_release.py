"""The front door and what it returns: accuracy in the limit, intervals, renderings, refusals."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hubermean as hm
from hubermean.data.user_table import UserTable
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.release.path import release_user_table
from hubermean.types.request import Neighbors, Request

TRIPS = pa.table(
    {
        "rider": [1, 1, 1, 2, 3, 3, 4],
        "fare": [10.0, 20.0, 30.0, 8.0, 1000.0, -1000.0, math.nan],
        "miles": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
    }
)


@pytest.mark.parametrize("neighbors", ["replace-user", "replace-values", "add-remove"])
@pytest.mark.parametrize(("per", "cap"), [("record", 2), ("user", None)])
def test_a_huge_epsilon_gives_the_clamped_mean(neighbors: str, per: str, cap: int | None) -> None:
    release = hm.mean(
        TRIPS,
        user="rider",
        value="fare",
        epsilon=1e9,
        per=per,  # type: ignore[arg-type]
        neighbors=neighbors,
        bounds=(0, 15),
        max_records=cap,
    )
    # User means 20 -> 15 (clamped), 8, 0, and one user without a usable record: weight zero where counts are
    # private, the midpoint 7.5 where they are public.
    weights = {"record": [2, 1, 2, 1], "user": [1, 1, 1, 1]}[per]
    points = [15.0, 8.0, 0.0, 7.5]
    if neighbors != "replace-values":
        weights[3] = 0
    assert release.value == pytest.approx(np.average(points, weights=weights), abs=1e-6)


def test_counts_are_capped_at_the_largest_public_count_under_replace_values() -> None:
    release = hm.mean(
        TRIPS, user="rider", value="miles", epsilon=1e9, neighbors="replace-values", bounds=(0, 9)
    )
    assert release.value == pytest.approx(4.0, abs=1e-6)
    assert release.parameters["max_records"] == 3


def test_several_columns() -> None:
    release = hm.mean(
        TRIPS.slice(0, 6),
        user="rider",
        value=["fare", "miles"],
        epsilon=1e9,
        bounds=[(0, 15), (0, 9)],
        max_records=9,
    )
    assert release.value == pytest.approx([(45 + 8 + 0) / 6, 3.5], abs=1e-6)
    assert release.columns == ("fare", "miles")
    interval = release.interval()
    assert isinstance(interval, list)
    assert len(interval) == 2


def test_noise_has_the_stated_standard_deviation() -> None:
    """Noise on a sum of values and on a sum of weights, against the closed-form standard deviation."""
    users = np.tile([2.0, 4.0], 500)
    table = UserTable.from_means(users)
    request = Request(columns=("mean",), epsilon=1.0, delta=0.0, neighbors=Neighbors.REPLACE_USER, per="user")
    mechanism = Clipped(bounds=(0.0, 6.0))
    noise = InsecureSeededNoise(11)
    draws = np.array([release_user_table(table, request, mechanism, noise).values[0] for _ in range(2000)])
    # In the middle of the bounds weights do not matter: noise of scale 2 * 3 on the sum of values, over 1,000 users.
    expected = 2 * 3 * math.sqrt(2) / 1000
    assert draws.std() == pytest.approx(expected, rel=0.08)
    assert draws.mean() == pytest.approx(3.0, abs=5 * expected / math.sqrt(2000))


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_intervals_cover_the_clamped_mean(neighbors: Neighbors, delta: float) -> None:
    generator = np.random.default_rng(3)
    means, counts = generator.uniform(-1, 9, 400), generator.integers(1, 8, 400)
    truth = float(np.average(np.clip(means, 0, 6), weights=np.minimum(counts, 4)))
    table = UserTable.from_means(means, counts)
    request = Request(columns=("mean",), epsilon=0.5, delta=delta, neighbors=neighbors, per="record")
    noise = InsecureSeededNoise(5)
    runs = 600
    covered = {0.5: 0, 0.95: 0}
    for _ in range(runs):
        release = release_user_table(table, request, Clipped(bounds=(0, 6), max_records=4), noise)
        for level in covered:
            details = release.interval_details(level)
            assert details is not None
            covered[level] += details.low[0] <= truth <= details.high[0]
    for level, count in covered.items():
        assert count / runs > level - 4 * math.sqrt(level * (1 - level) / runs)


def test_nobody_left_gives_the_midpoint_of_the_bounds_or_noise_within_them() -> None:
    empty = pa.table({"u": pa.array([], pa.int64()), "v": pa.array([], pa.float64())})
    options: dict[str, Any] = {"user": "u", "value": "v", "epsilon": 1, "bounds": (2, 4), "max_records": 5}
    assert 2 <= hm.mean(empty, **options).value <= 4
    with pytest.raises(hm.InputError, match="no users"):
        hm.mean(empty, neighbors="replace-user", **options)


def test_the_number_of_users_is_shown_only_where_it_is_public() -> None:
    options: dict[str, Any] = {
        "user": "rider",
        "value": "fare",
        "epsilon": 1.0,
        "bounds": (0, 9),
        "max_records": 2,
    }
    assert hm.mean(TRIPS, neighbors="replace-user", **options).n_users == 4
    hidden = hm.mean(TRIPS, **options)
    assert hidden.n_users is None
    assert "users (public)" not in repr(hidden)


def test_the_default_hides_whether_somebody_is_in_the_data() -> None:
    """One constant for every door; what is printed is the guarantee in the words of that relation."""
    for door in (hm.mean, hm.count, hm.mean_of_user_means, hm.audit, hm.plan, hm.Ledger.init):
        assert inspect.signature(door).parameters["neighbors"].default == "add-remove"
    release = hm.mean_of_user_means([1.0, 2.0], epsilon=1, bounds=(0, 3))
    assert release.guarantee == (
        "Adding or removing all of one user's records changes the probability of any result by at most a factor of "
        "2.72."
    )
    assert release.guarantee in " ".join(repr(release).split())


@pytest.mark.parametrize(
    ("neighbors", "public"),
    [
        ("add-remove", "2.72, plus 1e-06."),
        ("replace-user", "2.72, plus 1e-06. The number of users is public."),
        (
            "replace-values",
            "2.72, plus 1e-06. The number of users and the number of records of each user are public.",
        ),
    ],
)
def test_the_guarantee_says_what_stays_public(neighbors: str, public: str) -> None:
    release = hm.mean_of_user_means([1.0], epsilon=1, delta=1e-6, bounds=(0, 3), neighbors=neighbors)
    assert release.guarantee.endswith(
        f" changes the probability of any result by at most a factor of {public}"
    )


def test_renderings_agree_and_escape() -> None:
    table = pa.table({"u": [1, 2], "<b>[red]x": [1.0, 2.0]})
    release = hm.mean(table, user="u", value="<b>[red]x", epsilon=2, bounds=(0, 3), max_records=1)
    plain = json.loads(release.to_json())
    assert plain["value"] == release.value
    assert plain["released"] is True
    assert "<b>" not in release._repr_html_()
    assert "&lt;b&gt;" in release._repr_html_()
    assert "<b>[red]x" in repr(release)
    assert max(map(len, repr(release).splitlines())) <= 110
    assert "epsilon = 2" in repr(release)
    assert "7.39" in release.guarantee


@pytest.mark.parametrize("level", [0.0, 1.0, -1, math.nan, "0.9", True])
def test_an_impossible_level_is_refused(level: object) -> None:
    release = hm.mean_of_user_means([1.0, 2.0], epsilon=1, bounds=(0, 3))
    with pytest.raises(hm.InputError, match="level"):
        release.interval(level)  # type: ignore[arg-type]


def test_releases_made_with_seeded_noise_say_so() -> None:
    request = Request(columns=("mean",), epsilon=1.0, delta=0.0, neighbors=Neighbors.REPLACE_USER, per="user")
    table = UserTable.from_means([1.0, 2.0])
    release = release_user_table(table, request, Clipped(bounds=(0, 3)), InsecureSeededNoise(1))
    assert release.parameters["insecure_noise"] is True
    assert "insecure_noise" not in hm.mean_of_user_means([1.0], epsilon=1, bounds=(0, 3)).parameters


def test_auto_follows_what_is_known() -> None:
    means = [1.0, 2.0, 3.0]
    assert hm.mean_of_user_means(means, epsilon=1, bounds=(0, 5)).mechanism == "clipped"
    assert hm.mean_of_user_means(means, epsilon=1, threshold=2, radius=50).mechanism == "inverse-sensitivity"
    # Too few users are refused at no cost where their number is public, and where the caller estimates it.
    of_users: tuple[dict[str, Any], ...] = ({"neighbors": "replace-user"}, {"n_users": 3})
    for users, (known, sentence) in itertools.product(
        of_users,
        (
            ({}, "give bounds"),
            ({"threshold": 2}, "give radius, or bounds"),
            ({"radius": 2}, "give bounds"),
            ({"bounds": (0, 5), "per": "record"}, "give max_records"),
        ),
    ):
        with pytest.raises(hm.InputError, match=sentence):
            hm.mean_of_user_means(means, epsilon=1, **users, **known)


def test_a_mechanism_of_ones_own() -> None:
    """The protocol is small: this is a whole mechanism."""
    from hubermean.mechanisms.base import Outcome

    class Constant:
        name = "constant"

        def check(self, request: Request) -> None:
            pass

        def prepare(self, request: Request, facts: object) -> Constant:
            return self

        def run(self, table: UserTable, noise: object) -> Outcome:
            return Outcome(values=(42.0,))

    release = hm.mean(TRIPS, user="rider", value="fare", epsilon=1, mechanism=Constant())
    assert (release.value, release.mechanism, release.interval()) == (42.0, "constant", None)
    assert release.to_dict()["interval"] is None
    with pytest.raises(hm.InputError, match="leave it out"):
        hm.mean(TRIPS, user="rider", value="fare", epsilon=1, mechanism=Constant(), bounds=(0, 1))


@pytest.mark.parametrize(
    ("means", "counts", "sentence"),
    [
        (np.zeros(2, dtype=[("a", float)]), None, "array of numbers"),
        ([[[1.0]]], None, "shape"),
        ([1.0, 2.0], [1], "one whole number per user"),
        ([1.0, 2.0], np.zeros(2, dtype=[("a", int)]), "one whole number per user"),
        ([[1.0, 2.0], [3.0]], None, "shape"),
        (np.zeros((3, 0)), None, "shape"),
    ],
)
def test_bad_user_means_are_refused(means: object, counts: object, sentence: str) -> None:
    with pytest.raises(hm.InputError, match=sentence):
        hm.mean_of_user_means(means, counts, epsilon=1, bounds=(0, 1), max_records=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [3, None, [1, 2], {"u": [1]}, object()])
def test_data_of_no_known_kind_is_refused(data: object) -> None:
    with pytest.raises(hm.InputError, match="data must be"):
        hm.mean(data, user="u", value="v", epsilon=1, bounds=(0, 1), max_records=1)


def test_odd_elements_of_lists_are_judged_one_by_one() -> None:
    from helpers.neighbors import sums_by_size

    table = UserTable.from_means([1.0, None, 2**70, "x", 3], [1, 2, 3, None, 2**70])
    assert [count for _, count, _ in sums_by_size(table)].count(0) == 2
    masked = UserTable.from_means(np.ma.array([1.0, 9.0], mask=[False, True]))
    assert sorted(masked.counts.tolist()) == [0, 1]


@pytest.mark.parametrize("epsilon", [np.float32(0.5), np.int64(2)])
def test_numpy_scalars_are_numbers(epsilon: float) -> None:
    bounds = (np.int64(0), np.float64(3))
    assert hm.mean_of_user_means([1.0, 2.0], epsilon=epsilon, bounds=bounds).epsilon == float(epsilon)


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 10**400},
        {"epsilon": 1, "delta": 5e-324},
        {"epsilon": 1, "mechanism": None},
        {"epsilon": 1e-3, "delta": 1e-5, "counts": [5, 6], "max_records": 2**32},
    ],
)
def test_extreme_parameters_are_refused_in_words(options: dict[str, object]) -> None:
    try:
        release = hm.mean_of_user_means([1.0, 2.0], bounds=(0, 1.999999), **options)  # type: ignore[arg-type]
    except hm.InputError:
        return
    assert 0 <= release.value <= 2


def test_levels_close_to_one_have_an_interval() -> None:
    release = hm.mean_of_user_means([1.0, 2.0], epsilon=1, bounds=(0, 3))
    assert release.interval(0.9999999999999999) == (0.0, 3.0)


def test_every_error_is_one_of_ours() -> None:
    assert issubclass(hm.InputError, hm.HubermeanError)
    assert issubclass(hm.NotReleased, hm.HubermeanError)
    assert hm.NotReleased("no", epsilon=1, delta=0).exit_code == 1


def test_digits_follow_the_interval() -> None:
    """Values of 1e9 and a spread of one were shown as 1,000,000,000 to 1,000,000,000."""
    means = 1e9 + np.random.default_rng(33).normal(size=5000)
    shown = repr(hm.mean_of_user_means(means, epsilon=1))
    low, high = (
        float(end.replace(",", "")) for end in re.search(r"interval +(\S+) to (\S+)", shown).groups()
    )  # type: ignore[union-attr]
    assert 0.01 < high - low < 1.0
