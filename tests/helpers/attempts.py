"""What new users try: wrong and unusual files, columns, parameters, sources, frames and environments. No test here."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import hubermean as hm

RIDERS = 1_500

REFUSED, RELEASED, NOT_RELEASED = "refused", "released", "not released"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What somebody tries.

    Attributes:
        group, name: the heading of the table and the attempt in words.
        words: what is typed after `hubermean`; or
        code: a function of the folder, for Python; its keywords for the ledger come second.
        expected: how it ends.
        charged: whether the attempt is charged to the ledger.
        environment: variables set for it.
    """

    group: str
    name: str
    words: Sequence[str] = ()
    code: Callable[[dict[str, Any]], Any] | None = None
    expected: str = REFUSED
    charged: bool = True
    environment: tuple[tuple[str, str], ...] = ()


def trips() -> pd.DataFrame:
    """Trips of riders, the same every time."""
    generator = np.random.default_rng(7)
    rider = np.repeat(np.arange(RIDERS), generator.integers(1, 5, RIDERS))
    return pd.DataFrame(
        {
            "rider": rider,
            "fare": np.round(generator.gamma(4.0, 4.0, len(rider)), 2),
            "city": generator.choice(["Arden", "Brook"], len(rider)),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(generator.integers(0, 90, len(rider)), "D"),
            "paid": generator.random(len(rider)) < 0.8,
            "note": "x",
            "nothing": np.full(len(rider), np.nan),
            "same": 1.0,
        }
    )


def write_files(folder: Path) -> None:
    """Write the files that attempts name."""
    frame = trips()
    frame.to_parquet(folder / "trips.parquet", index=False)
    plain = frame[["rider", "fare", "city"]]
    plain.to_csv(folder / "trips.csv", index=False)
    for name, shown in (
        ("comma", lambda fare: f"{fare:.2f}".replace(".", ",")),
        ("thousands", lambda fare: f"{1000 * fare:,.2f}"),
        ("currency", lambda fare: f"${fare:.2f}"),
    ):
        plain.assign(fare=plain.fare.map(shown)).to_csv(folder / f"{name}.csv", index=False)
    plain.to_csv(folder / "semicolons.csv", index=False, sep=";")
    plain.assign(fare=[f"{fare}" if fare < 25 else "unknown" for fare in plain.fare]).to_csv(
        folder / "words.csv", index=False
    )
    (folder / "latin.csv").write_bytes(
        plain.rename(columns={"fare": "Entgelt für Fahrt"}).to_csv(index=False).encode("latin-1")
    )
    (folder / "zipped.csv.gz").write_bytes(gzip.compress(plain.to_csv(index=False).encode()))
    (folder / "empty.csv").write_bytes(b"")
    (folder / "header.csv").write_text("rider,fare\n")
    (folder / "noheader.csv").write_text(plain.to_csv(index=False, header=False))
    (folder / "twice.csv").write_text("rider,fare,fare\n1,2,3\n")
    (folder / "empty.parquet").write_bytes(b"")
    (folder / "broken.parquet").write_bytes(b"PAR1 this is not a table PAR1")
    (folder / "trips.xlsx").write_bytes(b"PK\x03\x04")
    (folder / "trips").write_text(plain.to_csv(index=False))
    (folder / "trips.json").write_text(plain.head(2000).to_json(orient="records"))
    pq.write_table(pa.Table.from_pandas(plain.head(0), preserve_index=False), folder / "nobody.parquet")
    plain[plain.rider < 30].to_parquet(folder / "few.parquet", index=False)
    plain.assign(rider=pd.Series([None] * len(plain), dtype="Int64")).to_parquet(folder / "nameless.parquet")
    (folder / "results").mkdir()


USUAL = ("--user", "rider", "--value", "fare", "--epsilon", "1")


def release(file: str = "trips.parquet", *more: str, without: str = "", **changed: str) -> tuple[str, ...]:
    """Return a usual release, with options changed, added or left out."""
    options = dict(zip(USUAL[::2], USUAL[1::2], strict=True)) | {
        f"--{key}": value for key, value in changed.items()
    }
    options.pop(without, None)
    return ("release", file, *(word for pair in options.items() for word in pair), *more)


def mean(data: Any, **options: Any) -> Callable[[dict[str, Any]], Any]:
    """Return a call of hm.mean; `data` may be a function, so that it is made when it is used."""
    usual: dict[str, Any] = {"user": "rider", "value": "fare", "epsilon": 1.0}
    return lambda ledger: hm.mean(data() if callable(data) else data, **{**usual, **ledger, **options})


