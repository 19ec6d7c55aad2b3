"""Arrays of user means: read in blocks without copying, with the same results and little memory."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hubermean as hm
from hubermean.cli.render import print_release
from hubermean.data.encoding import BINARY, encode_binary
from hubermean.data.fixed_point import ExactIntegers, ExactSums
from hubermean.data.user_table import SumsFromMeans, UserTable, find_finite_rows
from hubermean.huber.numerics import BLOCK_ELEMENTS
from hubermean.huber.points import PointRows
from hubermean.huber.solver import find_stationary_point, huber_location
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.mechanisms.inverse_sensitivity.mechanism import InverseSensitivity
from hubermean.mechanisms.smooth_sensitivity.mechanism import SmoothSensitivity
from hubermean.mechanisms.winsorized.mechanism import Winsorized
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.release.path import release_user_table
from hubermean.types.request import Neighbors, Request

SEEDED = 17
MECHANISMS: list[Any] = [
    Clipped(bounds=(-4.0, 4.0), max_records=3),
    InverseSensitivity(threshold=2.0, radius=50.0, max_records=3),
    SmoothSensitivity(threshold=2.0, radius=50.0, max_records=3),
    Winsorized(threshold=2.0, radius=50.0, max_records=3),
]


def eager(means: NDArray[Any], counts: NDArray[np.int64]) -> UserTable:
    """The same table with every column encoded up front, as exact sums like those of grouped records."""
    usable = np.isfinite(means).all(axis=1)
    used = np.where(usable, counts, 0)
    sums = []
    for column in range(means.shape[1]):
        high, low = encode_binary(np.where(usable, means[:, column], 0.0))
        parts = ExactIntegers.products(high, used), ExactIntegers.products(low, used)
        sums.append(ExactSums(encoding=BINARY, high=parts[0], low=parts[1]))
    names = ("mean",) if len(sums) == 1 else tuple(f"mean_{column}" for column in range(len(sums)))
    return UserTable(columns=names, sums=tuple(sums), counts=used, records=counts)


def random_users(n: int, d: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Means with few bits, so that a sum divided by a count is the mean itself, some far out, some missing."""
    rng = np.random.default_rng(seed)
    means = rng.integers(-(2**11), 2**11, (n, d)) * 2.0**-10
    means[rng.random(n) < 0.1] *= 2.0**12
    means[rng.random(n) < 0.1, rng.integers(d)] = rng.choice([math.nan, math.inf, -math.inf])
    return means, rng.integers(0, 5, n)


def released(table: UserTable, mechanism: Any, neighbors: Neighbors = Neighbors.REPLACE_VALUES) -> Any:
    delta = 0.0 if isinstance(mechanism, InverseSensitivity) else 1e-5
    request = Request(columns=table.columns, epsilon=1.0, delta=delta, neighbors=neighbors, per="record")
    return release_user_table(table, request, mechanism, InsecureSeededNoise(SEEDED))


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_every_mechanism_reads_the_same_users_as_with_precomputed_sums(mechanism: Any, d: int) -> None:
    means, counts = random_users(300, d)
    lazy, reference = UserTable.from_means(means, counts), eager(means, counts)
    assert released(lazy, mechanism).to_dict() == released(reference, mechanism).to_dict()
    assert lazy.limits == reference.limits
    assert np.array_equal(lazy.means, reference.means, equal_nan=True)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_any_array_of_the_same_numbers_gives_the_same_release(mechanism: Any, tmp_path: Path) -> None:
    means, counts = random_users(200, 3)
    single = means.astype(np.float32)
    assert np.array_equal(single, means, equal_nan=True)
    on_disk = np.memmap(tmp_path / "means", dtype=np.float32, mode="w+", shape=means.shape)
    on_disk[:] = single
    padded = np.zeros((200, 7))
    padded[:, 2:5] = means
    objects = means.astype(object)
    objects[~np.isfinite(means)] = None
    same: list[Any] = [single, on_disk, np.asfortranarray(means), padded[:, 2:5], means.astype(">f8")]
    same += [means.astype(np.longdouble), means.tolist(), objects, np.ma.masked_invalid(means)]
    expected = released(UserTable.from_means(means, counts), mechanism).to_dict()
    for one in same:
        assert released(UserTable.from_means(one, counts), mechanism).to_dict() == expected


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_, np.float16])
def test_integers_and_short_floats_are_converted_on_reading(dtype: Any) -> None:
    means = np.random.default_rng(1).integers(0, 2, (60, 2)).astype(dtype)
    counts = np.ones(60, dtype=np.int64)
    for mechanism in MECHANISMS:
        one, other = (UserTable.from_means(array, counts) for array in (means, means.astype(np.float64)))
        assert released(one, mechanism).to_dict() == released(other, mechanism).to_dict()


