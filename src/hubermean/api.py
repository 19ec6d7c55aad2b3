"""The front door: `mean`, `count` and `mean_of_user_means`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, overload

from numpy.typing import ArrayLike

from hubermean.errors import InputError
from hubermean.ingest import Reading, VectorFile, column_names
from hubermean.ledger import Account, Ledger, Question, charged_to, question_of
from hubermean.mechanisms import Known, Mechanism, OneOrTwoBounds, Per, Request, choose
from hubermean.mechanisms.counted import AdaptiveCount, Count
from hubermean.noise import SystemNoise
from hubermean.relations import DEFAULT_NEIGHBORS, Neighbors
from hubermean.release import Release
from hubermean.release_table import ReleaseTable
from hubermean.releasing import (
    UNPAID,
    Grouping,
    release_data,
    release_groups,
    release_table,
    release_vectors,
    stated_users,
)
from hubermean.user_table import UserTable, padded


@overload
def mean(
    data: Any,
    *,
    user: str | Sequence[str],
    value: str | Sequence[str],
    epsilon: float,
    delta: float = 0.0,
    by: None = None,
    keys: None = None,
    max_groups: int = 1,
    per: Per = "record",
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    mechanism: str | Mechanism = "auto",
    bounds: OneOrTwoBounds | Sequence[OneOrTwoBounds] | None = None,
    record_cap: int | None = None,
    threshold: float | None = None,
    threshold_power: float | None = None,
    scale: float | Sequence[float] | None = None,
    radius: float | None = None,
    hostile: float | None = None,
    n_users: int | None = None,
    resolution: float | Decimal | Fraction | None = None,
    non_finite: str = "drop",
    memory_limit: str | None = None,
    threads: int | None = None,
    progress: bool = False,
    engine: str | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    question: str | None = None,
    fresh: bool = False,
) -> Release: ...


@overload
def mean(
    data: Any,
    *,
    user: str | Sequence[str],
    value: str | Sequence[str],
    epsilon: float,
    delta: float = 0.0,
    by: str | Sequence[str],
    keys: Any = None,
    max_groups: int = 1,
    per: Per = "record",
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    mechanism: str | Mechanism = "auto",
    bounds: OneOrTwoBounds | Sequence[OneOrTwoBounds] | None = None,
    record_cap: int | None = None,
    threshold: float | None = None,
    threshold_power: float | None = None,
    scale: float | Sequence[float] | None = None,
    radius: float | None = None,
    hostile: float | None = None,
    n_users: int | None = None,
    resolution: float | Decimal | Fraction | None = None,
    non_finite: str = "drop",
    memory_limit: str | None = None,
    threads: int | None = None,
    progress: bool = False,
    engine: str | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    question: str | None = None,
    fresh: bool = False,
) -> ReleaseTable: ...


def mean(
    data: Any,
    *,
    user: str | Sequence[str],
    value: str | Sequence[str],
    epsilon: float,
    delta: float = 0.0,
    by: str | Sequence[str] | None = None,
    keys: Any = None,
    max_groups: int = 1,
    per: Per = "record",
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    mechanism: str | Mechanism = "auto",
    bounds: OneOrTwoBounds | Sequence[OneOrTwoBounds] | None = None,
    record_cap: int | None = None,
    threshold: float | None = None,
    threshold_power: float | None = None,
    scale: float | Sequence[float] | None = None,
    radius: float | None = None,
    hostile: float | None = None,
    n_users: int | None = None,
    resolution: float | Decimal | Fraction | None = None,
    non_finite: str = "drop",
    memory_limit: str | None = None,
    threads: int | None = None,
    progress: bool = False,
    engine: str | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    question: str | None = None,
    fresh: bool = False,
) -> Release | ReleaseTable:
    """Release the mean of one or more columns with differential privacy for whole users.

    Args:
        data: a path or glob (Parquet, CSV, JSON lines), `hubermean.sql(...)`, or a pandas, Polars, PyArrow,
            DuckDB or PySpark frame.
        user: the column or columns that identify a user.
        value: the column or columns to average.
        epsilon, delta: the privacy budget of this release.
        by: the column or columns that tell groups apart, for one mean a group: integers, text, booleans or dates. A
            record without a group counts in none.
        keys: the groups, if they are public: a list (of tuples for several columns), or a mapping from each column to
            its values, for all combinations. Left out, groups are chosen privately: those with enough users appear,
            which takes delta > 0 and a fifth of epsilon.
        max_groups: how many groups a user counts in; of one who is in more, so many are taken, by a rule that looks at
            that user alone. What a group may cost is divided by it, and by two unless `neighbors="add-remove"`.
        per: "record" for the mean over records, where what one user can add is bounded, not its number of records;
            "user" for the mean of user means.
        neighbors: which change of the data the release hides. "add-remove", the default: one user is in the data or
            not, and the number of users is private. "replace-user": one user's records are replaced by any others; the
            number of users is public. "replace-values": one user's values are replaced; its number of records is public
            too.
        mechanism: "adaptive", "clipped", "exact", "tested", "smooth", "winsorized", or an object with the protocol of
            `hubermean.mechanisms`; "auto" is "adaptive" where something it takes is not known, else the one with
            the least predicted error, from public numbers alone: see `hubermean.plan`.
        bounds: (low, high) that user means are clamped to, or one pair per column; None leaves an end open, as in
            (0, None) for values that are never negative. This and what follows need not be given; what is given saves
            budget and is public: take it from knowledge of the quantity, not from the data.
        record_cap: the most records a user counts for, with `per="record"`; left out, all of them count.
        threshold: how far a user mean may lie from the centre before it counts as an outlier; most lie closer. With
            several columns and a radius, how far in all columns together.
        threshold_power: a number from 0 to 1, with `per="record"`: a user with a records has the threshold
            `threshold * a ** -threshold_power`. 0, the default, is one threshold for all; 1 bounds what a user adds to
            the sum by `threshold`, however many records it has.
        scale: the standard deviation of user means, for all columns or one for each.
        radius: the mean is known to lie within this distance of 0; it may be generous.
        hostile: the share of the users, up to 0.2, that may be malicious. Bounds are then chosen so that so many
            cannot stretch them, at some cost in accuracy; how far they can move the answer is in the release.
        n_users: how many users there are, as a public number. Under "add-remove", about how many, not a count of the
            data: it saves the budget that measuring the number would take, and the choice of a mechanism goes by it; a
            wrong one costs accuracy, never privacy. Under "replace-user", exactly; needed for text files, queries, lazy
            frames and Spark, whose number of users depends on what they hold. Parquet files and tables in memory are
            counted.
        resolution: a public step that values are rounded to; faster where it suffices.
        non_finite: "drop" or "clamp" infinite values; null and NaN are always dropped.
        memory_limit, threads: what reading and grouping may use; not for Spark, which has settings of its own.
        progress: show a progress bar on a terminal after one second.
        engine: "duckdb" or "spark"; left out, Spark for its own data frames and DuckDB for everything else. Given
            "spark", `data` may also be the name of a table, or Parquet files that Spark is to read.
        ledger, dataset: the `Ledger` (or its file or URL) and the data set whose budget pays. The charge is committed
            before the release is made; asked again, the recorded release is returned, and nothing is charged.
        question: a public name for what is asked, by which it is recognised when asked again with the same parameters.
            Files and queries have their own; data frames have none beyond this process.
        fresh: ask again all the same, and pay: for data that have changed.

    Returns:
        A `Release`, which holds only what is safe to publish; a `ReleaseTable`, a row a group, where `by` is given.

    Raises:
        InputError: a parameter, file or column that cannot be used; nothing was spent.
        NotReleased: the mechanism's own private test or search failed; it states what that cost.
        BudgetExhausted: the data set has too little budget left; nothing was spent.
        LedgerUnavailable, LedgerDamaged: the ledger cannot be used; nothing was released.

    >>> import pyarrow as pa
    >>> trips = pa.table({"rider": [1, 1, 2, 3], "fare": [10.0, 14.0, 12.0, 30.0]})
    >>> release = mean(trips, user="rider", value="fare", epsilon=1e6, bounds=(0, 100), record_cap=2)
    >>> round(release.value, 3)
    16.5
    """
    columns = tuple(column_names(value, "value"))
    known = Known.given(
        bounds=bounds,
        record_cap=record_cap,
        threshold=threshold,
        threshold_power=threshold_power,
        scale=scale,
        radius=radius,
        hostile=hostile,
        n_users=n_users,
    )
    request = Request.checked(columns, epsilon=epsilon, delta=delta, per=per, neighbors=neighbors)
    stated = stated_users(known.n_users, request.neighbors)
    chosen = choose(mechanism, known if stated is None else replace(known, n_users=None))
    reading = Reading(
        user=column_names(user, "user"),
        value=columns,
        resolution=resolution,
        non_finite=non_finite,
        memory_limit=memory_limit,
        threads=threads,
        progress=progress,
        engine=engine,
    )
    grouping = Grouping.asked(by, keys, max_groups)

    def asked() -> Question:
        return question_of(
            data,
            statistic="mean",
            request=request,
            mechanism=mechanism,
            known=known,
            reading=reading,
            grouping=grouping,
            name=question,
        )

    with charged_to(ledger, dataset, asked, request, fresh=fresh) as account:
        return _released(data, reading, grouping, request, chosen, account, n_users=stated, statistic="mean")


@overload
def count(
    data: Any,
    *,
    user: str | Sequence[str],
    epsilon: float,
    delta: float = 0.0,
    of: str = "users",
    value: str | Sequence[str] | None = None,
    by: None = None,
    keys: None = None,
    max_groups: int = 1,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    record_cap: int | None = None,
    n_users: int | None = None,
    memory_limit: str | None = None,
    threads: int | None = None,
    progress: bool = False,
    engine: str | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    question: str | None = None,
    fresh: bool = False,
) -> Release: ...


@overload
def count(
    data: Any,
    *,
    user: str | Sequence[str],
    epsilon: float,
    delta: float = 0.0,
    of: str = "users",
    value: str | Sequence[str] | None = None,
    by: str | Sequence[str],
    keys: Any = None,
    max_groups: int = 1,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    record_cap: int | None = None,
    n_users: int | None = None,
    memory_limit: str | None = None,
    threads: int | None = None,
    progress: bool = False,
    engine: str | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    question: str | None = None,
    fresh: bool = False,
) -> ReleaseTable: ...


def count(
    data: Any,
    *,
    user: str | Sequence[str],
    epsilon: float,
    delta: float = 0.0,
    of: str = "users",
    value: str | Sequence[str] | None = None,
    by: str | Sequence[str] | None = None,
    keys: Any = None,
    max_groups: int = 1,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    record_cap: int | None = None,
    n_users: int | None = None,
    memory_limit: str | None = None,
    threads: int | None = None,
    progress: bool = False,
    engine: str | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    question: str | None = None,
    fresh: bool = False,
) -> Release | ReleaseTable:
    """Release how many users there are, or how many records, with differential privacy for whole users.

    Args:
        data: as for `mean`.
        user: the column or columns that identify a user.
        epsilon, delta: the privacy budget of this release; delta is needed only to choose groups privately.
        of: "users", or "records": each user counts for at most `record_cap` of them.
        value: count only users and records that have a usable value in these columns.
        by, keys, max_groups: one count a group, as for `mean`.
        neighbors: which change of the data is hidden. Under "replace-user" the number of users, groups apart, is public
            and given as it is.
        n_users: the public number of users, for the other relations; see `mean`.
        record_cap: the most records a user counts for; found privately where it is not given.
        memory_limit, threads, progress, engine, ledger, dataset, question, fresh: as for `mean`.

    Returns:
        A `Release`, or a `ReleaseTable` where `by` is given. Counts are whole numbers of at least zero.

    Raises:
        InputError, NotReleased: as for `mean`.

    >>> import pyarrow as pa
    >>> trips = pa.table({"rider": [1, 1, 2, 3], "fare": [10.0, 14.0, 12.0, 30.0]})
    >>> count(trips, user="rider", epsilon=100).value
    3
    >>> count(trips, user="rider", of="records", record_cap=5, epsilon=1000).value
    4
    """
    if not isinstance(of, str) or of not in ("users", "records"):
        raise InputError(f"of must be 'users' or 'records', not {of!r}")
    if of == "users" and record_cap is not None:
        raise InputError("record_cap is for of='records'; every user counts once, so leave it out")
    per = "user" if of == "users" else "record"
    request = Request.checked((of,), epsilon=epsilon, delta=delta, per=per, neighbors=neighbors)
    known = Known.given(record_cap=record_cap, n_users=n_users)
    if n_users is not None and not request.neighbors.users_are_public:
        raise InputError("n_users is what is counted; leave it out, or use neighbors='replace-user'")
    stated = stated_users(known.n_users, request.neighbors)
    chosen: Mechanism = Count(record_cap=known.record_cap, usable=value is not None)
    public = value is None and by is None and request.neighbors.counts_are_public
    if of == "records" and record_cap is None and not public:
        chosen = AdaptiveCount()
    reading = Reading(
        user=column_names(user, "user"),
        value=() if value is None else tuple(column_names(value, "value")),
        memory_limit=memory_limit,
        threads=threads,
        progress=progress,
        engine=engine,
    )
    grouping = Grouping.asked(by, keys, max_groups)

    def asked() -> Question:
        return question_of(
            data,
            statistic="count",
            request=request,
            mechanism=chosen.name,
            known=known,
            reading=reading,
            grouping=grouping,
            name=question,
        )

    with charged_to(ledger, dataset, asked, request, fresh=fresh) as account:
        return _released(data, reading, grouping, request, chosen, account, n_users=stated, statistic="count")


def _released(
    data: Any,
    reading: Reading,
    grouping: Grouping | None,
    request: Request,
    mechanism: Mechanism,
    account: Account | None,
    *,
    n_users: int | None,
    statistic: str,
) -> Release | ReleaseTable:
    """What was recorded for the same question, or a new release, paid for by the account."""
    if grouping is None:
        mechanism.check(request)
    if account is not None and (recorded := account.answered(request)) is not None:
        return recorded
    about: dict[str, Any] = {"n_users": n_users, "statistic": statistic, "payer": account or UNPAID}
    if grouping is not None:
        return release_groups(data, reading, grouping, request, mechanism, SystemNoise(), **about)
    return release_data(data, reading, request, mechanism, SystemNoise(), **about)


def mean_of_user_means(
    means: ArrayLike | VectorFile,
    counts: ArrayLike | None = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    per: Per | None = None,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    mechanism: str | Mechanism = "auto",
    bounds: OneOrTwoBounds | Sequence[OneOrTwoBounds] | None = None,
    record_cap: int | None = None,
    threshold: float | None = None,
    threshold_power: float | None = None,
    scale: float | Sequence[float] | None = None,
    radius: float | None = None,
    hostile: float | None = None,
    n_users: int | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    question: str | None = None,
    fresh: bool = False,
) -> Release:
    """`mean` for people who hold one mean per user already.

    Args:
        means: shape (n,) or (n, d), one row per user; a user with a value that is not finite is unusable. An array of
            numbers is not copied and may be a memory map, best with each row in one piece. Or a column of lists in
            Parquet files: `hubermean.vectors(...)`.
        counts: how many records stand behind each mean; one each when left out. Files say it themselves.
        per: "record" weighs users by their (capped) counts, "user" equally; "record" when counts are given.

    The other arguments are those of `mean`.
    """
    known = Known.given(
        bounds=bounds,
        record_cap=record_cap,
        threshold=threshold,
        threshold_power=threshold_power,
        scale=scale,
        radius=radius,
        hostile=hostile,
        n_users=n_users,
    )
    table = None
    if isinstance(means, VectorFile):
        if counts is not None:
            raise InputError("files say how many records a user has; leave counts out")
        columns = means.columns
        reading = Reading(user=(means.user,), value=(means.value,))
    else:
        table = UserTable.from_means(means, counts)
        columns, reading = table.columns, None
    per = per or ("user" if counts is None else "record")
    request = Request.checked(columns, epsilon=epsilon, delta=delta, per=per, neighbors=neighbors)
    stated = stated_users(known.n_users, request.neighbors)
    chosen = choose(mechanism, known if stated is None else replace(known, n_users=None))
    chosen.check(request)
    if stated is not None and table is not None:
        table = padded(table, stated).collected()

    def asked() -> Question:
        return question_of(
            means,
            statistic="mean",
            request=request,
            mechanism=mechanism,
            known=known,
            reading=reading,
            counts=counts,
            name=question,
        )

    with charged_to(ledger, dataset, asked, request, fresh=fresh) as account:
        if account is not None and isinstance(recorded := account.answered(request), Release):
            return recorded
        payer = account or UNPAID
        if isinstance(means, VectorFile):
            return release_vectors(means, request, chosen, SystemNoise(), n_users=stated, payer=payer)
        assert table is not None
        return release_table(table, request, chosen, SystemNoise(), payer=payer)
