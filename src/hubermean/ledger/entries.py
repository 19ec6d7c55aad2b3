"""Entries: what a ledger is made of. Each holds the digest of the one before: none can be taken out, changed or moved.

    opened         a data set: its total, its relation, how costs add up, who is a user
    charged        paid, before anything private was computed
    released       what came out of a charge, word for word
    not-released   a charge whose mechanism's own test said no
    failed         a charge whose release was interrupted by an error
    spent          paid for something that is released elsewhere
    refused        asked for, but there was too little left; costs nothing

Nothing in an entry comes from the data but what was released.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from hubermean.errors import LedgerDamaged
from hubermean.ledger.amounts import Cost

Kind = Literal["opened", "charged", "released", "not-released", "failed", "spent", "refused"]
KINDS = get_args(Kind)
CHARGES = ("charged", "spent")
OUTCOMES = ("released", "not-released", "failed")
ANSWERS = ("released", "not-released")
"""Outcomes that are given again, at no cost, when the same is asked again."""

GENESIS = hashlib.sha256(b"hubermean ledger").hexdigest()
"""What the first entry follows."""
LARGEST_BODY = 256_000_000
"""Characters of the largest entry: a table of a million groups takes about a hundred million."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row. `body` is JSON as it was written, which is what the digest is of."""

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
        """The entry that follows entry `number` with the digest `previous`."""
        body = canonical(content)
        fields = {
            "number": number + 1,
            "dataset": dataset,
            "kind": kind,
            "body": body,
            "previous": previous,
        }
        return cls(**fields, digest=_digest(**fields))  # type: ignore[arg-type]

    @property
    def is_whole(self) -> bool:
        """Whether it is as it was written."""
        return self.digest == _digest(self.number, self.dataset, self.kind, self.body, self.previous)

    @cached_property
    def content(self) -> dict[str, Any]:
        """The body as data; LedgerDamaged where it is none."""
        try:
            content = json.loads(self.body, parse_float=_finite, parse_constant=_finite)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise LedgerDamaged(f"entry {self.number} cannot be read", entry=self.number)
        return content

    @property
    def spent(self) -> Cost:
        """What the data set had spent after this entry."""
        return self.cost_of("spent")

    def cost_of(self, field: str) -> Cost:
        try:
            return Cost.read(self.content.get(field))
        except LedgerDamaged:
            raise LedgerDamaged(
                f"entry {self.number} holds no amount that can be read", entry=self.number
            ) from None

    def text_of(self, field: str) -> str:
        given = self.content.get(field)
        if not isinstance(given, str):
            raise LedgerDamaged(f"entry {self.number} lacks its {field}", entry=self.number)
        return given


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("no number that JSON has")
    return number


def canonical(content: Any) -> str:
    """The one way in which data is written as JSON: in ASCII, sorted, without spaces."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest_of(content: Any) -> str:
    return hashlib.sha256(canonical(content).encode("ascii")).hexdigest()


def _digest(number: int, dataset: str, kind: str, body: str, previous: str) -> str:
    # Written as JSON, so that no two different rows are the same text.
    return digest_of([number, dataset, kind, body, previous])
