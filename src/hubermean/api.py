"""The front door: `mean` and `mean_of_user_means`."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from numpy.typing import ArrayLike

from hubermean.errors import InputError
from hubermean.ingest import column_names, user_table
from hubermean.mechanisms import Bounds, Known, Mechanism, Per, PublicFacts, Request, choose
from hubermean.noise import NoiseSource, SystemNoise
from hubermean.relations import Neighbors
from hubermean.release import Release
from hubermean.spending import whole_budget
from hubermean.user_table import UserTable


def mean(
    data: Any,
    *,
    user: str | Sequence[str],
    value: str | Sequence[str],
    epsilon: float,
    delta: float = 0.0,
    per: Per = "record",
    neighbors: str | Neighbors = "replace-user",
    mechanism: str | Mechanism = "auto",
    bounds: Bounds | Sequence[Bounds] | None = None,
    record_cap: int | None = None,
    threshold: float | None = None,
    scale: float | Sequence[float] | None = None,
    radius: float | None = None,
    likeness: float | None = None,
    n_users: int | None = None,
    resolution: float | Decimal | Fraction | None = None,
    non_finite: str = "drop",
    memory_limit: str | None = None,
    threads: int | None = None,
    progress: bool = False,
) -> Release:
    """Release the mean of one or more columns with differential privacy for whole users.

    Args:
        data: a path or glob (Parquet, CSV, JSON lines), `hubermean.sql(...)`, or a pandas, Polars, PyArrow
            or DuckDB frame.
        user: the column or columns that identify a user.
        value: the column or columns to average.
        epsilon, delta: the privacy budget of this release.
        per: "record" for the mean over records, each user counting for at most `record_cap` of them;
            "user" for the mean of user means.
        neighbors: "replace-user", "replace-values" or "add-remove": which change of the data is hidden.
        mechanism: "tuned", "clipped", "exact", "tested", "smooth", "winsorized", or an object with the protocol of
            `hubermean.mechanisms`; "auto" is "tuned" where something it takes is not known, else the one with
            the least predicted error, from public numbers alone: see `hubermean.plan`.
        bounds: (low, high) that user means are clamped to, or one pair per column. This and what follows need not be
            given; what is given saves budget and is public: take it from knowledge of the quantity, not from the data.
        record_cap: the most records a user counts for, with `per="record"`.
        threshold: how far a user mean may lie from the centre before it counts as an outlier; most lie closer. With
            several columns and a radius, how far in all columns together.
        scale: the standard deviation of user means, for all columns or one for each.
        radius: the mean is known to lie within this distance of 0; it may be generous.
        likeness: how alike a user's records are, with `per="record"`: 0 if as different as anybody's, 1 if all the
            same. Users with few records are clamped the less, the smaller it is.
        n_users: about how many users there are, if that is public though `neighbors="add-remove"` would hide it.
        resolution: a public step that values are rounded to; faster where it suffices.
        non_finite: "drop" or "clamp" infinite values; null and NaN are always dropped.
        memory_limit, threads: what reading and grouping may use.
        progress: show a progress bar on a terminal after one second.

    Returns:
        A `Release`, which holds only what is safe to publish.

    Raises:
        InputError: a parameter, file or column that cannot be used; nothing was spent.
        NotReleased: the mechanism's own private test or search failed; it states what that cost.

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
        scale=scale,
        radius=radius,
        likeness=likeness,
        n_users=n_users,
    )
    chosen = choose(mechanism, known)
    request = Request.checked(columns, epsilon=epsilon, delta=delta, per=per, neighbors=neighbors)
    chosen.check(request)
    table = user_table(
        data,
        user=user,
        value=value,
        resolution=resolution,
        non_finite=non_finite,
        memory_limit=memory_limit,
        threads=threads,
        progress=progress,
        records=request.neighbors.counts_are_public,
    )
    return release_table(table, request, chosen, SystemNoise())


def mean_of_user_means(
    means: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    per: Per | None = None,
    neighbors: str | Neighbors = "replace-user",
    mechanism: str | Mechanism = "auto",
    bounds: Bounds | Sequence[Bounds] | None = None,
    record_cap: int | None = None,
    threshold: float | None = None,
    scale: float | Sequence[float] | None = None,
    radius: float | None = None,
    likeness: float | None = None,
    n_users: int | None = None,
) -> Release:
    """`mean` for people who hold one mean per user already.

    Args:
        means: shape (n,) or (n, d), one row per user; a user with a value that is not finite is unusable. An array of
            numbers is not copied and may be a memory map, best with each row in one piece.
        counts: how many records stand behind each mean; one each when left out.
        per: "record" weighs users by their (capped) counts, "user" equally; "record" when counts are given.

    The other arguments are those of `mean`.
    """
    known = Known.given(
        bounds=bounds,
        record_cap=record_cap,
        threshold=threshold,
        scale=scale,
        radius=radius,
        likeness=likeness,
        n_users=n_users,
    )
    chosen = choose(mechanism, known)
    table = UserTable.from_means(means, counts)
    per = per or ("user" if counts is None else "record")
    request = Request.checked(table.columns, epsilon=epsilon, delta=delta, per=per, neighbors=neighbors)
    chosen.check(request)
    return release_table(table, request, chosen, SystemNoise())


def release_table(table: UserTable, request: Request, mechanism: Mechanism, noise: NoiseSource) -> Release:
    """The release path proper: public decisions, then the private run, then what may be published."""
    facts = PublicFacts.of(table, request.neighbors)
    if facts.n_users == 0:
        raise InputError("there are no users: no record has a value in the user column; check its name")
    outcome = mechanism.prepare(request, facts).run(table, noise)
    parameters = dict(outcome.parameters)
    if not noise.secure:
        parameters["insecure_noise"] = True
    return Release(
        values=outcome.values,
        columns=request.columns,
        epsilon=request.epsilon,
        delta=request.delta,
        neighbors=request.neighbors,
        mechanism=outcome.mechanism or mechanism.name,
        per=request.per,
        n_users=facts.n_users,
        parameters=parameters,
        spent=outcome.spent or whole_budget(request.epsilon, request.delta),
        interval_rule=outcome.interval_rule,
    )
