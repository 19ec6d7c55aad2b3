"""What goes wrong with Spark is said in one sentence that tells what to do, and nothing of the data."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hubermean as hm
from hubermean.ingest.reading import user_table
from hubermean.ingest.spark.session import JOB_FAILED


@pytest.fixture(autouse=True)
def without_warnings() -> Iterator[None]:
    """Spark warns of packages that are newer than itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- Spark Connect ----------------------------------------------------------------------------------------------------


def _frame_of_connect() -> Any:
    """A frame as Spark Connect's, whose own class needs packages that Spark does without otherwise."""
    from pyspark.sql import DataFrame

    made = {"__module__": "pyspark.sql.connect.dataframe", "__new__": lambda cls: object.__new__(cls)}
    return type("DataFrame", (DataFrame,), made)()


@pytest.mark.parametrize("how", [{}, {"engine": "spark"}])
def test_a_frame_of_spark_connect_is_refused_with_what_to_do(how: dict[str, str]) -> None:
    with pytest.raises(hm.InputError, match="Spark Connect") as refusal:
        hm.mean(_frame_of_connect(), user="u", value="v", epsilon=1, bounds=(0, 1), **how)
    assert "Parquet" in str(refusal.value)
    assert "SPARK_REMOTE" in str(refusal.value)


def test_a_table_behind_spark_connect_is_refused_and_not_looked_for_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from hubermean.cli.app import main; main()", "release", "people"]
    command += ["--engine", "spark", "--user", "u", "--value", "v", "--epsilon", "1", "--bounds", "0", "1"]
    environment = {**os.environ, "SPARK_REMOTE": "sc://127.0.0.1:1"}
    asked = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert asked.returncode == 2
    assert "Spark Connect" in " ".join(asked.stderr.split())


# --- answers that do not fit the driver -------------------------------------------------------------------------------


@pytest.fixture
def small_results(spark: Any) -> Iterator[Any]:
    """A session whose driver takes one megabyte from a job; the scheduler reads the setting anew for every stage."""
    settings = spark.sparkContext._jsc.sc().conf()
    before = settings.get("spark.driver.maxResultSize", "1g")
    settings.set("spark.driver.maxResultSize", "1m")
    yield spark
    settings.set("spark.driver.maxResultSize", before)
    spark.conf.unset("spark.hubermean.driverUsers")


def _people(session: Any) -> Any:
    return session.range(200_000).selectExpr("id AS u", "4711D + id AS v", "id % 50000 AS g")


def _says_what_to_do(refusal: pytest.ExceptionInfo[hm.HubermeanError]) -> None:
    """One sentence for all causes: which it was may depend on one user."""
    assert str(refusal.value).split("; epsilon =")[0] == JOB_FAILED
    assert "spark.driver.maxResultSize" in JOB_FAILED
    assert refusal.value.__cause__ is None
    assert refusal.value.__context__ is None


@pytest.mark.parametrize("by_user", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_answers_that_are_too_large_are_refused_with_what_to_do(small_results: Any, by_user: bool) -> None:
    small_results.conf.set("spark.hubermean.driverUsers", "0")
    people = _people(small_results)
    if not by_user:
        people = people.repartition(4)

    def sizes(data: Any) -> list[int]:
        table = user_table(data, user="u", value="v", records=False)
        return [len(made) for made in table.map_partitions(lambda _: os.urandom(600_000))]

    with pytest.raises(hm.InputError) as refusal:
        sizes(people)
    _says_what_to_do(refusal)
    before = small_results.conf.get("spark.sql.shuffle.partitions")
    small_results.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        assert sizes(people.coalesce(1) if by_user else people) == [600_000]
    finally:
        small_results.conf.set("spark.sql.shuffle.partitions", before)


def test_users_that_are_too_many_for_the_driver_are_refused_with_what_to_do(small_results: Any) -> None:
    ask: dict[str, Any] = {"user": "u", "value": "v", "epsilon": 1, "bounds": (0, 1e6), "per": "user"}
    with pytest.raises(hm.NotReleased) as refusal:
        hm.mean(_people(small_results), **ask)
    _says_what_to_do(refusal)
    small_results.conf.set("spark.hubermean.driverUsers", "0")
    hm.mean(_people(small_results), **ask)


def test_groups_that_are_too_many_for_the_driver_are_refused_with_what_to_do(small_results: Any) -> None:
    with pytest.raises(hm.NotReleased) as refusal:
        hm.mean(
            _people(small_results),
            user="u",
            value="v",
            by="g",
            keys=range(50_000),
            epsilon=1,
            bounds=(0, 1e6),
            max_records=3,
        )
    _says_what_to_do(refusal)


def test_a_failure_that_quotes_the_words_of_another_is_not_taken_for_it(spark: Any) -> None:
    words = "Job aborted due to stage failure: Total size of serialized results of"
    failing = _people(spark).selectExpr("u", f"CAST(assert_true(u < 10, '{words}') AS DOUBLE) AS v")
    with pytest.raises(hm.InputError, match="could not read and group"):
        user_table(failing, user="u", value="v")


@pytest.mark.parametrize("by_name", [True, False])
def test_what_spark_logs_of_a_cast_that_fails_goes_nowhere(spark: Any, by_name: bool) -> None:
    """Spark's own Python code logs errors with the cell they are about, whether anybody catches them or not."""
    from pyspark.logger import PySparkLogger
    from pyspark.sql import functions

    frame = spark.createDataFrame([(1, "1"), (2, "canary4711")], "u int, v string").repartition(2)
    failing = (
        frame.selectExpr("u", "CAST(v AS DOUBLE) AS v")
        if by_name
        else frame.select("u", functions.col("v").cast("double").alias("v"))
    )
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with pytest.raises(hm.NotReleased, match="could not read and group"):
            hm.mean(failing, user="u", value="v", epsilon=1, bounds=(0, 9), per="user")
        assert seen == []
        with pytest.raises(Exception, match="canary4711"):  # outside of a release it is the caller's again
            failing.collect()
        assert len(seen) == 1
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
