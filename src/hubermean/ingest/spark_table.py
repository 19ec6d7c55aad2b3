"""Users on the executors of a Spark cluster; see `PrivateTable`."""

from __future__ import annotations

import contextlib
import pickle
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hubermean.ingest.columns import ValueColumn
from hubermean.ingest.grouping import read_user_table
from hubermean.ingest.spark_answers import answer_of
from hubermean.ingest.spark_frame import quiet
from hubermean.user_table import UserTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

T = TypeVar("T")


class SparkTable:
    """Users whose sums and counts are on the executors; see `PrivateTable`.

    Every look at them is one job that brings back what is made of each partition. The partitions are kept by the
    executors; one that is lost with a worker is made anew, of the same integers.
    """

    def __init__(
        self, grouped: DataFrame, values: Sequence[ValueColumn], n_users: int, *, held_up_to: int | None
    ) -> None:
        self.columns = tuple(value.name for value in values)
        self.limits = tuple(value.encoding.limit for value in values)
        self.n_users = n_users
        self.held_up_to = held_up_to
        self._grouped = grouped
        self._values = tuple(values)
        weakref.finalize(self, let_go, grouped)

    def each_part(self, look: Callable[[UserTable], T]) -> list[T]:
        work = _Work(self._values, look)

        def looked() -> list[T]:
            with quiet():
                rows = self._grouped.mapInArrow(work, "made binary").collect()
            return [work.unpacked(row[0]) for row in rows]

        return answer_of(looked)

    def collected(self) -> UserTable:
        def together() -> UserTable:
            with quiet():
                table = read_user_table(self._grouped.toArrow(), self._values)
                return replace(table, held_up_to=self.held_up_to)

        return answer_of(together)

    def __repr__(self) -> str:
        return f"SparkTable(columns={self.columns[:8]!r}, private contents not shown)"


class _Work:
    """What an executor does with one partition."""

    def __init__(self, values: Sequence[ValueColumn], look: Callable[[UserTable], Any]) -> None:
        self._values = values
        self._look = look

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        held = list(batches)
        if held:
            with np.errstate(all="ignore"):  # a warning in an executor's log would tell of the data
                made = self._look(read_user_table(pa.Table.from_batches(held), self._values))
            yield pa.record_batch({"made": pa.array([pickle.dumps(made)], type=pa.binary())})

    def unpacked(self, made: bytes) -> Any:
        return pickle.loads(made)


def let_go(grouped: DataFrame) -> None:
    """Have the executors forget it."""
    with contextlib.suppress(Exception):  # the session may be gone
        grouped.unpersist()
