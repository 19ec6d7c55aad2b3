"""Who is compared with whom, under which neighbor relation, and what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accuracy.draws import Case
from peers.excess import Comparison, Estimate

TARGETS = {(1_000, 10): 3.0, (1_000, 100): 100.0}
"""(users, how many times too wide): how much lower our excess should be, given no bounds."""

MOST_REFUSED = 0.01
FAR = 1.0
"""An answer so many deviations of a user mean off is the work of a rare event, which a few thousand releases show at
times and at times not: those that were seen are counted, too."""

SURELY = 3.0  # standard errors: with so many comparisons two would often be luck


@dataclass(frozen=True, kw_only=True, order=True)
class Ours:
    """A call of hubermean: under a relation, and given the bounds of the peers or none."""

    neighbors: str
    same_bounds: bool

    def __str__(self) -> str:
        return f"hubermean, {self.neighbors}, {'same bounds' if self.same_bounds else 'no bounds'}"


REPLACED = Ours(neighbors="replace-user", same_bounds=True)
"""With bounds, under a relation that hides more than peers do that replace one user's mean."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another library.

    Attributes:
        key: names its runner, its requirements and its environment.
        relation: which change of the data its guarantee hides, in words.
        how: what it does to the user means.
        same_bounds, no_bounds: hubermean under the same relation, or one that hides more.
    """

    key: str
    title: str
    relation: str
    how: str
    same_bounds: Ours
    no_bounds: Ours


_REPLACE_ONE = {
    "relation": "one user's mean is replaced by any other; the number of users is public",
    "same_bounds": Ours(neighbors="replace-values", same_bounds=True),
    "no_bounds": Ours(neighbors="replace-user", same_bounds=False),
}

PEERS = (
    Peer(
        key="opendp",
        title="OpenDP",
        how="`then_clamp`, `then_mean` of a known size, `then_laplace`; replacing one user is its distance 2",
        **_REPLACE_ONE,  # type: ignore[arg-type]
    ),
    Peer(
        key="diffprivlib",
        title="diffprivlib",
        how="`tools.mean` with `bounds`: Laplace noise of scale width / (n epsilon), the answer kept within the bounds",
        **_REPLACE_ONE,  # type: ignore[arg-type]
    ),
    Peer(
        key="pipelinedp",
        title="PipelineDP",
        relation="one user is there or not; the number of users is private",
        how="`Metrics.MEAN`, one row per user, one public partition, Laplace noise: half of epsilon for the count, "
        "half for the sum of distances from the middle of the bounds",
        same_bounds=Ours(neighbors="add-remove", same_bounds=True),
        no_bounds=Ours(neighbors="add-remove", same_bounds=False),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A peer and hubermean on the data sets of one case, with bounds of one width; excess in plain mean's errors.

    Attributes:
        factor: how many times too wide the bounds are.
        theirs, same_bounds, no_bounds: the excess of the peer, and ours with the same bounds and with no bounds.
        replaced: ours under `REPLACED`, for right bounds alone; not a number for others.
        beside_same_bounds, beside_no_bounds: theirs over ours.
        refused: the share of our releases, given no bounds, that were refused; they have no excess.
        far: how many of the others were more than `FAR` deviations of a user mean off; the excess counts them.
    """

    peer: Peer
    case: Case
    factor: int
    theirs: Estimate
    same_bounds: Estimate
    beside_same_bounds: Comparison
    replaced: Estimate
    no_bounds: Estimate
    beside_no_bounds: Comparison
    refused: float
    far: int

    @property
    def target(self) -> float | None:
        return TARGETS.get((self.case.users, self.factor))

    @property
    def met(self) -> bool | None:
        """Whether our excess, given no bounds, is as much lower as it should be; to refuse is not to be better."""
        if self.target is None:
            return None
        return self.beside_no_bounds.ratio >= self.target and self.refused <= MOST_REFUSED

    @property
    def close(self) -> bool:
        return (
            self.target is not None and self.beside_no_bounds.low < self.target < self.beside_no_bounds.high
        )


def standing(beside: Comparison) -> str:
    """Where we stand, by the difference, which needs no excess above zero."""
    if math.isnan(beside.lead):
        return "-"
    if beside.lead > SURELY:
        return "ahead"
    return "behind" if beside.lead < -SURELY else "tie"


@dataclass(frozen=True, kw_only=True)
class Missing:
    peer: Peer
    why: str


@dataclass(frozen=True, kw_only=True)
class Comparisons:
    """Everything a report is made of."""

    rows: Sequence[Row]
    versions: Mapping[Peer, str]
    missing: Sequence[Missing]
    runs: int
    releases: int
