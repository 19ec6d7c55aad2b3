"""The search for the pair of neighbors with the largest privacy loss: named shapes first, then variations of the worst.

The search is independent of the mechanism. A pair is evaluated by the exact loss between the two output
distributions from which the mechanism samples, and by the claims of its proof, if it states any.

Chains connect two very different data sets by neighbors. What distinguishes the ends must show at one of the links. A
mechanism that depends on a limit (a number of usable users, a scale, a total) jumps somewhere along the chain, and
bisection finds that link without knowing the limit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.random import Generator

from hubermean.accounting.budget import Claim
from hubermean.auditing.claims import measure_claims
from hubermean.auditing.compare import compare, make_repeatable
from hubermean.auditing.containers import ContainerRoundTrip
from hubermean.auditing.effort import Effort
from hubermean.auditing.loss import Loss
from hubermean.auditing.neighbors import (
    SHAPES,
    USER,
    Pair,
    SearchSpace,
    User,
    make_directed_pair,
    make_pair,
    vary_pair,
)
from hubermean.data.arrays import FloatArray, IntArray
from hubermean.data.user_table import PrivateTable, UserTable
from hubermean.distributions.output import OutputDistribution
from hubermean.errors import InputError
from hubermean.ingest.reading import user_table
from hubermean.mechanisms.base import Mechanism, Prepared
from hubermean.types.request import Neighbors, PublicFacts, Request

# Ends that differ in what a limit may concern: usable users, scale, location; then random ends.
_ENDS = (("cluster", "alone"), ("cluster", "opposites"), ("tails", "alone"), ("cluster", "majority"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """A chain of neighbors: data set k has the first k users of `there` and the remaining users of `here`.

    Under `add-remove`, it has only the first k users of `there`.
    """

    shape: str
    here: tuple[FloatArray, IntArray] | None
    there: tuple[FloatArray, IntArray]

    def __len__(self) -> int:
        return len(self.there[1])

    def table(self, k: int) -> UserTable:
        return UserTable.from_means(*self._users(k, k))

    def link(self, k: int) -> Pair:
        """Return the pair of data set k and data set k + 1."""
        means, records = self._users(k, k + 1)
        before = None if self.here is None else _user(self.here, k)
        return Pair(shape=self.shape, means=means, records=records, before=before, after=_user(self.there, k))

    def _users(self, upto: int, since: int) -> tuple[FloatArray, IntArray]:
        means, records = self.there[0][:upto], self.there[1][:upto]
        if self.here is None:
            return means, records
        return np.vstack([means, self.here[0][since:]]), np.append(records, self.here[1][since:])


def make_chain(number: int, space: SearchSpace, rng: Generator) -> Chain:
    """Make a chain between two shapes, those of `_ENDS` first."""
    shapes = _ENDS[number] if number < len(_ENDS) else rng.choice(SHAPES, 2)
    here, there = (make_pair(str(shape), space, rng) for shape in shapes)
    shape = f"{there.shape} after {here.shape}"
    if space.neighbors is Neighbors.ADD_REMOVE:
        # Half of the users of each: first those of one end, then those of the other.
        means = np.vstack([here.means[::2], there.means[::2]])
        return Chain(shape=shape, here=None, there=(means, np.append(here.records[::2], there.records[::2])))
    records = here.records if space.neighbors is Neighbors.REPLACE_VALUES else there.records
    return Chain(shape=shape, here=(here.means, here.records), there=(there.means, records))


class Scale(Protocol):
    """Makes the output distribution of a data set, and measures the loss between those of two neighbors."""

    def distribution(self, table: UserTable) -> OutputDistribution | None: ...

    def apart(
        self, first: OutputDistribution | None, second: OutputDistribution | None, users: int
    ) -> float: ...


def find_worst_link(
    chain: Chain, scale: Scale, rng: Generator, *, is_late: Callable[[], bool] = lambda: False
) -> Pair | None:
    """Find a link with a large loss, by bisection; any link of what is left where it is too late to go on."""
    low, high = 0, len(chain)
    if high == 0:
        return None
    first, last = scale.distribution(chain.table(low)), scale.distribution(chain.table(high))
    while high - low > 1 and not is_late():
        middle = (low + high) // 2
        between = scale.distribution(chain.table(middle))
        left, right = scale.apart(first, between, middle - low), scale.apart(between, last, high - middle)
        if left > right or (left == right and rng.random() < 0.5):
            high, last = middle, between
        else:
            low, first = middle, between
    return chain.link(low)


def _user(users: tuple[FloatArray, IntArray], number: int) -> User:
    means, records = users
    return User(mean=tuple(means[number].tolist()), records=int(records[number]))


TOLERANCE = 1e-6
"""Relative error of the audit's arithmetic."""

_KEPT = 8
_GENERAL = ("score", "slope")
_NEAR_ENOUGH = 0.98  # of a claim: searching for more would gain little
_SCANNED = ("springs", "brink", "majority", "missing")
_PAIRS_PER_CHAIN = 60  # a chain costs about twice the binary logarithm of the number of users
_SHAPES_PART, _CHAINS_PART = 0.5, 0.7  # of the time limit, by which they end
_MOST_CHAINED = 50.0  # a larger epsilon is not informative, and its exponential could overflow


