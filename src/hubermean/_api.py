"""The public functions `mean`, `count` and `mean_of_user_means`.

Each checks its arguments, resolves the mechanism from public parameters, and hands both to the release path. Keywords
beyond the request itself are the fields of `PublicParameters`, `ReadOptions` and `LedgerOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Literal, TypeVar, Unpack, overload

from numpy.typing import ArrayLike

from hubermean.data.user_table import UserTable, pad_users
from hubermean.errors import InputError, parameter
from hubermean.ingest.reading import ReadRequest
from hubermean.ingest.vectors import VectorFile
from hubermean.ledger.entries import Question
from hubermean.mechanisms.base import Mechanism
from hubermean.mechanisms.counts.mechanism import AdaptiveCount, Count
from hubermean.mechanisms.registry import resolve_mechanism
from hubermean.noise.system import SystemNoise
from hubermean.release.charging import LedgerCharge, LedgerKeywords, LedgerOptions
from hubermean.release.dry_run import DryCharge
from hubermean.release.grouped import Grouping, release_groups
from hubermean.release.path import (
    NOT_CHARGED,
    NotCharged,
    check_n_users,
    release_data,
    release_user_table,
    release_vectors,
)
from hubermean.release.question import describe_question
from hubermean.release.warnings import (
    LARGE_EPSILON,
    check_expected_records,
    compare_records,
    warn_of_epsilon,
)
from hubermean.types.dry_run import DryRun
from hubermean.types.options import (
    EngineKeywords,
    EngineOptions,
    PublicKeywords,
    PublicParameters,
    ReadKeywords,
    ReadOptions,
    TextKeywords,
    TextOptions,
    check_keywords,
    select_keywords,
    show_keywords,
)
from hubermean.types.release import Release
from hubermean.types.release_table import ReleaseTable
from hubermean.types.request import DEFAULT_NEIGHBORS, Neighbors, Per, Request, column_names

R = TypeVar("R", bound=Release | ReleaseTable | DryRun)


class MeanKeywords(PublicKeywords, ReadKeywords, LedgerKeywords, total=False):
    """The optional keywords of `mean`."""


class CountKeywords(EngineKeywords, TextKeywords, LedgerKeywords, total=False):
    """The optional keywords of `count`, beside `max_records` and `n_users`."""


class UserMeansKeywords(PublicKeywords, LedgerKeywords, total=False):
    """The optional keywords of `mean_of_user_means`."""


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
    max_groups: int | None = None,
    rollup: bool = False,
    per: Per = "record",
    expected_records: int | None = None,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    mechanism: str | Mechanism = "auto",
    **options: Unpack[MeanKeywords],
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
    max_groups: int | None = None,
    rollup: bool = False,
    per: Per = "record",
    expected_records: int | None = None,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    mechanism: str | Mechanism = "auto",
    **options: Unpack[MeanKeywords],
) -> ReleaseTable: ...


@overload
def mean(
    data: Any,
    *,
    user: str | Sequence[str],
    value: str | Sequence[str],
    epsilon: float,
    delta: float = 0.0,
    by: str | Sequence[str] | None = None,
    keys: Any = None,
    max_groups: int | None = None,
    rollup: bool = False,
    per: Per = "record",
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    mechanism: str | Mechanism = "auto",
    dry_run: Literal[True],
    **options: Unpack[MeanKeywords],
) -> DryRun: ...


@show_keywords(PublicParameters, ReadOptions, LedgerOptions)
def mean(
    data: Any,
    *,
    user: str | Sequence[str],
    value: str | Sequence[str],
    epsilon: float,
    delta: float = 0.0,
    by: str | Sequence[str] | None = None,
    keys: Any = None,
    max_groups: int | None = None,
    rollup: bool = False,
    per: Per = "record",
    expected_records: int | None = None,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    mechanism: str | Mechanism = "auto",
    dry_run: bool = False,
    **options: Unpack[MeanKeywords],
) -> Release | ReleaseTable | DryRun:
    """Release the mean of one or more columns with differential privacy for whole users.

    Args:
        data: a path, glob or URI (Parquet, Arrow, CSV, JSON lines, a Delta table), `hubermean.sql(...)`, a pandas,
            Polars, PyArrow, DuckDB or PySpark frame, or numpy arrays by name.
        user: the column or columns that identify a user.
        value: the column or columns to average.
        epsilon: the privacy budget of this release; larger means less noise and a weaker guarantee.
        delta: the second part of the budget; 0, the default, is pure differential privacy.
        by: the column or columns that name a record's group, for one mean per group: integers, text, booleans or
            dates. Of dates and timestamps also periods: "day(date)", "week(date)", "month(date)", "quarter(date)" or
            "year(date)", in UTC. A record without a group counts in none.
        keys: the groups, if they are public: a list (of tuples for several columns), or a mapping from each column to
            its values, for all combinations. Without it, groups are selected privately: those with enough users appear,
            which needs delta > 0 and uses a part of the budget.
        max_groups: the most groups that a user counts in. Without it, the default, users count in all of their groups,
            and a bound on the norm of a user's row over groups is estimated privately. With it, a user with records in
            more groups keeps this many, chosen by a rule that depends on that user alone. Mechanisms other than
            "adaptive" need it: they divide the budget of a group by it, and by two unless `neighbors="add-remove"`.
        rollup: whether to add totals: of the groups that share all columns of `by` but the last, and so on up to the
            total of everything. They are averages of the released means, agree with them and cost no budget.
        per: "record" for the mean over records, where a user's influence is bounded, not its number of records; "user"
            for the mean of user means.
        expected_records: how many usable records you expect; public. If the measured, noisy number is clearly lower,
            the release has a warning. It costs no budget.
        neighbors: the change of the data that the release hides. "add-remove", the default: one user is in the data or
            not, and the number of users is private. "replace-user": one user's records are replaced by any others; the
            number of users is public. "replace-values": one user's values are replaced; its number of records is
            public too.
        mechanism: a name from the table of [mechanisms](mechanisms.md), or an object with the protocol of
            `hubermean.mechanisms`. "auto" is "adaptive" unless bounds, or threshold and radius, are given; else the
            mechanism of least predicted noise, from public numbers alone: see `hubermean.plan`. For a mean over records
            those also need `max_records`, unless numbers of records are public; without it, it is "adaptive" too.
        dry_run: check the request, the schema and the budget, and return what would happen; no record is read,
            nothing is charged or recorded. What a release would refuse before its charge is refused likewise.
        options: public parameters that save budget (`PublicParameters`), how to read the data (`ReadOptions`), and the
            ledger to charge (`LedgerOptions`), all by name.

    Returns:
        A `Release`, which holds only what is safe to publish; a `ReleaseTable`, one row per group, where `by` is given;
        a `DryRun` with `dry_run=True`.

    Raises:
        InputError: a parameter, file or column that cannot be used; nothing was spent.
        NotReleased: a private step of the mechanism decided against a release; the error states what was spent.
        BudgetExhausted: the data set has too little budget left; nothing was spent.
        LedgerUnavailable, LedgerDamaged: the ledger cannot be used; nothing was released.

    Formal guarantees:
    - the result is (epsilon, delta)-differentially private for all records of one user together, under the neighbor
      relation `neighbors`; the proof is that of the mechanism the release names;
    - every decision made before the charge depends on public parameters and the schema alone.

    >>> import pyarrow as pa
    >>> trips = pa.table({"rider": [1, 1, 2, 3], "fare": [10.0, 14.0, 12.0, 30.0]})
    >>> release = mean(trips, user="rider", value="fare", epsilon=1e6, bounds=(0, 100), max_records=2)
    >>> round(release.value, 3)
    16.5
    """
    check_keywords(mean, options, PublicParameters, ReadOptions, LedgerOptions)
    columns = tuple(column_names(value, "value"))
    parameters = PublicParameters.from_keywords(**select_keywords(options, PublicParameters))
    request = Request.checked(columns, epsilon=epsilon, delta=delta, per=per, neighbors=neighbors)
    n_users, resolved = _resolve(mechanism, parameters, request)
    reading = ReadRequest(
        user=column_names(user, "user"), value=columns, **select_keywords(options, ReadOptions)
    )
    grouping = _group(by, keys, max_groups, rollup=rollup)
    if expected_records is not None:
        expected_records = check_expected_records(expected_records, request, grouping)
    ledger = LedgerOptions(**select_keywords(options, LedgerOptions))

    def describe() -> Question:
        return describe_question(
            data,
            statistic="mean",
            request=request,
            mechanism=mechanism,
            known=parameters,
            reading=reading,
            grouping=grouping,
            name=ledger.question,
            by_whom=ledger.by_whom,
        )

    with _open_charge(ledger, describe, request) as charge:
        charger = _dry(charge, request, resolved, "mean", grouping) if dry_run else charge or NOT_CHARGED
        made = _release(
            data, reading, grouping, request, resolved, charger, n_users=n_users, statistic="mean"
        )
    return _add_warnings(made, expected_records=expected_records)


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
    max_groups: int | None = None,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    max_records: int | None = None,
    n_users: int | None = None,
    **options: Unpack[CountKeywords],
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
    max_groups: int | None = None,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    max_records: int | None = None,
    n_users: int | None = None,
    **options: Unpack[CountKeywords],
) -> ReleaseTable: ...


@overload
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
    max_groups: int | None = None,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    max_records: int | None = None,
    n_users: int | None = None,
    dry_run: Literal[True],
    **options: Unpack[CountKeywords],
) -> DryRun: ...


@show_keywords(EngineOptions, TextOptions, LedgerOptions)
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
    max_groups: int | None = None,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    max_records: int | None = None,
    n_users: int | None = None,
    dry_run: bool = False,
    **options: Unpack[CountKeywords],
) -> Release | ReleaseTable | DryRun:
    """Release the number of users, or of records, with differential privacy for whole users.

    Args:
        data: as for `mean`.
        user: the column or columns that identify a user.
        epsilon: the privacy budget of this release.
        delta: the second part of the budget; needed only to select groups privately.
        of: "users", or "records": each user counts for at most `max_records` of them.
        value: count only users and records that have a usable value in these columns.
        by, keys, max_groups: one count per group, as for `mean`.
        neighbors: the change of the data that the release hides. Under "replace-user" the number of users, without
            groups, is public and returned exactly.
        max_records: the contribution bound of `of="records"`; estimated privately where it is not given.
        n_users: the public number of users, under "replace-user" and "replace-values"; see `PublicParameters`.
        dry_run: as for `mean`.
        options: how to read the data (`EngineOptions`, `TextOptions`), and the ledger to charge (`LedgerOptions`), by
            name.

    Returns:
        A `Release`, or a `ReleaseTable` where `by` is given. Counts are whole numbers of at least zero. A `DryRun` with
        `dry_run=True`.

    Raises:
        InputError, NotReleased, BudgetExhausted, LedgerUnavailable, LedgerDamaged: as for `mean`.

    Formal guarantees: as for `mean`; without groups and with a contribution bound, epsilon-DP whatever delta is.

    >>> import pyarrow as pa
    >>> trips = pa.table({"rider": [1, 1, 2, 3], "fare": [10.0, 14.0, 12.0, 30.0]})
    >>> count(trips, user="rider", epsilon=100).value
    3
    >>> count(trips, user="rider", of="records", max_records=5, epsilon=1000).value
    4
    """
    check_keywords(count, options, EngineOptions, TextOptions, LedgerOptions)
    if not isinstance(of, str) or of not in ("users", "records"):
        raise InputError(f"{parameter('of')} must be 'users' or 'records', not {of!r}")
    if of == "users" and max_records is not None:
        raise InputError(
            f"{parameter('max_records')} is for {parameter('of', 'records')}; every user counts "
            "once, so leave it out"
        )
    per = "user" if of == "users" else "record"
    request = Request.checked((of,), epsilon=epsilon, delta=delta, per=per, neighbors=neighbors)
    parameters = PublicParameters.from_keywords(max_records=max_records, n_users=n_users)
    if n_users is not None and not request.neighbors.users_are_public:
        raise InputError(
            f"{parameter('n_users')} is what is counted; leave it out, or use "
            f"{parameter('neighbors', 'replace-user')}"
        )
    stated = check_n_users(parameters.n_users, request.neighbors)
    resolved: Mechanism = Count(max_records=parameters.max_records, usable=value is not None)
    counts_are_public = value is None and by is None and request.neighbors.counts_are_public
    if of == "records" and max_records is None and not counts_are_public:
        resolved = AdaptiveCount()
    reading = ReadRequest(
        user=column_names(user, "user"),
        value=() if value is None else tuple(column_names(value, "value")),
        **select_keywords(options, EngineOptions),
        **select_keywords(options, TextOptions),
    )
    grouping = _group(by, keys, max_groups)
    ledger = LedgerOptions(**select_keywords(options, LedgerOptions))

    def describe() -> Question:
        return describe_question(
            data,
            statistic="count",
            request=request,
            mechanism=resolved.name,
            known=parameters,
            reading=reading,
            grouping=grouping,
            name=ledger.question,
            by_whom=ledger.by_whom,
        )

    with _open_charge(ledger, describe, request) as charge:
        charger = _dry(charge, request, resolved, "count", grouping) if dry_run else charge or NOT_CHARGED
        made = _release(
            data, reading, grouping, request, resolved, charger, n_users=stated, statistic="count"
        )
    return _add_warnings(made)


@overload
def mean_of_user_means(
    means: ArrayLike | VectorFile,
    counts: ArrayLike | None = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    per: Per | None = None,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    mechanism: str | Mechanism = "auto",
    **options: Unpack[UserMeansKeywords],
) -> Release: ...


@overload
def mean_of_user_means(
    means: ArrayLike | VectorFile,
    counts: ArrayLike | None = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    per: Per | None = None,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    mechanism: str | Mechanism = "auto",
    dry_run: Literal[True],
    **options: Unpack[UserMeansKeywords],
) -> DryRun: ...


@show_keywords(PublicParameters, LedgerOptions)
def mean_of_user_means(
    means: ArrayLike | VectorFile,
    counts: ArrayLike | None = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    per: Per | None = None,
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    mechanism: str | Mechanism = "auto",
    dry_run: bool = False,
    **options: Unpack[UserMeansKeywords],
) -> Release | DryRun:
    """Release the mean of data that are grouped by user already: one mean per user, and its number of records.

    Args:
        means: shape (n,) or (n, d), one row per user; a user with a value that is not finite is unusable. An array of
            numbers is not copied and may be a memory map, best with each row in one piece. Or a column of lists in
            Parquet files: `hubermean.vectors(...)`.
        counts: the number of records behind each mean; one each by default. Files contain it themselves.
        epsilon, delta, neighbors, mechanism: as for `mean`.
        per: "record" weights users by their number of records, up to the contribution bound; "user" weights them
            equally. "record" by default where counts are given.
        dry_run: as for `mean`.
        options: public parameters (`PublicParameters`) and the ledger to charge (`LedgerOptions`), by name.

    Returns:
        A `Release`, as `mean` returns it; a `DryRun` with `dry_run=True`.

    Raises:
        InputError, NotReleased, BudgetExhausted, LedgerUnavailable, LedgerDamaged: as for `mean`.

    Formal guarantees: as for `mean`, for neighbors that differ in one row.

    >>> release = mean_of_user_means([4.1, 5.0, 3.7], epsilon=1e6, bounds=(0, 10))
    >>> round(release.value, 3)
    4.267
    """
    check_keywords(mean_of_user_means, options, PublicParameters, LedgerOptions)
    parameters = PublicParameters.from_keywords(**select_keywords(options, PublicParameters))
    table = None
    if isinstance(means, VectorFile):
        if counts is not None:
            raise InputError("files say how many records a user has; leave counts out")
        columns = means.columns
        reading = ReadRequest(user=(means.user,), value=(means.value,))
    else:
        table = UserTable.from_means(means, counts)
        columns, reading = table.columns, None
    per = per or ("user" if counts is None else "record")
    request = Request.checked(columns, epsilon=epsilon, delta=delta, per=per, neighbors=neighbors)
    n_users, resolved = _resolve(mechanism, parameters, request)
    resolved.check(request)
    if n_users is not None and table is not None:
        table = pad_users(table, n_users).collect()
    ledger = LedgerOptions(**select_keywords(options, LedgerOptions))

    def describe() -> Question:
        return describe_question(
            means,
            statistic="mean",
            request=request,
            mechanism=mechanism,
            known=parameters,
            reading=reading,
            counts=counts,
            name=ledger.question,
            by_whom=ledger.by_whom,
        )

    with _open_charge(ledger, describe, request) as charge:
        charger = _dry(charge, request, resolved, "mean") if dry_run else charge or NOT_CHARGED
        recorded = charger.find_recorded(request)
        if isinstance(recorded, Release | DryRun):
            return _add_warnings(recorded)
        if isinstance(means, VectorFile):
            made = release_vectors(means, request, resolved, SystemNoise(), n_users=n_users, charger=charger)
        else:
            assert table is not None
            made = release_user_table(table, request, resolved, SystemNoise(), charger=charger)
    return _add_warnings(made)


def _resolve(
    mechanism: str | Mechanism, parameters: PublicParameters, request: Request
) -> tuple[int | None, Mechanism]:
    """Return the public number of users, where it is stated, and the mechanism; an estimate goes to the mechanism."""
    stated = check_n_users(parameters.n_users, request.neighbors)
    used = parameters if stated is None else replace(parameters, n_users=None)
    return stated, resolve_mechanism(mechanism, used)


def _group(
    by: str | Sequence[str] | None, keys: Any, max_groups: int | None, *, rollup: bool = False
) -> Grouping | None:
    """Return the grouping, or None without groups."""
    if by is None and keys is None and max_groups is None and not rollup:
        return None
    return Grouping.from_keywords(by, keys, max_groups, rollup=rollup)


def _add_warnings(release: R, *, expected_records: int | None = None) -> R:
    """Return a release, new or recorded, with the warnings that its public parameters and its numbers call for."""
    if isinstance(release, DryRun):
        return release
    made: Any = release
    found = []
    if expected_records is not None and isinstance(release, Release):
        found += compare_records(release, expected_records)
    if release.epsilon > LARGE_EPSILON:
        found.append(warn_of_epsilon(release.epsilon))
    return replace(made, warnings=(*made.warnings, *found)) if found else made  # type: ignore[no-any-return]


def _open_charge(
    ledger: LedgerOptions, describe: Callable[[], Question], request: Request
) -> AbstractContextManager[LedgerCharge | None]:
    """Open the charge of a release, or None without a ledger."""
    return nullcontext() if ledger == LedgerOptions() else ledger.open_charge(describe, request)


def _dry(
    charge: LedgerCharge | None,
    request: Request,
    mechanism: Mechanism,
    statistic: str,
    grouping: Grouping | None = None,
) -> DryCharge:
    """Return what takes the place of the charge of a dry run."""
    return DryCharge(
        charge_of=charge,
        request=request,
        statistic=statistic,
        mechanism=mechanism.name,
        by=() if grouping is None else grouping.by,
        groups=None if grouping is None or grouping.keys is None else len(grouping.keys),
    )


def _release(
    data: Any,
    reading: ReadRequest,
    grouping: Grouping | None,
    request: Request,
    mechanism: Mechanism,
    charger: LedgerCharge | DryCharge | NotCharged,
    *,
    n_users: int | None,
    statistic: str,
) -> Release | ReleaseTable | DryRun:
    """Return the recorded release of the same query, or make one and charge it."""
    if grouping is None:
        mechanism.check(request)
    if (recorded := charger.find_recorded(request)) is not None:
        return recorded
    about: dict[str, Any] = {"n_users": n_users, "statistic": statistic, "charger": charger}
    if grouping is not None:
        return release_groups(data, reading, grouping, request, mechanism, SystemNoise(), **about)
    return release_data(data, reading, request, mechanism, SystemNoise(), **about)
