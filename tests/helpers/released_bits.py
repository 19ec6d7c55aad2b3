"""Released bits under seeded noise: what must be the same, bit for bit, after code has been moved and renamed.

    --write FILE      make every release and write what came of it
    --compare FILE    make every release again; list what differs, exit code 1 if any does
    --show CASE       everything that is recorded of one case, to compare two versions

`--without-spark` leaves out the cases that need a session of Spark's; `--only TEXT` takes the cases whose name has the
text. The file holds no text that users read: messages and names of stages may change, numbers may not.

A renamed parameter, mechanism, attribute or module is a change in the tables below, and in `seeded_noise`; the names of
cases and all that is written to the file are neutral and stay.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

# The location of propose-test-release and smooth-sensitivity is computed in floats, whose last bits follow the
# kernels of OpenBLAS. These run on every x86 processor with AVX2.
os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# --- names: neutral on the left, today's on the right ----------------------------------------------------------------

PACKAGE = "hubermean"

CALL = {"mean": "mean", "count": "count", "mean-of-user-means": "mean_of_user_means"}
SQL = "sql"
VECTORS = "vectors"

MECHANISM = {
    "adaptive": "adaptive",
    "auto": "auto",
    "clipped": "clipped",
    "inverse-sensitivity": "inverse-sensitivity",
    "propose-test-release": "propose-test-release",
    "smooth-sensitivity": "smooth-sensitivity",
    "winsorized": "winsorized",
    "count": "counted",  # not to be asked for by name; releases of counts carry it
}
NEIGHBORS = {
    "add-remove": "add-remove",
    "replace-user": "replace-user",
    "replace-values": "replace-values",
}
OPTION = {
    "user": "user",
    "value": "value",
    "counts": "counts",
    "epsilon": "epsilon",
    "delta": "delta",
    "by": "by",
    "keys": "keys",
    "max_groups": "max_groups",
    "per": "per",
    "of": "of",
    "neighbors": "neighbors",
    "mechanism": "mechanism",
    "bounds": "bounds",
    "max_records": "max_records",
    "threshold": "threshold",
    "threshold_power": "threshold_power",
    "scale": "scale",
    "radius": "radius",
    "hostile": "hostile",
    "n_users": "n_users",
    "resolution": "resolution",
    "non_finite": "non_finite",
    "threads": "threads",
    "memory_limit": "memory_limit",
    "engine": "engine",
}
OPTION_VALUES: dict[str, dict[str, str]] = {"mechanism": MECHANISM, "neighbors": NEIGHBORS}

PARAMETER = {
    "beta": "beta",
    "bins": "bins",
    "bounds": "bounds",
    "center": "center",
    "distance_tested": "distance_tested",
    "epsilon_of_each_column": "epsilon_of_each_column",
    "epsilon_of_each_interval": "epsilon_of_each_interval",
    "hostile": "hostile",
    "influence_bounds": "influence_bounds",
    "insecure_noise": "insecure_noise",
    "largest_shift_by_a_user": "largest_shift_by_a_user",
    "largest_shift_by_hostile_users": "largest_shift_by_hostile_users",
    "margin_of_test": "changes_to_pass",
    "max_records": "max_records",
    "noise_scale": "noise_scale",
    "noise_scale_of_sum": "noise_scale_of_sum",
    "noise_stddev": "noise_stddev",
    "radius": "radius",
    "records_measured": "records_measured",
    "rotated_threshold": "rotated_threshold",
    "scale": "scale",
    "share_within_scale": "share_within_scale",
    "share_within_threshold": "share_within_threshold",
    "threshold": "threshold",
    "threshold_power": "threshold_power",
    "users_for_a_group": "users_for_a_group",
    "users_measured": "users_measured",
}
"""Of `Release.parameters`, those that are numbers; one that is not here keeps the name it has."""

ATTRIBUTE = {
    "values": "values",
    "interval": "interval_details",
    "parameters": "parameters",
    "spent": "budget_breakdown",
    "amount": "amount",
    "unit": "unit",
    "denominator": "denominator",
    "mechanism": "mechanism",
    "n_users": "n_users",
    "epsilon": "epsilon",
    "delta": "delta",
    "warnings": "warnings",
    # of tables
    "keys": "keys",
    "intervals": "interval_at",
    "denominators": "denominators",
    "refusals": "refusals",
}
ERROR = {"not released": "NotReleased", "bad input": "InputError"}

SPARK_USERS_AT_DRIVER = "spark.hubermean.driverUsers"
"""The setting that keeps users on Spark's executors."""


@contextlib.contextmanager
def seeded_noise(seed: int) -> Iterator[None]:
    """Releases draw from a seed: the only place that knows where the API takes its noise from."""
    from hubermean import _api as api
    from hubermean.noise.seeded import InsecureSeededNoise

    system = api.SystemNoise
    made: list[int] = []

    def seeded() -> InsecureSeededNoise:
        made.append(seed)
        return InsecureSeededNoise(seed)

    api.SystemNoise = seeded  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        api.SystemNoise = system  # type: ignore[misc]
    # Were the API to take its noise from elsewhere, releases would be secure, and compare equal by luck alone.
    if len(made) != 1:
        raise AssertionError(f"one source of noise was expected in a release, not {len(made)}")


def package() -> Any:
    import importlib

    return importlib.import_module(PACKAGE)


# --- data -------------------------------------------------------------------------------------------------------------

Columns = dict[str, Any]