class DescribedPair(Protocol):
    """Two neighboring data sets that can be described."""

    @property
    def shape(self) -> str: ...

    @property
    def before(self) -> object: ...

    @property
    def after(self) -> object: ...

    def summary(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...


P = TypeVar("P", bound=DescribedPair)


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding(Generic[P]):
    """A pair and its privacy loss.

    Attributes:
        epsilon: the smallest epsilon for which the pair has at most the claimed delta.
        delta: the delta of the pair at the claimed epsilon.
        claims: for each claim of the proof, the share of what it allows that the pair uses; above 1 it is false.
        broken: whether the guarantee or a claim is violated.
        score: the search's objective; above 1 if the guarantee is violated.
        slope: the score at half the claimed epsilon. It separates pairs with a spread-out loss from pairs, found
            easily, that use up delta by a rare event.
    """

    pair: P
    epsilon: float
    delta: float
    claims: Mapping[str, float]
    broken: bool
    score: float
    slope: float = 0.0

    def by(self, key: str) -> float:
        """Return the rank by score, by slope, or by the share of a claim, with the score as tie-breaker."""
        if key in _GENERAL:
            return float(getattr(self, key))
        return self.claims.get(key, 0.0) + 1e-3 * min(self.score, 1.0)


class PairEvaluator(ABC, Generic[P]):
    """Evaluates the privacy loss of pairs against a guarantee."""

    def __init__(self, request: Request) -> None:
        self._request = request

    @abstractmethod
    def distributions(
        self, pair: P
    ) -> tuple[OutputDistribution, OutputDistribution, Mapping[str, float]] | bool:
        """Return both output distributions and claims about them; if refused from public facts, whether both were."""

    def __call__(self, pair: P, *, loss: bool = False) -> Finding[P]:
        """Evaluate a pair; `loss` requests its epsilon as well, which takes a root search."""
        guaranteed, target = self._request.epsilon, self._request.delta
        found = self.distributions(pair)
        if isinstance(found, bool):
            # Refused from public facts: both alike, or the refusal itself distinguishes them.
            apart = not found
            return Finding(
                pair=pair,
                epsilon=math.inf if apart else 0.0,
                delta=float(apart),
                claims={},
                broken=apart,
                score=math.inf if apart else 0.0,
            )
        first, second, claims = found
        distributions = first, second
        guarantee = Claim(what="guarantee", epsilon=guaranteed, delta=target)
        claims = {**claims, **measure_claims(first, second, guarantee)}
        worst = max(
            (compare(*distributions), compare(*distributions[::-1])),
            key=lambda one: _excess(one, guaranteed, target),
        )
        score = _score(worst, guaranteed, target)
        return Finding(
            pair=pair,
            epsilon=_epsilon_at(worst, target, guaranteed) if loss else math.nan,
            delta=worst.delta(guaranteed),
            claims=claims,
            broken=max(score, *claims.values(), 0.0) > 1.0 + TOLERANCE,
            score=score,
            slope=_score(worst, 0.5 * guaranteed, target),
        )


class MechanismEvaluator(PairEvaluator[Pair]):
    """Evaluates the privacy loss of pairs under a mechanism."""

    def __init__(
        self, mechanism: Mechanism, request: Request, round_trip: ContainerRoundTrip | None = None
    ) -> None:
        super().__init__(request)
        self._mechanism = mechanism
        self._round_trip = round_trip

    def distributions(
        self, pair: Pair
    ) -> tuple[OutputDistribution, OutputDistribution, Mapping[str, float]] | bool:
        if self._round_trip is None:
            return self._distributions(*pair.tables())
        first, second = pair.columns(self._round_trip)
        with self._round_trip.of(first, second) as data:
            reader = partial(user_table, user=USER, value=[*first][1:])
            one, two = (self._round_trip.read(reader, each) for each in data)
            if one is None or two is None:
                return one is two
            return self._distributions(one, two)

    def _distributions(
        self, *tables: PrivateTable
    ) -> tuple[OutputDistribution, OutputDistribution, Mapping[str, float]] | bool:
        first, second = (self._prepared(table) for table in tables)
        if first is None or second is None:
            return first is second
        distributions = (
            make_repeatable(first.distribution(tables[0])),
            make_repeatable(second.distribution(tables[1])),
        )
        return *distributions, first.claims(*distributions)

    def distribution(self, table: UserTable) -> OutputDistribution | None:
        """Return the output distribution of a data set; None if it is refused from public facts."""
        prepared = self._prepared(table)
        return None if prepared is None else make_repeatable(prepared.distribution(table))

    def apart(self, first: OutputDistribution | None, second: OutputDistribution | None, users: int) -> float:
        """The score of two data sets that so many users tell apart, for as many times epsilon: to guide a search."""
        if first is None or second is None:
            return 0.0 if first is second else math.inf
        distributions = first, second
        epsilon = max(min(users * self._request.epsilon, _MOST_CHAINED), self._request.epsilon)
        return max(
            _score(compare(*pair), epsilon, self._request.delta)
            for pair in (distributions, distributions[::-1])
        )

    def _prepared(self, table: PrivateTable) -> Prepared | None:
        try:
            return self._mechanism.prepare(self._request, PublicFacts.of(table, self._request.neighbors))
        except InputError:
            return None


def _excess(loss: Loss, epsilon: float, delta: float) -> float:
    return loss.delta(epsilon) if delta > 0.0 else loss.largest


def _score(loss: Loss, epsilon: float, delta: float) -> float:
    """Return the objective: 1 at the guarantee, above 1 if violated, and increasing towards it to guide the search."""
    if delta == 0.0:
        return loss.largest / epsilon
    found = loss.delta(epsilon)
    if found > delta:
        return found / delta
    if found > 0.0:
        return 1.0 / (1.0 + math.log(delta / found) / 20.0)
    return 0.02 * min(loss.largest / epsilon, 1.0)


def _epsilon_at(loss: Loss, delta: float, guaranteed: float) -> float:
    """Return the smallest epsilon at which the loss has at most this delta, to six digits."""
    if delta == 0.0:
        return loss.largest
    low, high = 0.0, max(guaranteed, 1e-9)
    while loss.delta(high) > delta:
        low, high = high, 2.0 * high
        if high > 1e6:
            return math.inf
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if loss.delta(middle) <= delta else (middle, high)
    return high


def find_worst_pair(
    evaluate: MechanismEvaluator, space: SearchSpace, *, effort: Effort, seed: int
) -> tuple[Finding[Pair], int]:
    """Return the worst pair found, and how many were evaluated.

    The first half of the effort goes to named shapes, scanning the number of users in their inner group, and to the
    links of chains; the rest varies the worst pairs so far.
    """

    pairs, rng = effort.pairs, np.random.default_rng(seed)

    def shapes() -> Iterator[Pair]:
        for number in range(max(pairs // 2, 1)):
            if effort.is_late(_SHAPES_PART):
                break
            if space.adaptive and number % 3:
                yield make_directed_pair(number, space, rng)
            # Every second pair has a shape whose inner group is scanned from no user to all users.
            elif number % 2:
                shape = _SCANNED[(number // 2) % len(_SCANNED)]
                inner = round(2.0 * min(effort.used(number), 0.5) * (space.n_users - 1))
                yield make_pair(shape, space, rng, inner=inner)
            else:
                yield make_pair(SHAPES[(number // 2) % len(SHAPES)], space, rng)
        for number in range(min(max(pairs // _PAIRS_PER_CHAIN, 1), pairs - pairs // 2)):
            if number > 0 and effort.is_late(_CHAINS_PART):
                break
            link = find_worst_link(
                make_chain(number, space, rng), evaluate, rng, is_late=lambda: effort.is_late(_CHAINS_PART)
            )
            if link is not None:
                yield link

    return search_worst(evaluate, shapes(), lambda pair: vary_pair(pair, space, rng), effort, rng)


def search_worst(
    evaluate: PairEvaluator[P], first: Iterable[P], vary: Callable[[P], P], effort: Effort, rng: Generator
) -> tuple[Finding[P], int]:
    """Return the worst of some pairs and of variations of the worst so far, and how many were evaluated.

    There is one ranking by the guarantee and one by each claim. `claims` of the result are the largest shares of all
    pairs.
    """
    evaluated = 0
    boards: dict[str, list[Finding[P]]] = {key: [] for key in _GENERAL}

    def consider(pair: P) -> None:
        nonlocal evaluated
        finding = evaluate(pair)
        evaluated += 1
        effort.report(evaluated)
        for key in (*_GENERAL, *finding.claims):
            board = boards.setdefault(key, [])
            board.append(finding)
            board.sort(key=lambda one: (not one.broken, -one.by(key)))
            del board[_KEPT:]

    for pair in first:
        consider(pair)
    while evaluated < effort.pairs and not effort.is_late(1.0):
        open_ = [key for key, board in boards.items() if key in _GENERAL or board[0].by(key) < _NEAR_ENOUGH]
        board = boards[open_[int(rng.integers(len(open_)))]]
        # The worst is varied most often, the others so that no single local maximum decides.
        position = min(int(rng.exponential(2.0)), len(board) - 1)
        consider(vary(board[position].pair))
    # A violated guarantee comes first, then a false claim; among equals, a spread-out loss is more informative.
    everyone = [finding for board in boards.values() for finding in board]
    found = max(everyone, key=lambda one: (max(one.score, 1.0), one.broken, round(one.score, 5), one.slope))
    most = {
        key: max(one.claims[key] for one in board) for key, board in boards.items() if key not in _GENERAL
    }
    return replace(evaluate(found.pair, loss=True), claims=most), evaluated
