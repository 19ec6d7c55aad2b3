"""What entries hold, kind by kind: whoever reads one that passed need not ask again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from hubermean.errors import HubermeanError, LedgerDamaged
from hubermean.ledger.entries import KINDS, OUTCOMES, Entry, canonical
from hubermean.ledger.question import checked_name
from hubermean.ledger.recorded import comes_back


def require_shape(entry: Entry) -> None:
    """Refuse an entry that lacks what its kind has, or holds it in another form.

    Raises:
        LedgerDamaged: it does; whether its digest fits is another question.
    """
    if not _is_formed(entry):
        raise LedgerDamaged(f"entry {entry.number} does not hold what it should", entry=entry.number)


def _is_formed(entry: Entry) -> bool:
    content = entry.content
    try:
        checked_name(entry.dataset, "dataset")
        # Written in the one way there is: no name twice, nothing nested without end.
        if canonical(content) != entry.body or entry.kind not in KINDS:
            return False
        entry.cost_of("spent")
        if entry.kind == "opened":
            return _is_time(content.get("at")) and _has_users(content)
        if not isinstance(content.get("question"), str) or not _has_users(content):
            return False
        if entry.kind in OUTCOMES:
            return type(content.get("charge")) is int and _OUTCOMES[entry.kind](content)
        entry.cost_of("cost")
        return _is_time(content.get("at")) and _is_asked(content.get("asked"))
    except (HubermeanError, ValueError, RecursionError):
        return False


def _is_time(given: Any) -> bool:
    return isinstance(given, str) and given.isascii() and datetime.fromisoformat(given) is not None


def _is_listed(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(one, str) for one in given)


def _has_users(content: Mapping[str, Any]) -> bool:
    return content.get("user") is None or _is_listed(content["user"])


def _is_asked(asked: Any) -> bool:
    if not isinstance(asked, dict):
        return False
    words = ["note"] if asked.get("statistic") == "elsewhere" else ["statistic", "mechanism", "source"]
    lists = [] if asked.get("statistic") == "elsewhere" else ["columns", "by"]
    return all(isinstance(asked.get(one), str) for one in words) and all(
        _is_listed(asked.get(one)) for one in lists
    )


def _is_released(content: Mapping[str, Any]) -> bool:
    kept = content.get("release")
    return isinstance(kept, dict) and comes_back(kept)


_OUTCOMES: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "released": _is_released,
    "not-released": lambda content: isinstance(content.get("reason"), str),
    "failed": lambda content: True,
}
