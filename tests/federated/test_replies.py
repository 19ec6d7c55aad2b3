"""Hostile replies count as zero: they never raise, never weigh, never end a round."""

from __future__ import annotations

import math
import tracemalloc
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hubermean as hm
from hubermean.federated import PrivateAverage, Reply
from hubermean.federated.clipping import clip_and_add, squared_lengths
from hubermean.federated.updates import UpdateShape
from hubermean.noise.seeded import InsecureSeededNoise

LIKE = {"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(3)}
CLIENTS = 20


def honest() -> dict[str, Any]:
    return {"weight": np.ones((2, 3), np.float32), "bias": np.full(3, 0.5)}


def average(**given: Any) -> PrivateAverage:
    wanted: dict[str, Any] = {
        "epsilon": 1e4,
        "delta": 1e-5,
        "rounds": 4,
        "population": CLIENTS,
        "threshold": 5.0,
        "like": LIKE,
    }
    return PrivateAverage(noise=InsecureSeededNoise, **(wanted | given))


def flat(update: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.ravel(update["weight"]), np.ravel(update["bias"])])


class Raises:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise SystemError("no")


class Warns:
    def __array__(self, *_: Any, **__: Any) -> Any:
        warnings.warn("a secret", stacklevel=1)
        return np.array([np.inf, 1.0, 2.0])