def asked_twice(ledger: dict[str, Any]) -> Any:
    first = mean("trips.parquet")(ledger)
    second = mean("trips.parquet")(ledger)
    assert first.value == second.value
    return second


def other_user(ledger: dict[str, Any]) -> Any:
    mean("trips.parquet", epsilon=0.5, per="user")(ledger)
    return mean("trips.parquet", user="city")(ledger)


FILES = [
    Attempt(group="Files", name="a typing error in the file name", words=release("tripz.parquet")),
    Attempt(group="Files", name="a pattern that matches no file", words=release("2023-*.parquet")),
    Attempt(group="Files", name="a folder", words=release("results")),
    Attempt(group="Files", name="an empty CSV file", words=release("empty.csv")),
    Attempt(
        group="Files",
        name="a CSV file with a header and no rows",
        words=release("header.csv"),
        expected=NOT_RELEASED,
    ),
    Attempt(group="Files", name="a CSV file without a header", words=release("noheader.csv")),
    Attempt(group="Files", name="a CSV file with two columns of one name", words=release("twice.csv")),
    Attempt(group="Files", name="semicolons between columns", words=release("semicolons.csv")),
    Attempt(
        group="Files", name="numbers with decimal commas", words=release("comma.csv"), expected=NOT_RELEASED
    ),
    Attempt(
        group="Files",
        name="numbers with thousands separators",
        words=release("thousands.csv"),
        expected=NOT_RELEASED,
    ),
    Attempt(
        group="Files",
        name="numbers with a currency sign",
        words=release("currency.csv"),
        expected=NOT_RELEASED,
    ),
    Attempt(
        group="Files", name="a few words among the numbers", words=release("words.csv"), expected=RELEASED
    ),
    Attempt(
        group="Files", name="a CSV file in Latin-1", words=release("latin.csv", value="Entgelt für Fahrt")
    ),
    Attempt(group="Files", name="a compressed CSV file", words=release("zipped.csv.gz"), expected=RELEASED),
    Attempt(group="Files", name="a file without an ending", words=release("trips")),
    Attempt(group="Files", name="an Excel workbook", words=release("trips.xlsx")),
    Attempt(
        group="Files",
        name="a JSON array instead of JSON lines",
        words=release("trips.json"),
    ),
    Attempt(group="Files", name="an empty Parquet file", words=release("empty.parquet")),
    Attempt(group="Files", name="a broken Parquet file", words=release("broken.parquet")),
    Attempt(
        group="Files",
        name="a Parquet file without rows",
        words=release("nobody.parquet"),
        expected=NOT_RELEASED,
    ),
    Attempt(group="Files", name="thirty users", words=release("few.parquet"), expected=NOT_RELEASED),
    Attempt(
        group="Files",
        name="a user column without a value",
        words=release("nameless.parquet"),
        expected=NOT_RELEASED,
    ),
]

COLUMNS = [
    Attempt(group="Columns", name="a typing error in --value", words=release(value="fair")),
    Attempt(group="Columns", name="a typing error in --user", words=release(user="Rider")),
    Attempt(group="Columns", name="one column as user and value", words=release(value="rider")),
    Attempt(group="Columns", name="a text column as value", words=release(value="note")),
    Attempt(group="Columns", name="a date as value", words=release(value="day")),
    Attempt(group="Columns", name="a flag as value", words=release(value="paid"), expected=RELEASED),
    Attempt(
        group="Columns",
        name="a column without a value",
        words=release(value="nothing"),
        expected=NOT_RELEASED,
    ),
    Attempt(
        group="Columns",
        name="a column that holds one number",
        words=release(value="same"),
        expected=NOT_RELEASED,
    ),
    Attempt(group="Columns", name="several columns with commas", words=release(value="fare,same")),
]

