"""Asking Spark: an error of its becomes one fixed sentence, and of an answer that does not fit, one that helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hubermean.errors import InputError
from hubermean.ingest.session import quietly

T = TypeVar("T")

ANSWERS_TOO_LARGE = (
    "the answers of all partitions are larger than spark.driver.maxResultSize; raise it, or have fewer partitions "
    "(lower spark.sql.shuffle.partitions, or coalesce the data frame if it is partitioned by user)"
)
USERS_TOO_LARGE = (
    "the sums of all users are larger than spark.driver.maxResultSize; raise it, or lower "
    "spark.hubermean.driverUsers to leave them on the executors"
)
GROUPS_TOO_LARGE = "the sums of all users in all groups are larger than spark.driver.maxResultSize; raise it"
_BEGINS = "Job aborted due to stage failure: Total size of serialized results of "


def answer_of(work: Callable[[], T], what: str, *, too_large: str) -> T:
    """Do some work of Spark's; `what` is said of its errors, and `too_large` where the driver takes no more."""

    def tried() -> T:
        try:
            return work()
        except Exception as error:
            if not _is_too_large(error):
                raise
        raise InputError(too_large)

    return quietly(tried, what, foreign=True)


def _is_too_large(error: Any) -> bool:
    """By how a message of the scheduler's begins, where it quotes no data."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        by_scheduler = cause.getClass().getName() == "org.apache.spark.SparkException"
        if by_scheduler and str(cause.getMessage()).startswith(_BEGINS):
            return True
        cause = cause.getCause()
    return False
