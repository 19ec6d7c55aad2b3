"""What goes wrong with Spark is said in one sentence that tells what to do, and nothing of the data."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hubermean as hm


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