def records(seed: int, n_users: int) -> Columns:
    """Users with unequally many records, of which few hold very many; in no order of theirs."""
    chance = np.random.default_rng(seed)
    held = chance.geometric(0.45, n_users)
    held[: n_users // 50] += chance.integers(5, 60, n_users // 50)
    person = np.repeat(np.arange(n_users), held)
    person = person[chance.permutation(person.size)]
    size = person.size
    of_user = chance.normal(0.0, 1.0, n_users)[person]
    amount = np.exp(1.0 + 0.5 * of_user + 0.4 * chance.normal(size=size))  # heavy to one side, positive
    gain = 0.8 * of_user + chance.standard_t(2.5, size)  # heavy to both sides, about zero
    debt = -40.0 + 6.0 * of_user + chance.normal(0.0, 3.0, size)  # negative
    visits = chance.poisson(np.exp(1.2 + 0.4 * of_user))  # integers with many ties
    stars = np.clip(np.round(3.4 + of_user + 0.5 * chance.normal(size=size)), 1, 5).astype(np.int64)
    quarters = np.round(4.0 * amount) / 4.0  # floats with ties
    far = 1e6 + 50.0 * of_user + 10.0 * chance.normal(size=size)  # a long way from zero
    # Three ways to be unusable, and infinities, in a column of its own.
    holes = amount.copy()
    kind = chance.random(size)
    holes[kind < 0.06] = np.nan
    holes[(kind > 0.06) & (kind < 0.09)] = np.inf
    holes[(kind > 0.09) & (kind < 0.10)] = -np.inf
    regions = np.array(["north", "south", "east", "west", "møre", "nowhere"])
    # Most users stay in a region; a few records are elsewhere, so that some users are in several.
    home = chance.choice(6, n_users, p=[0.38, 0.25, 0.18, 0.12, 0.065, 0.005])[person]
    place = np.where(chance.random(size) < 0.15, chance.integers(0, 5, size), home)
    year = 2021 + chance.integers(0, 3, size)
    return {
        "user": person * 7 - 1000,
        "name": [f"Zoë {number:05d}" for number in person.tolist()],
        "uuid": [
            str(uuid.UUID(int=(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128))
            for number in person.tolist()
        ],
        "site": person // 50,
        "seat": [f"s{number % 50}" for number in person.tolist()],
        "amount": amount,
        "gain": gain,
        "debt": debt,
        "visits": visits,
        "stars": stars,
        "quarters": quarters,
        "far": far,
        "holes": holes,
        "small": amount.astype(np.float32),
        "price": [Decimal(cents).scaleb(-2) for cents in np.round(100.0 * amount).astype(int).tolist()],
        "same": np.full(size, 7.5),
        "region": [
            None if number % 97 == 0 else str(regions[at]) for number, at in enumerate(place.tolist())
        ],
        "year": year,
    }


@cache
def arrow(name: str) -> pa.Table:
    seed, n_users = {"people": (11, 3000), "many": (12, 4000), "some": (13, 900), "few": (14, 25)}[name]
    return pa.table(records(seed, n_users))


PLAIN = [
    "user",
    "name",
    "uuid",
    "site",
    "seat",
    "amount",
    "gain",
    "visits",
    "stars",
    "quarters",
    "region",
    "year",
]
"""Columns that every container holds alike, those without types included."""


def plain() -> pa.Table:
    return arrow("some").select(PLAIN)


@cache
def vectors() -> tuple[np.ndarray, np.ndarray]:
    """Forty columns of two thousand users, a few of them far away; and how many records each has."""
    chance = np.random.default_rng(21)
    values = chance.normal(0.3, 1.0, (2000, 40)) + np.linspace(-1.0, 1.0, 40)
    values[:40] *= 30.0
    values[100:140] = np.round(values[100:140])
    return values, chance.geometric(0.3, 2000)


def in_parquet(folder: Path) -> str:
    pq.write_table(plain(), folder / "records.parquet")
    return str(folder / "records.parquet")


def in_two_files(folder: Path) -> str:
    half = plain().num_rows // 2
    for number, part in enumerate((plain().slice(0, half), plain().slice(half))):
        pq.write_table(part, folder / f"half-{number}.parquet", row_group_size=300)
    return str(folder / "half-*.parquet")


def in_csv(folder: Path, ending: str = "csv") -> str:
    path = folder / f"records.{ending}"
    plain().to_pandas().to_csv(path, index=False)
    return str(path)


def in_json_lines(folder: Path) -> str:
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in plain().to_pylist()), encoding="utf-8")
    return str(path)


def in_pandas(_: Path) -> Any:
    return plain().to_pandas()


def in_pandas_objects(_: Path) -> Any:
    frame = plain().to_pandas().astype(object)
    frame["uuid"] = frame["uuid"].map(uuid.UUID)
    return frame


def in_polars(_: Path) -> Any:
    import polars

    return polars.DataFrame(plain())


def in_polars_lazy(_: Path) -> Any:
    import polars

    return polars.DataFrame(plain()).lazy()


def in_duckdb(_: Path) -> Any:
    import duckdb

    relation = duckdb.connect().from_arrow(plain())
    return relation.project("* EXCLUDE (uuid), CAST(uuid AS UUID) AS uuid")


def in_sql(folder: Path) -> Any:
    query = "SELECT * EXCLUDE (uuid), CAST(uuid AS UUID) AS uuid FROM records WHERE year > 2020"
    return getattr(package(), SQL)(query, files={"records": in_parquet(folder)})


def in_memory_map(folder: Path) -> Any:
    values, _ = vectors()
    path = folder / "means.npy"
    np.save(path, values.astype(np.float32))
    return np.load(path, mmap_mode="r")


def in_lists(folder: Path, *, fixed: bool) -> Any:
    values, counts = vectors()
    owner = np.repeat(np.arange(2000), np.minimum(counts, 3))
    owner = owner[np.random.default_rng(22).permutation(owner.size)]
    shifted = values[owner] + np.random.default_rng(23).normal(0.0, 0.1, (owner.size, 40))
    kind = pa.list_(pa.float32(), 40) if fixed else pa.list_(pa.float64())
    path = folder / f"lists-{fixed}.parquet"
    table = {
        "client": [f"c{number}" for number in owner.tolist()],
        "update": pa.array(list(shifted), type=kind),
    }
    pq.write_table(pa.table(table), path)
    length = {} if fixed else {"length": 40}
    return getattr(package(), VECTORS)(str(path), user="client", value="update", **length)


