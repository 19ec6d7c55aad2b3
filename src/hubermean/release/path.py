"""The release path: check, charge, read, sample, publish.

1. Check: the mechanism makes every decision that public facts allow. Errors here cost nothing.
2. Charge: with a ledger, the cost is committed before any private value is read.
3. Read: the records of each user are summed up.
4. Sample: the mechanism derives an output distribution from the users and draws one sample.
5. Publish: the sample becomes a `Release`, which holds only released and public numbers.

An error in step 3 or 4 becomes `NotReleased` and costs the whole budget, because whether it occurs may depend on the
records of one user. A refusal in step 5 follows from the sample alone, and costs what the private steps cost that had
run (`Charger`). Releases by group take the same path, in `release/grouped.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any, Protocol, TypeVar

import numpy as np

from hubermean.accounting.budget import PrivacyCost, not_above, whole_budget
from hubermean.data.encoding import BINARY
from hubermean.data.user_table import MAX_COUNT, PrivateTable, pad_users
from hubermean.errors import InputError, NotReleased, parameter
from hubermean.ingest.reading import ReadRequest
from hubermean.ingest.vectors import VectorFile, open_vectors
from hubermean.mechanisms.base import Mechanism, Outcome, Prepared
from hubermean.noise.source import NoiseSource
from hubermean.types.dry_run import Prospect
from hubermean.types.release import Release
from hubermean.types.request import Neighbors, PublicFacts, Request
from hubermean.types.timings import stage

T = TypeVar("T")

NO_USERS = "there are no users: no record has a value in the user column; check the name of that column"


class Charger(Protocol):
    """Charges the cost of a release before the release is computed."""

    def charge(
        self, privacy_cost: PrivacyCost, compute: Callable[[], T], prospect: Callable[[], Prospect]
    ) -> T:
        """Commit the charge, then compute and return the release; give back what a refusal did not spend.

        `prospect` is for a dry run, which returns a description of it instead.
        """


class NotCharged:
    """Computes releases without a ledger; the caller keeps track of the budget."""

    def find_recorded(self, request: Request) -> None:
        """Return None: nothing is recorded."""

    def charge(
        self, privacy_cost: PrivacyCost, compute: Callable[[], T], prospect: Callable[[], Prospect]
    ) -> T:
        """Compute and return the release."""
        return compute()


NOT_CHARGED = NotCharged()


def release_data(
    data: Any,
    reading: ReadRequest,
    request: Request,
    mechanism: Mechanism,
    noise: NoiseSource,
    *,
    n_users: int | None = None,
    statistic: str = "mean",
    charger: Charger = NOT_CHARGED,
) -> Release:
    """Release a statistic of a file, frame, query or table.

    Args:
        data: anything that `ReadRequest.open` reads.
        reading: columns and engine options.
        request: columns, budget, neighbor relation and weighting.
        mechanism: the mechanism.
        noise: the source of randomness.
        n_users: the number of users, if it is public and the caller states it.
        statistic: "mean" or "count".
        charger: what the release is charged to.
    """
    records = request.neighbors.counts_are_public
    with reading.open(data) as opened:
        facts = None
        if not must_count_users(request.neighbors, n_users, countable=opened.countable):
            facts = PublicFacts.declared(
                opened.columns,
                opened.limits,
                n_users=n_users,
                max_local_users=opened.max_local_users(records=records),
            )

        def read() -> AbstractContextManager[PrivateTable]:
            return contextlib.nullcontext(opened.read_users(records=records))

        return _release_users(
            read,
            facts,
            request,
            mechanism,
            noise,
            statistic=statistic,
            charger=charger,
            advice=opened.advice,
        )


def release_vectors(
    file: VectorFile,
    request: Request,
    mechanism: Mechanism,
    noise: NoiseSource,
    *,
    n_users: int | None = None,
    charger: Charger = NOT_CHARGED,
) -> Release:
    """Release the mean of a column of vectors; arguments as for `release_data`."""
    facts = None
    if not must_count_users(request.neighbors, n_users, countable=True):
        limits = (BINARY.limit,) * len(file.columns)
        facts = PublicFacts.declared(file.columns, limits, n_users=n_users)
    return _release_users(lambda: open_vectors(file), facts, request, mechanism, noise, charger=charger)


def release_user_table(
    table: PrivateTable,
    request: Request,
    mechanism: Mechanism,
    noise: NoiseSource,
    *,
    statistic: str = "mean",
    charger: Charger = NOT_CHARGED,
) -> Release:
    """Release a statistic of a table in memory; arguments as for `release_data`."""
    facts = PublicFacts.of(table, request.neighbors)

    def read() -> AbstractContextManager[PrivateTable]:
        return contextlib.nullcontext(table)

    return _release_users(read, facts, request, mechanism, noise, statistic=statistic, charger=charger)


@np.errstate(all="ignore")  # an underflow that numpy is set to raise would reveal something about the data
def _release_users(
    read: Callable[[], AbstractContextManager[PrivateTable]],
    facts: PublicFacts | None,
    request: Request,
    mechanism: Mechanism,
    noise: NoiseSource,
    *,
    statistic: str = "mean",
    charger: Charger,
    advice: str = "",
) -> Release:
    """Take the release path. Without `facts`, the number of users is public and counted while reading.

    `advice` says what to check where too few values are usable.
    """

    def prepare(facts: PublicFacts) -> Any:
        if facts.n_users == 0:
            raise InputError(NO_USERS)
        with stage("preparing"):
            return mechanism.prepare(round_budget_down(request), facts)

    prepared: Any = None if facts is None else prepare(facts)

    def compute() -> Release:
        with contextlib.ExitStack() as stack:
            table = run_on_data(lambda: stack.enter_context(read()), request)
            known, run = facts, prepared
            if known is None:
                counted = known = PublicFacts.of(table, request.neighbors)
                run = run_on_public(lambda: prepare(counted), charger)
            elif (n_users := known.n_users) is not None:
                table = run_on_data(lambda: pad_users(table, n_users), request)
            with stage("mechanism"), state_requested_budget(request), advise_too_few(advice):
                outcome = run_on_data(lambda: run.run(table, noise), request)
        return _publish(outcome, request, known, mechanism, noise, statistic)

    cost = PrivacyCost(epsilon=request.epsilon, delta=request.delta)
    if isinstance(prepared, Prepared) and charger is not NOT_CHARGED:
        cost = replace(cost, rho=prepared.concentrated(), rho_delta=prepared.concentrated_delta())
    return charger.charge(cost, compute, lambda: describe_prospect(prepared))


def _publish(
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
        parameters=published_parameters(outcome.parameters, noise),
        budget_breakdown=outcome.budget_breakdown
        or whole_budget(request.epsilon, request.delta, what=f"the {statistic}"),
        interval_rule=outcome.interval_rule,
        statistic=statistic,
        denominator=outcome.denominator,
        warnings=outcome.warnings,
    )


# --- shared with releases by group ------------------------------------------------------------------------------------


def check_n_users(n_users: object, relation: Neighbors) -> int | None:
    """Return the exact number of users that the caller states; None where the relation keeps it private."""
    if n_users is None or not relation.users_are_public:
        return None
    whole = isinstance(n_users, int | np.integer) and not isinstance(n_users, bool)
    if not whole or not 1 <= n_users <= MAX_COUNT:  # type: ignore[operator]
        raise InputError(
            f"{parameter('n_users')} must be a whole number from 1 to {MAX_COUNT:,}, not {n_users!r}"
        )
    return int(n_users)  # type: ignore[call-overload, no-any-return]


def must_count_users(relation: Neighbors, n_users: int | None, *, countable: bool) -> bool:
    """Whether the number of users is public and must be counted in the data before the mechanism can be prepared."""
    if not relation.users_are_public:
        return False
    if relation.counts_are_public and n_users is not None:
        raise InputError(
            f"{relation.value!r} counts users and records in the data; leave {parameter('n_users')} out"
        )
    if n_users is not None:
        return False
    if not countable:
        option = (
            "" if relation.counts_are_public else f"give {parameter('n_users')} (the number of users), or "
        )
        raise InputError(
            f"{relation.value!r} makes the number of users public, but in text files, queries, views and streams "
            f"that number depends on the values of users; {option}use "
            f"{parameter('neighbors', 'add-remove')}"
        )
    return True


def describe_prospect(prepared: Any) -> Prospect:
    """What a dry run can say of a prepared mechanism; of a custom one, or one that awaits a public count, little."""
    if prepared is None:
        return Prospect(
            needs=("users as the mechanism needs; their public number is counted after the charge",)
        )
    return prepared.prospect() if hasattr(prepared, "prospect") else Prospect()


def run_on_data(work: Callable[[], T], request: Request) -> T:
    """Do some work on private data. An InputError becomes NotReleased and costs the whole budget."""
    try:
        return work()
    except InputError as failure:
        reason = failure.message
    cost = f"epsilon = {request.epsilon:g}" + (f" and delta = {request.delta:g}" if request.delta > 0 else "")
    # Outside the handler, so that the error carries nothing else of the failure.
    raise NotReleased(f"{reason}; {cost} counts as spent", epsilon=request.epsilon, delta=request.delta)


def run_on_public(work: Callable[[], T], charger: Charger) -> T:
    """Do some work on public facts that were counted in the data after the charge: an InputError costs nothing.

    Neighbors have the same public facts, so whether there is an error says nothing about a user; all of the charge is
    given back (proofs/ledger.md, Lemma 6).
    """
    if charger is NOT_CHARGED:
        return work()
    try:
        return work()
    except InputError as failure:
        reason = failure.message
    raise NotReleased(f"{reason}; nothing was spent", epsilon=0.0, delta=0.0, rho=Fraction(0))


def round_budget_down(request: Request) -> Request:
    """Return a request whose budget, as a float, is at most the decimal that the release states and ledgers add up."""
    return replace(request, epsilon=not_above(request.epsilon), delta=not_above(request.delta))


@contextlib.contextmanager
def state_requested_budget(request: Request) -> Iterator[None]:
    """Make a refusal that cost the whole budget state it as it was requested, not as it was rounded."""
    try:
        yield
    except NotReleased as refusal:
        rounded = round_budget_down(request)
        if refusal.epsilon == rounded.epsilon:
            refusal.epsilon = request.epsilon
        if refusal.delta == rounded.delta:
            refusal.delta = request.delta
        raise


@contextlib.contextmanager
def advise_too_few(advice: str) -> Iterator[None]:
    """Add public advice to a refusal for too few users with usable records."""
    try:
        yield
    except NotReleased as refusal:
        if advice and "too few users" in refusal.message.lower():
            refusal.advise(advice)
        raise


def published_parameters(parameters: Mapping[str, Any], noise: NoiseSource) -> dict[str, Any]:
    """Return the parameters of a release, marked if its noise is not secure."""
    return {**parameters, **({} if noise.secure else {"insecure_noise": True})}
