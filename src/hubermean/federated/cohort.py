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
    if (
        isinstance(updates, np.ndarray)
        and updates.dtype.kind != "O"
        and type(updates) is not np.ma.MaskedArray
    ):
        if cohort is not None:
            raise _no_names()
        if updates.ndim == 0:
            raise InputError(f"{parameter('updates')} must hold one update per client")
        return np.asarray(updates)
    if isinstance(updates, str | bytes | np.ma.MaskedArray) or hasattr(updates, "columns"):
        raise InputError(
            f"{parameter('updates')} must be a list of updates, a dictionary of updates by client, or an array with "
            "one row per client; convert a table with to_numpy(), and fill a masked array"
        )
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
    # By type(): what an object says of its own class may raise.
    named = [reply for reply in replies if issubclass(type(reply), Reply)]
    if cohort is not None and len(named) < len(replies):
        raise _no_names()
    in_time = [found for reply in named if (found := _read_candidate(reply, round, cohort)) is not None]
    try:
        times = Counter(client for client, _ in in_time)
        once = [update for client, update in in_time if times[client] == 1]
    except Exception:  # noqa: BLE001 - whatever names do; nothing was computed yet
        raise InputError("the names of clients cannot be compared; use text or integers") from None
    return once + [update for update in replies if not issubclass(type(update), Reply)]


def check_names(clients: Iterable[Hashable]) -> list[Any]:
    """Return the clients, each once; InputError for a name by which a client cannot be found again."""
    try:
        names = list(dict.fromkeys(clients))
        fit = all(bool(name == name) for name in names)
    except Exception:  # noqa: BLE001 - whatever names do
        fit = False
    if not fit:
        raise InputError(
            f"{parameter('clients')} must have names that can be looked up, each equal to itself: text or integers, no "
            "NaN"
        )
    return names


def _read_candidate(reply: Reply, round: int, cohort: Cohort | None) -> tuple[Hashable, Any] | None:
    """Return the client and the update of a reply that may count, None for one that may not."""
    try:
        client = reply.client
        hash(client)
        in_time = reply.round is None or reply.round == round
        # A name that is not equal to itself, such as NaN, would give one client any number of replies.
        if in_time and client == client and (cohort is None or client in cohort):
            return client, reply.update
    except Exception:  # noqa: BLE001 - a name that cannot be read is nobody's
        return None
    return None


def _no_names() -> InputError:
    return InputError(
        f"with {parameter('sampling', 'poisson')} {parameter('updates')} must be a dictionary of updates by client, or "
        "a list of Reply, so that only drawn clients count"
    )
