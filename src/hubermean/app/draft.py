"""`Draft`: what somebody asks for, as the forms say it, and the call of the public API that it stands for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from hubermean import _api as api
from hubermean.errors import InputError
from hubermean.ledger.entries import check_name
from hubermean.release.ledger import Ledger
from hubermean.types.dry_run import DryRun
from hubermean.types.options import TextOptions
from hubermean.types.release import Release
from hubermean.types.release_table import ReleaseTable

Fields = Mapping[str, Sequence[str]]

DEFAULT_EPSILON = 1.0
_MOST_COLUMNS, _MOST_KEYS = 100, 1000
_DRAFT = (
    "table", "statistic", "of", "user", "value", "per", "by", "keys", "max_groups", "bounds", "max_records",
    "n_users",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A release that is being planned. Names are those of `hubermean.mean` and `hubermean.count`.

    Attributes:
        table: the id of the table.
        statistic: "mean" or "count".
        of, user, value, per, by, keys, max_groups, max_records, n_users, epsilon, delta, fresh: as in the API.
        bounds: low and high, None for an open end; empty if not given.
    """

    table: str
    statistic: str = "mean"
    of: str = "users"
    user: tuple[str, ...] = ()
    value: tuple[str, ...] = ()
    per: str = "record"
    by: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    max_groups: int | None = None
    bounds: tuple[float | None, ...] = ()
    max_records: int | None = None
    n_users: int | None = None
    epsilon: float = DEFAULT_EPSILON
    delta: float = 0.0
    fresh: bool = False

    @classmethod
    def read(cls, given: Fields) -> Draft:
        """Return what the fields of a form or an address say; InputError where they cannot be read."""
        statistic = _choose(given, "statistic", ("mean", "count"))
        by = _names(given, "by")
        ends = (_number(given, "bounds_low"), _number(given, "bounds_high"))
        lines = [line.strip() for text in given.get("keys", ()) for line in text.splitlines()]
        keys = tuple(check_name(line, "keys") for line in lines if line)
        if len(keys) > _MOST_KEYS:
            raise InputError(f"give at most {_MOST_KEYS:,} groups here; use the command line for more")
        if keys and len(by) != 1:
            raise InputError("public groups are for one group column; choose one, or leave the list empty")
        is_mean = statistic == "mean"
        epsilon, delta = _number(given, "epsilon"), _number(given, "delta")
        return cls(
            table=_text(given, "table", strip=False),
            statistic=statistic,
            of="users" if is_mean else _choose(given, "of", ("users", "records")),
            user=_names(given, "user"),
            value=_names(given, "value") if is_mean else (),
            per=_choose(given, "per", ("record", "user")) if is_mean else "record",
            by=by,
            keys=keys,
            max_groups=_whole(given, "max_groups") if by else None,
            bounds=ends if is_mean and ends != (None, None) else (),
            max_records=_whole(given, "max_records"),
            n_users=_whole(given, "n_users"),
            epsilon=DEFAULT_EPSILON if epsilon is None else epsilon,
            delta=0.0 if delta is None else delta,
            fresh=_text(given, "fresh") == "yes",
        )

    @classmethod
    def restore(cls, stored: Mapping[str, Any]) -> Draft:
        """Return the draft that `to_dict` wrote."""
        content: dict[str, Any] = {
            name: tuple(one) if isinstance(one, list) else one for name, one in stored.items()
        }
        return cls(**content)

    def to_dict(self) -> dict[str, Any]:
        """Return the draft as plain data."""
        return {name: list(one) if isinstance(one, tuple) else one for name, one in asdict(self).items()}

    def to_fields(self, *, budget: bool = True) -> list[tuple[str, str]]:
        """Return the fields of a form that say the same; with `budget`, also epsilon, delta and fresh."""
        plain = {field.name: field.default for field in fields(self)}
        pairs: list[tuple[str, str]] = []
        for name in _DRAFT:
            own = getattr(self, name)
            if name == "bounds":
                ends = zip(("bounds_low", "bounds_high"), own, strict=False)
                pairs += [(end, f"{bound!r}") for end, bound in ends if bound is not None]
            elif name == "keys":
                pairs += [("keys", "\n".join(own))] if own else []
            elif isinstance(own, tuple):
                pairs += [(name, one) for one in own]
            elif own != plain[name]:
                pairs.append((name, str(own)))
        if budget:
            pairs += [("epsilon", f"{self.epsilon!r}"), ("delta", f"{self.delta!r}")]
            pairs += [("fresh", "yes")] if self.fresh else []
        return pairs

    def check(self) -> None:
        """Raise InputError where a column is missing."""
        if not self.user:
            raise InputError("choose the column that identifies a user")
        if self.statistic == "mean" and not self.value:
            raise InputError("choose a column to average")

    @property
    def title(self) -> str:
        """What is released, in words."""
        by = f" by {', '.join(self.by)}" if self.by else ""
        if self.statistic == "count":
            return f"Number of {self.of}{by}"
        what = "Mean" if self.per == "record" else "Mean of user means"
        return f"{what} of {', '.join(self.value)}{by}"

    def keywords(self, *, neighbors: str, text: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keywords of the API in the order in which a reader wants them; defaults are left out."""
        words: dict[str, Any] = {"user": _one_or_list(self.user)}
        if self.statistic == "mean":
            words["value"] = _one_or_list(self.value)
        elif self.of != "users":
            words["of"] = self.of
        words["epsilon"] = self.epsilon
        if self.delta > 0:
            words["delta"] = self.delta
        if self.by:
            words["by"] = _one_or_list(self.by)
            if self.keys:
                words["keys"] = list(self.keys)
            if self.max_groups is not None:
                words["max_groups"] = self.max_groups
        if self.statistic == "mean" and self.per != "record":
            words["per"] = self.per
        if self.bounds:
            words["bounds"] = tuple(self.bounds)
        if self.max_records is not None:
            words["max_records"] = self.max_records
        if self.n_users is not None:
            words["n_users"] = self.n_users
        if neighbors != "add-remove":
            words["neighbors"] = neighbors
        return words | dict(text)

    def call(
        self,
        data: Any,
        *,
        neighbors: str,
        text: Mapping[str, Any],
        ledger: Ledger,
        dataset: str,
        by_whom: str,
        dry_run: bool = False,
    ) -> Release | ReleaseTable | DryRun:
        """Make the release, or its dry run, with the public function of the statistic."""
        self.check()
        function: Any = api.mean if self.statistic == "mean" else api.count
        made: Release | ReleaseTable | DryRun = function(
            data,
            **self.keywords(neighbors=neighbors, text=text),
            ledger=ledger,
            dataset=dataset,
            by_whom=by_whom,
            fresh=self.fresh,
            dry_run=dry_run,
        )
        return made


def read_text_options(given: Fields) -> dict[str, Any]:
    """Return how a text file is written, as far as it differs from the default."""
    plain = {field.name: field.default for field in fields(TextOptions)}
    chosen = {
        name: one
        for name in ("decimal", "thousands", "currency", "null", "delimiter", "encoding")
        if (one := _text(given, name, strip=name not in ("thousands", "delimiter"))) and one != plain[name]
    }
    if chosen.get("delimiter") == "\\t":
        chosen["delimiter"] = "\t"
    return chosen


def _one_or_list(names: Sequence[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)


def _text(given: Fields, name: str, *, strip: bool = True) -> str:
    texts = given.get(name, ())
    if len(texts) > 1:
        raise InputError(f"{name} is given twice; give it once")
    text = texts[0] if texts else ""
    return text.strip() if strip else text


def _choose(given: Fields, name: str, choices: Sequence[str]) -> str:
    chosen = _text(given, name) or choices[0]
    if chosen not in choices:
        raise InputError(f"{name} must be {' or '.join(choices)}")
    return chosen


def _names(given: Fields, name: str) -> tuple[str, ...]:
    names = tuple(check_name(one, name) for one in given.get(name, ()) if one.strip())
    if len(names) > _MOST_COLUMNS:
        raise InputError(f"choose at most {_MOST_COLUMNS} columns")
    return names


def _number(given: Fields, name: str) -> float | None:
    text = _text(given, name)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{LABELS.get(name, name)} must be a number such as 0.5")
    return number


def _whole(given: Fields, name: str) -> int | None:
    text = _text(given, name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InputError(f"{LABELS.get(name, name)} must be a whole number such as 5")
    return int(text)


LABELS = {
    "user": "the user column",
    "value": "the value column",
    "by": "the group column",
    "keys": "the list of public groups",
    "bounds": "the limits of the values",
    "bounds_low": "the lowest value",
    "bounds_high": "the highest value",
    "max_groups": "the number of groups per user",
    "max_records": "the number of records per user",
    "n_users": "the number of users",
    "expected_records": "the number of records",
    "epsilon": "epsilon",
    "delta": "delta",
    "dataset": "the name of the data set",
    "decimal": "the decimal mark",
    "thousands": "the thousands separator",
    "currency": "the sign beside numbers",
    "fresh": "asking again",
    "threshold": "--threshold",
    "radius": "--radius (on the command line)",
}
"""What the forms call a parameter."""