def test_numbers_too_large_for_float64_make_a_user_unusable() -> None:
    means = np.ones((5, 2), dtype=np.longdouble)
    if np.finfo(np.longdouble).max == np.finfo(np.float64).max:
        pytest.skip("no longer type than float64 here")
    means[2, 1] = np.longdouble(10) ** 400
    table = UserTable.from_means(means)
    assert table.counts.tolist() == [1, 1, 0, 1, 1]
    for mechanism in MECHANISMS:
        assert all(map(math.isfinite, released(table, mechanism).values))


def test_sums_are_computed_lazily() -> None:
    means, counts = random_users(40, 5)
    sums, reference = UserTable.from_means(means, counts).sums, eager(means, counts).sums
    assert len(sums) == 5
    for one, other in zip(
        [*sums, sums[-1], *sums[1:3]], [*reference, reference[-1], *reference[1:3]], strict=True
    ):
        assert [one.fraction(i) for i in range(40)] == [other.fraction(i) for i in range(40)]
    with pytest.raises(IndexError):
        sums[5]


def test_the_callers_array_is_neither_copied_nor_locked() -> None:
    means = np.zeros((10, 3), dtype=np.float32)
    table = UserTable.from_means(means)
    assert np.shares_memory(table.matrix(), means)
    assert not table.matrix().flags.writeable
    means[0] = 1.0
    one = np.zeros(10)
    assert np.shares_memory(UserTable.from_means(one).matrix(), one)


def test_smooth_sensitivity_and_public_facts_never_encode_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: SumsFromMeans, column: object) -> None:
        raise AssertionError("a column was encoded")

    monkeypatch.setattr(SumsFromMeans, "__getitem__", refuse)
    released(
        UserTable.from_means(np.zeros((4, 3))), SmoothSensitivity(threshold=1.0, radius=1.0, max_records=1)
    )


# -- a user's point is the same float everywhere --------------------------------------------------------------


def misaligned(array: NDArray[np.float64], offset: int) -> NDArray[np.float64]:
    """A copy that starts `offset` numbers after an allocation's start and has a gap after every row."""
    room = np.empty((len(array), array.shape[1] + 3 + offset))
    room[:, offset : offset + array.shape[1]] = array
    return room[:, offset : offset + array.shape[1]]


