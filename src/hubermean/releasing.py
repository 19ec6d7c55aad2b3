"""The release path: public decisions, then the charge, then the data, then what may be published.

Nothing that a user holds is looked at before the charge. What fails afterwards, for whatever reason, ends in one way
and costs the whole budget of the release: whether it fails may depend on one user's records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from hubermean.errors import InputError, NotReleased
from hubermean.exact import BINARY
from hubermean.group_table import GroupTable
from hubermean.groups import Division, GroupOutcome, check_max_groups, needs_pool, prepare_groups, settled
from hubermean.ingest import Reading, VectorFile, column_names, listed_keys, opened_vectors
from hubermean.mechanisms import Mechanism, Outcome, Prepared, PublicFacts, Request
from hubermean.noise import NoiseSource
from hubermean.relations import Neighbors
from hubermean.release import Release
from hubermean.release_table import ReleaseTable
from hubermean.spending import Payer, Price, Unpaid, not_above, whole_budget
from hubermean.unsafe_timings import stage
from hubermean.user_table import LARGEST_COUNT, PrivateTable, padded

T = TypeVar("T")

_NOBODY = "there are no users: no record has a value in the user column; check its name"

UNPAID = Unpaid()


def release_data(
    data: Any,
    reading: Reading,
    request: Request,
    mechanism: Mechanism,
    noise: NoiseSource,
    *,
    n_users: int | None = None,
    statistic: str = "mean",
    payer: Payer = UNPAID,
) -> Release:
    """The release of all data; `n_users` is their public number of users, where it is stated."""
    relation = request.neighbors
    records = relation.counts_are_public
    with reading.opened(data) as opened:
        facts = None
        if not _to_be_counted(relation, n_users, countable=opened.countable):
            held_up_to = opened.held_up_to(records=records)
            facts = PublicFacts.declared(
                opened.columns, opened.limits, n_users=n_users, held_up_to=held_up_to
            )

        def read() -> AbstractContextManager[PrivateTable]:
            return contextlib.nullcontext(opened.users(records=records))

        return _charged(read, facts, request, mechanism, noise, statistic=statistic, payer=payer)


def release_vectors(
    file: VectorFile,
    request: Request,
    mechanism: Mechanism,
    noise: NoiseSource,
    *,
    n_users: int | None = None,
    payer: Payer = UNPAID,
) -> Release:
    """The release of a column of vectors."""
    facts = None
    if not _to_be_counted(request.neighbors, n_users, countable=True):
        limits = (BINARY.limit,) * len(file.columns)
        facts = PublicFacts.declared(file.columns, limits, n_users=n_users)
    return _charged(lambda: opened_vectors(file), facts, request, mechanism, noise, payer=payer)


def release_table(
    table: PrivateTable,
    request: Request,
    mechanism: Mechanism,
    noise: NoiseSource,
    *,
    statistic: str = "mean",
    payer: Payer = UNPAID,
) -> Release:
    """The release of a table that is held already."""
    facts = PublicFacts.of(table, request.neighbors)

    def read() -> AbstractContextManager[PrivateTable]:
        return contextlib.nullcontext(table)

    return _charged(read, facts, request, mechanism, noise, statistic=statistic, payer=payer)


def stated_users(n_users: object, relation: Neighbors) -> int | None:
    """How many users the caller says there are, where that is public."""
    if n_users is None or not relation.users_are_public:
        return None
    whole = isinstance(n_users, int | np.integer) and not isinstance(n_users, bool)
    if not whole or not 1 <= n_users <= LARGEST_COUNT:  # type: ignore[operator]
        raise InputError(f"n_users must be a whole number from 1 to {LARGEST_COUNT:,}, not {n_users!r}")
    return int(n_users)  # type: ignore[call-overload, no-any-return]


def _to_be_counted(relation: Neighbors, n_users: int | None, *, countable: bool) -> bool:
    """Whether the number of users is public and has to be counted in the data first."""
    if not relation.users_are_public:
        return False
    if relation.counts_are_public and n_users is not None:
        raise InputError(f"{relation.value!r} counts users and records in the data; leave n_users out")
    if n_users is not None:
        return False
    if not countable:
        say = "" if relation.counts_are_public else "give n_users= (how many there are), or "
        raise InputError(
            f"{relation.value!r} makes the number of users public, which depends on what users hold in text files, "
            f"queries, views and streams; {say}use neighbors='add-remove'"
        )
    return True


@np.errstate(all="ignore")  # an underflow that a caller has numpy raise would tell of the data
def _charged(
    read: Callable[[], AbstractContextManager[PrivateTable]],
    facts: PublicFacts | None,
    request: Request,
    mechanism: Mechanism,
    noise: NoiseSource,
    *,
    statistic: str = "mean",
    payer: Payer,
) -> Release:
    """Decide, charge, read, draw; without `facts`, which are counted in the data then, decide after reading."""

    def ready(facts: PublicFacts) -> Any:
        if facts.n_users == 0:
            raise InputError(_NOBODY)
        with stage("preparing"):
            return mechanism.prepare(_as_written(request), facts)

    prepared: Any = None if facts is None else ready(facts)

    def made() -> Release:
        with contextlib.ExitStack() as held:
            table = _in_one_way(lambda: held.enter_context(read()), request)
            known, run = facts, prepared
            if known is None:
                counted = known = PublicFacts.of(table, request.neighbors)
                # Public, so nothing was learnt; but with a ledger it is paid for.
                run = ready(counted) if payer is UNPAID else _in_one_way(lambda: ready(counted), request)
            elif (n_users := known.n_users) is not None:
                table = _in_one_way(lambda: padded(table, n_users), request)
            with stage("mechanism"), _refusals_as_asked(request):
                outcome = _in_one_way(lambda: run.run(table, noise), request)
        return _release(outcome, request, known, mechanism, noise, statistic)

    rho = prepared.concentrated() if isinstance(prepared, Prepared) else None
    return payer.pay(Price(epsilon=request.epsilon, delta=request.delta, rho=rho), made)


def _in_one_way(work: Callable[[], T], request: Request) -> T:
    """Do some work on the data; a failure is a release that was not made, and costs what it would have."""
    try:
        return work()
    except InputError as failure:
        reason = str(failure)
    spent = f"epsilon = {request.epsilon:g}" + (
        f" and delta = {request.delta:g}" if request.delta > 0 else ""
    )
    raise NotReleased(f"{reason}; {spent} counts as spent", epsilon=request.epsilon, delta=request.delta)


def _release(
    outcome: Outcome,
    request: Request,
    facts: PublicFacts,
    mechanism: Mechanism,
    noise: NoiseSource,
    statistic: str,
) -> Release:
    return Release(
        values=outcome.values,
        columns=request.columns,
        epsilon=request.epsilon,
        delta=request.delta,
        neighbors=request.neighbors,
        mechanism=outcome.mechanism or mechanism.name,
        per=request.per,
        n_users=facts.n_users,
        parameters=_parameters(outcome.parameters, noise),
        spent=outcome.spent or whole_budget(request.epsilon, request.delta, what=f"the {statistic}"),
        interval_rule=outcome.interval_rule,
        statistic=statistic,
        denominator=outcome.denominator,
        warnings=outcome.warnings,
    )


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """Which groups were asked for; `keys` is None where they are to be chosen privately."""

    by: tuple[str, ...]
    keys: Sequence[tuple[Any, ...]] | None
    max_groups: int

    @classmethod
    def asked(cls, by: str | Sequence[str] | None, keys: Any, max_groups: int) -> Grouping | None:
        check_max_groups(max_groups)
        if by is None:
            if keys is not None or max_groups != 1:
                raise InputError("keys and max_groups are for groups; give by= as well, or leave them out")
            return None
        columns = tuple(column_names(by, "by"))
        return cls(
            by=columns,
            keys=None if keys is None else listed_keys(keys, columns),
            max_groups=max_groups,
        )


@np.errstate(all="ignore")
def release_groups(
    data: Any,
    reading: Reading,
    grouping: Grouping,
    request: Request,
    mechanism: Mechanism,
    noise: NoiseSource,
    *,
    n_users: int | None = None,
    statistic: str = "mean",
    payer: Payer = UNPAID,
) -> ReleaseTable:
    """The same for groups."""
    public = grouping.keys is not None
    # Nobody is in more groups than there are.
    most = grouping.max_groups if grouping.keys is None else min(grouping.max_groups, len(grouping.keys))
    division = Division.of(
        _as_written(request),
        max_groups=most,
        public_keys=public,
        delta_for="keys" if statistic == "count" else "all",
    )
    chosen = settled(mechanism, division)
    pooled = needs_pool(chosen)
    within = division.tuning.neighbors
    with reading.opened(data, by=grouping.by) as opened:
        if grouping.keys is not None:
            opened.check_keys(grouping.keys)
        facts = PublicFacts.declared(opened.columns, opened.limits)
        counted = pooled and _to_be_counted(within, n_users, countable=opened.countable)

        def ready(n_users: int | None) -> Any:
            if n_users == 0:
                raise InputError(_NOBODY)
            with stage("preparing"):
                return prepare_groups(
                    chosen, division, facts, replace(facts, n_users=n_users) if pooled else None
                )

        prepared: Any = None if counted else ready(n_users)

        def made() -> ReleaseTable:
            def read() -> GroupTable:
                table = opened.groups(keys=grouping.keys, max_groups=most, pooled=pooled)
                if counted or n_users is None or table.pool is None:
                    return table
                return replace(table, pool=padded(table.pool, n_users).collected())

            table = _in_one_way(read, request)
            run = prepared
            if counted:
                assert table.pool is not None
                found = table.pool.n_users
                run = ready(found) if payer is UNPAID else _in_one_way(lambda: ready(found), request)
            with stage("mechanism"), _refusals_as_asked(request):
                outcome = _in_one_way(lambda: run.run(table, noise), request)
            return _release_table(outcome, request, grouping, division, chosen, noise, statistic)

        return payer.pay(Price(epsilon=request.epsilon, delta=request.delta), made)


def _release_table(
    outcome: GroupOutcome,
    request: Request,
    grouping: Grouping,
    division: Division,
    chosen: Mechanism,
    noise: NoiseSource,
    statistic: str,
) -> ReleaseTable:
    parameters = {**outcome.parameters, **division.parameters()}
    left = division.means
    spent = outcome.spent or whole_budget(left.epsilon, left.delta, what=f"the {statistic}")
    return ReleaseTable(
        by=grouping.by,
        keys=tuple(outcome.keys),
        values=outcome.values,
        columns=request.columns,
        epsilon=request.epsilon,
        delta=request.delta,
        neighbors=request.neighbors,
        mechanism=outcome.mechanism or chosen.name,
        per=request.per,
        statistic=statistic,
        max_groups=division.max_groups,
        public_keys=grouping.keys is not None,
        parameters=_parameters(parameters, noise),
        spent=division.account(spent),
        intervals=outcome.intervals,
        measured=outcome.denominators,
        refusals=outcome.refusals,
    )


def _as_written(request: Request) -> Request:
    """What a mechanism is tuned to: no more than the decimals that the release states and a ledger adds up."""
    return replace(request, epsilon=not_above(request.epsilon), delta=not_above(request.delta))


@contextlib.contextmanager
def _refusals_as_asked(request: Request) -> Iterator[None]:
    """A refusal that cost all there was states it as it was written, too."""
    try:
        yield
    except NotReleased as refusal:
        tuned_to = _as_written(request)
        if refusal.epsilon == tuned_to.epsilon:
            refusal.epsilon = request.epsilon
        if refusal.delta == tuned_to.delta:
            refusal.delta = request.delta
        raise


def _parameters(parameters: Mapping[str, Any], noise: NoiseSource) -> dict[str, Any]:
    return {**parameters, **({} if noise.secure else {"insecure_noise": True})}
