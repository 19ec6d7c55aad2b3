"""Records of releases: a release as plain data for a ledger, and back, with every number exact to the last bit.

A record holds nothing that is not in the release. Its names are part of the ledger's file format and stay as they are.
"""

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

from hubermean.accounting.budget import BudgetEntry, Unit
from hubermean.data.arrays import FloatArray
from hubermean.errors import InputError, LedgerDamaged
from hubermean.ledger.entries import to_canonical_json
from hubermean.types.release import DEFAULT_LEVEL, Denominator, Interval, Release
from hubermean.types.release_table import ReleaseTable
from hubermean.types.request import Neighbors

Number = float | str | None

LEVELS = (0.5, 0.8, 0.9, DEFAULT_LEVEL, 0.99)
"""Levels at which intervals are recorded: the rule that computes them is code, which a file cannot hold."""


def record_release(release: Release | ReleaseTable) -> dict[str, Any]:
    """Return the record of a release.

    Raises:
        ValueError: the release of a custom mechanism holds something that a record would not restore exactly.
    """
    record: dict[str, Any] = json.loads(to_canonical_json(_to_plain_data(release)))
    if not is_release_record(record):
        raise ValueError("this release cannot be restored from its record")
    return record


def restore_release(record: Mapping[str, Any]) -> Release | ReleaseTable:
    """Return the release of a record.

    Raises:
        LedgerDamaged: the record does not describe a release.
    """
    try:
        shared: dict[str, Any] = {
            "columns": tuple(map(_check_text, record["columns"])),
            "epsilon": float(_check_number(record["epsilon"])),
            "delta": float(_check_number(record["delta"])),
            "neighbors": Neighbors(record["neighbors"]),
            "mechanism": _check_text(record["mechanism"]),
            "per": _check_text(record["per"]),
            "statistic": _check_text(record["statistic"]),
            "parameters": _restore_parameters(record),
            "budget_breakdown": tuple(map(_restore_budget_entry, record["spent"])),
            "warnings": tuple(map(_check_text, record.get("warnings", ()))),
        }
        return _restore_table(record, shared) if "by" in record else _restore_single(record, shared)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        pass
    raise LedgerDamaged("a recorded release cannot be read; restore the ledger from a backup")


def is_release_record(record: Mapping[str, Any]) -> bool:
    """Whether a record describes a release completely: restoring and recording it again gives the same data.

    Raises:
        LedgerDamaged: the record does not describe a release.
    """
    again = _to_plain_data(restore_release(record))
    return again == {"order": again["order"], **record}  # the first ledgers had no order of parameters


