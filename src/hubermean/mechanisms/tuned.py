"""`tuned`: nothing about the values is known; a part of the budget finds how far users are spread, the rest releases.

Stage by stage: where the number of users is private, it is measured; the length of an interval that holds nearly all
users is chosen privately (`tuning`); threshold, radius and grid follow from it; then another mechanism releases the
mean with what is left of the budget. Columns are independent and share the budget equally. Proof: proofs/tuning.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from hubermean.errors import InputError, NotReleased
from hubermean.laws import Gate, Independent, Law, NoisySum, Staged
from hubermean.mechanisms.exact import Exact
from hubermean.mechanisms.margin import least_users
from hubermean.mechanisms.protocol import Known, Mechanism, Outcome, Prepared, PublicFacts, Request
from hubermean.mechanisms.weights import check_cap
from hubermean.mechanisms.winsorized import Winsorized
from hubermean.noise import NoiseLaw
from hubermean.privacy import float_down, laplace_scale
from hubermean.release import Interval, IntervalRule
from hubermean.tuning import LENGTHS, PER_OCTAVE, SHORTEST, ScaleSearch
from hubermean.user_table import UserTable

_COUNTING_SHARE = 0.04  # of epsilon: to measure the number of users where it is private
# A measured number of users is taken so many noise scales low: were it too high, the target would be near everybody,
# and lengths far beyond the data would hold it as well as the right one.
_COUNTED_BELOW = 6.0
_LARGEST_SCALE_SHARE = 0.25  # of epsilon: at most so much finds the spread
_NOTHING = Gate(passes=0, bits=1, inner=NoisySum(position=[], noise=[]))
# How much wider than the length that holds nearly all users the threshold is, for a thousand users; with more users
# noise allows more, and heavy tails need more. `exact` has twice the noise for one threshold.
_WIDTH = {"winsorized": 1.3, "exact": 0.65}
_CLIP = 8  # bins a quarter as wide as the threshold find the centre well enough
# The mean may lie so many thresholds from 0. `winsorized` has no more bins than a thousand million.
_FARTHEST = {"winsorized": 9e8 / _CLIP, "exact": 2.0**40}


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The mean of values about which nothing is known.

    Args:
        record_cap: the largest number of records a user counts for; for `per="record"` where counts are private.

    Formal guarantees:
    - epsilon-DP for delta = 0, (epsilon, delta)-DP otherwise, for the neighbour relation of the request
      (proofs/tuning.md, Theorem 1); what the stages spend adds up to no more.
    - Too few users are refused from public numbers before anything is spent; where their number is private, the
      measured number decides, and the refusal is `NotReleased`.
    - Data of which most users, about four of five, have the same value show no spread: that too is `NotReleased`.
      So are means too far from 0 to be found, about 10^8 spreads or more.
    """

    record_cap: int | None = None
    name = "tuned"

    @classmethod
    def from_known(cls, known: Known) -> Tuned:
        known.only("record_cap", of=cls.name)
        return cls(record_cap=known.record_cap)

    def check(self, request: Request) -> None:
        check_cap(self.record_cap, request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedTuned:
        self.check(request)
        counting, epsilon = None, Fraction(request.epsilon)
        if facts.n_users is None:
            part = _COUNTING_SHARE * request.epsilon
            counting = NoiseLaw(kind="laplace", scale=laplace_scale(part, sensitivity=1))
            epsilon -= Fraction(part)
        columns = len(request.columns)
        prepared = PreparedTuned(
            request=request,
            epsilon=float_down(epsilon / columns),
            delta=float_down(Fraction(request.delta) / columns),
            facts=facts,
            record_cap=self.record_cap,
            counting=counting,
        )
        if facts.n_users is not None and prepared.search(facts.n_users) is None:
            raise InputError(
                f"nothing is known about the values, and to find their spread takes about {prepared.users_needed():,} "
                f"users here, but there are {facts.n_users:,}; give threshold= and radius=, or bounds="
            )
        prepared.check_release()
        return prepared


@dataclass(frozen=True, kw_only=True)
class PreparedTuned(Prepared):
    """The budget divided; the spread and what follows from it are decided by the draw.

    `epsilon` and `delta` are those of one column; `counting` is the noise of the number of users where it is private.
    """

    request: Request
    epsilon: float
    delta: float
    facts: PublicFacts
    record_cap: int | None
    counting: NoiseLaw | None

    def search(self, n_users: float) -> ScaleSearch | None:
        return ScaleSearch.plan(n_users, self.epsilon, largest_part=_LARGEST_SCALE_SHARE)

    def check_release(self) -> None:
        """Refuse, before anything is spent, what no spread could be released with.

        Raises:
            InputError: why it could not, for the length in the middle of the grid.
        """
        n_users = self.facts.planned_users if self.facts.n_users is None else self.facts.n_users
        planned = n_users if self.search(n_users) is not None else self.users_needed()
        search = self.search(planned)
        if search is None:  # no number of users is large enough
            return
        numbers = range(SHORTEST, len(LENGTHS), PER_OCTAVE)
        refusals = []
        for number in sorted(numbers, key=lambda number: abs(2 * number - len(LENGTHS))):
            for column in range(len(self.request.columns)):
                try:
                    self.prepared_column(column, search, number, planned)
                except InputError as refusal:
                    refusals.append(refusal)
                    break
            else:
                return
        raise refusals[0]

    def users_needed(self) -> int:
        return least_users(lambda number: self.search(number) is not None)

    def users_to_audit(self) -> int:
        measured = 0.0 if self.counting is None else (_COUNTED_BELOW + 3.0) * self.counting.scale
        return math.ceil(1.1 * self.users_needed() + measured)

    def law(self, table: UserTable) -> Law:
        if self.counting is None:
            return self.columns_law(table, table.n_users)
        return Staged(
            first=NoisySum(position=[table.n_users], noise=self.counting),
            then=lambda counted: self.columns_law(table, self.surely(counted[0])),
        )

    def surely(self, counted: int) -> int:
        """A number of users that the measured one hardly ever stands for less than."""
        assert self.counting is not None
        return max(counted - math.ceil(_COUNTED_BELOW * self.counting.scale), 0)

    def columns_law(self, table: UserTable, n_users: int) -> Law:
        """All columns, for a number of users that is public or was measured."""
        search = self.search(n_users)
        if search is None:
            return _NOTHING
        return Independent(
            parts=[self._column_law(table, column, search, n_users) for column in range(len(table.columns))]
        )

    def _column_law(self, table: UserTable, column: int, search: ScaleSearch, n_users: int) -> Staged:
        own = replace(
            table, columns=table.columns[column : column + 1], sums=tuple(table.sums[column : column + 1])
        )
        usable = own.counts > 0

        def released(number: int) -> Law:
            made = self.released(column, search, number, n_users)
            return _NOTHING if made is None else made.law(own)

        spread = search.law(own.means[usable], int(len(usable) - usable.sum()))
        return Staged(first=spread, then=released)

    def released(self, column: int, search: ScaleSearch, number: int, n_users: float) -> Prepared | None:
        """What releases a column once its spread is known, from public and released numbers; None if there is none."""
        if number < SHORTEST:
            return None
        try:
            return self.prepared_column(column, search, number, n_users)
        except InputError:  # so short or so long that no grid holds it
            return None

    def prepared_column(self, column: int, search: ScaleSearch, number: int, n_users: float) -> Prepared:
        """The same; InputError if there is none."""
        rest = float_down(Fraction(self.epsilon) - search.epsilon)
        name = self.request.columns[column : column + 1]
        request = replace(self.request, columns=name, epsilon=rest, delta=self.delta)
        facts = replace(self.facts, columns=self.facts.columns[column : column + 1])
        threshold, radius = self._widths(column, number, n_users)
        cap = self.record_cap
        mechanism: Mechanism
        if self._follower == "winsorized":
            mechanism = Winsorized(threshold=threshold / _CLIP, radius=radius, record_cap=cap, clip=_CLIP)
        else:
            mechanism = Exact(threshold=threshold, radius=radius, record_cap=cap)
        return mechanism.prepare(request, facts)

    @property
    def _follower(self) -> str:
        """`winsorized` where it can serve, since it has half the noise for one threshold; else `exact`."""
        relation = self.request.neighbors
        serves = relation.users_are_public and (self.request.per == "user" or relation.counts_are_public)
        return "winsorized" if serves else "exact"

    def _widths(self, column: int, number: int, n_users: float) -> tuple[float, float]:
        """Threshold and radius, for the length of this number."""
        limit = self.facts.columns[column].limit
        wide = _WIDTH[self._follower] * max(n_users / 1000.0, 0.5) ** 0.4 * float(LENGTHS[number])
        threshold = min(wide, float(limit) / 4.0)
        radius = min(_FARTHEST[self._follower] * threshold, float_down(limit - Fraction(threshold)))
        return threshold, radius

    def outcome(self, draw: Any) -> Outcome:
        n_users: float = self.facts.n_users or 0
        parameters: dict[str, Any] = {}
        if self.counting is not None:
            (counted,), draw = draw
            n_users = self.surely(counted)
            parameters["users_measured"] = max(counted, 0)
        search = self.search(n_users)
        if search is None or draw is None:
            raise self._refusal(
                f"there are too few users to find how far they are spread, about {self.users_needed():,} are needed"
            )
        outcomes = []
        for column, (number, rest) in enumerate(draw):
            made = self.released(column, search, number, n_users)
            if made is None:
                raise self._refusal(
                    "nearly all users have the same value, or they lie further apart than "
                    f"{float(LENGTHS[-1]):.2g}, so their spread cannot be found"
                )
            outcome = made.outcome(rest)
            threshold, radius = self._widths(column, number, n_users)
            if abs(outcome.values[0]) > radius - threshold:
                # At the edge: the mean may lie anywhere beyond.
                raise self._refusal(
                    f"the mean lies too far from 0 for so small a spread, {float(LENGTHS[number]):.3g}; subtract a "
                    "known number near it from all values"
                )
            outcomes.append(outcome)
        lengths = [float(LENGTHS[number]) for number, _ in draw]
        if self.record_cap is not None:
            parameters["record_cap"] = self.record_cap
        parameters |= {
            "spread_of_users": lengths if len(lengths) > 1 else lengths[0],
            "share_within_spread": round(search.share, 4),
            "epsilon_of_spread": float(search.epsilon),
        }
        rules = [outcome.interval_rule for outcome in outcomes if outcome.interval_rule is not None]
        return Outcome(
            values=tuple(outcome.values[0] for outcome in outcomes),
            parameters=parameters,
            interval_rule=ColumnIntervals(rules=rules) if len(rules) == len(outcomes) else None,
        )

    def _refusal(self, reason: str) -> NotReleased:
        epsilon, delta = self.request.epsilon, self.request.delta
        spent = f"epsilon = {epsilon:g}" + (f" and delta = {delta:g} are" if delta > 0 else " is")
        return NotReleased(
            f"{reason}; {spent} spent; give threshold= and radius=, or bounds=", epsilon=epsilon, delta=delta
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class ColumnIntervals:
    """The intervals of columns that were released one by one."""

    rules: Sequence[IntervalRule]

    def at(self, level: float) -> Interval:
        each = [rule.at(level) for rule in self.rules]
        return Interval(
            level=level,
            low=tuple(one.low[0] for one in each),
            high=tuple(one.high[0] for one in each),
            covers=each[0].covers,
        )
