"""Incomes from the caller's IPUMS extract, as downloaded or as a table with the same columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from hubermean.errors import InputError
from hubermean.ingest.duckdb.session import open_session
from hubermean.ingest.engine import mask_engine_errors
from hubermean.ingest.files import FileSet, quote_identifier
from hubermean.ingest.schema import missing_column_message
from hubermean.ingest.text_format import TextFormat
from hubermean_experiments.incomes.codebook import ExtractCodebook, codes_in
from hubermean_experiments.incomes.records import FloatArray, IncomeRecords, IntArray

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_LINKS = {"person": "CPSIDP", "household": "CPSID"}
_KEYS = {"person": ("SERIAL", "PERNUM"), "household": ("SERIAL",)}


def read_extract(
    path: str | os.PathLike[str],
    *,
    variable: str,
    user: Literal["person", "household"] = "person",
    ddi: str | os.PathLike[str] | None = None,
) -> IncomeRecords:
    """Read the incomes of an IPUMS extract, by person or by household.

    `path` is the DDI codebook of the extract (.xml, with the data file next to it), its fixed-width data file (.dat,
    .dat.gz; the codebook next to it or given as `ddi`), or a table with its columns (CSV, gzipped CSV or Parquet, with
    or without `ddi`). Column names are case-insensitive.

    Users:
        A household is SERIAL within SAMPLE, or within YEAR (and MONTH) where there is no SAMPLE. A person is PERNUM
        within the household; without these columns each record is a person. Where CPS links records over time
        (CPSIDP for persons, CPSID for households, not zero), the link identifies the user, so that all years of one
        person belong to one user.

    Values:
        Codes for no value (see `incomes.codebook`) and records without a user are left out and counted
        in `missing`. With a codebook, the width of the variable determines the codes. Without one, they are those of
        the widest format that occurs: a code is the largest number that fits its column, so the same number in a
        column with a larger one is an income. (A table without codes whose largest income equals a code loses that
        record; pass the codebook.) All other values are kept as recorded: losses, zeros, and top codes, which are lower
        bounds in some samples and the mean or median of a state's incomes above one in others. Weights (PERWT, ASECWT)
        are not used: these are records of a sample, not estimates for the population.
    """
    if user not in _KEYS:
        raise InputError(f"user must be 'person' or 'household', not {user!r}")
    if not isinstance(variable, str) or not variable:
        raise InputError("variable must be the name of an income variable, such as 'INCTOT'")
    data, codebook = _locate(Path(path), ddi)
    if codebook is not None and _is_fixed_width(data):
        columns, table = _read_fixed_width(data, codebook, variable, user)
    else:
        columns, table = _read_table(data, variable, user)
    values, users = _floats(table["income"]), _users(table, columns, user)
    largest = np.max(values, where=np.isfinite(values), initial=-np.inf)
    if largest == -np.inf:
        raise InputError(f"column {columns.income} of {data} holds no number; name a variable of incomes")
    codes = codebook.codes(columns.income) if codebook else codes_in(columns.income, float(largest))
    usable = np.isfinite(values) & ~np.isin(values, sorted(codes))
    if users is not None:
        usable &= users >= 0
    if not usable.any():
        raise InputError(
            f"column {columns.income} of {data} holds no income of a known {user}; choose samples that asked for it"
        )
    return IncomeRecords.grouped(
        values[usable],
        None if users is None else users[usable],
        variable=columns.income.upper(),
        user=user,
        source=_source(data, codebook, columns.income, user),
        license=_license(codebook),
        missing=int(np.count_nonzero(~usable)),
    )


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """The columns to read, as the file spells them: the income, the keys of a user, at most one link over time."""

    income: str
    keys: tuple[str, ...]
    link: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (self.income, *self.keys, *self.link)

    @classmethod
    def choose(cls, names: Sequence[str], variable: str, user: str) -> _Columns:
        spelled = {name.upper(): name for name in names}
        if variable.upper() not in spelled:
            raise InputError(missing_column_message(variable, list(names)))
        link = (spelled[_LINKS[user]],) if _LINKS[user] in spelled else ()
        keys: tuple[str, ...] = ()
        if all(key in spelled for key in _KEYS[user]):
            sample = ("SAMPLE",) if "SAMPLE" in spelled else ("YEAR", "MONTH")
            keys = tuple(spelled[key] for key in (*sample, *_KEYS[user]) if key in spelled)
        elif user == "household" and not link:
            raise InputError(
                "households need the column SERIAL; add it to the extract, or take persons as users"
            )
        return cls(income=spelled[variable.upper()], keys=keys, link=link)


def _locate(path: Path, ddi: str | os.PathLike[str] | None) -> tuple[Path, ExtractCodebook | None]:
    """The data file and its codebook, if there is one."""
    if path.name.lower().endswith(".xml"):
        if ddi is not None:
            raise InputError("path is a codebook already; give the data file as path, or leave ddi out")
        codebook = ExtractCodebook(path)
        return codebook.data_file(), codebook
    if not _is_fixed_width(path):
        return path, None if ddi is None else ExtractCodebook(ddi)
    if not path.is_file():
        raise InputError(f"there is no file {path}; check the path")
    codebook_path = path.with_name(path.name.split(".dat")[0] + ".xml")
    if ddi is None and not codebook_path.is_file():
        raise InputError(
            f"{path} is of fixed width and needs its codebook; give the extract's .xml file as ddi"
        )
    return path, ExtractCodebook(codebook_path if ddi is None else ddi)


def _is_fixed_width(path: Path) -> bool:
    return path.name.lower().endswith((".dat", ".dat.gz"))


def _read_fixed_width(
    path: Path, codebook: ExtractCodebook, variable: str, user: str
) -> tuple[_Columns, pa.Table]:
    columns = _Columns.choose(codebook.names, variable, user)
    with open_session((), keep_order=True) as connection:
        connection.register("extract", codebook.fixed_width(path, columns.names))
        return columns, _select(connection, columns, "extract", path)


def _read_table(path: Path, variable: str, user: str) -> tuple[_Columns, pa.Table]:
    files = FileSet.find(path).formatted(TextFormat())
    if files.kind in ("arrow", "json"):
        raise InputError(f"{path} is no extract of IPUMS; give its codebook, or a CSV or Parquet file")
    with open_session(files.paths, keep_order=True) as connection:
        scan = files.scan()
        relation = mask_engine_errors(
            lambda: connection.sql(f"SELECT * FROM {scan}"),
            f"{path} cannot be read as {files.kind}; check that it is complete",
        )
        columns = _Columns.choose(relation.columns, variable, user)
        return columns, _select(connection, columns, scan, path)


def _select(connection: duckdb.DuckDBPyConnection, columns: _Columns, scan: str, path: Path) -> pa.Table:
    """Read the income as a number, the keys as text and the link as a non-zero number; null if missing."""
    income = f"TRY_CAST({quote_identifier(columns.income)} AS DOUBLE) AS income"
    keys = (
        f"nullif(trim(CAST({quote_identifier(key)} AS VARCHAR)), '') AS key_{position}"
        for position, key in enumerate(columns.keys)
    )
    link = (f"nullif(TRY_CAST({quote_identifier(name)} AS BIGINT), 0) AS link" for name in columns.link)
    return mask_engine_errors(
        lambda: connection.sql(f"SELECT {', '.join((income, *keys, *link))} FROM {scan}").to_arrow_table(),
        f"column {columns.income} of {path} cannot be read to the end; check that the file is complete",
    )


def _users(table: pa.Table, columns: _Columns, user: str) -> IntArray | None:
    """The number of the user of each record, -1 if unknown; None if each record is a user."""
    if not columns.keys and not columns.link:
        return None
    users = np.zeros(table.num_rows, dtype=np.int64) if columns.keys else np.arange(table.num_rows)
    # Without keys, a record without a link is a separate person, but its household is unknown.
    known = np.full(table.num_rows, bool(columns.keys) or user == "person")
    for position in range(len(columns.keys)):
        key = _numbered(table[f"key_{position}"])
        known &= key >= 0
        users = np.unique(users * (key.max(initial=0) + 2) + key, return_inverse=True)[1]
    for _ in columns.link:
        link = _numbered(table["link"])
        users = np.where(link >= 0, users.max(initial=0) + 1 + link, users)
        known |= link >= 0
    return np.where(known, users, -1)


def _numbered(column: pa.ChunkedArray) -> IntArray:
    """Number the distinct values; -1 for null."""
    import pyarrow.compute as pc

    coded = column.combine_chunks().dictionary_encode()
    numbers: IntArray = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _floats(column: pa.ChunkedArray) -> FloatArray:
    """The column as floats, NaN for null."""
    import pyarrow.compute as pc

    values: FloatArray = pc.fill_null(column, np.nan).to_numpy()
    return values


def _source(path: Path, codebook: ExtractCodebook | None, variable: str, user: str) -> str:
    what = f"{variable.upper()} of the file {path.name}, read as an IPUMS extract without its codebook"
    if codebook is not None:
        what = f"{codebook.label(variable)} ({variable.upper()}) of the IPUMS {codebook.collection} extract {path.name}"
    return f"{what}. A user is a {user}; weights are not used, and top codes are kept as recorded."


def _license(codebook: ExtractCodebook | None) -> str:
    cited = "" if codebook is None or not codebook.identifier else f" {codebook.identifier}"
    return f"the conditions of use of IPUMS, to which each of its users agrees; cite it{cited or ' as IPUMS asks'}"
