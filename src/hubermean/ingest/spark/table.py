"""The table of users whose sums and counts stay on the executors of a Spark cluster."""

from __future__ import annotations

import contextlib
import pickle
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hubermean.data.user_table import UserTable
from hubermean.ingest.engine import build_user_table
from hubermean.ingest.schema import ValueColumn
from hubermean.ingest.spark.session import run_spark_job, silence_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

T = TypeVar("T")


class SparkTable:
    """Users whose sums and counts are on the executors; see `PrivateTable`.

    Every query is one job that returns one result per partition. Executors cache the partitions; one that is lost with
    a worker is computed again, with the same integers.
    """

    def __init__(
        self, grouped: DataFrame, values: Sequence[ValueColumn], n_users: int, *, max_local_users: int | None
    ) -> None:
        self.columns = tuple(value.name for value in values)
        self.limits = tuple(value.encoding.limit for value in values)
        self.n_users = n_users
        self.max_local_users = max_local_users
        self._grouped = grouped
        self._values = tuple(values)
        weakref.finalize(self, unpersist, grouped)

    def map_partitions(self, query: Callable[[UserTable], T]) -> list[T]:
        task = _PartitionTask(self._values, query)

        def run() -> list[T]:
            with silence_spark():
                rows = self._grouped.mapInArrow(task, "result binary").collect()
            return [pickle.loads(row[0]) for row in rows]

        return run_spark_job(run)

    def collect(self) -> UserTable:
        def fetch() -> UserTable:
            with silence_spark():
                table = build_user_table(self._grouped.toArrow(), self._values)
                return replace(table, max_local_users=self.max_local_users)

        return run_spark_job(fetch)

    def __repr__(self) -> str:
        return f"SparkTable(columns={self.columns[:8]!r}, private contents not shown)"


class _PartitionTask:
    """Applies a query to one partition on an executor."""

    def __init__(self, values: Sequence[ValueColumn], query: Callable[[UserTable], Any]) -> None:
        self._values = values
        self._query = query

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        held = list(batches)
        if held:
            with np.errstate(all="ignore"):  # a warning in the log of an executor would depend on the data
                result = self._query(build_user_table(pa.Table.from_batches(held), self._values))
            yield pa.record_batch({"result": pa.array([pickle.dumps(result)], type=pa.binary())})


def unpersist(grouped: DataFrame) -> None:
    """Remove the cached partitions from the executors."""
    with contextlib.suppress(Exception):  # the session may have ended
        grouped.unpersist()
