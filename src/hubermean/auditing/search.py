"""The search for the pair that gives away most: shapes first, then the worst of them varied.

Nothing here knows a mechanism. A pair is judged by the exact loss between the two laws that the mechanism itself draws
from, and by the claims that its proof rests on, where it states them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from hubermean.auditing.chains import chain_of, weakest_link
from hubermean.auditing.compare import compare, readable
from hubermean.auditing.directed import directed_pair
from hubermean.auditing.handover import Handover
from hubermean.auditing.loss import Loss
from hubermean.auditing.steps import shares_of_claims
from hubermean.auditing.worlds import SHAPES, USER, Pair, Scene, pair_of, varied
from hubermean.errors import InputError
from hubermean.ingest import user_table
from hubermean.laws import Claim, Law
from hubermean.mechanisms import Mechanism, Prepared, PublicFacts, Request
from hubermean.user_table import PrivateTable, UserTable

TOLERANCE = 1e-6
"""What the arithmetic of an audit may be off by, relative to the promise."""

_KEPT = 8
_GENERAL = ("score", "slope")
_NEAR_ENOUGH = 0.98  # of a claim: what a search for more would gain is little
_SCANNED = ("springs", "brink", "majority", "missing")
_PAIRS_PER_CHAIN = 60  # a chain costs about twice the binary digits of the number of users
_MOST_CHAINED = 50.0  # more epsilon than this tells nothing, and its exponential must stay a number


class AnyPair(Protocol):
    """Two neighbouring data sets that can be told to people."""

    @property
    def shape(self) -> str: ...

    @property
    def before(self) -> object: ...

    @property
    def after(self) -> object: ...

    def summary(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...


P = TypeVar("P", bound=AnyPair)


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding(Generic[P]):
    """A pair and what it gives away.

    Attributes:
        epsilon: the loss: the least epsilon for which the pair keeps the promised delta.
        delta: the delta that the pair has at the promised epsilon.
        claims: for each claim of the proof, how much of what it allows the pair uses; above 1 it is false.
        broken: whether the promise or a claim is broken.
        score: by which pairs are compared in the search; above 1 where the promise is broken.
        slope: the score at half the promised epsilon; it tells pairs whose loss is spread out from those, found
            easily, that use up delta by a rare accident.
    """

    pair: P
    epsilon: float
    delta: float
    claims: Mapping[str, float]
    broken: bool
    score: float
    slope: float = 0.0

    def by(self, key: str) -> float:
        """How good a find it is by its score, its slope, or the share of a claim; the promise breaks ties."""
        if key in _GENERAL:
            return float(getattr(self, key))
        return self.claims.get(key, 0.0) + 1e-3 * min(self.score, 1.0)


class AnyJudge(ABC, Generic[P]):
    """Computes what a pair gives away under a promise."""

    def __init__(self, request: Request) -> None:
        self._request = request

    @abstractmethod
    def laws(self, pair: P) -> tuple[Law, Law, Mapping[str, float]] | bool:
        """The two laws, and claims of the proof about them; or, refused from public facts, whether both were."""

    def __call__(self, pair: P, *, loss: bool = False) -> Finding[P]:
        """Judge a pair; `loss` asks for its epsilon as well, which takes a root search."""
        promised, target = self._request.epsilon, self._request.delta
        found = self.laws(pair)
        if isinstance(found, bool):
            # Refused from public facts: alike for both, or the refusal itself tells them apart.
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
        laws = first, second
        promise = Claim(what="promise", epsilon=promised, delta=target)
        claims = {**claims, **shares_of_claims(first, second, promise)}
        worst = max((compare(*laws), compare(*laws[::-1])), key=lambda one: _excess(one, promised, target))
        score = _score(worst, promised, target)
        return Finding(
            pair=pair,
            epsilon=_epsilon_at(worst, target, promised) if loss else math.nan,
            delta=worst.delta(promised),
            claims=claims,
            broken=max(score, *claims.values(), 0.0) > 1.0 + TOLERANCE,
            score=score,
            slope=_score(worst, 0.5 * promised, target),
        )


class Judge(AnyJudge[Pair]):
    """Computes what a pair gives away under a mechanism and its promise."""

    def __init__(self, mechanism: Mechanism, request: Request, handover: Handover | None = None) -> None:
        super().__init__(request)
        self._mechanism = mechanism
        self._handover = handover

    def laws(self, pair: Pair) -> tuple[Law, Law, Mapping[str, float]] | bool:
        if self._handover is None:
            return self._laws(*pair.tables())
        first, second = pair.columns(self._handover)
        with self._handover.of(first, second) as data:
            reader = partial(user_table, user=USER, value=[*first][1:])
            one, two = (self._handover.read(reader, each) for each in data)
            if one is None or two is None:
                return one is two
            return self._laws(one, two)

    def _laws(self, *tables: PrivateTable) -> tuple[Law, Law, Mapping[str, float]] | bool:
        first, second = (self._prepared(table) for table in tables)
        if first is None or second is None:
            return first is second
        laws = readable(first.law(tables[0])), readable(second.law(tables[1]))
        return *laws, first.claims(*laws)

    def law(self, table: UserTable) -> Law | None:
        """The law of a data set; None where it is refused from public facts."""
        prepared = self._prepared(table)
        return None if prepared is None else readable(prepared.law(table))

    def apart(self, first: Law | None, second: Law | None, users: int) -> float:
        """The score of two data sets that so many users tell apart, for as many times epsilon: to guide a search."""
        if first is None or second is None:
            return 0.0 if first is second else math.inf
        laws = first, second
        epsilon = max(min(users * self._request.epsilon, _MOST_CHAINED), self._request.epsilon)
        return max(_score(compare(*pair), epsilon, self._request.delta) for pair in (laws, laws[::-1]))

    def _prepared(self, table: PrivateTable) -> Prepared | None:
        try:
            return self._mechanism.prepare(self._request, PublicFacts.of(table, self._request.neighbors))
        except InputError:
            return None


def _excess(loss: Loss, epsilon: float, delta: float) -> float:
    return loss.delta(epsilon) if delta > 0.0 else loss.largest


def _score(loss: Loss, epsilon: float, delta: float) -> float:
    """1 at the promise, above where it is broken, and rising towards it, so that a search knows where to go."""
    if delta == 0.0:
        return loss.largest / epsilon
    found = loss.delta(epsilon)
    if found > delta:
        return found / delta
    if found > 0.0:
        return 1.0 / (1.0 + math.log(delta / found) / 20.0)
    return 0.02 * min(loss.largest / epsilon, 1.0)


def _epsilon_at(loss: Loss, delta: float, promised: float) -> float:
    """The least epsilon at which the loss has the delta, to six digits."""
    if delta == 0.0:
        return loss.largest
    low, high = 0.0, max(promised, 1e-9)
    while loss.delta(high) > delta:
        low, high = high, 2.0 * high
        if high > 1e6:
            return math.inf
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if loss.delta(middle) <= delta else (middle, high)
    return high


def worst_pair(
    judge: Judge, scene: Scene, *, pairs: int, seed: int, progress: Callable[[int], None] | None = None
) -> tuple[Finding[Pair], int]:
    """The worst pair found, and how many were judged.

    The first part of the effort goes to shapes, scanning how many users are in their inner group, and to the links of
    chains; the rest varies the worst so far.
    """
    rng = np.random.default_rng(seed)

    def shapes() -> Iterator[Pair]:
        for number in range(max(pairs // 2, 1)):
            if scene.adaptive and number % 3:
                yield directed_pair(number, scene, rng)
            # Every second pair is of a shape whose inner group is scanned from nobody to everybody.
            elif number % 2:
                shape = _SCANNED[(number // 2) % len(_SCANNED)]
                inner = round(2.0 * number / pairs * (scene.n_users - 1))
                yield pair_of(shape, scene, rng, inner=inner)
            else:
                yield pair_of(SHAPES[(number // 2) % len(SHAPES)], scene, rng)
        for number in range(min(max(pairs // _PAIRS_PER_CHAIN, 1), pairs - pairs // 2)):
            link = weakest_link(chain_of(number, scene, rng), judge, rng)
            if link is not None:
                yield link

    return worst_of(judge, shapes(), lambda pair: varied(pair, scene, rng), pairs, rng, progress)


def worst_of(
    judge: AnyJudge[P],
    first: Iterable[P],
    vary: Callable[[P], P],
    pairs: int,
    rng: np.random.Generator,
    progress: Callable[[int], None] | None,
) -> tuple[Finding[P], int]:
    """The worst of some pairs and of variations of the worst so far, and how many were judged.

    There is a list of the worst by the promise and one by each claim. Its `claims` are the largest shares of all pairs.
    """
    judged = 0
    boards: dict[str, list[Finding[P]]] = {key: [] for key in _GENERAL}

    def consider(pair: P) -> None:
        nonlocal judged
        finding = judge(pair)
        judged += 1
        if progress is not None:
            progress(judged)
        for key in (*_GENERAL, *finding.claims):
            board = boards.setdefault(key, [])
            board.append(finding)
            board.sort(key=lambda one: (not one.broken, -one.by(key)))
            del board[_KEPT:]

    for pair in first:
        consider(pair)
    while judged < pairs:
        open_ = [key for key, board in boards.items() if key in _GENERAL or board[0].by(key) < _NEAR_ENOUGH]
        board = boards[open_[int(rng.integers(len(open_)))]]
        # The worst is varied most often, the others so that no single hill decides.
        position = min(int(rng.exponential(2.0)), len(board) - 1)
        consider(vary(board[position].pair))
    # A broken promise comes first, then a false claim; of equals, the pair whose loss is spread out tells more.
    everyone = [finding for board in boards.values() for finding in board]
    found = max(everyone, key=lambda one: (max(one.score, 1.0), one.broken, round(one.score, 5), one.slope))
    most = {
        key: max(one.claims[key] for one in board) for key, board in boards.items() if key not in _GENERAL
    }
    return replace(judge(found.pair, loss=True), claims=most), judged