@cache
def spark_session() -> Any:
    """One small session that speaks to nobody else; started once."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("released bits")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def stop_spark() -> None:
    if spark_session.cache_info().currsize:
        spark_session().stop()
        spark_session.cache_clear()


def in_spark(_: Path) -> Any:
    return spark_session().createDataFrame(plain()).repartition(3)


def in_spark_table(folder: Path) -> Any:
    spark_session().read.parquet(in_parquet(folder)).createOrReplaceTempView("people")
    return "people"


def means_of(name: str, column: str) -> np.ndarray:
    """One mean a user, for those who hold them already."""
    table = arrow(name)
    _, owner = np.unique(table["user"].to_numpy(), return_inverse=True)
    return np.bincount(owner, table[column].to_numpy()) / np.bincount(owner)


def unusable_means(_: Path) -> np.ndarray:
    means = means_of("people", "amount")
    means[::37] = np.nan
    return means


DATA: dict[str, Callable[[Path], Any]] = {
    **{name: (lambda _, name=name: arrow(name)) for name in ("people", "many", "some", "few")},  # type: ignore[misc]
    "arrow": lambda _: plain(),
    "parquet": in_parquet,
    "two-parquet-files": in_two_files,
    "csv": in_csv,
    "csv-gz": lambda folder: in_csv(folder, "csv.gz"),
    "json-lines": in_json_lines,
    "pandas": in_pandas,
    "pandas-objects": in_pandas_objects,
    "polars": in_polars,
    "polars-lazy": in_polars_lazy,
    "duckdb": in_duckdb,
    "sql": in_sql,
    "spark-frame": in_spark,
    "spark-table": in_spark_table,
    "spark-parquet": in_parquet,
    "array": lambda _: vectors()[0],
    "array-by-columns": lambda _: np.asfortranarray(vectors()[0]),
    "memory-map": in_memory_map,
    "lists": lambda folder: in_lists(folder, fixed=False),
    "lists-of-fixed-size": lambda folder: in_lists(folder, fixed=True),
    "means": lambda _: means_of("people", "amount"),
    "means-unusable": unusable_means,
    "means-few": lambda _: means_of("few", "gain"),
}


def fingerprint_of_data() -> str:
    """Of the numbers that all data are made of: where this differs, every case may, and the code is not to blame."""
    made = hashlib.sha256()
    for name in ("people", "many", "some", "few"):
        for column in arrow(name).columns:
            made.update(repr(column.to_pylist()).encode())
    for array in vectors():
        made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()[:16]


# --- cases ------------------------------------------------------------------------------------------------------------

SMALL_DELTA = 1e-6
KNOWN_SPREAD = {"threshold": 6.0, "radius": 500.0}
THREE = ["amount", "gain", "visits"]
SPREAD_OF_THREE = {"threshold": 12.0, "radius": 500.0}
BOUNDS_OF_THREE = [(0.0, 20.0), (-6.0, 6.0), (0.0, 12.0)]
HUBER = ("inverse-sensitivity", "propose-test-release", "smooth-sensitivity")
REGIONS = ["south", "north", "west", "møre", "atlantis"]


@dataclass(frozen=True)
class Case:
    """A call with its data and options, all by their neutral names."""

    call: str
    data: str
    options: Mapping[str, Any]
    refused: str | None = None
    """As what: "not released" or "bad input". A case that is refused without saying so is a mistake."""

    @property
    def in_spark(self) -> bool:
        return self.data.startswith("spark")


Cases = dict[str, Case]


def mean(data: str = "people", *, refused: str | None = None, **options: Any) -> Case:
    usual: dict[str, Any] = {"user": "user", "value": "amount", "epsilon": 1.0}
    # These look for the location in floats, whose last bits follow the order of users; and that order varies from run
    # to run where DuckDB groups in several threads. All others add up integers.
    located = options.get("mechanism") in ("propose-test-release", "smooth-sensitivity")
    maybe_located = (
        options.get("mechanism", "auto") == "auto" and "threshold" in options and "delta" in options
    )
    if (located or maybe_located) and not data.startswith("spark"):
        usual["threads"] = 1
    return Case("mean", data, {**usual, **options}, refused)


def count(data: str = "people", *, refused: str | None = None, **options: Any) -> Case:
    return Case("count", data, {"user": "user", "epsilon": 0.5, **options}, refused)


def of_means(data: str, *, refused: str | None = None, **options: Any) -> Case:
    return Case("mean-of-user-means", data, {"epsilon": 1.0, **options}, refused)


def serves(mechanism: str, neighbors: str, per: str, delta: float) -> bool:
    """Whether a mechanism makes such a release at all."""
    if mechanism in ("propose-test-release", "smooth-sensitivity"):
        return delta > 0.0
    if mechanism == "winsorized":
        return neighbors == "replace-values" or (neighbors == "replace-user" and per == "user")
    return True


def combinations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything that is asked of a mechanism but what is known of the values."""
    for mechanism in MECHANISM:
        if mechanism == "count":
            continue
        for neighbors in NEIGHBORS:
            for per in ("record", "user"):
                for delta in (0.0, SMALL_DELTA):
                    if serves(mechanism, neighbors, per, delta):
                        name = f"{mechanism}/{neighbors}/{per}/{'delta' if delta else 'pure'}"
                        asked = {"mechanism": mechanism, "neighbors": neighbors, "per": per, "delta": delta}
                        yield name, asked


def known_for(
    asked: Mapping[str, Any], spread: Mapping[str, Any], bounds: Any, max_records: int
) -> dict[str, Any]:
    """What a mechanism has to be told."""
    mechanism, per = asked["mechanism"], asked["per"]
    if mechanism == "adaptive":
        return {}
    cap = {"max_records": max_records} if per == "record" else {}
    return {"bounds": bounds, **cap} if mechanism == "clipped" else {**spread, **cap}


