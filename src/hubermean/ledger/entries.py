"""Entries of a ledger and the questions they are about.

    opened         a data set: its total, its neighbor relation, its composition, its user columns
    charged        a charge, committed before anything private was computed
    released       the outcome of a charge: the release, exactly
    not-released   the outcome of a charge: a private step decided against a release, and what had been used by then
    refunded       what a refusal did not use, given back; right after the refusal, in the same transaction
    failed         the outcome of a charge: an error interrupted the release
    spent          a charge for something that is released outside of the ledger
    refused        a request that exceeded the remaining budget; costs nothing

Each entry holds the digest of the entry before it, so none can be removed, changed or moved unnoticed. Nothing in an
entry comes from the data, except for what was released.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from hubermean.errors import InputError, LedgerDamaged, parameter, printable
from hubermean.ledger.amounts import Cost

Kind = Literal["opened", "charged", "released", "not-released", "refunded", "failed", "spent", "refused"]
KINDS = get_args(Kind)
CHARGES = ("charged", "spent")
OUTCOMES = ("released", "not-released", "failed")
ANSWERS = ("released", "not-released")
"""Outcomes that are returned again, at no cost, when the same question is repeated."""

GENESIS = hashlib.sha256(b"hubermean ledger").hexdigest()
"""The digest that the first entry refers to."""
LARGEST_BODY = 256_000_000
"""Characters of the largest entry: a table of a million groups takes about a hundred million."""
LONGEST_NAME = 200
"""Characters of the longest name of a data set, a column or a question."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is computed from a data set, in public terms.

    Attributes:
        digest: identifies the question; two questions with the same digest have the same answer.
        description: what the ledger shows of the question.
        user_columns: the columns that identify a user; empty if the caller supplied one mean per user.
        by_whom: who asks; not part of the question.
        lasting: whether the question is recognised in other processes too; that of an unnamed data frame is not.
    """

    digest: str
    description: Mapping[str, Any]
    user_columns: tuple[str, ...]
    by_whom: str = ""
    lasting: bool = True


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row of a ledger. `body` is the canonical JSON that the digest covers."""

    number: int
    dataset: str
    kind: str
    body: str
    previous: str
    digest: str

    @classmethod
    def after(
        cls, number: int, previous: str, *, dataset: str, kind: Kind, content: Mapping[str, Any]
    ) -> Entry:
        """Return the entry that follows entry `number` with the digest `previous`.

        Raises:
            InputError: the content is larger than `LARGEST_BODY`.
        """
        body = to_canonical_json(content)
        if len(body) > LARGEST_BODY:
            raise InputError(f"an entry of a ledger can have at most {LARGEST_BODY:,} characters")
        fields = {
            "number": number + 1,
            "dataset": dataset,
            "kind": kind,
            "body": body,
            "previous": previous,
        }
        return cls(**fields, digest=_compute_digest(**fields))  # type: ignore[arg-type]

    @property
    def is_intact(self) -> bool:
        """Whether the digest matches the other fields."""
        return self.digest == _compute_digest(self.number, self.dataset, self.kind, self.body, self.previous)

    @cached_property
    def content(self) -> dict[str, Any]:
        """The body as data; LedgerDamaged if it is not a JSON object."""
        try:
            content = json.loads(self.body, parse_float=_parse_finite, parse_constant=_parse_finite)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise LedgerDamaged(f"entry {self.number} cannot be read", entry=self.number)
        return content

    @property
    def spent(self) -> Cost:
        """What the data set had spent after this entry."""
        return self.read_cost("spent")

    def read_cost(self, field: str) -> Cost:
        """Return an amount of the content; LedgerDamaged if it is not a valid amount."""
        try:
            return Cost.read(self.content.get(field))
        except LedgerDamaged:
            raise LedgerDamaged(
                f"the amount {field!r} of entry {self.number} cannot be read", entry=self.number
            ) from None

    def read_text(self, field: str) -> str:
        """Return a text of the content; LedgerDamaged if it is missing or not a text."""
        text = self.content.get(field)
        if not isinstance(text, str):
            raise LedgerDamaged(f"entry {self.number} has no {field}", entry=self.number)
        return text


def name_asker(by_whom: str | None) -> str:
    """Return who asks: a given name, by default that of the system's user, empty where the system has none."""
    if by_whom is not None:
        return check_name(by_whom, "by_whom")
    try:
        return printable(getpass.getuser())[:LONGEST_NAME]
    except (OSError, KeyError, ImportError):  # a container may have no name for its user
        return ""


def check_name(name: object, what: str) -> str:
    """Return a name that can be shown as it is; InputError otherwise."""
    if not isinstance(name, str) or not is_name(name):
        raise InputError(f"{parameter(what)} must be a text of 1 to {LONGEST_NAME} printable characters")
    return name


def is_name(name: str) -> bool:
    """Whether a text can be shown as it is, as a name."""
    return bool(name.strip()) and len(name) <= LONGEST_NAME and printable(name) == name


def to_canonical_json(content: Any) -> str:
    """Return the canonical JSON of data: ASCII, sorted names, no spaces."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def compute_digest(content: Any) -> str:
    """Return the SHA-256 of the canonical JSON of data."""
    return hashlib.sha256(to_canonical_json(content).encode("ascii")).hexdigest()


def _compute_digest(number: int, dataset: str, kind: str, body: str, previous: str) -> str:
    # A JSON list, so that two different rows never give the same text.
    return compute_digest([number, dataset, kind, body, previous])


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("not a JSON number")
    return number
