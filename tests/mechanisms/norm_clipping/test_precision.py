"""The data of one user do not decide in which precision the rows of others are computed, in any container."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from hubermean.data.user_table import UserTable, pad_users
from hubermean.ingest.vectors import open_vectors
from hubermean.mechanisms.norm_clipping.users import RADII, CountWithin, View
from hubermean.types.request import Request

USERS = 300
# Squares of these add up to 2^25 + 1, which single precision rounds to the square of a radius on the grid.
EDGE = np.array([4096, 4096, 1, 0])


def with_null_in_integers(missing: bool) -> Any:
    columns = {f"c{place}": [int(number)] * USERS for place, number in enumerate(EDGE)}
    frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int16))
    first = pl.int_range(pl.len()) == 0
    return frame.with_columns(pl.when(first & missing).then(None).otherwise(pl.col("c3")).alias("c3"))


def with_missing_small_integer(missing: bool) -> Any:
    frame = pd.DataFrame(np.tile(EDGE, (USERS, 1)).astype(np.float32), columns=list("abcd"))
    last = pd.Series([0] * USERS, dtype="int8")
    return frame.assign(d=last.where(last.index > 0) if missing else last)


def with_text(missing: bool) -> Any:
    frame = pd.DataFrame(np.tile(EDGE, (USERS, 1)).astype(np.float32), columns=list("abcd"))
    if missing:
        frame["d"] = frame["d"].astype(object)
        frame.loc[0, "d"] = "none"
    return frame


def masked(missing: bool) -> Any:
    array = np.tile(EDGE, (USERS, 1)).astype(np.float32)
    mask = np.zeros(array.shape, dtype=bool)
    mask[0, 3] = missing
    return np.ma.MaskedArray(array, mask=mask)


class OfContent:
    """A container that is as wide as its widest number."""

    def __init__(self, missing: bool) -> None:
        self.missing = missing

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = np.tile(EDGE, (USERS, 1)).astype(np.float64 if self.missing else np.float32)
        array[0, 3] = np.nan if self.missing else 0.0
        return array if dtype is None else array.astype(dtype)


def big_endian(missing: bool) -> Any:
    return np.tile(EDGE, (USERS - missing, 1)).astype(">f4")


@pytest.mark.parametrize(
    "container", [with_null_in_integers, with_missing_small_integer, with_text, masked, OfContent, big_endian]
)
def test_one_user_does_not_change_the_norms_of_others(container: Callable[[bool], Any]) -> None:
    found = []
    for missing in (False, True):
        table = pad_users(UserTable.from_means(container(missing)), USERS)
        assert isinstance(table, UserTable)
        request = Request.checked(
            table.columns, epsilon=1.0, delta=1e-6, per="user", neighbors="replace-user"
        )
        found.append(CountWithin(View(request=request, cap=1))(table)[0])
    assert np.abs(found[0] - found[1]).max() <= 1
    assert found[0].max() == USERS == found[1].max() + 1


def test_single_precision_is_declared(tmp_path: Any) -> None:
    """By the type of an array, in memory or mapped, or of a file; where numbers are, it saves half of the time."""
    numbers = np.tile(EDGE, (USERS, 1))
    for dtype, single in (("<f4", True), (">f4", True), ("f2", True), ("f8", False), ("i2", False)):
        assert UserTable.from_means(numbers.astype(dtype)).in_single is single
    np.save(tmp_path / "m.npy", numbers.astype(np.float32))
    table = UserTable.from_means(np.load(tmp_path / "m.npy", mmap_mode="r"))
    assert table.in_single
    assert table.take(np.array([0, -1])).in_single
    assert all(part.in_single for part in table.blocks())
    for kind, single in ((pa.float32(), True), (pa.float64(), False)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel().astype(float)).cast(kind), 4)
        pq.write_table(
            pa.table({"u": pa.array(range(USERS)).cast(pa.string()), "v": lists}), tmp_path / "v.parquet"
        )
        with open_vectors(hm.vectors(tmp_path / "v.parquet", user="u", value="v")) as read:
            assert read.in_single is single
    radius = RADII[np.searchsorted(RADII, 4096 * 2**0.5)]
    assert radius < np.sqrt((EDGE.astype(float) ** 2).sum())