def one_column() -> Cases:
    found = {}
    for name, asked in combinations():
        found[f"one/{name}"] = mean(**asked, **known_for(asked, KNOWN_SPREAD, (0.0, 20.0), 4))
    for value, bounds, threshold in (
        ("gain", (-8.0, 8.0), 4.0),
        ("debt", (-80.0, 0.0), 25.0),
        ("visits", (0, 12), 5.0),
        ("stars", (1, 5), 2.0),
        ("quarters", (0.0, 20.0), 6.0),
        ("small", (0.0, 20.0), 6.0),
        ("price", (0.0, 20.0), 6.0),
        ("far", (999_000.0, 1_001_000.0), 200.0),
    ):
        spread = {"threshold": threshold, "radius": 2e6 if value == "far" else 300.0}
        how = {"value": value, "per": "user"}
        found[f"values/{value}/adaptive"] = mean("many", value=value, mechanism="adaptive", epsilon=0.7)
        found[f"values/{value}/clipped"] = mean("many", mechanism="clipped", bounds=bounds, **how)
        found[f"values/{value}/inverse-sensitivity"] = mean(
            "many", mechanism="inverse-sensitivity", **how, **spread
        )
        found[f"values/{value}/auto"] = mean("many", delta=SMALL_DELTA, **how, **spread)
    for epsilon in (0.125, 8.0):
        for name in ("adaptive", "inverse-sensitivity", "winsorized"):
            known = {} if name == "adaptive" else KNOWN_SPREAD
            asked = {"mechanism": name, "neighbors": "replace-user", "per": "user", "epsilon": epsilon}
            found[f"epsilon/{epsilon}/{name}"] = mean(**asked, **known)
    return found


def three_columns() -> Cases:
    found = {}
    for name, asked in combinations():
        if asked["neighbors"] == "replace-user" and asked["delta"]:
            continue  # nothing that one column and the other relations do not show
        if asked["mechanism"] == "auto" and not asked["delta"]:
            continue
        asked = {"value": THREE, "epsilon": 3.0, **asked}
        found[f"three/{name}"] = mean(**asked, **known_for(asked, SPREAD_OF_THREE, BOUNDS_OF_THREE, 4))
    return found


def wide() -> Cases:
    joint = {"delta": SMALL_DELTA, "epsilon": 2.0, "threshold": 12.0, "radius": 50.0}
    found = {
        "array/adaptive": of_means("array", delta=SMALL_DELTA, epsilon=4.0),
        "array/adaptive-with-counts": of_means("array", counts="counts", delta=SMALL_DELTA, epsilon=8.0),
        "array/clipped": of_means("array", bounds=(-4.0, 4.0), delta=SMALL_DELTA, mechanism="clipped"),
        "array/inverse-sensitivity": of_means(
            "array",
            mechanism="inverse-sensitivity",
            delta=SMALL_DELTA,
            threshold=3.0,
            radius=50.0,
            epsilon=4.0,
        ),
        "array/propose-test-release": of_means("array", mechanism="propose-test-release", **joint),
        "array/propose-test-release-with-counts": of_means(
            "array", mechanism="propose-test-release", counts="counts", max_records=3, **joint
        ),
        "array/smooth-sensitivity": of_means(
            "array", mechanism="smooth-sensitivity", neighbors="replace-user", **joint
        ),
        "array/winsorized": of_means("array", mechanism="winsorized", neighbors="replace-user", **joint),
        "array/auto": of_means("array", neighbors="replace-values", **joint),
        "array-by-columns/propose-test-release": of_means(
            "array-by-columns", mechanism="propose-test-release", neighbors="replace-user", **joint
        ),
        "memory-map/propose-test-release": of_means("memory-map", mechanism="propose-test-release", **joint),
        "memory-map/clipped": of_means("memory-map", bounds=(-4.0, 4.0), delta=SMALL_DELTA),
        "memory-map/adaptive": of_means("memory-map", delta=SMALL_DELTA, epsilon=4.0),
    }
    for kind in ("lists", "lists-of-fixed-size"):
        found[f"{kind}/propose-test-release"] = of_means(
            kind, mechanism="propose-test-release", neighbors="replace-user", **joint
        )
        found[f"{kind}/clipped-per-record"] = of_means(
            kind, bounds=(-4.0, 4.0), delta=SMALL_DELTA, per="record", max_records=2
        )
    found["lists/smooth-sensitivity"] = of_means("lists", mechanism="smooth-sensitivity", **joint)
    found["lists/winsorized"] = of_means(
        "lists", mechanism="winsorized", neighbors="replace-user", n_users=2100, **joint
    )
    found["lists/adaptive"] = of_means("lists", delta=SMALL_DELTA, epsilon=4.0)
    return {f"wide/{name}": case for name, case in found.items()}


def means_that_are_held() -> Cases:
    found = {
        "adaptive": of_means("means"),
        "clipped": of_means("means", bounds=(0.0, 20.0)),
        "unusable/adaptive": of_means("means-unusable", neighbors="replace-user"),
        "unusable/inverse-sensitivity": of_means(
            "means-unusable", mechanism="inverse-sensitivity", neighbors="replace-values", **KNOWN_SPREAD
        ),
        "few/inverse-sensitivity": of_means("means-few", mechanism="inverse-sensitivity", **KNOWN_SPREAD),
        "few/clipped": of_means("means-few", bounds=(-8.0, 8.0)),
        "more-users-stated": of_means(
            "means", mechanism="winsorized", neighbors="replace-user", n_users=3500, **KNOWN_SPREAD
        ),
    }
    return {f"means/{name}": case for name, case in found.items()}


