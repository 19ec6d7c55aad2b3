"""How `tuned` divides its budget, and what follows from what its steps find: public numbers and released ones alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hubermean.errors import InputError
from hubermean.mechanisms.clipped import Clipped
from hubermean.mechanisms.known_values import KnownValues
from hubermean.mechanisms.margin import least_users
from hubermean.mechanisms.protocol import PublicFacts, Request
from hubermean.mechanisms.purse import Purse
from hubermean.privacy import float_down, gaussian_alpha
from hubermean.relations import Neighbors
from hubermean.tuning import (
    LARGEST_SHARE,
    LENGTHS,
    PER_OCTAVE,
    SHORTEST,
    CapSearch,
    PlaceSearch,
    SpreadSearch,
    Windows,
    public_cap,
    share_above,
)

_MOST_USERS = 2.0**31
_COUNTING_PART = 0.04  # of epsilon: at most so much measures users, and so much their weight
_WEIGHED_WITHIN = 50.0  # a weight need not be measured more exactly than to a fiftieth of the users
_LOST_SCALES = 3.0
_FILLED = 0.6  # of the cap: what users fill on average, or so it is expected
_CAP_PART = 0.2
_SPREAD_PART = 0.3
_PLACE_PART = 0.5
_TIES_PART = 0.15
_FARTHEST = 1e9  # thresholds from 0 that the mean may lie
_GIVEN_SHARE = 0.8  # that a window holds of users whose spread the caller gave
# With a thousand users noise may have this share of the variance of sampling; with more users a smaller one, which yet
# leaves room for wider bounds, as heavy tails need them.
_NOISE_SHARE, _NOISE_DECAY = 0.45, 0.4
_NARROWEST = 3.0  # standard deviations that bounds lie from the place at least
_WIDEST = 1e3

TIES = "most users have the same value, or they lie too far apart, so no spread can be found"
TOO_FEW = "there are too few users with usable records to find what is not known"


class UnfitError(Exception):
    """What was found leaves nothing to release; the message says why, with released numbers at most."""


@dataclass(frozen=True, kw_only=True)
class Division:
    """What follows from the weight of all users.

    Attributes:
        own: what each column has, in all.
        spread: the search for the spread; None where the spread is known.
        noise: the standard deviation of the noise of a mean, for bounds at 1 and -1.
        deviations: how many standard deviations the bounds lie from the place.
    """

    own: Fraction
    spread: SpreadSearch | None
    noise: float
    deviations: float


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is public or was found so far.

    Attributes:
        spent: of the purse.
        users: how many there are, if that is public or was measured.
        cap: the largest weight of a user.
        weight: that of all users with usable records, in units of the cap.
        division: what follows from the weight.
        spreads: the numbers of the lengths found, one per column so far.
        shares: of the weight within each of them.
        places: the middles found, one per column so far.
        reaches: the lengths that a larger share needs, one per column where that was sought; 0 where none was found.
        measured: further numbers for the release.
    """

    spent: Fraction = Fraction(0)
    users: float | None = None
    cap: int | None = None
    weight: float = 0.0
    division: Division | None = None
    spreads: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    places: tuple[float, ...] = ()
    reaches: tuple[float, ...] = ()
    measured: tuple[tuple[str, Any], ...] = ()

    def parameters(self) -> dict[str, Any]:
        """For the release."""
        parameters = dict(self.measured)
        if self.spreads:
            lengths, several = [float(LENGTHS[number]) for number in self.spreads], len(self.spreads) > 1
            parameters["spread_of_users"] = lengths if several else lengths[0]
            parameters["share_within_spread"] = list(self.shares) if several else self.shares[0]
        return parameters


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Public decisions: what is sought, what it may cost, and what follows from it."""

    request: Request
    facts: PublicFacts
    known: KnownValues
    purse: Purse
    start: Found = field(init=False, repr=False)

    def __post_init__(self) -> None:
        public = self.known.n_users if self.facts.n_users is None else self.facts.n_users
        users = None if public is None else float(public)
        object.__setattr__(self, "start", Found(users=users, cap=self._public_cap()))

    def _public_cap(self) -> int | None:
        if self.request.per == "user":
            return 1
        if self.known.record_cap is not None:
            return self.known.record_cap
        counts = self.facts.record_counts
        if counts is None:
            return None
        if not counts.any():
            raise InputError("no user has a record; give counts= of at least one for some user")
        return public_cap(counts[counts > 0], share_above(len(counts)))

    @property
    def columns(self) -> int:
        return len(self.request.columns)

    @property
    def seeks_place(self) -> bool:
        return self.known.bounds is None

    @property
    def seeks_spread(self) -> bool:
        return self.seeks_place and self.known.threshold is None and self.known.scales is None

    # --- what each step may spend ---------------------------------------------------------------------------------

    def counting(self, users: float | None) -> float:
        """The epsilon that measures users, or their weight if their number is known already."""
        most = self.purse.largest_noise(_COUNTING_PART)
        return most if users is None else min(most, _WEIGHED_WITHIN / max(users, 1.0))

    def price_of_counting(self, users: float | None) -> Fraction:
        return self.purse.of_noise(Fraction(self.counting(users)))

    def cap_search(self, users: float) -> CapSearch:
        """UnfitError where users are too few."""
        largest = self.purse.largest_choice(self.purse.total, _CAP_PART)
        search = CapSearch.plan(min(users, _MOST_USERS), largest=largest)
        if search is None:
            raise UnfitError(TOO_FEW)
        return search

    def division(self, weight: float, spent: Fraction, *, surely: bool = False) -> Division:
        """UnfitError where the weight is too small, to find the place at all or, if so asked, to find it surely."""
        weight = min(weight, _MOST_USERS)
        if weight <= 0.0:
            raise UnfitError(TOO_FEW)
        own = (self.purse.total - spent) / self.columns
        spread, share = None, _GIVEN_SHARE
        rest = own
        if self.seeks_spread:
            spread = SpreadSearch.plan(weight, largest=self.purse.largest_choice(own, _SPREAD_PART))
            if spread is None:
                raise UnfitError(TOO_FEW)
            share = spread.share
            rest -= self.purse.of_choice(spread.epsilon)
        # What the place costs depends on the bounds, a little; for them an estimate will do.
        radius, steps = self._expected_radius()
        rest -= self.purse.of_choice(
            self._place_search(
                share, weight, own, step=1.0, steps=steps, radius=radius, surely=surely
            ).epsilon
        )
        noise = self._noise(float(rest))
        return Division(
            own=own, spread=spread, noise=noise / weight, deviations=fitting_deviations(weight, noise)
        )

    def _expected_radius(self) -> tuple[float, int]:
        """(radius, length of a window): in steps from one window to the next, as far as they are known."""
        if self.known.radius is not None and self.known.threshold is not None:
            return self.known.radius / (self.known.threshold / 8.0), 16
        if self.known.radius is not None and self.known.scales is not None:
            step = 1.25 * 2.0 * _normal_quantile(_GIVEN_SHARE) * min(self.known.scales) / 10.0
            return self.known.radius / step, 10
        return _FARTHEST * 9.0, 10

    def _noise(self, rest: float) -> float:
        """The standard deviation of the noise of a sum, with this much left per column, for bounds at 1 and -1."""
        if self.purse.accounting == "concentrated":
            return math.sqrt(2.0 / rest)
        noise = 2.0 * math.sqrt(2.0) / rest
        if self.request.delta > 0.0:
            joint = gaussian_alpha(max(rest * self.columns, 1e-6), self.request.delta)
            noise = min(noise, 2.0 * math.sqrt(self.columns) / joint)
        return noise

    def place_search(self, column: int, found: Found) -> PlaceSearch:
        """InputError or UnfitError where there is none."""
        assert found.division is not None
        if self.known.threshold is not None:
            share, length, steps = _GIVEN_SHARE, 2.0 * self.known.threshold, 16
        else:
            # Long enough to hold what it should wherever it lies.
            share, length = self._share(column, found), self._length(column, found)
            length, steps = 1.25 * length, 10
        radius = self.known.radius or _FARTHEST * self.threshold(column, found)
        radius = min(radius, float_down(self.facts.columns[column].limit * Fraction(7, 8)))
        weight = min(found.weight, _MOST_USERS)
        own = found.division.own
        return self._place_search(share, weight, own, step=length / steps, steps=steps, radius=radius)

    def _place_search(
        self,
        share: float,
        weight: float,
        own: Fraction,
        *,
        step: float,
        steps: int,
        radius: float,
        surely: bool = False,
    ) -> PlaceSearch:
        search = PlaceSearch.plan(
            Windows.covering(radius, step=step, steps=steps),
            weight=weight,
            share=share,
            one_way=self.request.neighbors is Neighbors.ADD_REMOVE,
            largest=self.purse.largest_choice(own, _PLACE_PART),
            surely=surely,
        )
        if search is None:
            raise UnfitError(TOO_FEW)
        return search

    # --- what follows ---------------------------------------------------------------------------------------------

    def ties_search(self, found: Found) -> SpreadSearch:
        """UnfitError where users are too few to look beyond a tie."""
        assert found.division is not None
        most = self.purse.largest_choice(found.division.own, _TIES_PART)
        search = SpreadSearch.among_ties(min(found.weight, _MOST_USERS), epsilon=most)
        if search is None:
            raise UnfitError(TIES)
        return search

    @staticmethod
    def _share(column: int, found: Found) -> float:
        return found.shares[column] if found.shares else _GIVEN_SHARE

    def _length(self, column: int, found: Found) -> float:
        """Of an interval that holds the share."""
        if self.known.scales is not None:
            return 2.0 * _normal_quantile(_GIVEN_SHARE) * self.known.scales[column]
        return float(LENGTHS[found.spreads[column]])

    def threshold(self, column: int, found: Found) -> float:
        """How far from the place the bounds of a column lie."""
        if self.known.threshold is not None:
            return self.known.threshold
        assert found.division is not None
        deviation = self._length(column, found) / (2.0 * _normal_quantile(self._share(column, found)))
        return min(found.division.deviations * deviation, float(self.facts.columns[column].limit) / 16.0)

    def clipped(self, found: Found) -> Clipped:
        """The mechanism that releases the mean."""
        cap = found.cap if self.request.per == "record" else None
        # Bounds that were found follow users of many records; those who give them mean all users, unless they say more.
        usual = 0.0 if self.seeks_place and self.request.per == "record" else 1.0
        likeness = usual if self.known.likeness is None else self.known.likeness
        rho = None
        if self.purse.accounting == "concentrated":
            rho = float_down(self.purse.total - found.spent)
        if self.known.bounds is not None:
            return Clipped(bounds=self.known.bounds, record_cap=cap, likeness=likeness, rho=rho)
        bounds = []
        for column, place in enumerate(found.places):
            threshold = self.threshold(column, found)
            bounds.append((place - threshold, place + threshold))
        return Clipped(bounds=bounds, record_cap=cap, centred=True, likeness=likeness, rho=rho)

    # --- whether there are enough users ---------------------------------------------------------------------------

    def enough(self, users: float) -> bool:
        """Whether so many users can be tuned for, if most have usable records."""
        try:
            self.expected(users)
        except UnfitError:
            return False
        return True

    def looks_beyond_ties(self, users: float) -> bool:
        """Whether so many users are enough to search beyond a tie."""
        try:
            self.ties_search(self.expected(users))
        except UnfitError:
            return False
        return True

    def expected(self, users: float) -> Found:
        """What the steps before the first spread will find with so many users, about."""
        spent = Fraction(0)
        if self.start.users is None and self.start.cap is None:
            spent += self.price_of_counting(None)
        if self.start.cap is None:
            spent += self.purse.of_choice(self.cap_search(users).epsilon)
        cap = self.start.cap or 1
        if not self.seeks_place:
            return Found(spent=spent, users=users, cap=cap)
        known = None if self.start.users is None and self.start.cap is not None else users
        # Where a cap was sought, many users have fewer records than that.
        heaviest = users if self.request.per == "user" else _FILLED * users
        spent += self.price_of_counting(known)
        # And so much may be lost to the noise of the measured weight, and then the place is found a little less surely.
        weight = heaviest - _LOST_SCALES / self.counting(known)
        return Found(
            spent=spent,
            users=users,
            cap=cap,
            weight=weight,
            division=self.division(weight, spent, surely=True),
        )

    @property
    def help(self) -> str:
        """What would make fewer users enough: of what is not given."""
        parts = ["record_cap="] if self.start.cap is None else []
        if self.seeks_place:
            spread_known = not self.seeks_spread
            if spread_known and self.known.radius is None:
                parts.append("radius=, or bounds=")
            else:
                parts.append("bounds=" if spread_known else "bounds=, or threshold= and radius=")
        return "give " + " and ".join(parts)

    def expected_noise(self, users: float) -> float:
        """Of a mean with bounds at 1 and -1; infinite where users are too few."""
        try:
            division = self.expected(users).division
        except UnfitError:
            return math.inf
        return math.inf if division is None else division.noise

    def users_needed(self) -> int:
        return least_users(self.enough)

    def rehearsals(self) -> Iterator[Found]:
        """What may be found, over all sizes of the values, the middle ones first."""
        users = self.start.users or self.facts.planned_users
        expected = self.expected(users if self.enough(users) else self.users_needed())
        if not self.seeks_place:
            yield expected
            return
        numbers = range(SHORTEST, len(LENGTHS), PER_OCTAVE)
        for number in sorted(numbers, key=lambda number: abs(2 * number - len(LENGTHS))):
            yield Found(
                spent=expected.spent,
                cap=expected.cap,
                weight=expected.weight,
                division=expected.division,
                spreads=(number,) * self.columns,
                shares=(LARGEST_SHARE,) * self.columns,
                places=(0.0,) * self.columns,
            )


def fitting_deviations(weight: float, noise: float) -> float:
    """How many standard deviations from the place bounds should lie.

    `noise` is the standard deviation of the noise of a sum for bounds at 1 and -1; weights in units of the heaviest.
    """
    noise_share = _NOISE_SHARE * (max(weight, 1.0) / 1000.0) ** -_NOISE_DECAY
    return min(max(math.sqrt(noise_share * max(weight, 1.0)) / noise, _NARROWEST), _WIDEST)


def _normal_quantile(share: float) -> float:
    """How many standard deviations to each side hold this share of a normal law."""
    from statistics import NormalDist

    return NormalDist().inv_cdf((1.0 + share) / 2.0)
