"""How much each user counts, under which cap, and what of that is public.

`per="record"`: a user weighs its number of records, capped. `per="user"`: every user with a usable record weighs
one. Where counts are private, a weight comes from the usable records, so a user without any has weight zero.
Where they are public (`replace-values`), it comes from all records of the user, usable or not: whether a value
is missing is part of the values, hence private, and must not show in a weight.
"""

from __future__ import annotations

import numpy as np

from hubermean.errors import InputError
from hubermean.mechanisms.protocol import PublicFacts, Request
from hubermean.user_table import IntArray, UserTable

LARGEST_CAP = 2**32


def check_cap(record_cap: int | None, request: Request) -> None:
    """Refuse a cap that is out of range, missing or superfluous, from the request alone."""
    check_given_cap(record_cap, request)
    if request.per == "record" and record_cap is None and not request.neighbors.counts_are_public:
        raise InputError(
            f"give record_cap= (the largest number of records a user counts for), since "
            f"{request.neighbors.value!r} keeps counts private; or use per='user'"
        )


def check_given_cap(record_cap: int | None, request: Request) -> None:
    """Refuse a cap that is out of range or superfluous; it may be missing."""
    if record_cap is not None:
        whole = isinstance(record_cap, int) and not isinstance(record_cap, bool)
        if not whole or not 1 <= record_cap <= LARGEST_CAP:
            raise InputError(f"record_cap must be a whole number from 1 to 2^32, not {record_cap!r}")
    if request.per == "user" and record_cap is not None:
        raise InputError(
            "record_cap is for per='record'; with per='user' every user counts once, so leave it out"
        )


def check_estimate(n_users: int | None, request: Request) -> None:
    """Refuse an estimate of the number of users where the number itself is public."""
    if n_users is not None and request.neighbors.users_are_public:
        raise InputError(f"n_users is public under {request.neighbors.value!r}; leave it out")


def weight_cap(record_cap: int | None, request: Request, facts: PublicFacts) -> int:
    """The largest weight any user could ever have: public, never read off private data."""
    if request.per == "user":
        return 1
    if record_cap is not None:
        return record_cap
    if facts.record_counts is None:
        raise InputError("give record_cap= (the largest number of records a user counts for)")
    return min(int(facts.record_counts.max(initial=1)), LARGEST_CAP)


def planned_weight(request: Request, facts: PublicFacts, cap: int) -> float:
    """The total weight to expect, from public numbers; a wrong guess costs accuracy only."""
    if facts.record_counts is not None:
        return max(float(np.minimum(facts.record_counts, cap).sum()), 1.0)
    if facts.planned_weight is not None:
        return max(facts.planned_weight, 1.0)
    users = facts.planned_users if facts.n_users is None else facts.n_users
    # Private counts: half the cap is what a user may be expected to fill.
    return max(float(users) if request.per == "user" else users * cap / 2.0, 1.0)


def weighing_counts(table: UserTable, request: Request) -> IntArray:
    """The counts that weights are capped from; public under `replace-values`, private otherwise."""
    return table.records if request.neighbors.counts_are_public else table.counts


def user_weights(table: UserTable, request: Request, cap: int) -> IntArray:
    """Each user's weight, at most `cap`."""
    weights: IntArray = np.minimum(weighing_counts(table, request), cap)
    return weights