def options() -> Cases:
    found = {}
    for mechanism in HUBER:
        short = {"mechanism": mechanism, "delta": 0.0 if mechanism == "inverse-sensitivity" else SMALL_DELTA}
        for power in (0, 0.5, 1):
            # A threshold that shrinks with the records of a user has to begin further away.
            spread = {"threshold": 6.0 * 3.0**power, "radius": 500.0, "max_records": 4}
            found[f"threshold_power/{mechanism}/{power}"] = mean(threshold_power=power, **spread, **short)
        for per in ("record", "user"):
            found[f"nothing-known/{mechanism}/{per}"] = mean("many", per=per, epsilon=2.0, **short)
        found[f"nothing-known/{mechanism}/three"] = mean(
            "many", value=THREE, per="user", epsilon=6.0, **short
        )
        found[f"nothing-known/{mechanism}/replace-user"] = mean(
            "many", per="user", neighbors="replace-user", epsilon=2.0, **short
        )
        found[f"threshold-known/{mechanism}"] = mean("many", per="user", threshold=6.0, epsilon=2.0, **short)
        found[f"radius-known/{mechanism}"] = mean("many", per="user", radius=100.0, epsilon=2.0, **short)
        found[f"scale-known/{mechanism}"] = mean("many", per="user", scale=2.5, epsilon=2.0, **short)
        found[f"hostile/{mechanism}"] = mean("many", per="user", hostile=0.05, epsilon=2.0, **short)
    uncapped = {"mechanism": "inverse-sensitivity", "threshold_power": 1, "threshold": 20.0, "radius": 500.0}
    found["threshold_power/inverse-sensitivity/uncapped"] = mean(**uncapped)
    for per in ("record", "user"):
        found |= {
            f"bounds/low-only/{per}": mean(per=per, bounds=(0, None)),
            f"bounds/high-only/{per}": mean(per=per, value="debt", bounds=(None, 0)),
            f"hostile/adaptive/{per}": mean(per=per, hostile=0.1),
            f"scale/adaptive/{per}": mean(per=per, scale=2.5),
            f"threshold/adaptive/{per}": mean(per=per, threshold=8.0, mechanism="adaptive"),
            f"radius/adaptive/{per}": mean(per=per, radius=100.0),
            f"n_users/adaptive/{per}": mean(per=per, n_users=2800),
            f"n_users/replace-user/{per}": mean(per=per, n_users=3100, neighbors="replace-user"),
        }
    found |= {
        "bounds/three/one-sided": mean(
            value=THREE, epsilon=3.0, bounds=[(0, None), (None, 500.0), (0, None)], per="user"
        ),
        "bounds/three/one-pair": mean(value=THREE, bounds=(-10.0, 20.0), max_records=3, delta=SMALL_DELTA),
        "hostile/most": mean(hostile=0.2, per="user", value="gain"),
        "scale/three": mean(value=THREE, scale=[2.5, 1.5, 2.0], per="user", epsilon=3.0),
        "max_records/adaptive": mean(max_records=3),
        "max_records/one": mean(max_records=1, bounds=(0.0, 20.0)),
        "max_records/left-out": mean(neighbors="replace-values", bounds=(0.0, 20.0), mechanism="clipped"),
        "max_records/auto-without": mean(bounds=(0.0, 20.0)),
        "n_users/smooth-sensitivity": mean(
            per="user", mechanism="smooth-sensitivity", delta=SMALL_DELTA, n_users=2800, **KNOWN_SPREAD
        ),
        "n_users/auto": mean(per="user", delta=SMALL_DELTA, n_users=150, **KNOWN_SPREAD),
        "auto/few-users-and-delta": mean("few", per="user", delta=SMALL_DELTA, **KNOWN_SPREAD),
        "resolution/float": mean(resolution=0.25),
        "resolution/decimal": mean(resolution=Decimal("0.1"), per="user", bounds=(0.0, 20.0)),
        "resolution/whole": mean(resolution=1, value="far", per="user"),
        "resolution/inverse-sensitivity": mean(
            resolution=Decimal("0.001"), mechanism="inverse-sensitivity", per="user", **KNOWN_SPREAD
        ),
        "non_finite/drop/adaptive": mean(value="holes", non_finite="drop"),
        "non_finite/clamp/adaptive": mean(value="holes", non_finite="clamp"),
        "non_finite/drop/clipped": mean(value="holes", non_finite="drop", bounds=(0.0, 20.0), max_records=3),
        "non_finite/clamp/clipped": mean(
            value="holes", non_finite="clamp", bounds=(0.0, 20.0), max_records=3
        ),
        "non_finite/clamp/inverse-sensitivity": mean(
            value="holes", non_finite="clamp", per="user", mechanism="inverse-sensitivity", **KNOWN_SPREAD
        ),
        "non_finite/drop/winsorized": mean(
            value="holes", per="user", neighbors="replace-user", mechanism="winsorized", **KNOWN_SPREAD
        ),
        "non_finite/drop/three": mean(value=["holes", "gain", "visits"], per="user", epsilon=3.0),
        "threads": mean(threads=1),
        "memory_limit": mean(memory_limit="200MB", bounds=(0.0, 20.0), max_records=3),
    }
    return {f"options/{name}": case for name, case in found.items()}