@dataclass(frozen=True, kw_only=True)
class RecordedIntervals:
    """Intervals of a recorded release, at the recorded levels. Arrays have shape (groups, columns)."""

    recorded: Mapping[float, tuple[FloatArray, FloatArray]]
    covers: str
    assumption: str = ""

    def ends(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Return (low, high) at a level; InputError for a level that was not recorded."""
        if level not in self.recorded:
            levels = ", ".join(f"{one:g}" for one in self.recorded)
            raise InputError(
                f"a recorded release has intervals only at the levels {levels}; use one of these"
            )
        return self.recorded[level]

    def at(self, level: float) -> Interval:
        """Return the interval of a release without groups."""
        low, high = (tuple(ends[0].tolist()) for ends in self.ends(level))
        return Interval(level=level, low=low, high=high, covers=self.covers, assumption=self.assumption)


@dataclass(frozen=True, kw_only=True)
class RecordedDenominators:
    """Denominators of the groups of a recorded table."""

    recorded: tuple[Denominator, ...]

    def denominators(self) -> list[Denominator]:
        """Return one denominator per group."""
        return list(self.recorded)


def _to_plain_data(release: Release | ReleaseTable) -> dict[str, Any]:
    shared = {
        "columns": list(release.columns),
        "epsilon": release.epsilon,
        "delta": release.delta,
        "neighbors": release.neighbors.value,
        "mechanism": release.mechanism,
        "per": release.per,
        "statistic": release.statistic,
        "parameters": dict(release.parameters),
        "order": list(release.parameters),  # of display; canonical JSON sorts the names
        "spent": [asdict(entry) for entry in release.budget_breakdown],
        **({"warnings": list(release.warnings)} if release.warnings else {}),
    }
    return shared | (_single_fields(release) if isinstance(release, Release) else _table_fields(release))


def _single_fields(release: Release) -> dict[str, Any]:
    details = {level: release.interval_details(level) for level in LEVELS}
    first = details[DEFAULT_LEVEL]
    return {
        "values": list(release.values),
        "n_users": release.n_users,
        "denominator": release.denominator and asdict(release.denominator),
        "intervals": None
        if first is None
        else {
            "covers": first.covers,
            **({"assumption": first.assumption} if first.assumption else {}),
            "ends": [
                [level, [_to_json_numbers(one.low)], [_to_json_numbers(one.high)]]
                for level, one in details.items()
                if one
            ],
        },
    }


def _restore_single(record: Mapping[str, Any], shared: dict[str, Any]) -> Release:
    denominator, n_users, columns = record["denominator"], record["n_users"], len(shared["columns"])
    if n_users is not None and type(n_users) is not int:
        raise TypeError("n_users is not a whole number")
    values = tuple(float(_check_number(value)) for value in record["values"])
    if len(values) != columns:
        raise ValueError("there must be one value per column")
    return Release(
        **shared,
        values=values,
        n_users=n_users,
        interval_rule=_restore_intervals(record["intervals"], 1, columns),
        denominator=None if denominator is None else _restore_denominator(denominator),
    )


def _table_fields(release: ReleaseTable) -> dict[str, Any]:
    intervals = None
    if release.intervals is not None:
        ends = [(level, release.intervals.ends(level)) for level in LEVELS]
        intervals = {
            "covers": release.intervals.covers,
            "ends": [[level, _to_rows(low), _to_rows(high)] for level, (low, high) in ends],
        }
    return {
        "by": list(release.by),
        "keys": [[_to_json_key(one) for one in key] for key in release.keys],
        "values": _to_rows(release.values),
        "max_groups": release.max_groups,
        "public_keys": release.public_keys,
        "refusals": [[row, reason] for row, reason in release.refusals.items()],
        "denominators": [asdict(one) for one in release.denominators],
        "intervals": intervals,
    }


def _restore_table(record: Mapping[str, Any], shared: dict[str, Any]) -> ReleaseTable:
    denominators = tuple(map(_restore_denominator, record["denominators"]))
    groups, columns = len(record["keys"]), len(shared["columns"])
    if any(len(key) != len(record["by"]) for key in record["keys"]) or len(denominators) not in (0, groups):
        raise ValueError("keys, group columns and denominators do not match")
    return ReleaseTable(
        **shared,
        by=tuple(map(_check_text, record["by"])),
        keys=tuple(tuple(_restore_key(one) for one in key) for key in record["keys"]),
        values=_to_array(record["values"], groups, columns),
        max_groups=None if record["max_groups"] is None else int(_check_number(record["max_groups"])),
        public_keys=bool(record["public_keys"]),
        refusals={int(row): _check_text(reason) for row, reason in record["refusals"]},
        intervals=_restore_intervals(record["intervals"], groups, columns),
        measured=RecordedDenominators(recorded=denominators) if denominators else None,
    )


def _restore_intervals(record: Mapping[str, Any] | None, rows: int, columns: int) -> RecordedIntervals | None:
    if record is None:
        return None
    ends = {
        float(_check_number(level)): (_to_array(low, rows, columns), _to_array(high, rows, columns))
        for level, low, high in record["ends"]
    }
    assumption = _check_text(record.get("assumption", ""))
    return RecordedIntervals(recorded=ends, covers=_check_text(record["covers"]), assumption=assumption)


def _restore_denominator(record: Mapping[str, Any]) -> Denominator:
    numbers = {name: _check_number(record[name]) for name in ("value", "low", "high")}
    return Denominator(**numbers, exact=bool(record["exact"]))


def _restore_budget_entry(record: Mapping[str, Any]) -> BudgetEntry:
    if record["unit"] not in get_args(Unit):
        raise ValueError("unknown unit")
    return BudgetEntry(
        what=_check_text(record["what"]), amount=_check_number(record["amount"]), unit=record["unit"]
    )


def _to_rows(numbers: FloatArray) -> list[list[Number]]:
    return [_to_json_numbers(row) for row in numbers.tolist()]


def _to_json_numbers(numbers: Sequence[float]) -> list[Number]:
    """Return numbers as JSON has them: NaN (a group without a value) becomes null, infinities become text."""
    return [one if math.isfinite(one) else None if math.isnan(one) else str(one) for one in numbers]


def _to_array(rows: Sequence[Sequence[Number]], n_rows: int, n_columns: int) -> FloatArray:
    numbers = np.array([[math.nan if one is None else float(one) for one in row] for row in rows])
    return numbers.reshape(n_rows, n_columns)


_KEY_TYPES: dict[str, tuple[type, Any]] = {
    "date": (datetime.date, datetime.date.fromisoformat),
    "decimal": (decimal.Decimal, decimal.Decimal),
    "uuid": (uuid.UUID, uuid.UUID),
}


def _to_json_key(key: Any) -> Any:
    for name, (key_type, _) in _KEY_TYPES.items():
        if isinstance(key, key_type):
            return {name: str(key)}
    return key if key is None or isinstance(key, str | int) else str(key)  # None: a total over this column


def _restore_key(record: Any) -> Any:
    if isinstance(record, dict):
        ((name, text),) = record.items()
        return _KEY_TYPES[name][1](text)
    if not (record is None or isinstance(record, str | int)):
        raise TypeError("not a key")
    return record


def _restore_parameters(record: Mapping[str, Any]) -> dict[str, Any]:
    parameters = record["parameters"]
    order = record.get("order", list(parameters))
    if sorted(order) != sorted(parameters):
        raise ValueError("the order names other parameters")
    return {name: _check_parameter(parameters[name]) for name in order}


def _check_parameter(value: Any, depth: int = 4) -> Any:
    """Return a parameter that consists of numbers, texts and flags, and of lists and mappings of them."""
    if isinstance(value, list) and depth > 0:
        return [_check_parameter(one, depth - 1) for one in value]
    if isinstance(value, dict) and depth > 0:
        return {name: _check_parameter(one, depth - 1) for name, one in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError("not a parameter")


def _check_number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise TypeError("not a number")
    return value


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
