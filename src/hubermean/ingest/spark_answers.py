"""Asking Spark about records: every failure is one sentence, whatever its cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hubermean.ingest.session import in_one_sentence

T = TypeVar("T")

FAILED = (
    "Spark could not read and group the data to the end; check that they are complete and that all workers run, raise "
    "spark.driver.memory and spark.driver.maxResultSize, or lower spark.hubermean.driverUsers and "
    "spark.sql.shuffle.partitions"
)
"""The cause may depend on one user's records, so that it is not told."""


def answer_of(work: Callable[[], T]) -> T:
    return in_one_sentence(work, FAILED)
