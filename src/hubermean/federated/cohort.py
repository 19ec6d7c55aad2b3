"""Whose replies count in a round: the secret cohort, and one reply per client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import InputError, parameter
from hubermean.noise.source import NoiseSource


@dataclass(frozen=True, kw_only=True, repr=False)
class Reply:
    """What one client answered.

    Args:
        client: who answered, as the transport authenticated it; never what the reply itself says.
        update: the update.
        round: the round that the client was asked in; one that comes in a later round counts as nothing.
    """

    client: Hashable
    update: Any
    round: int | None = None


class Cohort:
    """A Poisson sample: every client is in with the same probability, independently, and who is stays secret.

    Each client's coin is tossed once per round, so asking again gives the same cohort, also for more clients.
    """

    def __init__(self, rate: float, noise: NoiseSource) -> None:
        exact = Fraction(rate)
        self._limit, self._below = exact.denominator, exact.numerator
        self._noise = noise
        self._coins: dict[Hashable, bool] = {}

    def draw(self, clients: Iterable[Hashable]) -> list[Any]:
        """Return the clients that are in, in the order given."""
        drawn = []
        for client in dict.fromkeys(clients):
            if client not in self._coins:
                self._coins[client] = self._noise.below(self._limit) < self._below
            if self._coins[client]:
                drawn.append(client)
        return drawn

    def __contains__(self, client: Hashable) -> bool:
        return self._coins.get(client, False)


def select_updates(updates: Any, *, round: int, cohort: Cohort | None) -> list[Any] | NDArray[Any]:
    """Return the updates that may count: of clients in the cohort, asked in this round, one per client.

    A client with several replies has none that counts.

    Raises:
        InputError: the container cannot be read, or has no names of clients where a cohort was drawn.
    """
    if isinstance(updates, np.ndarray) and updates.dtype.kind != "O":
        if cohort is not None:
            raise _no_names()
        if updates.ndim == 0:
            raise InputError(f"{parameter('updates')} must hold one update per client")
        return np.asarray(updates)
    if isinstance(updates, Mapping):
        replies: list[Any] = [Reply(client=client, update=update) for client, update in updates.items()]
    else:
        try:
            replies = list(updates)
        except TypeError:
            raise InputError(
                f"{parameter('updates')} must be a list of updates, a dictionary of updates by client, or an array "
                "with one row per client"
            ) from None
    named = [reply for reply in replies if isinstance(reply, Reply)]
    if cohort is not None and len(named) < len(replies):
        raise _no_names()
    in_time = [reply for reply in named if _is_candidate(reply, round, cohort)]
    times = Counter(reply.client for reply in in_time)
    once = [reply.update for reply in in_time if times[reply.client] == 1]
    return once + [update for update in replies if not isinstance(update, Reply)]


def _is_candidate(reply: Reply, round: int, cohort: Cohort | None) -> bool:
    try:
        hash(reply.client)
        return (reply.round is None or reply.round == round) and (cohort is None or reply.client in cohort)
    except Exception:  # noqa: BLE001 - a name that cannot be read is nobody's
        return False


def _no_names() -> InputError:
    return InputError(
        f"with {parameter('sampling', 'poisson')} {parameter('updates')} must be a dictionary of updates by client, or "
        "a list of Reply, so that only drawn clients count"
    )
