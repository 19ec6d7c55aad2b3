"""Numbers in place of ids: rows with the same cells get the same number, and no others do.

Never by a hash alone: users choose their ids, and two ids whose hashes are equal would be one user.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hubermean.data.arrays import IntArray

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_SPARSENESS = 4  # integers in a range up to this many times their number are looked up in an array of it


def number_integers(column: pa.ChunkedArray) -> tuple[IntArray, IntArray]:
    """Return the number of each integer of up to 64 bits with a sign, -1 for null, and the integers in their order."""
    if not column.null_count:
        return _number(_int64(column))
    present = ~np.asarray(column.is_null())
    codes = np.full(len(column), -1, dtype=np.int64)
    codes[present], found = _number(_int64(column.drop_null()))
    return codes, found


def number_texts(column: pa.ChunkedArray) -> tuple[IntArray, pa.Array]:
    """Return the number of each text, -1 for null, and the texts in their order; compared byte by byte."""
    import pyarrow as pa

    encoded = column.combine_chunks().dictionary_encode()
    encoded = encoded if isinstance(encoded, pa.DictionaryArray) else encoded.chunk(0)
    return _int64(pa.chunked_array([encoded.indices.fill_null(-1)])), encoded.dictionary


def combine_numbers(columns: Sequence[tuple[IntArray, int]]) -> tuple[IntArray, list[IntArray]]:
    """Return the number of each combination, -1 where one of the numbers is, and per column those of the combinations.

    `columns` are numbers, and the limit that they are below.
    """
    if len(columns) == 1:
        codes, size = columns[0]
        return codes, [np.arange(size)]
    usable = np.flatnonzero(np.all([codes >= 0 for codes, _ in columns], axis=0))
    combined = np.zeros(len(usable), dtype=np.int64)
    for codes, size in columns:
        # Renumbered after every column, so that the product stays small.
        combined = np.unique(combined * size + codes[usable], return_inverse=True)[1]
    first = np.unique(combined, return_index=True)[1]
    whole = np.full(len(columns[0][0]), -1, dtype=np.int64)
    whole[usable] = combined
    return whole, [codes[usable][first] for codes, _ in columns]


def _number(integers: IntArray) -> tuple[IntArray, IntArray]:
    import pyarrow as pa

    if not len(integers):
        return integers, integers
    low, high = int(integers.min()), int(integers.max())
    if high - low < _MAX_SPARSENESS * len(integers):
        offsets = integers - low if low else integers
        occurs = np.zeros(high - low + 1, dtype=bool)
        occurs[offsets] = True
        found = np.flatnonzero(occurs)
        if len(found) == len(occurs):
            return offsets, found + low
        numbers = np.cumsum(occurs, dtype=np.int64)
        numbers -= 1
        return numbers.take(offsets, mode="clip"), found + low  # in range, and faster than by an index
    encoded = pa.array(integers).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_numpy()


def _int64(column: pa.ChunkedArray) -> IntArray:
    array: IntArray = np.from_dlpack(column.combine_chunks()).astype(np.int64, copy=False)
    return array
