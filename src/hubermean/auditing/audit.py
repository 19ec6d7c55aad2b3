"""`hm.audit`: does a mechanism keep its promise on the worst pair of neighbours that a search can find?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hubermean.auditing.group_audit import worst_group_pair
from hubermean.auditing.handover import MOST_RECORDS, Handover
from hubermean.auditing.search import AnyPair, Finding, Judge, worst_pair
from hubermean.auditing.worlds import Floats, Scene, finite
from hubermean.errors import InputError
from hubermean.groups import check_max_groups, needs_pool
from hubermean.mechanisms import (
    Auto,
    Known,
    Mechanism,
    OneOrTwoBounds,
    Per,
    Prepared,
    PublicFacts,
    Request,
    choose,
)
from hubermean.mechanisms.counted import AdaptiveCount, Count
from hubermean.privacy.arguments import whole, whole_positive
from hubermean.relations import DEFAULT_NEIGHBORS, Neighbors
from hubermean.reproduce import PaperMechanism
from hubermean.user_table import UserTable

PAPER = "paper-literal"
COUNT = "count"
PAIRS, ADAPTIVE_PAIRS = 2_000, 250
"""How many pairs are judged by default: of a mechanism, and of an adaptive one."""
GROUP_PAIRS, ADAPTIVE_GROUP_PAIRS, CONTAINER_PAIRS = 400, 150, 100
"""The same with groups, and at most through a container."""
_LEAST_PAIRS, _LEAST_ADAPTIVE_PAIRS = 400, 100
_SIZES = (12, 40, 150, 400, 1000, 3000)  # tried in turn until the mechanism works with so few users
MOST_COLUMNS, MOST_USERS = 1_000, 1_000_000
_MANY_RECORDS = 10_000
_FAR = 1e3  # where a mechanism states no length but one: how far "far" is


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The verdict of a search over neighbours.

    Attributes:
        kept: whether no pair broke the promise or a claim of the proof.
        epsilon, delta: what was promised.
        loss: the least epsilon for which the worst pair keeps the promised delta.
        delta_found: the delta of the worst pair at the promised epsilon.
        claims: for each claim of the proof, the share that the worst pair uses of what it allows.
        pairs: how many pairs of neighbours were judged.
        worst: the pair itself; synthetic.
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
    worst: AnyPair = field(repr=False, compare=False)

    def rows(self) -> list[tuple[str, str]]:
        """The audit as labelled lines, for people."""
        promise = f"epsilon = {self.epsilon:g}" + (f", delta = {self.delta:g}" if self.delta > 0 else "")
        lines = [
            (
                "mechanism",
                f"{self.mechanism}, per {self.per}, {self.neighbors.value}, about {self.n_users:,} users",
            ),
            ("promised", promise),
        ]
        if self.delta > 0:
            lines.append(("found", f"delta = {self.delta_found:.4g} at epsilon = {self.epsilon:g}"))
            lines.append(("", f"epsilon = {self.loss:.6g} at delta = {self.delta:g}"))
        else:
            lines.append(("found", f"epsilon = {self.loss:.6g}"))
        lines += [(f"claim: {claim}", f"{used:.4g} of 1") for claim, used in self.claims.items()]
        lines += [
            ("worst pair", f"{self.worst.shape}: {self.worst.summary()}"),
            ("one user before", str(self.worst.before or "absent")),
            ("the same after", str(self.worst.after or "absent")),
            ("pairs judged", f"{self.pairs:,} (seed {self.seed})"),
            ("verdict", self.verdict),
        ]
        return lines

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        if self.kept:
            return "the promise holds on every pair"
        over = self.loss > self.epsilon or self.delta_found > self.delta
        return "THE PROMISE IS BROKEN" if over else "A CLAIM OF THE PROOF IS FALSE"

    def __repr__(self) -> str:
        lines = self.rows()
        width = max(len(label) for label, _ in lines)
        return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kept": self.kept,
            "mechanism": self.mechanism,
            "neighbors": self.neighbors.value,
            "per": self.per,
            "n_users": self.n_users,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "loss": finite(self.loss),
            "delta_found": self.delta_found,
            "claims": {claim: finite(used) for claim, used in self.claims.items()},
            "pairs": self.pairs,
            "seed": self.seed,
            "worst": self.worst.to_dict(),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


def audit(
    mechanism: str | Mechanism = "auto",
    *,
    epsilon: float,
    delta: float = 0.0,
    per: Per = "user",
    neighbors: str | Neighbors = DEFAULT_NEIGHBORS,
    columns: int = 1,
    users: int | None = None,
    bounds: OneOrTwoBounds | Sequence[OneOrTwoBounds] | None = None,
    record_cap: int | None = None,
    threshold: float | None = None,
    threshold_power: float | None = None,
    radius: float | None = None,
    groups: int | None = None,
    max_groups: int = 1,
    private_keys: bool = False,
    container: str | None = None,
    pairs: int | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Search for neighbours on which a mechanism gives away more than it promises.

    No data is read: worlds of synthetic users are built to hurt, and for each pair of neighbours the exact privacy loss
    between the two laws that a release would be drawn from is computed: the full law of a discrete choice, the
    closed form for Gaussian noise, a private test's chance to pass included. A search can refute a promise; that it
    holds is what the proofs are for.

    Args:
        mechanism: a name as for `mean`; "count", of users or records as `per` says; "paper-literal"; or an object of
            your own whose prepared form has `law`.
        epsilon, delta, per, neighbors: the promise.
        columns: how many value columns.
        users: how many users the worlds have; by default as few as the mechanism works with.
        bounds, record_cap, threshold, threshold_power, radius: public parameters of the mechanism, as for `mean`.
        groups: audit a release by group with so many groups, of one column: users are moved between groups, split
            over several, and change what they hold; the records go all the way through reading and grouping.
        max_groups: how many groups a user counts in; with `groups`.
        private_keys: whether groups are chosen privately, in place of being public; with `groups`.
        container: hand both data sets of every pair over as records in this container, such as "csv", "pandas" or
            "spark" (`hubermean.auditing.CONTAINERS`), and read them as a release would.
        pairs: how many pairs of neighbours to judge; if left out 2,000 over the number of columns, 400 with `groups`;
            for an adaptive mechanism 250 over the number of columns, 150 with `groups`; at most 100 through a
            container.
        seed: of the worlds; noise is never drawn.
        progress: called with the number of pairs judged so far.

    >>> audit("clipped", epsilon=1, bounds=(0, 10), pairs=50).kept
    True
    """
    known = Known.given(
        bounds=bounds,
        record_cap=record_cap,
        threshold=threshold,
        threshold_power=threshold_power,
        radius=radius,
    )
    pairs = None if pairs is None else whole_positive("pairs", pairs)
    columns = whole_positive("columns", columns)
    users = None if users is None else whole_positive("users", users)
    seed = whole("seed", seed)
    if columns > MOST_COLUMNS or (users or 1) > MOST_USERS:
        raise InputError(
            f"columns may be at most {MOST_COLUMNS:,} and users at most {MOST_USERS:,} in an audit"
        )
    handover = None if container is None else Handover.named(container)
    names = UserTable.from_means(np.zeros((1, columns))).columns
    request = Request.checked(names, epsilon=epsilon, delta=delta, per=per, neighbors=neighbors)
    chosen = _chosen(mechanism, known, request, grouped=groups is not None)
    if groups is not None:
        if columns != 1:
            raise InputError("an audit by group is of one column; leave columns out")
        lengths, centre, _ = _lengths(chosen, known, columns)
        adaptive = needs_pool(chosen) or (isinstance(chosen, Auto) and known.bounds is None)
        found_in_groups, judged = worst_group_pair(
            chosen,
            request,
            groups=whole_positive("groups", groups),
            max_groups=check_max_groups(max_groups),
            public_keys=not private_keys,
            centre=float(centre[0]),
            reach=lengths[0],
            record_cap=known.record_cap or 1,
            counting=mechanism == COUNT,
            per_group=None if users is None else -(-users // groups),
            handover=handover,
            pairs=pairs or default_pairs(adaptive=adaptive, grouped=True, container=container),
            seed=seed,
            progress=progress,
        )
        if handover is not None:
            handover.check()
        size = len(found_in_groups.pair.members) + 1
        return _verdict(f"{chosen.name}, {groups} groups", request, size, found_in_groups, judged, seed)
    if max_groups != 1 or private_keys:
        raise InputError("max_groups and private_keys are for an audit by group; give groups= as well")
    chosen.check(request)
    scene = _scene(chosen, request, known, users, most_records=None if handover is None else MOST_RECORDS)
    pairs = pairs or default_pairs(adaptive=scene.adaptive, columns=columns, container=container)
    judge = Judge(chosen, request, handover)
    found, judged = worst_pair(judge, scene, pairs=pairs, seed=seed, progress=progress)
    if handover is not None:
        handover.check()
    return _verdict(chosen.name, request, scene.n_users, found, judged, seed)


def default_pairs(
    *, adaptive: bool, columns: int = 1, grouped: bool = False, container: str | None = None
) -> int:
    """How many pairs are judged; those of adaptive mechanisms take longer, and are made for each step."""
    pairs = GROUP_PAIRS if grouped else max(PAIRS // columns, _LEAST_PAIRS)
    if adaptive:
        pairs = ADAPTIVE_GROUP_PAIRS if grouped else max(ADAPTIVE_PAIRS // columns, _LEAST_ADAPTIVE_PAIRS)
    return pairs if container is None else min(pairs, CONTAINER_PAIRS)


def _chosen(mechanism: str | Mechanism, known: Known, request: Request, *, grouped: bool) -> Mechanism:
    """The mechanism of a name, as a release would choose it."""
    if mechanism == PAPER:
        return PaperMechanism.from_known(known)
    if mechanism != COUNT:
        return choose(mechanism, known)
    known.only("record_cap", of=COUNT)
    public = request.neighbors.counts_are_public and not grouped
    if request.per == "record" and known.record_cap is None and not public:
        return AdaptiveCount()
    return Count(record_cap=known.record_cap)


def _scene(
    mechanism: Mechanism, request: Request, known: Known, users: int | None, *, most_records: int | None
) -> Scene:
    lengths, centre, units = _lengths(mechanism, known, len(request.columns))
    own_cap: Any = getattr(mechanism, "record_cap", None)
    cap = known.record_cap or (own_cap if isinstance(own_cap, int) and own_cap > 0 else 1)
    # Numbers of records that should not matter (`per="user"`) are varied as well: they might.
    near = {cap - 1, cap, cap + 1, 2 * cap} - {0} if request.per == "record" else set()
    caps = tuple(sorted({min(count, most_records or count) for count in {1, 2, _MANY_RECORDS} | near}))

    def of(size: int, prepared: Prepared) -> Scene:
        return Scene(
            neighbors=request.neighbors,
            n_users=size,
            dimension=len(request.columns),
            lengths=lengths,
            centre=centre,
            units=units,
            caps=caps,
            adaptive=prepared.is_adaptive(),
        )

    refusal = None
    for size in _SIZES if users is None else (users,):
        everyone = np.tile(centre, (size, 1))
        table = UserTable.from_means(everyone, np.full(size, cap))
        try:
            prepared = mechanism.prepare(request, PublicFacts.of(table, request.neighbors))
        except InputError as refused:
            refusal = refused
            continue
        if not isinstance(prepared, Prepared):
            raise InputError(
                "an audit compares laws: make the prepared mechanism a hubermean.mechanisms.Prepared"
            )
        return of(size if users is not None else max(size, prepared.users_to_audit()), prepared)
    # Pairs that are all refused from public numbers would tell nothing, and a verdict on them would sound like one.
    assert refusal is not None
    raise refusal


def _lengths(mechanism: Mechanism, known: Known, columns: int) -> tuple[tuple[float, ...], Floats, Floats]:
    """The lengths that matter to a mechanism, by the names under which they are public, in units of each column.

    Also the middle of each column's range, and the units.
    """
    bounds: Any = known.bounds if known.bounds is not None else getattr(mechanism, "bounds", None)
    if bounds is not None:
        ends = np.broadcast_to(np.asarray(bounds, dtype=np.float64).reshape(-1, 2), (columns, 2))
        # Halves first: a difference of the largest numbers is no number.
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


def _verdict(name: str, request: Request, n_users: int, found: Finding[Any], judged: int, seed: int) -> Audit:
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
        pairs=judged,
        seed=seed,
        worst=found.pair,
    )
