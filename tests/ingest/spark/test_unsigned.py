"""Unsigned integers of 64 bits in Parquet files, decimals to Spark. Beside other types: test_engines.py."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz.oracle import found

from hubermean.ingest.reading import user_table

LARGE = 2**64 - 1
AS_WHOLE = 2**63 - 1
DECIMAL = pa.decimal128(20, 0)


@pytest.fixture(autouse=True)
def without_warnings() -> Iterator[None]:
    """Spark warns of packages that are newer than itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """One user with a number that is an unsigned integer in one column and a decimal in another."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    number = {"v": pa.array([LARGE], pa.uint64()), "d": pa.array([Decimal(LARGE)], DECIMAL)}
    pq.write_table(pa.table({"u": [1], **number}), folder / "numbers.parquet")
    return folder / "numbers.parquet"


def _sum(data: Any, **how: Any) -> int:
    (((total,), _, _),) = found(user_table(data, user="u", value="v", **how).collect())
    return int(total)


def test_files_that_spark_reads_have_the_integers_of_other_engines(spark: Any, numbers: Path) -> None:
    assert _sum(str(numbers)) == _sum(str(numbers), engine="spark") == AS_WHOLE


@pytest.mark.parametrize(
    ("change", "total"),
    [
        (
            lambda frame: frame.selectExpr("u", "d", "v AS w").where("w > 0").selectExpr("u", "w AS v"),
            AS_WHOLE,
        ),
        (lambda frame: frame.join(frame.selectExpr("u", "d AS e"), on="u").sort("v").distinct(), AS_WHOLE),
        (
            lambda frame: frame.sparkSession.sql("SELECT u, CAST(v AS DECIMAL(20, 0)) AS v FROM numbers"),
            AS_WHOLE,
        ),
        (lambda frame: frame.selectExpr("u", "d AS v"), LARGE),
        (lambda frame: frame.selectExpr("u", "greatest(v, d) AS v"), LARGE),
        (lambda frame: frame.groupBy("u").agg({"v": "max"}).withColumnRenamed("max(v)", "v"), LARGE),
        (lambda frame: frame.selectExpr("u", "v").union(frame.selectExpr("u", "d AS v")).distinct(), LARGE),
    ],
)
@pytest.mark.parametrize("cached", [False, True])
def test_a_column_is_what_the_file_says_as_long_as_it_is_passed_on(
    spark: Any, numbers: Path, change: Any, total: int, cached: bool
) -> None:
    frame = spark.read.parquet(str(numbers))
    if cached:
        frame = frame.cache()
    frame.createOrReplaceTempView("numbers")
    try:
        assert _sum(change(frame)) == total
    finally:
        frame.unpersist()


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_files_that_disagree_are_read_without_a_failure(spark: Any, numbers: Path, ansi: str) -> None:
    least = pa.array([Decimal(-(10**20) + 1)], DECIMAL)
    pq.write_table(pa.table({"u": [1], "v": least}), numbers.with_name("others.parquet"))
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        assert _sum(spark.read.parquet(str(numbers), str(numbers.with_name("others.parquet")))) == 0
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