class EndlessKeys(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        while True:
            yield "bias"

    def __len__(self) -> int:
        return 2


class LyingArray(np.ndarray):
    """A subclass with a shape and a finiteness of its own."""

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return (3,)

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        return np.zeros(3)


def with_bias(bias: Any) -> dict[str, Any]:
    return honest() | {"bias": bias}


nested: list[Any] = []
nested.append(nested)

HOSTILE: dict[str, Any] = {
    "missing": None,
    "NaN": with_bias([np.nan, 0, 0]),
    "infinite": with_bias([np.inf, 0, 0]),
    "minus infinite": with_bias([0, -np.inf, 0]),
    "another shape": with_bias(np.zeros(4)),
    "a column": with_bias(np.zeros((3, 1))),
    "a number": 3.0,
    "an array": np.zeros(9),
    "a key too many": honest() | {"more": np.zeros(1)},
    "a key missing": {"weight": np.zeros((2, 3))},
    "text": with_bias(["1", "2", "3"]),
    "bytes": with_bias(b"123"),
    "objects": with_bias(np.array([1.0, None, 2.0], object)),
    "huge integers": with_bias([10**400, 0, 0]),
    "complex": with_bias(np.zeros(3, complex)),
    "dates": with_bias(np.array(["2026-01-01"] * 3, "datetime64[D]")),
    "structures": with_bias(np.zeros(3, [("a", float)])),
    "booleans": with_bias(np.ones(3, bool)),
    "ragged": with_bias([[1.0], [2.0, 3.0], 1.0]),
    "endless list": with_bias(nested),
    "raises": with_bias(Raises()),
    "warns": with_bias(Warns()),
    "endless keys": EndlessKeys(),
    "a lying subclass": with_bias(np.zeros(7).view(LyingArray)),
    "terabytes": with_bias(np.broadcast_to(1.0, (10**12,))),
    "beyond a double": with_bias(np.array([np.finfo(np.longdouble).max, 0, 0], np.longdouble)),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("center", ["zero", "last"])
def test_a_hostile_reply_counts_as_zero(kind: str, center: str) -> None:
    with_it, without = average(center=center), average(center=center)
    for _ in range(2):
        replies = [honest() for _ in range(CLIENTS - 1)]
        assert np.array_equal(
            flat(with_it.aggregate([*replies, HOSTILE[kind]])), flat(without.aggregate(replies))
        )


def test_all_hostile_replies_together_give_only_noise() -> None:
    found = average().aggregate(list(HOSTILE.values()))
    assert np.abs(flat(found)).max() < 0.05


@pytest.mark.parametrize(
    "far",
    [
        with_bias([1e308, -1e308, 1e308]),
        with_bias(np.full(3, np.finfo(np.float64).max)),
        with_bias(np.full(3, 60_000, np.float16)),
        with_bias([2**63, 0, 0]),
        with_bias(np.full(3, 2**64 - 1, np.uint64)),
        with_bias(np.array([1e300, 0, 0], np.longdouble)),
    ],
)
def test_a_far_reply_moves_the_average_by_the_threshold(far: Any) -> None:
    replies = [honest() for _ in range(CLIENTS - 1)]
    one = average(threshold=2.0)
    bound = one.influence_bound(hostile=1 / CLIENTS)
    apart = flat(one.aggregate([*replies, far])) - flat(average(threshold=2.0).aggregate(replies))
    assert np.linalg.norm(apart) <= bound * (1 + 1e-6)
    assert np.linalg.norm(apart) >= bound * (1 - 1e-3)


@pytest.mark.parametrize("tiny", [5e-324, 1e-300, 2.3e-308])
def test_denormal_replies_and_thresholds(tiny: float) -> None:
    replies = [{"weight": np.zeros((2, 3)), "bias": np.full(3, tiny)}] * CLIENTS
    assert np.isfinite(flat(average().aggregate(replies))).all()
    small = average(threshold=2.0**-300).aggregate([honest()] * CLIENTS)
    assert np.linalg.norm(flat(small)) <= 2.0**-299


def test_a_reply_cannot_claim_a_weight() -> None:
    """There is no place to write one: a pair of an update and a number is another shape."""
    replies = [honest() for _ in range(CLIENTS - 1)]
    claimed = average().aggregate([*replies, (honest(), 10**6)])
    assert np.array_equal(flat(claimed), flat(average().aggregate(replies)))


def test_clients_that_reply_twice_or_late_count_as_zero() -> None:
    replies = [Reply(client=number, update=honest(), round=1) for number in range(10)]
    without = flat(average().aggregate(replies))
    twice = [Reply(client="a", update=honest()), Reply(client="a", update=honest())]
    late = [Reply(client="b", update=honest(), round=0), Reply(client="c", update=honest(), round=2)]
    unnamed = [Reply(client=[], update=honest())]
    assert np.array_equal(flat(average().aggregate([*replies, *twice, *late, *unnamed])), without)
    # A late reply does not cost the client its reply in time.
    both = [*replies, Reply(client=0, update=honest(), round=7)]
    assert np.array_equal(flat(average().aggregate(both)), without)


def test_only_drawn_clients_count() -> None:
    given: dict[str, Any] = {"sampling": "poisson", "sampling_rate": 0.5, "epsilon": 10.0}
    one, other = average(**given), average(**given)
    drawn = one.draw_cohort(range(CLIENTS))
    assert other.draw_cohort(range(CLIENTS)) == drawn
    assert 0 < len(drawn) < CLIENTS
    everybody = {number: honest() for number in range(CLIENTS)}
    assert np.array_equal(
        flat(one.aggregate(everybody)), flat(other.aggregate({number: honest() for number in drawn}))
    )


def test_a_cohort_is_drawn_once() -> None:
    one = average(sampling="poisson", sampling_rate=0.5)
    with pytest.raises(hm.InputError, match="draw_cohort"):
        one.aggregate({1: honest()})
    drawn = one.draw_cohort(range(100))
    assert one.draw_cohort(reversed(range(100))) == drawn[::-1]
    assert one.draw_cohort(range(50)) == [number for number in drawn if number < 50]
    with pytest.raises(hm.InputError, match="dictionary of updates by client"):
        one.aggregate([honest()])
    one.aggregate({number: honest() for number in drawn})
    assert one.draw_cohort(range(100)) != drawn


def test_coins_are_fair_to_the_rate() -> None:
    from hubermean.federated.cohort import Cohort
    from hubermean.noise import SystemNoise

    drawn = len(Cohort(0.3, SystemNoise()).draw(range(20_000)))
    assert abs(drawn - 6_000) < 5.5 * (20_000 * 0.21) ** 0.5  # one run in 26 million fails


@pytest.mark.parametrize("updates", [None, 3, np.float64(1.0), object()])
def test_a_container_that_is_none_is_refused(updates: Any) -> None:
    one = average()
    with pytest.raises(hm.InputError):
        one.aggregate(updates)
    assert one.rounds_done == 0


def test_clipped_integers_are_within_the_threshold_and_lose_nothing() -> None:
    rng = np.random.default_rng(3)
    units = 2**40
    for size in (1, 2, 1000):
        rows = rng.standard_normal((300, size)) * 10.0 ** rng.uniform(-320, 300, 300)[:, None]
        rows[::3] = rng.standard_normal((100, size))
        rows[::3] /= np.linalg.norm(rows[::3], axis=1)[:, None]  # at the threshold, but for rounding
        for row in rows:
            units_of = {
                "threshold": 1.0,
                "threshold_units": units,
                "count_within": 1.0,
                "count_units": (1, 1),
            }
            found = clip_and_add([row[None].copy()], size=size, center=None, **units_of)  # type: ignore[arg-type]
            assert sum(one**2 for one in found.sums.tolist()) <= units**2  # exact
            if math.hypot(*row) <= 0.999:
                assert np.abs(found.sums / units - row).max() <= 1.1 / units
            assert abs(found.count) <= 1


@pytest.mark.parametrize("size", [1, 2, 7, 4097, 40_000])
@pytest.mark.parametrize("order", ["C", "F"])
def test_how_a_row_is_clipped_depends_on_nothing_but_the_row(size: int, order: Any) -> None:
    rng = np.random.default_rng(size)
    center = rng.standard_normal(size)
    rows = center + rng.standard_normal((9, size))
    shape = UpdateShape(np.zeros(size))

    def totals(given: np.ndarray, threshold: float) -> tuple[bytes, int]:
        units: dict[str, Any] = {"threshold_units": 2**40, "count_units": (3, 500)}
        blocks = shape.blocks(np.array(given, order=order))
        units["count_within"] = threshold
        found = clip_and_add(blocks, size=size, center=center, threshold=threshold, **units)
        return found.sums.tobytes(), found.count

    far = center + 1e9
    for row in rows:
        # The threshold is at the row's own length, where the last bit decides what it counts as.
        alone = np.ascontiguousarray(row[None])
        offset = alone - center
        largest = np.abs(offset).max()
        length = float(largest * np.sqrt(squared_lengths(offset / largest))[0])
        for threshold in (length, np.nextafter(length, 0.0)):
            absent = totals(far[None], threshold)[1]
            single = totals(alone, threshold)
            for position in (0, 1, 8):
                others = np.tile(center, (9, 1))  # each adds nothing to the sums, and 3 to the count
                others[position] = row
                assert totals(others, threshold) == (single[0], single[1] + 8 * 3)
            assert totals(np.vstack([far, row]), threshold)[1] == single[1] + absent


def test_squared_lengths_do_not_depend_on_the_block() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 3, 50, 4097, 70_001):
        rows = rng.standard_normal((70, size))
        found = squared_lengths(rows)
        assert np.array_equal(squared_lengths(np.asfortranarray(rows)), found)
        assert np.array_equal(np.concatenate([squared_lengths(row[None]) for row in rows]), found)
        assert np.array_equal(squared_lengths(rows[::-3]), found[::-3])
        assert np.allclose(found, (rows**2).sum(axis=1))


def test_names_that_are_not_equal_to_themselves_are_nobodys() -> None:
    unlike = [float("nan") for _ in range(CLIENTS)]
    found = average().aggregate([Reply(client=client, update=honest()) for client in unlike])
    assert np.array_equal(flat(found), flat(average().aggregate([])))
    assert np.array_equal(flat(average().aggregate(dict.fromkeys(unlike, honest()))), flat(found))
    for sampling in ({}, {"sampling": "poisson", "sampling_rate": 0.5}):
        with pytest.raises(hm.InputError, match="equal to itself"):
            average(**sampling).draw_cohort([1, *unlike])


class SilentClass:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")

    @__class__.setter
    def __class__(self, _: Any) -> None:
        raise RuntimeError("no class")


class ReplyWithoutUpdate(Reply):
    @property
    def update(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no update")

    @update.setter
    def update(self, _: Any) -> None:
        pass


@pytest.mark.parametrize("sampling", [{}, {"sampling": "poisson", "sampling_rate": 0.9999999}])
def test_a_reply_that_raises_when_it_is_looked_at_ends_no_round(sampling: dict[str, Any]) -> None:
    one = average(**sampling)
    one.draw_cohort(range(CLIENTS))
    replies: list[Any] = [Reply(client=number, update=honest()) for number in range(1, CLIENTS)]
    bad = [ReplyWithoutUpdate(client=0, update=None)] + ([] if sampling else [SilentClass()])
    found = one.aggregate([*replies, *bad])
    assert flat(found)[0] == pytest.approx(1 - 1 / CLIENTS, abs=0.05)


def test_names_that_cannot_be_compared_are_refused() -> None:
    class Name:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            if other is self:
                return True
            raise RuntimeError("no")

    one = average()
    with pytest.raises(hm.InputError, match="cannot be compared"):
        one.aggregate([Reply(client=Name(), update=honest()), Reply(client=Name(), update=honest())])
    assert one.rounds_done == 0


def test_lists_that_share_parts_take_no_memory() -> None:
    bomb: Any = [0.0] * 1000
    for _ in range(2):
        bomb = [bomb] * 300
    tracemalloc.start()
    try:
        for given in (bomb, [bomb] * 3, range(10**8), ["x" * 10**6] * 3, [["x" * 10**6] * 3] * 2):
            average().aggregate([with_bias(given), {"weight": given, "bias": [0, 0, 0]}])
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "given",
    [
        "some text",
        pd.DataFrame(np.ones((CLIENTS, 9))),
        np.ma.masked_all((CLIENTS, 9)),
    ],
    ids=["text", "DataFrame", "masked"],
)
def test_a_container_that_would_use_up_a_round_is_refused(given: Any) -> None:
    one = average(like=np.zeros(9))
    with pytest.raises(hm.InputError, match="updates"):
        one.aggregate(given)
    assert one.rounds_done == 0


def test_masked_numbers_are_no_reply() -> None:
    found = average().aggregate([with_bias(np.ma.array(np.ones(3), mask=[1, 0, 0]))] * CLIENTS)
    assert np.array_equal(flat(found), flat(average().aggregate([])))
