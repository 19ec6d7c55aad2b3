"""A release as a ledger keeps it, and back: every number to the last bit, and nothing that is not in the release."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import InputError, LedgerDamaged
from hubermean.ledger.entries import canonical
from hubermean.relations import Neighbors
from hubermean.release import DEFAULT_LEVEL, Denominator, Interval, Release
from hubermean.release_table import ReleaseTable
from hubermean.spending import Spent, Unit

Floats = NDArray[np.float64]
Number = float | str | None

LEVELS = (0.5, 0.8, 0.9, DEFAULT_LEVEL, 0.99)
"""Levels at which intervals are kept: the rule behind them is code, which a file must not bring along."""


def recorded(release: Release | ReleaseTable) -> dict[str, Any]:
    """As plain data, for `restored`."""
    shared = {
        "columns": list(release.columns),
        "epsilon": release.epsilon,
        "delta": release.delta,
        "neighbors": release.neighbors.value,
        "mechanism": release.mechanism,
        "per": release.per,
        "statistic": release.statistic,
        "parameters": dict(release.parameters),
        "order": list(release.parameters),  # in which they are shown; JSON is written sorted
        "spent": [asdict(entry) for entry in release.spent],
    }
    return shared | (_one(release) if isinstance(release, Release) else _table(release))


def kept_as(release: Release | ReleaseTable) -> dict[str, Any]:
    """What is written down of a release: only what comes back as it is.

    Raises:
        ValueError: a mechanism of the caller's own made something that does not.
    """
    kept: dict[str, Any] = json.loads(canonical(recorded(release)))
    if not comes_back(kept):
        raise ValueError("this would not come back as it is")
    return kept


def comes_back(kept: Mapping[str, Any]) -> bool:
    """Whether a kept release is all that there is to it; the first ledgers did not keep the order of parameters."""
    again = recorded(restored(kept))
    return again == {"order": again["order"], **kept}


def restored(kept: Mapping[str, Any]) -> Release | ReleaseTable:
    """What `recorded` was made of; LedgerDamaged where it is nothing of the kind."""
    try:
        shared: dict[str, Any] = {
            "columns": tuple(map(_text, kept["columns"])),
            "epsilon": float(_real(kept["epsilon"])),
            "delta": float(_real(kept["delta"])),
            "neighbors": Neighbors(kept["neighbors"]),
            "mechanism": _text(kept["mechanism"]),
            "per": _text(kept["per"]),
            "statistic": _text(kept["statistic"]),
            "parameters": _restored_parameters(kept),
            "spent": tuple(map(_restored_spent, kept["spent"])),
        }
        return _restored_table(kept, shared) if "by" in kept else _restored_one(kept, shared)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        pass
    raise LedgerDamaged("a recorded release cannot be read")


@dataclass(frozen=True, kw_only=True)
class KeptIntervals:
    """Intervals of a recorded release, at the levels that were kept. Arrays are of shape (groups, columns)."""

    kept: Mapping[float, tuple[Floats, Floats]]
    covers: str
    assumption: str = ""

    def ends(self, level: float) -> tuple[Floats, Floats]:
        if level not in self.kept:
            known = ", ".join(f"{one:g}" for one in self.kept)
            raise InputError(
                f"a recorded release has its intervals at levels {known} alone; use one of these"
            )
        return self.kept[level]

    def at(self, level: float) -> Interval:
        low, high = (tuple(ends[0].tolist()) for ends in self.ends(level))
        return Interval(level=level, low=low, high=high, covers=self.covers, assumption=self.assumption)


@dataclass(frozen=True, kw_only=True)
class KeptDenominators:
    kept: tuple[Denominator, ...]

    def denominators(self) -> list[Denominator]:
        return list(self.kept)


def _one(release: Release) -> dict[str, Any]:
    details = {level: release.interval_details(level) for level in LEVELS}
    first = details[DEFAULT_LEVEL]
    return {
        "values": list(release.values),
        "n_users": release.n_users,
        "denominator": release.denominator and asdict(release.denominator),
        **({"warnings": list(release.warnings)} if release.warnings else {}),
        "intervals": None
        if first is None
        else {
            "covers": first.covers,
            **({"assumption": first.assumption} if first.assumption else {}),
            "ends": [[level, [_plain(one.low)], [_plain(one.high)]] for level, one in details.items() if one],
        },
    }


def _restored_one(kept: Mapping[str, Any], shared: dict[str, Any]) -> Release:
    denominator, n_users, columns = kept["denominator"], kept["n_users"], len(shared["columns"])
    if n_users is not None and type(n_users) is not int:
        raise TypeError("no number of users")
    values = tuple(float(_real(value)) for value in kept["values"])
    if len(values) != columns:
        raise ValueError("not a value for each column")
    return Release(
        **shared,
        values=values,
        n_users=n_users,
        interval_rule=_restored_intervals(kept["intervals"], 1, columns),
        denominator=None if denominator is None else _restored_denominator(denominator),
        warnings=tuple(map(_text, kept.get("warnings", ()))),
    )


def _table(release: ReleaseTable) -> dict[str, Any]:
    intervals = None
    if release.intervals is not None:
        ends = [(level, release.intervals.ends(level)) for level in LEVELS]
        intervals = {
            "covers": release.intervals.covers,
            "ends": [[level, _listed(low), _listed(high)] for level, (low, high) in ends],
        }
    return {
        "by": list(release.by),
        "keys": [[_key(one) for one in key] for key in release.keys],
        "values": _listed(release.values),
        "max_groups": release.max_groups,
        "public_keys": release.public_keys,
        "refusals": [[row, reason] for row, reason in release.refusals.items()],
        "denominators": [asdict(one) for one in release.denominators],
        "intervals": intervals,
    }


def _restored_table(kept: Mapping[str, Any], shared: dict[str, Any]) -> ReleaseTable:
    denominators = tuple(map(_restored_denominator, kept["denominators"]))
    groups, columns = len(kept["keys"]), len(shared["columns"])
    if any(len(key) != len(kept["by"]) for key in kept["keys"]) or len(denominators) not in (0, groups):
        raise ValueError("groups that do not fit together")
    return ReleaseTable(
        **shared,
        by=tuple(map(_text, kept["by"])),
        keys=tuple(tuple(_restored_key(one) for one in key) for key in kept["keys"]),
        values=_array(kept["values"], groups, columns),
        max_groups=int(_real(kept["max_groups"])),
        public_keys=bool(kept["public_keys"]),
        refusals={int(row): _text(reason) for row, reason in kept["refusals"]},
        intervals=_restored_intervals(kept["intervals"], groups, columns),
        measured=KeptDenominators(kept=denominators) if denominators else None,
    )


def _restored_intervals(kept: Mapping[str, Any] | None, rows: int, columns: int) -> KeptIntervals | None:
    if kept is None:
        return None
    ends = {
        float(_real(level)): (_array(low, rows, columns), _array(high, rows, columns))
        for level, low, high in kept["ends"]
    }
    assumption = _text(kept.get("assumption", ""))
    return KeptIntervals(kept=ends, covers=_text(kept["covers"]), assumption=assumption)


def _restored_denominator(kept: Mapping[str, Any]) -> Denominator:
    numbers = {name: _real(kept[name]) for name in ("value", "low", "high")}
    return Denominator(**numbers, exact=bool(kept["exact"]))


def _restored_spent(kept: Mapping[str, Any]) -> Spent:
    if kept["unit"] not in get_args(Unit):
        raise ValueError("no unit")
    return Spent(what=_text(kept["what"]), amount=_real(kept["amount"]), unit=kept["unit"])


def _listed(numbers: Floats) -> list[list[Number]]:
    return [_plain(row) for row in numbers.tolist()]


def _plain(numbers: Sequence[float]) -> list[Number]:
    """JSON has no NaN, which stands for a group without a value, and no infinity."""
    return [one if math.isfinite(one) else None if math.isnan(one) else str(one) for one in numbers]


def _array(kept: Sequence[Sequence[Number]], rows: int, columns: int) -> Floats:
    numbers = np.array([[math.nan if one is None else float(one) for one in row] for row in kept])
    return numbers.reshape(rows, columns)


_KEYS: dict[str, tuple[type, Any]] = {
    "date": (datetime.date, datetime.date.fromisoformat),
    "decimal": (decimal.Decimal, decimal.Decimal),
    "uuid": (uuid.UUID, uuid.UUID),
}


def _key(key: Any) -> Any:
    for name, (kind, _) in _KEYS.items():
        if isinstance(key, kind):
            return {name: str(key)}
    return key if isinstance(key, str | int) else str(key)


def _restored_key(kept: Any) -> Any:
    if isinstance(kept, dict):
        ((name, text),) = kept.items()
        return _KEYS[name][1](text)
    if not isinstance(kept, str | int):
        raise TypeError("no key")
    return kept


def _restored_parameters(kept: Mapping[str, Any]) -> dict[str, Any]:
    parameters = kept["parameters"]
    order = kept.get("order", list(parameters))
    if sorted(order) != sorted(parameters):
        raise ValueError("an order of other parameters")
    return {name: _parameter(parameters[name]) for name in order}


def _parameter(kept: Any, depth: int = 4) -> Any:
    """Numbers, texts and flags, and lists and mappings of them."""
    if isinstance(kept, list) and depth > 0:
        return [_parameter(one, depth - 1) for one in kept]
    if isinstance(kept, dict) and depth > 0:
        return {name: _parameter(one, depth - 1) for name, one in kept.items()}
    if kept is None or isinstance(kept, str | int | float):
        return kept
    raise TypeError("no parameter")


def _real(kept: Any) -> Any:
    if type(kept) not in (int, float):
        raise TypeError("no number")
    return kept


def _text(kept: Any) -> str:
    if not isinstance(kept, str):
        raise TypeError("no text")
    return kept
