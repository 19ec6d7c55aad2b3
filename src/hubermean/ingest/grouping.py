"""The one query of ingest: exact integer sums and counts per user, and nothing that names a user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hubermean.exact import ExactIntegers, ExactSums
from hubermean.ingest.columns import ValueColumn
from hubermean.ingest.files import identifier
from hubermean.user_table import UserTable

if TYPE_CHECKING:
    import pyarrow as pa


def grouping_query(
    source: str, *, users: Sequence[str], has_user: Sequence[str], values: Sequence[ValueColumn], records: bool
) -> str:
    """SQL for the per-user integers of `source`.

    A record is usable when every one of its values is; the others add nothing to a sum but keep their user in
    the table. Three nested selects: scale each value once, split it into parts, add the parts up.
    """
    key_names = [f"user_{number}" for number in range(len(users))]
    renamed = ", ".join(f"{identifier(user)} AS {name}" for user, name in zip(users, key_names, strict=True))
    scaled = ", ".join(f"{value.scaled} AS {identifier(value.alias)}" for value in values)
    all_usable = " AND ".join(f"{identifier(value.alias)} IS NOT NULL" for value in values)
    parts, sums = [], []
    for value in values:
        for number, part in enumerate(value.parts):
            name = f"{value.alias}_{number}"
            # With one column a part is null exactly where the record is unusable; no condition is needed.
            parts.append(f"CASE WHEN {all_usable} THEN {part} END AS {name}" if len(values) > 1 else f"{part} AS {name}")
            sums.append(f"sum({name}) AS {name}")
    counted = [f"count({values[0].alias}_0) AS usable"] + (["count(*) AS records"] if records else [])
    return (
        f"SELECT {', '.join(counted + sums)} FROM ("
        f"SELECT {', '.join(key_names + parts)} FROM ("
        f"SELECT {renamed}, {scaled} FROM {source} WHERE {' AND '.join(has_user)}"
        f")) GROUP BY {', '.join(key_names)}"
    )


def read_user_table(table: pa.Table, values: Sequence[ValueColumn]) -> UserTable:
    """The result of `grouping_query` as a `UserTable`."""
    usable = _int64(table.column("usable"))
    records = _int64(table.column("records")) if "records" in table.column_names else usable
    sums = []
    for value in values:
        parts = [_exact(table.column(f"{value.alias}_{number}")) for number in range(len(value.parts))]
        high = parts[0] if len(parts) == 2 else None
        sums.append(ExactSums(encoding=value.encoding, low=parts[-1], high=high))
    return UserTable(
        columns=tuple(value.name for value in values), sums=tuple(sums), counts=usable, records=records
    )


def _int64(column: pa.ChunkedArray) -> NDArray[np.int64]:
    array: NDArray[np.int64] = column.to_numpy().astype(np.int64)
    return array


def _exact(column: pa.ChunkedArray) -> ExactIntegers:
    """A column of 128-bit sums, read from its words; a user with nothing to sum has zero."""
    lows, highs = [], []
    for chunk in column.chunks:
        words = _words(chunk)
        if chunk.null_count:
            words = words.copy()
            words[np.asarray(chunk.is_null())] = 0
        lows.append(words[:, 0])
        highs.append(words[:, 1])
    if not lows:
        return ExactIntegers(np.zeros(0, dtype=np.int64), {})
    return ExactIntegers.from_words(np.concatenate(lows), np.concatenate(highs))


def _words(chunk: Any) -> NDArray[np.int64]:
    """The two 64-bit words of each decimal128, little end first: Arrow's layout, whatever the scale."""
    if str(chunk.type).startswith("decimal128"):
        buffer = np.frombuffer(chunk.buffers()[1], dtype="<i8")
        words: NDArray[np.int64] = buffer.reshape(-1, 2)[chunk.offset : chunk.offset + len(chunk)]
        return words
    raise TypeError("a sum of integers must arrive as a 128-bit decimal")
