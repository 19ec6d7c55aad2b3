"""`hm.audit`: the largest privacy loss that a search over neighboring data sets finds, against the claimed epsilon."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from hubermean.accounting.arguments import check_integer, check_positive_integer
from hubermean.auditing.containers import MAX_RECORDS, ContainerRoundTrip
from hubermean.auditing.effort import Effort, Progress
from hubermean.auditing.group_audit import find_worst_group_pair
from hubermean.auditing.neighbors import SearchSpace, finite_or_none
from hubermean.auditing.search import (
    DescribedPair,
    Finding,
    MechanismEvaluator,
    find_worst_pair,
)
from hubermean.data.arrays import FloatArray
from hubermean.data.user_table import UserTable
from hubermean.errors import InputError, parameter
from hubermean.mechanisms.adaptive.mechanism import Adaptive
from hubermean.mechanisms.base import Mechanism, Prepared
from hubermean.mechanisms.counts.mechanism import AdaptiveCount, Count
from hubermean.mechanisms.groups.budget_split import check_max_groups
from hubermean.mechanisms.registry import Auto, resolve_mechanism
from hubermean.types.options import PublicKeywords, PublicParameters, check_keywords, show_keywords
from hubermean.types.request import DEFAULT_NEIGHBORS, Neighbors, Per, PublicFacts, Request
from hubermean.types.screen import Lines

COUNT = "count"
PAIRS, ADAPTIVE_PAIRS = 2_000, 250
"""How many pairs are evaluated by default, in the time limit: of a mechanism, and of an adaptive one."""
GROUP_PAIRS, ADAPTIVE_GROUP_PAIRS, CONTAINER_PAIRS = 400, 150, 100
"""The same with groups, and at most through a container."""
TIME_LIMIT = 75.0
"""Seconds after which a search evaluates no further pair by default."""
THOROUGH = 10
"""How many times as many pairs a thorough search evaluates, without a time limit."""
_LEAST_PAIRS, _LEAST_ADAPTIVE_PAIRS = 400, 100
_SIZES = (12, 40, 150, 400, 1000, 3000)  # tried in turn until the mechanism works with so few users
MAX_COLUMNS, MAX_USERS = 1_000, 1_000_000
_MANY_RECORDS = 10_000
_FAR = 1e3  # where a mechanism states no length but one: how far "far" is


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of a search over pairs of neighboring data sets.

    Attributes:
        kept: whether no pair exceeded the claimed guarantee or a claim of the proof.
        mechanism, neighbors, per, n_users: what was compared.
        epsilon, delta: the claimed guarantee.
        loss: the largest privacy loss found: the smallest epsilon for which the worst pair has at most the claimed
            delta.
        delta_found: the delta of the worst pair at the claimed epsilon.
        claims: for each claim of the proof, the largest share of what it allows that any pair uses; above 1 it is
            false.
        pairs: how many pairs were evaluated; fewer than planned if the time limit was reached.
        seed: seed of the synthetic data sets.
        worst: the worst pair; synthetic.
    """

    kept: bool
    mechanism: str
    neighbors: Neighbors
    per: str
    n_users: int
    epsilon: float
    delta: float
    loss: float
    delta_found: float
    claims: Mapping[str, float]
    pairs: int
    seed: int
    worst: DescribedPair = field(repr=False, compare=False)

    @property
    def lines(self) -> Lines:
        """What a terminal shows: the verdict first, then what was compared."""
        guarantee = f"epsilon = {self.epsilon:g}" + (f", delta = {self.delta:g}" if self.delta > 0 else "")
        loss = f"epsilon = {self.loss:.6g}"
        if self.delta > 0:
            loss += (
                f" at delta = {self.delta:g}; delta = {self.delta_found:.4g} at epsilon = {self.epsilon:g}"
            )
        lines = [
            ("Verdict", self.verdict),
            ("Claimed", guarantee),
            ("Largest loss", f"{loss}   (of {self.pairs:,} pairs compared, seed {self.seed})"),
            (
                "Mechanism",
                f"{self.mechanism}, per {self.per}, {self.neighbors.value}, about {self.n_users:,} users",
            ),
            ("Worst pair", f"{self.worst.shape}: {self.worst.summary()}"),
            (
                "Changed user",
                f"before: {self.worst.before or 'absent'}; after: {self.worst.after or 'absent'}",
            ),
        ]
        if self.claims:
            used = ", ".join(f"{claim} ({share:.3g})" for claim, share in self.claims.items())
            lines.append(("Proof", f"shares used of what each step may lose, at most 1: {used}"))
        return Lines(tuple(lines))

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        if self.kept:
            return "The guarantee holds on every pair."
        over = self.loss > self.epsilon or self.delta_found > self.delta
        return "GUARANTEE VIOLATED on the worst pair." if over else "CLAIM OF THE PROOF VIOLATED."

    def __repr__(self) -> str:
        return repr(self.lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as plain data."""
        return {
            "kept": self.kept,
            "mechanism": self.mechanism,
            "neighbors": self.neighbors.value,
            "per": self.per,
            "n_users": self.n_users,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "loss": finite_or_none(self.loss),
            "delta_found": self.delta_found,
            "claims": {claim: finite_or_none(used) for claim, used in self.claims.items()},
            "pairs": self.pairs,
            "seed": self.seed,
            "worst": self.worst.to_dict(),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


@show_keywords(PublicParameters)
def audit(
    mechanism: str | Mechanism = "auto",
    *,
    epsilon: float,
    delta: float = 0.0,
    per: Per = "user",
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    columns: int = 1,
    users: int | None = None,
    groups: int | None = None,
    max_groups: int | None = None,
    private_keys: bool = False,
    container: str | None = None,
    pairs: int | None = None,
    thorough: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Unpack[PublicKeywords],
) -> Audit:
    """Search for neighboring data sets on which a mechanism loses more privacy than it claims.

    No data is read. Synthetic adversarial data sets are built, and for each pair of neighbors the exact privacy loss
    between the two output distributions of a release is computed: the full distribution of a discrete selection, the
    closed form for Gaussian noise, and the pass probability of a private test. A search can refute a guarantee; the
    proofs establish it.

    Args:
        mechanism: a name as for `mean`; "count" (of users or records, by `per`); or an object whose prepared form is
            a `hubermean.mechanisms.Prepared`. Default "auto".
        epsilon, delta, per, neighbors: the claimed guarantee, as for `mean`.
        columns: number of value columns; default 1.
        users: number of users in each data set; by default the fewest with which the mechanism works.
        groups: number of groups; audits a release by group of one column. Users move between groups, are split over
            several, and change their records. The records pass through reading and grouping.
        max_groups: number of groups in which a user counts, by default in all of its groups; with `groups`.
        private_keys: whether groups are selected privately instead of being public; with `groups`.
        container: write both data sets of every pair as records to this container, such as "csv", "pandas" or "spark"
            (`hubermean.auditing.CONTAINERS`), and read them as a release would.
        pairs: number of pairs to evaluate. Default: as many as fit in 75 seconds, at most 2,000 over the number of
            columns, 400 with `groups`; for an adaptive mechanism 250 over the number of columns, 150 with `groups`; at
            most 100 through a container.
        thorough: evaluate ten times as many pairs as by default, without a time limit: minutes to hours.
        seed: seed of the synthetic data sets. Noise is never sampled.
        progress: called with the number of pairs evaluated so far, and the share of the search that is done.
        options: public parameters of the mechanism, as for `mean`.

    Returns:
        An `Audit` with `kept`, `loss`, `delta_found`, `claims` and the worst pair. Printing it shows what was
        compared, the claimed guarantee, the largest loss found and the verdict.

    Raises:
        InputError: if parameters are invalid, or the mechanism refuses every data set.

    **Formal guarantees**
    - The loss of each pair is exact or a lower bound, up to the arithmetic error of the audit
      (one part in 10^6). A violation that is found is real; that none is found proves nothing.

    >>> audit("clipped", epsilon=1, bounds=(0, 10), pairs=50).kept
    True
    """
    check_keywords(audit, options, PublicParameters)
    known = PublicParameters.from_keywords(**options)
    pairs = None if pairs is None else check_positive_integer("pairs", pairs)
    if pairs is not None and thorough:
        raise InputError(f"give {parameter('pairs')} or {parameter('thorough', True)}, not both")

    def effort(default: int) -> Effort:
        if thorough or pairs is not None:
            return Effort(pairs=pairs or THOROUGH * default, progress=progress)
        return Effort(pairs=default, seconds=TIME_LIMIT, progress=progress)

    columns = check_positive_integer("columns", columns)
    users = None if users is None else check_positive_integer("users", users)
    seed = check_integer("seed", seed)
    if columns > MAX_COLUMNS or (users or 1) > MAX_USERS:
        raise InputError(
            f"{parameter('columns')} may be at most {MAX_COLUMNS:,} and users at most "
            f"{MAX_USERS:,} in an audit"
        )
    round_trip = None if container is None else ContainerRoundTrip.named(container)
    names = UserTable.from_means(np.zeros((1, columns))).columns
    request = Request.checked(names, epsilon=epsilon, delta=delta, per=per, neighbors=neighbors)
    chosen = _resolve_mechanism(mechanism, known, request, grouped=groups is not None)
    if groups is not None:
        if columns != 1:
            raise InputError("an audit by group is of one column; leave columns out")
        lengths, center, _ = _lengths(chosen, known, columns)
        adaptive = isinstance(chosen, Adaptive | AdaptiveCount) or max_groups is None
        adaptive = adaptive or (isinstance(chosen, Auto) and known.bounds is None)
        found_in_groups, evaluated = find_worst_group_pair(
            chosen,
            request,
            groups=check_positive_integer("groups", groups),
            max_groups=check_max_groups(max_groups),
            public_keys=not private_keys,
            center=float(center[0]),
            reach=lengths[0],
            max_records=known.max_records or 1,
            counting=mechanism == COUNT,
            per_group=None if users is None else -(-users // groups),
            round_trip=round_trip,
            effort=effort(default_pairs(adaptive=adaptive, grouped=True, container=container)),
            seed=seed,
        )
        if round_trip is not None:
            round_trip.check()
        size = len(found_in_groups.pair.members) + 1
        return _verdict(f"{chosen.name}, {groups} groups", request, size, found_in_groups, evaluated, seed)
    if max_groups is not None or private_keys:
        raise InputError(
            f"{parameter('max_groups')} and {parameter('private_keys')} are for an audit by group; "
            f"give {parameter('groups')} as well"
        )
    chosen.check(request)
    space = _make_search_space(
        chosen, request, known, users, most_records=None if round_trip is None else MAX_RECORDS
    )
    default = default_pairs(adaptive=space.adaptive, columns=columns, container=container)
    evaluate = MechanismEvaluator(chosen, request, round_trip)
    found, evaluated = find_worst_pair(evaluate, space, effort=effort(default), seed=seed)
    if round_trip is not None:
        round_trip.check()
    return _verdict(chosen.name, request, space.n_users, found, evaluated, seed)


def default_pairs(
    *, adaptive: bool, columns: int = 1, grouped: bool = False, container: str | None = None
) -> int:
    """Return the default number of pairs. Pairs of adaptive mechanisms take longer, and are made for each step."""
    pairs = GROUP_PAIRS if grouped else max(PAIRS // columns, _LEAST_PAIRS)
    if adaptive:
        pairs = ADAPTIVE_GROUP_PAIRS if grouped else max(ADAPTIVE_PAIRS // columns, _LEAST_ADAPTIVE_PAIRS)
    return pairs if container is None else min(pairs, CONTAINER_PAIRS)


def _resolve_mechanism(
    mechanism: str | Mechanism, known: PublicParameters, request: Request, *, grouped: bool
) -> Mechanism:
    """Resolve a mechanism by name, as a release would."""
    if mechanism != COUNT:
        return resolve_mechanism(mechanism, known)
    known.check_only("max_records", of=COUNT)
    public = request.neighbors.counts_are_public and not grouped
    if request.per == "record" and known.max_records is None and not public:
        return AdaptiveCount()
    return Count(max_records=known.max_records)


def _make_search_space(
    mechanism: Mechanism,
    request: Request,
    known: PublicParameters,
    users: int | None,
    *,
    most_records: int | None,
) -> SearchSpace:
    lengths, center, units = _lengths(mechanism, known, len(request.columns))
    own_cap: Any = getattr(mechanism, "max_records", None)
    cap = known.max_records or (own_cap if isinstance(own_cap, int) and own_cap > 0 else 1)
    # Record counts that should not matter (`per="user"`) are varied as well: they might.
    near = {cap - 1, cap, cap + 1, 2 * cap} - {0} if request.per == "record" else set()
    caps = tuple(sorted({min(count, most_records or count) for count in {1, 2, _MANY_RECORDS} | near}))

    def of(size: int, prepared: Prepared) -> SearchSpace:
        return SearchSpace(
            neighbors=request.neighbors,
            n_users=size,
            dimension=len(request.columns),
            lengths=lengths,
            center=center,
            units=units,
            caps=caps,
            adaptive=prepared.is_adaptive(),
        )

    refusal = None
    for size in _SIZES if users is None else (users,):
        everyone = np.tile(center, (size, 1))
        table = UserTable.from_means(everyone, np.full(size, cap))
        try:
            prepared = mechanism.prepare(request, PublicFacts.of(table, request.neighbors))
        except InputError as refused:
            refusal = refused
            continue
        if not isinstance(prepared, Prepared):
            raise InputError(
                "an audit compares output distributions: make the prepared mechanism a hubermean.mechanisms.Prepared"
            )
        return of(size if users is not None else max(size, prepared.users_to_audit()), prepared)
    # If every pair is refused from public numbers, there is no evidence and hence no verdict.
    assert refusal is not None
    raise refusal


def _lengths(
    mechanism: Mechanism, known: PublicParameters, columns: int
) -> tuple[tuple[float, ...], FloatArray, FloatArray]:
    """Return the public lengths that matter to a mechanism, and the center and unit of each column."""
    bounds: Any = known.bounds if known.bounds is not None else getattr(mechanism, "bounds", None)
    if bounds is not None:
        ends = np.broadcast_to(np.asarray(bounds, dtype=np.float64).reshape(-1, 2), (columns, 2))
        # Halves first: the difference of the largest floats overflows.
        half = 0.5 * ends[:, 1] - 0.5 * ends[:, 0]
        return (float(half[0]),), 0.5 * ends[:, 0] + 0.5 * ends[:, 1], half / half[0]
    sources: list[tuple[Any, str]] = [(known, "threshold"), (known, "radius")]
    sources += [(mechanism, name) for name in ("threshold", "radius", "scale")]
    given = (getattr(source, name, None) for source, name in sources)
    lengths = {float(length) for length in given if isinstance(length, int | float)} or {1.0}
    if known.threshold is not None and known.threshold_power is not None:
        lengths.add(known.threshold * _MANY_RECORDS**-known.threshold_power)
    if len(lengths) == 1:
        lengths.add(_FAR * max(lengths))
    return tuple(sorted(lengths)), np.zeros(columns), np.ones(columns)


def _verdict(
    name: str, request: Request, n_users: int, found: Finding[Any], evaluated: int, seed: int
) -> Audit:
    return Audit(
        kept=not found.broken,
        mechanism=name,
        neighbors=request.neighbors,
        per=request.per,
        n_users=n_users,
        epsilon=request.epsilon,
        delta=request.delta,
        loss=found.epsilon,
        delta_found=found.delta,
        claims=found.claims,
        pairs=evaluated,
        seed=seed,
        worst=found.pair,
    )
