"""What a ledger keeps of a release comes back to the last bit; what it cannot keep is handed over all the same."""

from __future__ import annotations

import datetime
import json
import math
import uuid
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hubermean as hm
from helpers.ledger_asks import ask, kinds
from hubermean.mechanisms.base import Outcome
from hubermean.mechanisms.clipped.mechanism import Clipped
from hubermean.release.records import record_release, restore_release


def releases() -> Iterator[tuple[str, Callable[[], Any]]]:
    generator = np.random.default_rng(5)
    means = generator.normal(5.0, 1.0, (5_000, 2))
    table = pa.table(
        {
            "u": np.arange(4_000),
            "v": generator.normal(size=4_000),
            "day": [datetime.date(2024, 1, 1 + k % 3) for k in range(4_000)],
            "n": generator.integers(0, 3, 4_000),
        }
    )
    yield "one", lambda: hm.mean_of_user_means(means[:, 0], epsilon=1)
    yield "two", lambda: hm.mean_of_user_means(means, epsilon=1, delta=1e-6)
    yield (
        "inverse-sensitivity",
        lambda: hm.mean_of_user_means(
            means[:, 0], epsilon=1, mechanism="inverse-sensitivity", threshold=5, radius=100
        ),
    )
    yield "count", lambda: hm.count(table, user="u", epsilon=1)
    common: dict[str, Any] = {"user": "u", "value": "v", "epsilon": 5.0, "bounds": (-3, 3), "per": "user"}
    yield "dates", lambda: hm.mean(table, by="day", delta=1e-6, **common)
    yield "numbers", lambda: hm.mean(table, by="n", keys=[0, 1, 7], **common)
    yield "both", lambda: hm.mean(table, by=["n", "day"], delta=1e-6, **common)
    yield "none", lambda: hm.mean(table.slice(0, 3), by="day", delta=1e-6, **common)


@pytest.mark.parametrize(
    ("name", "make"), list(releases()), ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_release_comes_back_to_the_last_bit(name: str, make: Callable[[], Any]) -> None:
    release = make()
    back = restore_release(record_release(release))
    assert back.to_dict() == json.loads(release.to_json())
    assert repr(back) == repr(release)
    assert back.to_json() == release.to_json()
    if isinstance(release, hm.ReleaseTable):
        assert back.keys == release.keys  # type: ignore[union-attr]
        assert release.to_arrow().equals(back.to_arrow())  # type: ignore[union-attr]


def test_every_kind_of_key_comes_back() -> None:
    from hubermean.release.records import _restore_key, _to_json_key

    for key in ("a", 3, True, 10**30, datetime.date(2024, 2, 29), Decimal("1.50"), uuid.uuid4()):
        back = _restore_key(json.loads(json.dumps(_to_json_key(key))))
        assert back == key
        assert type(back) is type(key)


@pytest.mark.parametrize("kept", [{}, {"columns": 3}, {"columns": ["a"], "epsilon": "x"}, {"by": None}])
def test_what_is_no_release_is_damage(kept: dict[str, Any]) -> None:
    with pytest.raises(hm.LedgerDamaged):
        restore_release(kept)


def test_a_release_that_cannot_be_recorded_is_handed_over_with_a_warning(
    ledger: hm.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise hm.LedgerUnavailable("the disk is full")

    monkeypatch.setattr(ledger, "conclude", full)
    with pytest.warns(hm.NotRecorded, match="entry 2"):
        release = ask(ledger)
    assert math.isfinite(release.value)
    assert kinds(ledger) == ["opened", "charged"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hm.NotRecorded)
        assert not ask(ledger).receipt.again


@pytest.mark.parametrize(
    ("values", "parameters"),
    [
        ((1.5,), {"a": {"b": [1, None, "c", True]}}),
        ((1.5,), {"a": (1, 2)}),
        ((2**60 + 1,), {}),
        ((math.nan,), {}),
        ((1.5,), {"a": {1, 2}}),
        ((1.5,), {"a": [[[[[[1]]]]]]}),
        ((1.5, 2.5), {}),
    ],
    ids=str,
)
def test_what_a_mechanism_of_ones_own_makes_never_damages_a_ledger(
    ledger: hm.Ledger, values: Any, parameters: Any
) -> None:
    """It comes back as it is, or is handed over with a warning that it was not kept."""

    class Odd(Clipped):
        def prepare(self, request: Any, facts: Any) -> Any:
            class Run:
                def run(self, table: Any, noise: Any) -> Any:
                    return Outcome(values=values, parameters=parameters)

            return Run()

    mechanism = Odd(bounds=(0, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = ask(ledger, mechanism=mechanism, bounds=None)
        kept = not caught
        assert first.values is values
        again = ask(ledger, mechanism=mechanism, bounds=None)
    assert again.receipt.again is kept
    if kept:
        assert again.values == first.values
        assert json.loads(again.to_json())["parameters"] == json.loads(json.dumps(parameters))
    assert ledger.verify().sound


def test_where_warnings_are_errors_the_receipt_says_that_nothing_was_recorded(
    ledger: hm.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise hm.LedgerUnavailable("the disk is full")

    monkeypatch.setattr(ledger, "conclude", full)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release = ask(ledger)
    assert release.receipt.recorded is False
    assert "could not be recorded: keep it" in " ".join(repr(release).split())
