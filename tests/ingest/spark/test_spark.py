"""Spark: what only a cluster can do, or go wrong with. The integers themselves: test_engines.py."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz.oracle import found

import hubermean as hm
from helpers.spark_cluster import running_cluster
from helpers.spark_on_cluster import totals
from helpers.spark_sessions import HARD_FLOATS, in_spark
from hubermean import _api as api
from hubermean.auditing.cells import identity
from hubermean.data.user_table import UserTable
from hubermean.ingest.reading import group_table, user_table
from hubermean.ingest.spark.dialect import SparkSql
from hubermean.ingest.spark.table import SparkTable
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.types.request import Neighbors, PublicFacts


@pytest.fixture(autouse=True)
def without_warnings() -> Iterator[None]:
    """Spark warns of packages that are newer than itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


N_PEOPLE = 3000


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty thousand records of three thousand users, half of all records one user's; in several files."""
    chance = np.random.default_rng(5)
    users = np.where(chance.random(20_000) < 0.5, 0, chance.integers(0, N_PEOPLE, 20_000))
    table = pa.table({"u": users, "v": chance.normal(40.0, 1.0, 20_000) + users % 7})
    folder = tmp_path_factory.mktemp("people")
    for number in range(4):
        pq.write_table(table.slice(number * 5000, 5000), folder / f"part-{number}.parquet")
    return folder / "*.parquet"


def test_floats_as_ids_have_the_text_that_other_engines_give_them(spark: Any) -> None:
    """Which groups a user keeps follows from that text; Java writes 1.0E-7, and 1.9999999999999998E23 for 2e23."""
    bits = np.random.default_rng(8).integers(0, 2**63, 500, dtype=np.uint64)
    floats = [*bits.view(np.float64).tolist(), 1e-7, -2.5e-5, 1e-4, 12345678.5, 2e23, 5e-324, 1.5e16, 7.0]
    floats = [number for number in [*floats, math.inf, -math.inf] if not math.isnan(number)]
    frame = spark.createDataFrame([(number,) for number in floats], "id double")
    texts = frame.selectExpr(SparkSql().identity("id", "double", scale=0)).collect()
    assert [text for (text,) in texts] == [identity(number) for number in floats]


