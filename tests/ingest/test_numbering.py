"""Numbers in place of ids: the same for equal ids, different for others, and as many as there are ids."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hubermean.ingest.numbering import number_integers


@pytest.mark.parametrize(
    "ids",
    [
        [3, 1, 2, 0, 1],  # all of a range from zero on
        [12, 10, 11, 12],  # all of another one
        [0, 5, 2, 5],  # with gaps
        [-4, 3, -4, 1],
        [2**62, -(2**62), 5, 5],  # far apart
        [],
    ],
)
@pytest.mark.parametrize("null", [False, True])
def test_numbers_are_one_per_integer(ids: list[int], null: bool) -> None:
    cells = [*ids, None] if null else ids
    column = pa.chunked_array([pa.array(cells[:2], pa.int64()), pa.array(cells[2:], pa.int64())])
    numbers, found = number_integers(column)
    assert len(found) == len(set(ids))
    assert [None if number < 0 else int(found[number]) for number in numbers] == cells
    assert int(np.max(numbers, initial=-1)) == len(found) - 1