@pytest.mark.parametrize("d", [1, 2, 3, 7, 33, 1000, 20_011])
def test_a_users_point_is_the_same_in_any_block_order_and_layout(
    d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(d)
    n = 90 if d < 5000 else 21
    means = rng.standard_cauchy((n, d)) * 10.0 ** rng.integers(-3, 9, (n, 1))
    means[3] = 1e308
    radius = 30.0
    alone = np.vstack([PointRows.within_ball(row[np.newaxis].copy(), radius)[:] for row in means])
    assert float(np.max(np.linalg.norm(alone, axis=1))) <= radius * (1 + 1e-12)
    near = np.abs(means).max(axis=1) < radius / (2.0 * math.sqrt(d))
    assert np.array_equal(alone[near], means[near])
    order = rng.permutation(n)
    some = np.sort(rng.choice(n, n // 2, replace=False))
    for elements in (1, 10 * d, 2**16):
        monkeypatch.setattr("hubermean.huber.numerics.BLOCK_ELEMENTS", elements)
        for array in (means, np.asfortranarray(means), misaligned(means, 1), misaligned(means, 3)):
            assert np.array_equal(PointRows.within_ball(array, radius)[:], alone)
            assert np.array_equal(PointRows.within_ball(array[order], radius)[:], alone[order])
            chosen = PointRows.within_ball(array, radius, chosen=some)
            assert np.array_equal(chosen[:], alone[some])
            assert np.array_equal(chosen[2:9], alone[some][2:9])
            assert np.array_equal(chosen[np.array([1, 5])], alone[some][[1, 5]])
            buffer = np.empty((5, d))
            for start in range(n - 5):
                assert np.array_equal(
                    PointRows.within_ball(array[start:], radius).read(slice(0, 5), buffer),
                    alone[start : start + 5],
                )
                if d > 1000:
                    break


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("radius", [1e-30, 1e-12, 30.0, 1e25, 1e60])
@pytest.mark.parametrize("d", [3, 1000, 70_001])
def test_skipped_rows_are_those_that_clipping_leaves_unchanged(
    d: int, radius: float, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms from far inside to outside, also where squares are lost or leave the range of the type."""
    rng = np.random.default_rng(d)
    directions = rng.standard_normal((16, d))
    directions[8:] = rng.standard_cauchy((8, d))
    directions[4:8, 1:] = 0.0
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = radius * np.array([0.0, 0.3, 0.61, 0.62, 0.9, 0.999999, 1.000001, 1.5] * 2)
    with np.errstate(over="ignore"):
        means = (directions * lengths[:, np.newaxis]).astype(dtype)
    means = means[np.isfinite(means).all(axis=1)]
    finite, squares = find_finite_rows(means)
    assert finite.all()
    some = np.arange(len(means))[::-2]
    quick = [
        [float(PointRows.within_ball(row[np.newaxis], radius).factors[0]) for row in means],
        PointRows.within_ball(means, radius).factors.tolist(),
        PointRows.within_ball(means, radius, squares=squares).factors.tolist(),
    ]
    of_some = PointRows.within_ball(means, radius, chosen=some, squares=squares).factors.tolist()
    monkeypatch.setattr("hubermean.huber.points._few_squares_lost", lambda *_: False)
    whole = PointRows.within_ball(means, radius).factors.tolist()
    assert quick == [whole] * 3
    assert of_some == [whole[place] for place in some]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_a_user_is_usable_if_all_its_numbers_are_finite(dtype: type) -> None:
    """Also where their squares are not, and whoever stands beside it."""
    most = float(np.finfo(dtype).max) if dtype is not np.longdouble else 1e308
    means = np.ones((9, 5000), dtype=dtype)
    means[1, 4999], means[2, 17], means[3, 0] = np.nan, np.inf, -np.inf
    means[4], means[5, 3], means[6, 8:10] = most, most, [np.inf, -np.inf]
    table = UserTable.from_means(means)
    assert table.counts.tolist() == [1, 0, 0, 0, 1, 1, 0, 1, 1]


def test_excluded_users_leave_no_trace() -> None:
    """A table with unusable rows, wherever they stand, is the table without them."""
    rng = np.random.default_rng(4)
    means = rng.standard_cauchy((400, 300)) * 5.0
    mechanism = SmoothSensitivity(threshold=300.0, radius=500.0, max_records=2)
    counts = rng.integers(1, 4, 400)
    for share in (0.002, 0.3, 0.99):
        gaps = rng.random(400) < share
        gaps[7] = True
        holes = means.copy()
        holes[gaps, rng.integers(0, 300, gaps.sum())] = math.nan
        one = released(UserTable.from_means(holes, counts), mechanism, Neighbors.ADD_REMOVE)
        other = released(UserTable.from_means(means[~gaps], counts[~gaps]), mechanism, Neighbors.ADD_REMOVE)
        assert one.to_dict() == other.to_dict()


# -- wide data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [300, 30_000])
def test_the_center_of_wide_data_is_certified(d: int) -> None:
    rng = np.random.default_rng(d)
    points = rng.normal(1.0, 1.0, (60, d))
    points[:12] += 50.0
    weights = rng.integers(1, 4, 60)
    threshold = 1.2 * math.sqrt(d)
    found = find_stationary_point(points, weights=weights, thresholds=threshold, tolerance=1e-9)
    offsets = found.point - points
    influences = weights * threshold / np.maximum(np.linalg.norm(offsets, axis=1), threshold)
    assert float(np.linalg.norm(influences @ offsets)) <= found.norm_bound + 1e-8
    located = huber_location(
        PointRows(array=points.astype(np.float32)), weights=weights, thresholds=threshold
    )
    assert float(np.linalg.norm(located.point - found.point)) < 1e-3
    everyone = find_stationary_point(points, thresholds=1e6)
    assert np.allclose(everyone.point, points.mean(axis=0), atol=1e-9)


def peak_of(run: Callable[[], object]) -> int:
    run()  # imports and caches are not what is measured
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("hostile", [False, True])
def test_memory_does_not_follow_the_size_of_the_means(
    dtype: Any, hostile: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubermean.data.threads.count_processors", lambda: 2)
    n, d = 600, 20_000
    means = np.memmap(tmp_path / "means", dtype=dtype, mode="w+", shape=(n, d))
    means[:] = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    if hostile:  # everyone far away, every other user unusable: every block is cast, gathered and shrunk
        means *= 1e6
        means[::2, 5] = math.nan
    known = {"threshold": 200.0, "radius": 300.0, "mechanism": "smooth-sensitivity"}
    peak = peak_of(lambda: hm.mean_of_user_means(means, epsilon=1.0, delta=1e-6, **known))
    # A few dozen rows: the sample for the start, the solver's memory, names and released numbers as Python objects; and
    # a block with two copies per thread.
    assert peak < 80 * 8 * d + 2 * 3 * 8 * BLOCK_ELEMENTS


@pytest.mark.slow
def test_five_thousand_users_with_a_hundred_thousand_columns(tmp_path: Path) -> None:
    n, d = 5_000, 100_000
    means = np.memmap(tmp_path / "means", dtype=np.float32, mode="w+", shape=(n, d))
    rng = np.random.default_rng(0)
    for start in range(0, n, 100):
        means[start : start + 100] = rng.standard_normal((100, d), dtype=np.float32)
    known = {"threshold": 400.0, "radius": 1000.0, "mechanism": "smooth-sensitivity"}
    tracemalloc.start()
    release = hm.mean_of_user_means(means, epsilon=1.0, delta=1e-6, **known)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del means
    (tmp_path / "means").unlink()  # 2 GB that pytest would keep
    assert len(release.values) == d
    assert peak < 100 * 8 * d


# -- what random_users see ------------------------------------------------------------------------------------------


def test_a_release_of_many_columns_is_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    means = np.tile([0.0, 1.0], (4, 200))
    clipped = hm.mean_of_user_means(means, epsilon=1e6, bounds=[(0.0, 2.0)] * 400)
    smooth = hm.mean_of_user_means(
        means, epsilon=1.0, delta=0.1, mechanism="smooth-sensitivity", threshold=1.0, radius=99.0
    )
    for release in (clipped, smooth):
        assert len(repr(release).splitlines()) < 50
        assert len(repr(release)) < 5_000
        assert "and 390 more columns" in repr(release)
        assert "mean_9 " in repr(release)
        assert "mean_10 " not in repr(release)
        assert len(json.loads(release.to_json())["value"]) == 400
        assert len(release._repr_html_()) < 10_000
        print_release(release)
        assert len(capsys.readouterr().out.splitlines()) < 80
    table = UserTable.from_means(means)
    assert repr(table).count("mean_") == 8
    assert "and 392 more" in repr(table)
    assert repr(UserTable.from_means([1.0])) == "UserTable(columns=('mean',), private contents not shown)"
