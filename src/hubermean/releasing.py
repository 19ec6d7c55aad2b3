"""The release path: public decisions, then the private run, then what may be published."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hubermean.errors import InputError, NotReleased
from hubermean.groups import Division, GroupOutcome, check_max_groups, needs_pool, prepare_groups, settled
from hubermean.ingest import Reading, column_names, listed_keys
from hubermean.mechanisms import Mechanism, Outcome, Prepared, PublicFacts, Request
from hubermean.noise import NoiseSource
from hubermean.relations import Neighbors
from hubermean.release import Release
from hubermean.release_table import ReleaseTable
from hubermean.spending import Payer, Price, Unpaid, not_above, whole_budget
from hubermean.unsafe_timings import stage
from hubermean.user_table import PrivateTable

_NOBODY = "there are no users: no record has a value in the user column; check its name"


UNPAID = Unpaid()


@np.errstate(all="ignore")  # an underflow that a caller has numpy raise would tell of the data
def release_table(
    table: PrivateTable,
    request: Request,
    mechanism: Mechanism,
    noise: NoiseSource,
    *,
    statistic: str = "mean",
    payer: Payer = UNPAID,
) -> Release:
    """The release of a whole table."""
    facts = PublicFacts.of(table, request.neighbors)
    if facts.n_users == 0:
        raise InputError(_NOBODY)
    with stage("preparing"):
        prepared = mechanism.prepare(_as_written(request), facts)
    rho = prepared.concentrated() if isinstance(prepared, Prepared) else None
    price = Price(epsilon=request.epsilon, delta=request.delta, rho=rho)

    def made() -> Release:
        with stage("mechanism"), _refusals_as_asked(request):
            outcome = prepared.run(table, noise)
        return _release(outcome, request, facts, mechanism, noise, statistic)

    return payer.pay(price, made)


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
    statistic: str = "mean",
    payer: Payer = UNPAID,
) -> ReleaseTable:
    """The same for groups, which are read once it is known how they will be released."""
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
    table = reading.group_table(
        data, by=grouping.by, keys=grouping.keys, max_groups=most, pooled=needs_pool(chosen)
    )
    facts = PublicFacts.of(table.members, Neighbors.ADD_REMOVE)
    pool = None if table.pool is None else PublicFacts.of(table.pool, division.tuning.neighbors)
    if pool is not None and pool.n_users == 0:
        raise InputError(_NOBODY)
    with stage("preparing"):
        prepared = prepare_groups(chosen, division, facts, pool)

    def made() -> ReleaseTable:
        with stage("mechanism"), _refusals_as_asked(request):
            outcome = prepared.run(table, noise)
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