PARAMETERS = [
    Attempt(group="Parameters", name="no --epsilon", words=release(without="--epsilon")),
    Attempt(group="Parameters", name="no --user", words=release(without="--user")),
    Attempt(group="Parameters", name="epsilon zero", words=release(epsilon="0")),
    Attempt(group="Parameters", name="a negative epsilon", words=release(epsilon="-1")),
    Attempt(group="Parameters", name="a word as epsilon", words=release(epsilon="strong")),
    Attempt(group="Parameters", name="epsilon with a decimal comma", words=release(epsilon="0,5")),
    Attempt(
        group="Parameters", name="epsilon = 9, nearly all", words=release(epsilon="9"), expected=RELEASED
    ),
    Attempt(
        group="Parameters",
        name="epsilon = 50, without a ledger",
        words=release(epsilon="50"),
        expected=RELEASED,
        charged=False,
    ),
    Attempt(group="Parameters", name="epsilon = 0.01", words=release(epsilon="0.01"), expected=NOT_RELEASED),
    Attempt(group="Parameters", name="delta = 1", words=release(file="trips.parquet", delta="1")),
    Attempt(
        group="Parameters",
        name="bounds in the wrong order",
        words=release("trips.parquet", "--bounds", "100", "0"),
    ),
    Attempt(group="Parameters", name="one bound", words=release("trips.parquet", "--bounds", "100")),
    Attempt(
        group="Parameters",
        name="bounds as one word",
        words=release("trips.parquet", "--bounds", "0,100", "--per", "user"),
    ),
    Attempt(group="Parameters", name="max_records = 0", words=release("trips.parquet", "--max-records", "0")),
    Attempt(
        group="Parameters",
        name="max_records with --per user",
        words=release("trips.parquet", "--max-records", "3", "--per", "user"),
    ),
    Attempt(
        group="Parameters",
        name="bounds without max_records",
        words=release("trips.parquet", "--bounds", "0", "100"),
        expected=RELEASED,
    ),
    Attempt(group="Parameters", name="a mechanism that does not exist", words=release(mechanism="laplace")),
    Attempt(
        group="Parameters",
        name="a mechanism without what it needs",
        words=release("trips.parquet", "--mechanism", "winsorized"),
    ),
    Attempt(
        group="Parameters",
        name="a mechanism that needs delta",
        words=release(
            "trips.parquet", "--mechanism", "propose-test-release", "--threshold", "20", "--radius", "100"
        ),
    ),
    Attempt(group="Parameters", name="--per row", words=release(per="row")),
    Attempt(group="Parameters", name="a relation that does not exist", words=release(neighbors="one-user")),
    Attempt(
        group="Parameters",
        name="an option that does not exist",
        words=release("trips.parquet", "--sigma", "2"),
    ),
    Attempt(
        group="Parameters", name="too few users stated", words=release("trips.parquet", "--n-users", "40")
    ),
    Attempt(
        group="Parameters",
        name="far more records expected",
        words=release("trips.parquet", "--expected-records", "90000"),
        expected=RELEASED,
    ),
    Attempt(
        group="Parameters",
        name="records expected of a mean of user means",
        words=release("trips.parquet", "--expected-records", "9000", "--per", "user"),
    ),
    Attempt(
        group="Parameters", name="--json and --quiet", words=release("trips.parquet", "--json", "--quiet")
    ),
    Attempt(group="Parameters", name="no command", words=("trips.parquet", *USUAL), charged=False),
]

GROUPS = [
    Attempt(
        group="Groups",
        name="groups with neither keys nor delta",
        words=release("trips.parquet", "--by", "city"),
    ),
    Attempt(
        group="Groups",
        name="users in several groups",
        words=release("trips.parquet", "--by", "city", "--key", "Arden", "--key", "Brook"),
        expected=RELEASED,
    ),
    Attempt(group="Groups", name="--key without --by", words=release("trips.parquet", "--key", "Arden")),
    Attempt(
        group="Groups",
        name="the value as group",
        words=release("trips.parquet", "--by", "fare", "--key", "1"),
    ),
    Attempt(
        group="Groups",
        name="a group that does not occur",
        words=release("trips.parquet", "--by", "city", "--key", "Arden", "--key", "Atlantis"),
        expected=RELEASED,
    ),
    Attempt(
        group="Groups",
        name="the data as list of groups",
        words=release("trips.parquet", "--by", "city", "--keys", "trips.parquet"),
    ),
    Attempt(
        group="Groups", name="max_groups without groups", words=release("trips.parquet", "--max-groups", "3")
    ),
]

SOURCES = [
    Attempt(group="Sources", name="a web address", words=release("https://example.org/trips.csv")),
    Attempt(
        group="Sources",
        name="a query with an unknown column",
        code=mean(lambda: hm.sql("select rider, fair as fare from t", files={"t": "trips.parquet"})),
    ),
    Attempt(
        group="Sources",
        name="a query that deletes",
        code=mean(lambda: hm.sql("drop table t", files={"t": "trips.parquet"})),
    ),
    Attempt(
        group="Sources",
        name="a query that reads another file",
        code=mean(lambda: hm.sql("select * from read_csv('trips.csv')", files={"t": "trips.parquet"})),
    ),
    Attempt(group="Sources", name="a query as text", code=mean("select * from 'trips.parquet'")),
    Attempt(group="Sources", name="files of two kinds in one pattern", words=release("t*s.*")),
]