@pytest.mark.slow
def test_a_worker_that_is_lost_costs_a_retry_and_not_the_answer(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster of two workers, with nothing of the size of the data at the driver; the released bits are equal."""
    here = Path(__file__).parent.parent.parent / "helpers"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with running_cluster(tmp_path, workers=2) as cluster:
        command = [sys.executable, str(here / "spark_on_cluster.py"), cluster.url, str(people.parent)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as release:
            assert release.stdout is not None
            assert release.stdin is not None
            assert release.stdout.readline() == "may be lost\n"
            cluster.workers[0].kill()
            release.stdin.write("\n")
            release.stdin.flush()
            found = json.loads(release.stdout.readline())
        assert release.wait() == 0
    here_table = user_table(str(people), user="u", value="v", records=False).collect()
    assert found["kind"] == "SparkTable"
    assert found["totals"] == [list(totals(here_table))] * 2
    monkeypatch.setattr(api, "SystemNoise", lambda: InsecureSeededNoise(7))
    assert found["value"] == _exact(str(people)).value


def _exact(data: Any, **how: Any) -> hm.Release:
    known = {"mechanism": "inverse-sensitivity", "threshold": 2.0, "radius": 1000.0, **how}
    return hm.mean(data, user="u", value="v", epsilon=0.5, per="user", **known)


@pytest.fixture
def far(spark: Any) -> Iterator[None]:
    """Users stay on the executors."""
    spark.conf.set("spark.hubermean.driverUsers", "0")
    yield
    spark.conf.unset("spark.hubermean.driverUsers")


@pytest.fixture
def passes(far: None, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Users stay on the executors, releases draw from a seed, and what is asked of the executors is written down."""
    monkeypatch.setattr(api, "SystemNoise", lambda: InsecureSeededNoise(7))
    made: list[Any] = []
    map_partitions = SparkTable.map_partitions

    def counted(self: SparkTable, look: Any) -> list[Any]:
        made.append(look)
        return map_partitions(self, look)

    monkeypatch.setattr(SparkTable, "map_partitions", counted)
    monkeypatch.delattr(SparkTable, "collect")
    return made


@pytest.mark.parametrize(
    "how",
    [
        {"mechanism": "inverse-sensitivity", "threshold": 2.0, "radius": 1000.0, "per": "user"},
        {
            "mechanism": "inverse-sensitivity",
            "threshold": 2.0,
            "radius": 1000.0,
            "per": "record",
            "max_records": 20,
        },
        {
            "mechanism": "inverse-sensitivity",
            "threshold": 2.0,
            "radius": 1000.0,
            "per": "user",
            "neighbors": "add-remove",
        },
        {"bounds": (0.0, 100.0), "per": "user"},
        {"per": "user"},
        {"per": "record"},
        {"per": "record", "neighbors": "add-remove"},
    ],
)
def test_the_released_bits_are_those_of_one_machine(
    spark: Any, people: Path, passes: list[Any], how: dict[str, Any]
) -> None:
    frame = spark.read.parquet(str(people.parent))
    ask: dict[str, Any] = {"user": "u", "value": "v", "epsilon": 2.0, **how}
    assert hm.mean(frame, **ask).values == hm.mean(str(people), **ask).values
    assert 1 <= len(passes) <= 12


@pytest.mark.parametrize(
    "how", [{"mechanism": "inverse-sensitivity", "threshold": 9.0, "radius": 1000.0}, {}]
)
def test_many_columns_take_no_more_passes_and_release_the_bits_of_one_machine(
    spark: Any, passes: list[Any], how: dict[str, Any]
) -> None:
    chance = np.random.default_rng(6)
    names = [f"v{number}" for number in range(12)]
    values = {name: chance.normal(40.0 + place, 1.0 + place, 9000) for place, name in enumerate(names)}
    table = pa.table({"u": np.arange(9000) // 3, **values})
    ask: dict[str, Any] = {"user": "u", "value": names, "epsilon": 20.0, "per": "user", **how}
    assert hm.mean(in_spark(spark)(table), **ask).values == hm.mean(table, **ask).values
    assert 1 <= len(passes) <= 9


@pytest.mark.parametrize("mechanism", ["propose-test-release", "winsorized"])
def test_other_mechanisms_work_on_the_executors_too(
    spark: Any, people: Path, passes: list[Any], mechanism: str
) -> None:
    frame = spark.read.parquet(str(people.parent))
    known: dict[str, Any] = {"threshold": 20.0, "radius": 1000.0, "mechanism": mechanism}
    if mechanism == "winsorized":
        known |= {"neighbors": "replace-user", "n_users": N_PEOPLE}
    release = hm.mean(frame, user="u", value="v", epsilon=2.0, delta=1e-6, per="user", **known)
    assert release.value == pytest.approx(43.0, abs=2.0)
    assert 1 <= len(passes) <= 12


@pytest.mark.parametrize("neighbors", ["replace-user", "add-remove"])
def test_twelve_passes_are_enough_for_several_columns_whatever_the_data(
    spark: Any, passes: list[Any], neighbors: str
) -> None:
    """Proved for so many users (proofs/propose-test-release.md, Lemma 5)."""
    ask: dict[str, Any] = {"user": "u", "value": ["a", "b"], "per": "user", "neighbors": neighbors}
    ask |= {
        "epsilon": 1.0,
        "delta": 1e-6,
        "mechanism": "propose-test-release",
        "threshold": 1.0,
        "radius": 1e4,
    }
    columns = "id AS u, {} + 0.1D * sin(id) AS a, 0.1D * cos(id) AS b"
    together = spark.range(150_000).selectExpr(*columns.format("7D").split(", "))
    stated = {"n_users": 150_000} if neighbors == "replace-user" else {}
    release = hm.mean(together, **ask, **stated)
    assert release.values == pytest.approx((7.0, 0.0), abs=1e-2)
    assert release.parameters["distance_tested"] == pytest.approx(0.75, abs=0.02)
    assert 1 <= len(passes) <= 12
    passes.clear()
    apart = spark.range(150_001).selectExpr(*columns.format("1000D * (id % 2)").split(", "))
    with pytest.raises(hm.NotReleased, match="well within the threshold"):
        hm.mean(apart, **ask, **{name: number + 1 for name, number in stated.items()})
    assert 1 <= len(passes) <= 12


def test_what_is_public_of_users_does_not_tell_where_they_are(spark: Any) -> None:
    """One user more or less may decide whether they come to the driver, and must not decide the law."""
    spark.conf.set("spark.hubermean.driverUsers", "3")
    try:
        tables = [
            user_table(
                spark.range(number).selectExpr("id AS u", "1.5D AS v"), user="u", value="v", records=False
            )
            for number in (3, 4)
        ]
    finally:
        spark.conf.unset("spark.hubermean.driverUsers")
    assert [type(table) for table in tables] == [UserTable, SparkTable]
    assert PublicFacts.of(tables[0], Neighbors.ADD_REMOVE) == PublicFacts.of(tables[1], Neighbors.ADD_REMOVE)
    assert [table.max_local_users for table in tables] == [3, 3]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_settings_of_a_session_do_not_change_what_a_value_becomes(spark: Any, ansi: str) -> None:
    floats = [*HARD_FLOATS, 8e12, 8e12] * 8
    wide = [Decimal("9" * 38), Decimal(-1), None] * 40
    rows = len(floats)
    columns = {
        "u": [place % 5 for place in range(rows)],
        "v": floats,
        "i": pa.array([2**63 - 1, -(2**63), 7, None] * (rows // 4), type=pa.int64()),
        "d": pa.array((wide * rows)[:rows], type=pa.decimal128(38, 0)),
    }
    table = pa.table(columns)
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for value in ("v", "i", "d", ["v", "i"]):
            there = user_table(in_spark(spark)(table), user="u", value=value).collect()
            assert found(there) == found(user_table(table, user="u", value=value).collect())
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_files_and_tables_are_read_by_spark_if_asked_to(spark: Any, people: Path) -> None:
    spark.read.parquet(str(people.parent)).createOrReplaceTempView("people")
    for data in (str(people), "people"):
        release = hm.mean(data, engine="spark", user="u", value="v", epsilon=1e6, bounds=(0, 100), per="user")
        assert release.value == pytest.approx(43.0, abs=0.2)


def test_one_folder_of_another_kind_changes_no_others_group(spark: Any, tmp_path: Path) -> None:
    """Spark makes columns of folders such as g=01, with a type that follows from the names of all of them."""

    def grouped(*names: str) -> str:
        root = tmp_path / str(len(names))
        for number, name in enumerate(names):
            (root / f"g={name}").mkdir(parents=True)
            held = pa.table({"u": [number, number + 100], "v": [1.0, 2.0], "h": [name, name]})
            pq.write_table(held, root / f"g={name}" / "part.parquet")
        return f"file://{root}"

    fine, odd = grouped("01", "02"), grouped("01", "02", "x")
    for place in (fine, odd):
        with pytest.raises(hm.InputError, match="no column 'g'"):
            _names(place, "g")
    assert [key for key in _names(odd, "h") if key != ("x",)] == _names(fine, "h") == [("01",), ("02",)]


def _names(data: str, by: str) -> list[Any]:
    table = group_table(data, user=["u"], value=["v"], by=[by], keys=None, max_groups=1, engine="spark")
    return sorted(table.keys)


def test_a_pattern_in_the_working_folder_is_no_name_of_a_table(
    spark: Any, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(people.parent)
    for data in ("part-*.parquet", "part-1.parquet"):
        assert user_table(data, engine="spark", user="u", value="v").n_users > 0
    with pytest.raises(hm.InputError, match="there is no file"):
        user_table("part-9.parquet", engine="spark", user="u", value="v")


def test_a_session_that_is_active_in_another_thread_is_used_and_not_broken(spark: Any, people: Path) -> None:
    spark.read.parquet(str(people.parent)).createOrReplaceTempView("people")

    def n_users() -> int:
        return user_table("people", engine="spark", user="u", value="v").n_users

    with ThreadPoolExecutor(1) as elsewhere:
        assert elsewhere.submit(n_users).result() == n_users()


def test_a_ledger_pays_for_a_release_from_spark(spark: Any, people: Path, tmp_path: Path) -> None:
    frame = spark.read.parquet(str(people.parent))
    with hm.Ledger(tmp_path / "budget.sqlite") as ledger:
        ledger.init("people", epsilon=1.0)
        ask: dict[str, Any] = {"user": "u", "value": "v", "bounds": (0, 100), "per": "user", "ledger": ledger}
        with pytest.raises(hm.InputError, match="use neighbors='add-remove'"):
            hm.mean(frame, epsilon=0.5, neighbors="replace-user", dataset="people", **ask)
        first = hm.mean(frame, epsilon=0.75, dataset="people", **ask)
        again = hm.mean(frame, epsilon=0.75, dataset="people", **ask)
        assert first.value == again.value
        assert str(ledger.dataset("people").spent.loss) == "0.75"
        with pytest.raises(hm.BudgetExhausted):
            hm.mean(frame, epsilon=0.5, dataset="people", **ask)


def test_groups_are_released_from_spark(spark: Any) -> None:
    data = in_spark(spark)(
        pa.table({"u": list(range(300)), "g": ["a", "b", "c"] * 100, "v": [1.0, 2.0, 3.0] * 100})
    )
    table = hm.mean(
        data,
        user="u",
        value="v",
        by="g",
        keys=["a", "b", "z"],
        epsilon=1e6,
        bounds=(0, 9),
        per="user",
        max_groups=1,
    )
    assert [round(row.value, 3) for row in table][:2] == [1.0, 2.0]


_FAILING = "CAST(assert_true(u < 10, 'secret 4711') AS DOUBLE) AS v"
_IN_A_SAMPLE = "u IN (SELECT id FROM (SELECT id FROM range(9)) TABLESAMPLE (50 PERCENT))"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.selectExpr("u", "v + rand() AS v"), "is random"),
        (lambda frame: frame.sample(0.5, seed=1), "is random"),
        (lambda frame: frame.where(_IN_A_SAMPLE), "is random"),
        (lambda frame: frame.selectExpr("u", "v", "v AS V"), "have the same name"),
        (
            lambda frame: frame.selectExpr("collate(CAST(u AS STRING), 'UTF8_LCASE') AS u", "v"),
            "cannot identify users",
        ),
        (lambda frame: frame.selectExpr("u", "CAST(v AS STRING) AS v"), "has no mean"),
        (
            lambda frame: frame.selectExpr("u", _FAILING),
            "could not read and group",
        ),
    ],
)
def test_what_spark_cannot_guarantee_is_refused_without_a_word_of_the_data(
    spark: Any, people: Path, change: Any, words: str
) -> None:
    frame = spark.read.parquet(str(people.parent))
    with pytest.raises(hm.InputError, match=words) as refusal:
        user_table(change(frame), user="u", value="v")
    assert "4711" not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert refusal.value.__context__ is None


@pytest.mark.parametrize(
    ("data", "how", "words"),
    [
        ("people.csv", {"engine": "spark"}, "Parquet files or tables"),
        ("people.parquet", {"engine": "ray"}, "engine must be 'duckdb' or 'spark'"),
        ("people.parquet", {"engine": "spark", "memory_limit": "2GB"}, "settings for memory"),
    ],
)
def test_engines_refuse_what_they_cannot_do_in_words(
    spark: Any, tmp_path: Path, data: str, how: dict[str, Any], words: str
) -> None:
    place = tmp_path / data
    if place.suffix == ".csv":
        place.write_text("u,v\n1,2\n")
    else:
        pq.write_table(pa.table({"u": [1], "v": [2.0]}), place)
    with pytest.raises(hm.InputError, match=words):
        hm.mean(str(place), user="u", value="v", epsilon=1, bounds=(0, 1), per="user", **how)


@pytest.mark.usefixtures("far")
def test_what_the_executors_keep_names_no_user(spark: Any, people: Path) -> None:
    frame = spark.read.parquet(str(people.parent))
    table = user_table(frame, user="u", value="v", records=False)
    assert isinstance(table, SparkTable)
    assert table._grouped.columns == ["usable", "value_0_0", "value_0_1"]


@pytest.mark.parametrize(
    "how",
    [
        {"bounds": (0, 100)},
        {"by": "g", "keys": [0, 1, 2], "bounds": (0, 100)},
        {"by": "g", "keys": [0, 1, 2]},
        {"by": "g", "delta": 1e-6},
    ],
)
def test_small_data_is_not_cut_into_hundreds_of_pieces(spark: Any, people: Path, how: dict[str, Any]) -> None:
    """As many as Spark shuffles into, that is: 200, unless the session says otherwise or Spark thinks better of it."""
    frame = spark.read.parquet(str(people.parent)).selectExpr("u", "u % 3 AS g", "v")
    tracker = spark.sparkContext.statusTracker()
    settings = {"spark.sql.shuffle.partitions": "200", "spark.sql.adaptive.enabled": "false"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    group = f"pieces {sorted(how)}"  # of this case alone
    spark.sparkContext.setJobGroup(group, "counted")
    try:
        hm.mean(frame, user="u", value="v", epsilon=2.0, per="user", **how)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        for name, value in before.items():
            spark.conf.set(name, value)
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(number) for job in jobs for number in job.stageIds]
    # Of a thousand stages Spark forgets some, those first that it skipped because their result was kept.
    known = [stage.numTasks for stage in stages if stage is not None]
    assert known
    assert max(known) <= 4 * spark.sparkContext.defaultParallelism


def test_nothing_is_kept_by_the_executors_after_a_release(spark: Any, people: Path) -> None:
    hm.mean(
        spark.read.parquet(str(people.parent)), user="u", value="v", epsilon=1, bounds=(0, 100), per="user"
    )
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0


@pytest.mark.parametrize("by", [{}, {"by": "g", "keys": [1, 2]}])
def test_nothing_is_kept_by_the_executors_after_a_failure(
    spark: Any, people: Path, by: dict[str, Any]
) -> None:
    data = spark.read.parquet(str(people.parent)).selectExpr("u", "CAST(u % 3 AS INT) AS g", _FAILING)
    with pytest.raises(hm.NotReleased, match="could not read and group"):
        hm.mean(data, user="u", value="v", epsilon=1, bounds=(0, 100), max_records=3, **by)
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


def test_nothing_is_kept_by_the_executors_after_an_interrupt(
    spark: Any, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.read.parquet(str(people.parent))
    looked = type(frame).first

    def interrupted(self: Any) -> None:
        looked(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(frame), "first", interrupted)
    with pytest.raises(KeyboardInterrupt):
        user_table(frame, user="u", value="v")
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0


@pytest.mark.usefixtures("far")
def test_sums_that_another_table_keeps_are_not_taken_for_those_of_files_that_changed(
    spark: Any, tmp_path: Path
) -> None:
    def held(value: float) -> Any:
        pq.write_table(pa.table({"u": [1, 2], "v": [value, value]}), tmp_path / "data.parquet")
        frame = spark.read.parquet(str(tmp_path / "data.parquet"))
        return user_table(frame, user="u", value="v", records=False)

    before, after = held(1.0), held(2.0)
    assert [one.collect().means.tolist() for one in (before, after)] == [[1.0, 1.0], [2.0, 2.0]]