def groups() -> Cases:
    found = {}
    bounded = {"mechanism": "clipped", "bounds": (0.0, 20.0), "max_records": 3}
    ways: dict[str, dict[str, Any]] = {
        "adaptive": {},
        "adaptive-per-user": {"per": "user"},
        "clipped": bounded,
        "inverse-sensitivity": {"mechanism": "inverse-sensitivity", "per": "user", **KNOWN_SPREAD},
    }
    joint = {"per": "user", "epsilon": 6.0, "delta": 1e-5, **KNOWN_SPREAD}
    with_delta: dict[str, dict[str, Any]] = {
        "propose-test-release": {"mechanism": "propose-test-release", **joint},
        "smooth-sensitivity": {"mechanism": "smooth-sensitivity", **joint},
        "auto": joint,
    }
    for most in (1, 3):
        for name, way in (ways | with_delta).items():
            how = {"by": "region", "max_groups": most, "epsilon": 2.0, **way}
            found[f"public/{name}/{most}"] = mean("many", keys=REGIONS, **how)
            found[f"chosen/{name}/{most}"] = mean("many", **{"delta": 1e-5, **how})
        for neighbors in ("replace-user", "replace-values"):
            for name in ("adaptive", "clipped", "inverse-sensitivity"):
                how = {
                    "by": "region",
                    "max_groups": most,
                    "epsilon": 3.0,
                    "neighbors": neighbors,
                    **ways[name],
                }
                found[f"public/{neighbors}/{name}/{most}"] = mean("many", keys=REGIONS, **how)
    found |= {
        "chosen/replace-user": mean(
            "many", by="region", neighbors="replace-user", delta=1e-5, max_groups=1, **bounded
        ),
        "public/two-columns": mean(
            "many",
            by=["region", "year"],
            keys=[("south", 2022), ("north", 2021), ("north", 2023)],
            max_groups=1,
            **bounded,
        ),
        "public/all-combinations": mean(
            "many",
            by=["year", "region"],
            keys={"year": [2021, 2023], "region": ["north", "east"]},
            epsilon=2.0,
        ),
        "chosen/two-columns": mean(
            "many", by=["region", "year"], max_groups=3, delta=1e-5, epsilon=3.0, **bounded
        ),
        "chosen/two-columns/adaptive": mean(
            "many", by=["year", "region"], max_groups=3, delta=1e-5, epsilon=4.0
        ),
        "public/integers": mean("many", by="year", keys=[2023, 2021, 1999], max_groups=3, **bounded),
        "public/three-values": mean(
            "many",
            value=THREE,
            by="region",
            keys=REGIONS,
            mechanism="clipped",
            max_groups=1,
            bounds=BOUNDS_OF_THREE,
            per="user",
        ),
        "public/three-values/adaptive": mean("many", value=THREE, by="region", keys=REGIONS, epsilon=6.0),
        "public/gaussian": mean(
            "many", by="region", keys=REGIONS, delta=SMALL_DELTA, max_groups=1, **bounded
        ),
        "public/options": mean(
            "many",
            value="holes",
            by="region",
            keys=REGIONS,
            non_finite="clamp",
            resolution=0.25,
            max_groups=1,
            **bounded,
        ),
        "public/n_users": mean(
            "many", by="region", keys=REGIONS, neighbors="replace-user", n_users=4200, epsilon=3.0
        ),
        "public/some-refused": mean(
            "many",
            by="region",
            keys=REGIONS,
            mechanism="propose-test-release",
            max_groups=1,
            per="user",
            delta=1e-5,
            epsilon=2.0,
            **KNOWN_SPREAD,
        ),
        "public/rows": mean("many", by="region", keys=REGIONS, delta=1e-6, epsilon=2.0),
        "public/rows/per-user": mean("many", by="region", keys=REGIONS, per="user", epsilon=2.0),
        "chosen/rows": mean("many", by=["region", "year"], delta=1e-5, epsilon=4.0),
        "public/rows/bounds": mean("many", by="region", keys=REGIONS, epsilon=2.0, bounds=(0, 20)),
    }
    return {f"groups/{name}": case for name, case in found.items()}


def counts() -> Cases:
    found = {}
    for neighbors in NEIGHBORS:
        found |= {
            f"users/{neighbors}": count(neighbors=neighbors),
            f"users-with-value/{neighbors}": count(neighbors=neighbors, value="holes"),
            f"records/{neighbors}": count(of="records", neighbors=neighbors),
            f"records/{neighbors}/max_records": count(of="records", max_records=5, neighbors=neighbors),
            f"records-with-value/{neighbors}": count(of="records", neighbors=neighbors, value="holes"),
            f"by-group/{neighbors}": count(neighbors=neighbors, by="region", keys=REGIONS),
        }
    for most in (1, 3):
        by = {"by": "region", "max_groups": most}
        for of in ("users", "records"):
            found |= {
                f"public/{of}/{most}": count(of=of, keys=REGIONS, **by),
                f"chosen/{of}/{most}": count(of=of, delta=1e-6, epsilon=1.0, **by),
            }
        found[f"public/records/max_records/{most}"] = count(of="records", max_records=2, keys=REGIONS, **by)
    found |= {
        "public/users/replace-user": count(by="region", keys=REGIONS, neighbors="replace-user"),
        "chosen/users/two-columns": count(by=["year", "region"], max_groups=2, delta=1e-6, value="holes"),
    }
    return {f"counts/{name}": case for name, case in found.items()}


def refusals() -> Cases:
    no, bad = "not released", "bad input"
    tested = {"mechanism": "propose-test-release", "per": "user", "delta": SMALL_DELTA}
    found = {
        "few-users/adaptive": mean("few", refused=no, epsilon=0.3),
        "few-users/adaptive-with-delta": mean("few", refused=no, epsilon=0.3, delta=1e-7, per="user"),
        "few-users/adaptive/replace-user": mean("few", refused=bad, neighbors="replace-user", epsilon=0.3),
        "few-users/inverse-sensitivity": mean(
            "few", refused=no, mechanism="inverse-sensitivity", epsilon=0.3
        ),
        "few-users/propose-test-release": mean("few", refused=no, **tested, **KNOWN_SPREAD),
        "few-users/groups": mean("few", refused=no, by="region", keys=REGIONS, epsilon=0.3),
        "few-users/held-means": of_means("means-few", refused=no, epsilon=0.3),
        "no-scale": mean(value="same", refused=no, epsilon=0.9),
        "no-scale/groups": mean(value="same", refused=no, by="region", delta=1e-6, epsilon=0.9),
        "spread-too-wide": mean(refused=no, threshold=0.05, radius=500.0, epsilon=0.7, **tested),
        "needs-delta": mean(refused=bad, per="user", mechanism="propose-test-release", **KNOWN_SPREAD),
        "needs-private-keys-delta": mean(refused=bad, by="region"),
        "winsorized/add-remove": mean(refused=bad, per="user", mechanism="winsorized", **KNOWN_SPREAD),
        "radius-too-large": mean(refused=bad, threshold=1e-6, radius=1e12, **tested),
    }
    return {f"refused/{name}": case for name, case in found.items()}


