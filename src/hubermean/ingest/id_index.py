"""How far users may be looked up by their id alone, in an array that the id indexes, in place of a hash table.

Where the statistics of Parquet files say that ids are whole numbers close together, DuckDB can group by such an array:
in little more than half the time, and in hardly more memory than the sums themselves. Left to itself it does so up to
2^12 ids. How many more are worth it follows from the number of rows, and how many there is room for from the memory
that it may use. The engine stops at an id that a wrong statistic leaves out, if ids are in one column; of several it
does not notice, so these are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubermean.ingest.files import FileSet, literal
from hubermean.ingest.memory import size_in_bytes

if TYPE_CHECKING:
    import duckdb

# An entry is made, added to that of other threads and read once: worth it if there are a few rows for each.
_ROWS_FOR_AN_ENTRY = 4
_SUM_BYTES, _COUNT_BYTES = 32, 8  # the engine's state of one sum and of one count
_SHARE = 0.7  # of the memory; these arrays cannot go to disk
_LEAST_BITS, _MOST_BITS = 12, 31


def bits_of_ids(
    connection: duckdb.DuckDBPyConnection, files: FileSet, *, sums: int, memory_limit: str | None
) -> int:
    """The largest range of ids, in bits, that is to be indexed; what the engine takes itself where nothing is known."""
    import duckdb

    if files.kind != "parquet":  # nothing is known of ids before they are read
        return _LEAST_BITS
    paths = "[" + ", ".join(literal(path) for path in files.paths) + "]"
    try:
        ((rows, threads, most),) = connection.sql(
            "SELECT sum(num_rows), current_setting('threads'), current_setting('memory_limit') "
            f"FROM parquet_file_metadata({paths})"
        ).fetchall()
    except duckdb.Error:  # a broken file: whoever reads it says so
        return _LEAST_BITS
    room = int(_SHARE * size_in_bytes(memory_limit or most)) // (
        (_SUM_BYTES * sums + _COUNT_BYTES) * int(threads)
    )
    entries = max(min(int(rows or 0) // _ROWS_FOR_AN_ENTRY, room), 0)
    return min(max(entries.bit_length() - 1, _LEAST_BITS), _MOST_BITS)