FRAMES = [
    Attempt(
        group="Frames",
        name="numbers as text in a pandas frame",
        code=mean(lambda: trips().assign(fare=lambda t: t.fare.astype(str))),
        expected=RELEASED,
    ),
    Attempt(
        group="Frames",
        name="the user as index of a pandas frame",
        code=mean(lambda: trips().set_index("rider")),
    ),
    Attempt(group="Frames", name="a pandas series", code=mean(lambda: trips()["fare"])),
    Attempt(group="Frames", name="a list of dictionaries", code=mean([{"rider": 1, "fare": 2.0}])),
    Attempt(group="Frames", name="a dictionary of lists", code=mean({"rider": [1, 2], "fare": [2.0, 3.0]})),
    Attempt(group="Frames", name="a numpy array", code=mean(np.zeros((5, 2)))),
    Attempt(
        group="Frames",
        name="a lazy Polars frame",
        code=mean(lambda: pl.from_pandas(trips()[["rider", "fare"]]).lazy()),
        expected=RELEASED,
    ),
    Attempt(
        group="Frames",
        name="decimals in an Arrow table",
        code=mean(
            lambda: pa.table(
                {"rider": trips().rider, "fare": pa.array([Decimal(str(fare)) for fare in trips().fare])}
            )
        ),
        expected=RELEASED,
    ),
    Attempt(group="Frames", name="a keyword with a typing error", code=mean("trips.parquet", epsilonn=1)),
    Attempt(
        group="Frames",
        name="texts as user means",
        code=lambda ledger: hm.mean_of_user_means(["a", "b"], epsilon=1, bounds=(0, 1), **ledger),
        expected=RELEASED,
    ),
]

ENVIRONMENT = [
    Attempt(
        group="Ledger and environment",
        name="a ledger in the environment, no data set",
        words=release(),
        charged=False,
        environment=(("HUBERMEAN_LEDGER", "budget.sqlite"),),
    ),
    Attempt(
        group="Ledger and environment",
        name="a data set without a ledger",
        words=release("trips.parquet", "--dataset", "trips"),
        charged=False,
    ),
    Attempt(
        group="Ledger and environment",
        name="a data set that is not in the ledger",
        words=release("trips.parquet", "--ledger", "budget.sqlite", "--dataset", "rides"),
        charged=False,
    ),
    Attempt(
        group="Ledger and environment",
        name="a ledger that does not exist",
        words=release("trips.parquet", "--ledger", "no/budget.sqlite", "--dataset", "trips"),
        charged=False,
    ),
    Attempt(
        group="Ledger and environment",
        name="a data file as ledger",
        words=release("trips.parquet", "--ledger", "trips.csv", "--dataset", "trips"),
        charged=False,
    ),
    Attempt(group="Ledger and environment", name="more than the whole budget", words=release(epsilon="11")),
    Attempt(
        group="Ledger and environment",
        name="another relation than the data set's",
        words=release(neighbors="replace-values"),
    ),
    Attempt(
        group="Ledger and environment", name="another user column than that of the data set", code=other_user
    ),
    Attempt(
        group="Ledger and environment",
        name="a data set that was opened before",
        words=("ledger", "init", "budget.sqlite", "--dataset", "trips", "--epsilon", "1"),
        charged=False,
    ),
    Attempt(
        group="Ledger and environment", name="the same release twice", code=asked_twice, expected=RELEASED
    ),
    Attempt(
        group="Ledger and environment",
        name="a report in a folder that does not exist",
        words=release("trips.parquet", "--report", "no/page.html"),
    ),
    Attempt(
        group="Ledger and environment",
        name="a report as PDF",
        words=release("trips.parquet", "--report", "page.pdf"),
    ),
    Attempt(
        group="Ledger and environment",
        name="an engine that does not exist",
        words=release("trips.parquet", "--engine", "dask"),
    ),
    Attempt(
        group="Ledger and environment",
        name="a memory limit in words",
        words=release("trips.parquet", "--memory-limit", "much"),
    ),
    Attempt(
        group="Ledger and environment",
        name="a plan without a number of users",
        words=("plan", "--epsilon", "1"),
        charged=False,
    ),
    Attempt(
        group="Ledger and environment",
        name="an audit of an unknown mechanism",
        words=("audit", "--mechanism", "laplace"),
        charged=False,
    ),
    Attempt(
        group="Ledger and environment",
        name="a check of an unknown column",
        words=("check", "trips.csv", "--user", "rider", "--value", "fair"),
        charged=False,
    ),
    Attempt(
        group="Ledger and environment",
        name="a ledger to show that does not exist",
        words=("ledger", "show", "no.sqlite"),
        charged=False,
    ),
]

ATTEMPTS = (*FILES, *COLUMNS, *PARAMETERS, *GROUPS, *SOURCES, *FRAMES, *ENVIRONMENT)