def containers() -> Cases:
    found = {}
    kinds = (
        "arrow",
        "parquet",
        "two-parquet-files",
        "csv",
        "csv-gz",
        "json-lines",
        "pandas",
        "pandas-objects",
    )
    for kind in (*kinds, "polars", "polars-lazy", "duckdb", "sql"):
        found |= {
            f"{kind}/adaptive": mean(kind, value="gain", epsilon=3.0),
            f"{kind}/clipped": mean(
                kind, value=["quarters", "visits"], bounds=[(0.0, 20.0), (0.0, 12.0)], max_records=3
            ),
            f"{kind}/groups": mean(
                kind, by=["region", "year"], max_groups=2, delta=1e-5, per="user", bounds=(0, 20), epsilon=3.0
            ),
            f"{kind}/uuid": mean(
                kind, user="uuid", mechanism="inverse-sensitivity", per="user", **KNOWN_SPREAD
            ),
        }
    for kind in ("parquet", "csv", "polars", "pandas"):
        by_id = {"mechanism": "inverse-sensitivity", "value": "visits", "per": "user", **KNOWN_SPREAD}
        found |= {
            f"{kind}/text-ids": mean(kind, user="name", **by_id),
            f"{kind}/two-columns-of-ids": mean(kind, user=["site", "seat"], **by_id),
            f"{kind}/two-columns-of-ids/groups": mean(
                kind,
                user=["site", "seat"],
                by="region",
                keys=REGIONS,
                max_groups=2,
                bounds=(0, 20),
                per="user",
            ),
            f"{kind}/count": count(kind, user=["seat", "site"], of="records", epsilon=2.0),
        }
    public = {"neighbors": "replace-user", "per": "user", "mechanism": "winsorized", **KNOWN_SPREAD}
    found |= {
        "csv/users-stated": mean("csv", n_users=900, **public),
        "sql/users-stated": mean("sql", n_users=950, **public),
        "parquet/replace-values": mean(
            "parquet", **{**public, "neighbors": "replace-values", "per": "record"}
        ),
    }
    return {f"containers/{name}": case for name, case in found.items()}


def spark() -> Cases:
    found = {}
    for kind in ("spark-frame", "spark-table", "spark-parquet"):
        how = {} if kind == "spark-frame" else {"engine": "spark"}
        found |= {
            f"{kind}/adaptive": mean(kind, value="gain", epsilon=3.0, **how),
            f"{kind}/clipped": mean(
                kind, value=["quarters", "visits"], bounds=[(0.0, 20.0), (0.0, 12.0)], max_records=3, **how
            ),
            f"{kind}/groups": mean(
                kind, by="region", keys=REGIONS, max_groups=2, per="user", bounds=(0, 20), epsilon=3.0, **how
            ),
            f"{kind}/two-columns-of-ids": mean(
                kind,
                user=["site", "seat"],
                mechanism="inverse-sensitivity",
                value="visits",
                per="user",
                **KNOWN_SPREAD,
                **how,
            ),
            f"{kind}/count": count(kind, user="name", of="records", max_records=4, **how),
        }
    # The same where users stay on the executors, which add up parts.
    for name in ("adaptive", "clipped", "two-columns-of-ids", "count"):
        found[f"spark-frame/executors/{name}"] = found[f"spark-frame/{name}"]
    found["spark-frame/executors/propose-test-release"] = mean(
        "spark-frame",
        mechanism="propose-test-release",
        value=["amount", "visits"],
        per="user",
        delta=1e-5,
        epsilon=3.0,
        threshold=12.0,
        radius=500.0,
    )
    found["spark-frame/executors/winsorized"] = mean(
        "spark-frame",
        mechanism="winsorized",
        neighbors="replace-user",
        n_users=900,
        per="user",
        **KNOWN_SPREAD,
    )
    found["spark-frame/groups-chosen"] = mean(
        "spark-frame",
        by=["region", "year"],
        max_groups=2,
        delta=1e-5,
        per="user",
        bounds=(0, 20),
        epsilon=3.0,
    )
    return {f"containers/{name}": case for name, case in found.items()}


def all_cases() -> Cases:
    makers = (
        one_column,
        three_columns,
        wide,
        means_that_are_held,
        options,
        groups,
        counts,
        refusals,
        containers,
        spark,
    )
    found: Cases = {}
    for maker in makers:
        found |= maker()
    return found


# --- running and recording --------------------------------------------------------------------------------------------

Record = dict[str, Any]


def seed_of(name: str) -> int:
    """A seed of its own for every case, so that cases can be added and left out."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def arguments(case: Case) -> dict[str, Any]:
    """The options by today's names."""
    made = {}
    for name, value in case.options.items():
        if name == "counts":
            value = vectors()[1]
        elif name in OPTION_VALUES:
            value = OPTION_VALUES[name][value]
        made[OPTION[name]] = value
    return made


def made(name: str, case: Case, data: Any) -> Record:
    """What comes of a case: a release, a table of them, or a refusal."""
    call = getattr(package(), CALL[case.call])
    errors = {getattr(package(), today): neutral for neutral, today in ERROR.items()}
    source = seeded_noise(seed_of(name)) if case.refused != "bad input" else contextlib.nullcontext()
    try:
        with warnings.catch_warnings(), source, executors(name):
            warnings.simplefilter("ignore")  # of Spark's own code about the packages it uses
            result = call(data, **arguments(case))
    except tuple(errors) as refusal:
        kind = next(neutral for error, neutral in errors.items() if isinstance(refusal, error))
        if kind != case.refused:
            raise AssertionError(f"{name} was refused: {refusal}") from refusal
        spent = [getattr(refusal, ATTRIBUTE[part], None) for part in ("epsilon", "delta")]
        return {"refused": [kind, *map(exact, spent)]}
    if case.refused is not None:
        raise AssertionError(f"{name} was released")
    return table_record(result) if hasattr(result, ATTRIBUTE["keys"]) else release_record(result)


@contextlib.contextmanager
def executors(name: str) -> Iterator[None]:
    """Users stay on Spark's executors in the cases that say so."""
    if "/executors/" not in name:
        yield
        return
    settings = spark_session().conf
    settings.set(SPARK_USERS_AT_DRIVER, "0")
    try:
        yield
    finally:
        settings.unset(SPARK_USERS_AT_DRIVER)


def of(result: Any, attribute: str) -> Any:
    return getattr(result, ATTRIBUTE[attribute])


def release_record(release: Any) -> Record:
    interval = of(release, "interval")()
    return {
        "values": exact(of(release, "values")),
        "interval": None if interval is None else [exact(interval.low), exact(interval.high)],
        "denominator": denominator(of(release, "denominator")),
        "n_users": of(release, "n_users"),
        "warnings": len(of(release, "warnings")),
        **common(release),
    }


