"""Containers of records, from Parquet to Spark, and data sets written to them and read as a release reads them.

An audit of output distributions alone starts with users; through a container it starts with the first byte. If a
container infers types from its content, the changed user also has an id and missing values of another type than all
others: what is inferred from one user must not affect the others.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, TypeVar

from hubermean.auditing.cells import (
    Cell,
    Columns,
    Kinds,
    arrow_table,
    common_kinds,
    identity,
    utf8,
    with_types,
)
from hubermean.errors import InputError

Make = Callable[..., Any]


@dataclass(frozen=True)
class Container:
    """A way to hand records to `hubermean.mean`.

    Attributes:
        typed: its schema is declared, and public; else types are guessed from the content and must decide nothing.
        query: it is what a query finds, or may be: how many users that are is not public.
        make: `make(columns, folder)` gives the data; files are written into the folder. `make(columns, folder, kinds)`
            fixes the kinds of columns (`column_kind`), as neighboring data sets of one declared schema need.
    """

    name: str
    typed: bool
    query: bool
    make: Make


# --- files ------------------------------------------------------------------------------------------------------------


def _parquet(columns: Columns, folder: Path, kinds: Kinds | None = None, *, files: int = 1) -> str:
    import pyarrow.parquet as pq

    table = arrow_table(columns, kinds)
    size = -(-table.num_rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * size, size), folder / f"records-{number}.parquet")
    return str(folder / ("records-0.parquet" if files == 1 else "records-*.parquet"))


def _two_files(columns: Columns, folder: Path, kinds: Kinds | None = None) -> str:
    return _parquet(columns, folder, kinds, files=2)


def _csv(columns: Columns, folder: Path, _: Kinds | None = None, *, ending: str = ".csv") -> str:
    path = folder / f"records{ending}"
    opened: Any = gzip.open if ending.endswith(".gz") else open
    # Half a surrogate pair becomes bytes that are no UTF-8, which such a file may well hold.
    with opened(path, "wt", encoding="utf-8", errors="surrogatepass", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        texts = [[identity(cell) for cell in cells] for cells in columns.values()]
        writer.writerows(zip(*texts, strict=True))
    return str(path)


def _csv_gz(columns: Columns, folder: Path, kinds: Kinds | None = None) -> str:
    return _csv(columns, folder, kinds, ending=".csv.gz")


def _jsonl(columns: Columns, folder: Path, _: Kinds | None = None) -> str:
    def member(cell: Cell) -> Any:
        plain = isinstance(cell, bool | int | str) or (isinstance(cell, float) and math.isfinite(cell))
        return cell if plain else identity(cell)

    rows = zip(*([member(cell) for cell in cells] for cells in columns.values()), strict=True)
    lines = [json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows]
    path = folder / "records.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def _arrow_file(columns: Columns, folder: Path, kinds: Kinds | None = None) -> str:
    import pyarrow.feather as feather

    feather.write_feather(arrow_table(columns, kinds), folder / "records.arrow")
    return str(folder / "records.arrow")


def _sqlite(columns: Columns, folder: Path, _: Kinds | None = None) -> Any:
    """Cells of SQLite have a type each, whatever type the column declares."""
    import sqlite3

    from hubermean.ingest.sql import sql

    def stored(cell: Cell) -> Any:
        if isinstance(cell, int) and not isinstance(cell, bool) and -(2**63) <= cell < 2**63:
            return cell
        if isinstance(cell, bytes) or (isinstance(cell, float) and not math.isnan(cell)):
            return cell
        text = identity(cell)
        return text if text is None else text.encode("utf-8", errors="surrogatepass")

    path = folder / "records.sqlite"
    names = ['"' + name.replace('"', '""') + '"' for name in columns]
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE IF EXISTS records")
        connection.execute(f"CREATE TABLE records ({', '.join(names)})")
        for row in zip(*columns.values(), strict=True):
            # The bytes of a text are no blob: a cast does not change them.
            marks = ", ".join(
                "CAST(? AS TEXT)" if isinstance(stored(cell), bytes) and not isinstance(cell, bytes) else "?"
                for cell in row
            )
            connection.execute(f"INSERT INTO records VALUES ({marks})", [stored(cell) for cell in row])
    return sql("SELECT * FROM records", connection=f"sqlite:///{path}")


def _numpy(columns: Columns, _: Path, __: Kinds | None = None) -> Any:
    import numpy as np

    def array(cells: Sequence[Cell]) -> Any:
        kinds = {type(cell) for cell in cells}
        if kinds in ({int}, {float}, {bool}):
            with contextlib.suppress(OverflowError):
                return np.array(cells)
        held = np.empty(len(cells), dtype=object)
        held[:] = list(cells)
        return held

    return {name: array(cells) for name, cells in columns.items()}


def _sql(columns: Columns, folder: Path, kinds: Kinds | None = None) -> Any:
    from hubermean.ingest.sql import sql

    return sql("SELECT * FROM records", files={"records": _parquet(columns, folder, kinds)})


# --- pandas -----------------------------------------------------------------------------------------------------------


def _pandas(columns: Columns, _: Path, __: Kinds | None = None) -> Any:
    import pandas as pd

    return pd.DataFrame({name: _as_inferred(list(cells)) for name, cells in columns.items()})


def _as_inferred(cells: list[Cell]) -> Any:
    """Return a column as pandas infers it, or as objects if that fails, as for lone surrogates."""
    import pandas as pd

    try:
        return pd.Series(cells)
    except UnicodeError:
        return pd.Series(cells, dtype=object)


def _pandas_object(columns: Columns, _: Path, __: Kinds | None = None) -> Any:
    import pandas as pd

    return pd.DataFrame({name: pd.Series(list(cells), dtype=object) for name, cells in columns.items()})


def _pandas_string(columns: Columns, _: Path, __: Kinds | None = None) -> Any:
    import pandas as pd

    kind = pd.StringDtype("python")
    texts = {name: [identity(cell) for cell in cells] for name, cells in columns.items()}
    return pd.DataFrame({name: pd.Series(cells, dtype=kind) for name, cells in texts.items()})


def _pandas_nullable(columns: Columns, folder: Path, _: Kinds | None = None) -> Any:
    frame = _pandas_object(columns, folder)
    for name in columns:
        with contextlib.suppress(UnicodeEncodeError):  # half a surrogate pair, which stays an object
            frame[name] = frame[name].convert_dtypes()
    return frame


def _pandas_categorical(columns: Columns, folder: Path, _: Kinds | None = None) -> Any:
    def category(cells: Sequence[Cell]) -> list[Cell]:
        """Cells that stay apart: to pandas 1 and True are one category. Nor does it take half a surrogate pair."""
        types = {type(cell) for cell in cells if cell is not None}
        if bool in types and len(types) > 1:
            cells = [identity(cell) for cell in cells]
        return [utf8(cell) if isinstance(cell, str) else cell for cell in cells]

    held = {name: category(cells) for name, cells in columns.items()}
    return _pandas_object(held, folder).astype("category")


def _pandas_arrow(columns: Columns, _: Path, kinds: Kinds | None = None) -> Any:
    import pandas as pd

    return arrow_table(columns, kinds).to_pandas(types_mapper=pd.ArrowDtype)


# --- Polars and Arrow -------------------------------------------------------------------------------------------------


def _polars(columns: Columns, _: Path, kinds: Kinds | None = None) -> Any:
    import polars as pl

    return pl.DataFrame(arrow_table(columns, kinds))


def _polars_lazy(columns: Columns, folder: Path, kinds: Kinds | None = None) -> Any:
    return _polars(columns, folder, kinds).lazy()


def _polars_categorical(columns: Columns, folder: Path, kinds: Kinds | None = None) -> Any:
    import polars as pl

    return _polars(columns, folder, kinds).with_columns(pl.col(pl.String).cast(pl.Categorical))


def _arrow(columns: Columns, _: Path, kinds: Kinds | None = None) -> Any:
    return arrow_table(columns, kinds)


def _arrow_dictionary(columns: Columns, _: Path, kinds: Kinds | None = None) -> Any:
    import pyarrow as pa

    return with_types(arrow_table(columns, kinds), {pa.string(): pa.dictionary(pa.int32(), pa.string())})


def _arrow_view(columns: Columns, _: Path, kinds: Kinds | None = None) -> Any:
    import pyarrow as pa

    views = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}
    return with_types(arrow_table(columns, kinds), views)


def _arrow_dataset(columns: Columns, folder: Path, kinds: Kinds | None = None) -> Any:
    import pyarrow.dataset as ds

    return ds.dataset(_parquet(columns, folder, kinds))


def _arrow_reader(columns: Columns, _: Path, kinds: Kinds | None = None) -> Any:
    return arrow_table(columns, kinds).to_reader(max_chunksize=3)


# --- DuckDB and Spark -------------------------------------------------------------------------------------------------


def _duckdb(columns: Columns, _: Path, kinds: Kinds | None = None) -> Any:
    import duckdb

    return duckdb.connect().from_arrow(arrow_table(columns, kinds))


def _duckdb_enum(columns: Columns, _: Path, kinds: Kinds | None = None) -> Any:
    """Return texts as enums of the occurring texts, in order, as databases declare them."""
    import duckdb
    import pyarrow as pa

    table = arrow_table(columns, kinds)
    connection = duckdb.connect()
    connection.register("records", table)
    selected = []
    for number, field in enumerate(table.schema):
        name = '"' + field.name.replace('"', '""') + '"'
        if pa.types.is_string(field.type):
            members = f"SELECT DISTINCT {name} FROM records WHERE {name} IS NOT NULL ORDER BY {name}"
            connection.execute(f"CREATE TYPE members_{number} AS ENUM ({members})")
            name = f"CAST({name} AS members_{number}) AS {name}"
        selected.append(name)
    connection.execute(f"CREATE TABLE held AS SELECT {', '.join(selected)} FROM records")
    return connection.table("held")


def spark_session() -> Any:
    """Return the active Spark session, or start a small local one."""
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
        return active
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "3",
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master("local[2]").appName("containers")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _spark(columns: Columns, _: Path, kinds: Kinds | None = None) -> Any:
    import warnings

    import pyarrow as pa

    # Spark has no unsigned integers, and a column without a type is of little use to it.
    table = with_types(
        arrow_table(columns, kinds), {pa.uint64(): pa.decimal128(20, 0), pa.null(): pa.float64()}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Spark's own code about the packages it uses
        return spark_session().createDataFrame(table).repartition(2)


CONTAINERS: Mapping[str, Container] = MappingProxyType(
    {
        name: Container(name, typed, query, make)
        for name, typed, query, make in (
            ("parquet", True, False, _parquet),
            ("parquet-two-files", True, False, _two_files),
            ("csv", False, False, _csv),
            ("csv-gz", False, False, _csv_gz),
            ("jsonl", False, False, _jsonl),
            ("arrow-file", True, False, _arrow_file),
            ("sqlite", False, True, _sqlite),
            ("numpy", False, False, _numpy),
            ("pandas", False, False, _pandas),
            ("pandas-object", False, False, _pandas_object),
            ("pandas-string", False, False, _pandas_string),
            ("pandas-nullable", False, False, _pandas_nullable),
            ("pandas-categorical", False, False, _pandas_categorical),
            ("pandas-arrow", False, False, _pandas_arrow),
            ("polars", True, False, _polars),
            ("polars-lazy", True, True, _polars_lazy),
            ("polars-categorical", True, False, _polars_categorical),
            ("arrow", True, False, _arrow),
            ("arrow-dictionary", True, False, _arrow_dictionary),
            ("arrow-view", True, False, _arrow_view),
            ("arrow-dataset", True, True, _arrow_dataset),
            ("arrow-reader", True, True, _arrow_reader),
            ("duckdb", True, True, _duckdb),
            ("duckdb-enum", True, True, _duckdb_enum),
            ("sql", True, True, _sql),
            ("spark", True, True, _spark),
        )
    }
)


T = TypeVar("T")

MAX_RECORDS = 20
"""Maximum records of one user in an audit through a container."""

_ODD_USER, _ODD_VALUE = "someone else", "n/a"


@dataclass
class ContainerRoundTrip:
    """Writes two data sets to one kind of container and reads them.

    `refusal` is the last error of the reader; `was_read` says whether it read any data set. A container that is
    always refused gives no evidence, hence no verdict.
    """

    container: Container
    refusal: InputError | None = None
    was_read: bool = False

    @classmethod
    def named(cls, name: str) -> ContainerRoundTrip:
        if name not in CONTAINERS:
            raise InputError(f"container must be one of {', '.join(map(repr, CONTAINERS))}, not {name!r}")
        return cls(CONTAINERS[name])

    @contextmanager
    def of(self, first: Columns, second: Columns) -> Iterator[tuple[Any, Any]]:
        """Provide both data sets for the duration of the context; they share one declared schema."""
        kinds = common_kinds(first, second)
        with TemporaryDirectory() as folder:
            data = []
            for number, columns in enumerate((first, second)):
                own = Path(folder) / str(number)
                own.mkdir()
                data.append(self.container.make(columns, own, kinds))
            yield data[0], data[1]

    def read(self, reader: Callable[[Any], T], data: Any) -> T | None:
        """Read a data set; None if the reader refuses it, which must happen for both neighbors or for none."""
        try:
            table = reader(data)
        except InputError as refused:
            self.refusal = refused
            return None
        self.was_read = True
        return table

    def check(self) -> None:
        """Raise the reader's error if it refused every data set."""
        if self.refusal is not None and not self.was_read:
            raise self.refusal

    def changed_user(self, user: int) -> int | str:
        """Return the id of the changed user, of another type than the others' if types are inferred."""
        return user if self.container.typed else _ODD_USER

    def cell(self, value: float, *, changed: bool = False) -> float | str | None:
        """Return a value as a cell; a missing value of the changed user is a text if types are inferred."""
        if math.isfinite(value):
            return value
        return _ODD_VALUE if changed and not self.container.typed else None