def table_record(table: Any) -> Record:
    intervals = of(table, "intervals")()
    return {
        "keys": [[f"{type(part).__name__} {part}" for part in key] for key in of(table, "keys")],
        "values": exact(of(table, "values")),
        "interval": None if intervals is None else [exact(ends) for ends in intervals],
        "denominator": [denominator(one) for one in of(table, "denominators")],
        "refusals": sorted(of(table, "refusals")),
        **common(table),
    }


def common(result: Any) -> Record:
    return {
        "mechanism": {today: neutral for neutral, today in MECHANISM.items()}[of(result, "mechanism")],
        "epsilon": exact(of(result, "epsilon")),
        "delta": exact(of(result, "delta")),
        "spent": [[exact(of(one, "amount")), of(one, "unit")] for one in of(result, "spent")],
        "parameters": parameters(of(result, "parameters")),
    }


def denominator(found: Any) -> Any:
    return None if found is None else [exact(found.value), exact(found.low), exact(found.high), found.exact]


def parameters(found: Mapping[str, Any]) -> Record:
    """Those that are numbers, or hold numbers; the others are sentences."""
    neutral = {today: name for name, today in PARAMETER.items()}
    numbers = {
        neutral.get(name, name): exact(value) for name, value in found.items() if not isinstance(value, str)
    }
    return dict(sorted(numbers.items()))


def exact(value: Any) -> Any:
    """Every bit of a number, or of all numbers in something that holds numbers; whole numbers stay whole."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value).hex()
    if isinstance(value, np.ndarray):
        return exact(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): exact(one) for name, one in sorted(value.items())}
    if isinstance(value, Sequence):
        return [exact(one) for one in value]
    raise TypeError(f"what is exact about {type(value).__name__}?")


def digest(record: Any, length: int = 16) -> str:
    text = json.dumps(record, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


PARTS = ("values", "interval", "parameters", "spent", "keys")
"""What a difference is distinguished by, besides the rest."""


def compact(record: Record) -> Record:
    """A digest of everything; of a release also its values, and of each part a few digits to tell what differs."""
    kept: Record = {"digest": digest(record)}
    if "refused" in record:
        return {**kept, "refused": record["refused"]}
    if "keys" not in record:
        kept["values"] = " ".join(record["values"])
    rest = {name: part for name, part in record.items() if name not in PARTS}
    return {**kept, "parts": "".join(digest(part, 4) for part in (*map(record.get, PARTS), rest))}


def run(cases: Cases, *, timed: bool = False) -> dict[str, Record]:
    """Every case in turn; data are made once for all cases, each in a folder of its own."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as at_the_end:
        at_the_end.callback(stop_spark)
        held: dict[str, Any] = {}
        for name, case in cases.items():
            if case.data not in held:
                place = Path(folder, case.data)
                place.mkdir()
                held[case.data] = DATA[case.data](place)
            started = time.perf_counter()
            try:
                found[name] = made(name, case, held[case.data])
            except AssertionError as surprise:
                print(surprise, file=sys.stderr)
            if timed:
                print(f"{time.perf_counter() - started:7.2f} s  {name}", file=sys.stderr)
    return found


def made_of() -> dict[str, str]:
    """What else decides about bits; for whoever finds a difference."""
    import duckdb

    return {
        "data": fingerprint_of_data(),
        "numpy": np.__version__,
        "arrow": pa.__version__,
        "duckdb": duckdb.__version__,
        "machine": platform.machine(),
    }


def written(found: Mapping[str, Record]) -> str:
    """A line a case, so that a difference can be read."""
    lines = [
        f"{json.dumps(name)}:{json.dumps(compact(record), separators=(',', ':'))}"
        for name, record in found.items()
    ]
    return f'{{"made_of":{json.dumps(made_of())},\n"cases":{{\n' + ",\n".join(lines) + "\n}}\n"


def differences(before: Mapping[str, Record], after: Mapping[str, Record]) -> list[str]:
    """A line for each case that differs, is new, or is gone."""
    found = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            found.append(f"{name}: {'only in the file' if new is None else 'not in the file'}")
        elif old != new:
            digits = [old.get("parts", ""), new.get("parts", "")]
            names = [
                part
                for place, part in enumerate((*PARTS, "the rest"))
                if len({one[4 * place : 4 * place + 4] for one in digits}) > 1
            ]
            seen = [one.get("values") or str(one.get("refused", "")) for one in (old, new)]
            change = "" if seen[0] == seen[1] else f"; {seen[0][:70]} -> {seen[1][:70]}"
            found.append(f"{name}: {', '.join(names) or 'refusal'}{change}")
    return found


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Released bits under seeded noise.")
    job = parser.add_mutually_exclusive_group(required=True)
    job.add_argument("--write", metavar="FILE", type=Path)
    job.add_argument("--compare", metavar="FILE", type=Path)
    job.add_argument("--show", metavar="CASE")
    parser.add_argument("--without-spark", action="store_true")
    parser.add_argument("--only", metavar="TEXT", default="")
    parser.add_argument("--times", action="store_true")
    asked = parser.parse_args(given)
    cases = {
        name: case
        for name, case in all_cases().items()
        if asked.only in name and not (asked.without_spark and case.in_spark)
    }
    if asked.show is not None:
        print(json.dumps(run({asked.show: cases[asked.show]}), indent=1, ensure_ascii=False))
        return 0
    started = time.perf_counter()
    found = run(cases, timed=asked.times)
    print(f"{len(found)} cases in {time.perf_counter() - started:.0f} s")
    if len(found) < len(cases):
        return 1
    if asked.write is not None:
        asked.write.write_text(written(found), encoding="utf-8")
        return 0
    before = json.loads(asked.compare.read_text(encoding="utf-8"))
    for name, now in made_of().items():
        if before["made_of"].get(name) != now:
            print(f"made of another {name}: {before['made_of'].get(name)} -> {now}")
    held = {name: one for name, one in before["cases"].items() if asked.only in name}
    if asked.without_spark:
        here = all_cases()
        held = {name: one for name, one in held.items() if name not in here or not here[name].in_spark}
    # As the file would hold them.
    after = {name: json.loads(json.dumps(compact(record))) for name, record in found.items()}
    lines = differences(held, after)
    print("\n".join(lines) if lines else "no differences")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
