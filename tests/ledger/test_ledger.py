"""The ledger: every release is charged first, charges never pass the total, and the same question costs nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from helpers.ledger_asks import TRIPS, ask, kinds, spent
from hubermean.ledger import store
from hubermean.mechanisms.clipped.mechanism import Clipped

# --- charging ---------------------------------------------------------------------------------------------------------


def test_a_release_is_charged_and_recorded(ledger: hm.Ledger) -> None:
    release = ask(ledger, 0.25)
    assert kinds(ledger) == ["opened", "charged", "released"]
    # Beside the time of the charge, that of the record would tell how long the release took.
    assert ["at" in entry.content for entry in ledger.entries()] == [True, True, False]
    assert spent(ledger) == Decimal("0.25")
    assert release.receipt.charged == "epsilon = 0.25"
    assert release.receipt.left == "epsilon = 0.75, delta = 1e-05"
    assert json.loads(release.to_json())["ledger"]["entry"] == 3
    assert "0.25 charged" in repr(release)
    assert ledger.verify().sound


def test_ten_tenths_are_one(ledger: hm.Ledger) -> None:
    for number in range(10):
        ask(ledger, 0.1, question=f"number {number}")
    assert spent(ledger) == 1
    with pytest.raises(hm.BudgetExhausted, match="nothing more can be released"):
        ask(ledger, 1e-9)


def test_what_does_not_fit_is_refused_before_the_data_is_read(ledger: hm.Ledger) -> None:
    ask(ledger, 0.75)

    class Unread:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            raise AssertionError("the data was read")

    with pytest.raises(
        hm.BudgetExhausted, match=r"has epsilon = 0\.25, .* left, but this release costs epsilon = 0\.5"
    ) as error:
        ask(ledger, 0.5, data=Unread())
    assert (error.value.exit_code, error.value.epsilon, error.value.delta) == (3, 0.25, 1e-5)
    assert kinds(ledger)[-1] == "refused"
    assert spent(ledger) == Decimal("0.75")
    assert ask(ledger, 0.25, question="what is left").receipt.left.startswith("epsilon = 0,")
    assert ledger.verify().sound


def test_delta_is_a_budget_of_its_own(ledger: hm.Ledger) -> None:
    ask(ledger, 0.1, delta=8e-6)
    with pytest.raises(hm.BudgetExhausted, match="use a smaller delta"):
        ask(ledger, 0.1, delta=3e-6)
    ask(ledger, 0.1, delta=2e-6)
    with pytest.raises(hm.BudgetExhausted, match=r"delta = 0 left, .*; use delta = 0$"):
        ask(ledger, 0.1, delta=1e-6)


def test_the_charge_is_on_disk_before_the_mechanism_runs(place: str) -> None:
    """Looked at from another connection, while the mechanism runs."""
    seen: list[list[str]] = []

    class Watching(Clipped):
        def prepare(self, request: Any, facts: Any) -> Any:
            inner = super().prepare(request, facts)

            class Run:
                def run(self, table: Any, noise: Any) -> Any:
                    with hm.Ledger(place) as other:
                        seen.append(kinds(other))
                    return inner.run(table, noise)

            return Run()

    with hm.Ledger(place) as ledger:
        ledger.init("trips", epsilon=1)
        hm.mean(
            TRIPS,
            user="rider",
            value="fare",
            per="user",
            epsilon=1,
            mechanism=Watching(bounds=(0, 1)),
            ledger=ledger,
            dataset="trips",
        )
        assert seen == [["opened", "charged"]]
        assert kinds(ledger) == ["opened", "charged", "released"]


class Failing(Clipped):
    error: BaseException = RuntimeError("inner")

    def prepare(self, request: Any, facts: Any) -> Any:
        error = self.error

        class Run:
            def run(self, table: Any, noise: Any) -> Any:
                raise error

        return Run()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("a value: 12.5"), "failed"),
        (KeyboardInterrupt(), "failed"),
        (hm.NotReleased("no; raise epsilon", epsilon=0.5, delta=0.0), "not-released"),
    ],
)
def test_what_fails_or_is_refused_costs_what_it_was_charged(
    ledger: hm.Ledger, error: BaseException, kind: str
) -> None:
    mechanism = Failing(bounds=(0, 1))
    object.__setattr__(mechanism, "error", error)
    with pytest.raises(type(error)):
        ask(ledger, 0.5, mechanism=mechanism, bounds=None)
    assert kinds(ledger) == ["opened", "charged", kind]
    assert spent(ledger) == Decimal("0.5")
    assert not any("12.5" in entry.body for entry in ledger.entries())
    assert ledger.verify().sound


def test_bad_input_costs_nothing(ledger: hm.Ledger, tmp_path: Path) -> None:
    for changed in (
        {"value": "nothing"},
        {"bounds": (1, 0)},
        {"epsilon": -1},
        {"data": str(tmp_path / "none.csv")},
        {"neighbors": "friends"},
    ):
        with pytest.raises(hm.InputError):
            ask(ledger, **changed)  # type: ignore[arg-type]
    assert kinds(ledger) == ["opened"]


# --- the same question ------------------------------------------------------------------------------------------------


def test_the_same_question_is_answered_from_the_record(ledger: hm.Ledger, tmp_path: Path) -> None:
    path = tmp_path / "trips.parquet"
    pq.write_table(TRIPS, path)
    first = ask(ledger, data=path)
    again = ask(ledger, data=str(path))
    assert again == first
    assert again.interval() == first.interval()
    assert again.interval(0.9) == first.interval(0.9)
    assert again.receipt.again
    assert "nothing was charged" in repr(again)
    assert spent(ledger) == Decimal("0.25")
    with pytest.raises(hm.InputError, match=r"only at the levels 0\.5, 0\.8, 0\.9, 0\.95, 0\.99;"):
        again.interval(0.123)
    assert ask(ledger, data=path, fresh=True).receipt.again is False
    assert spent(ledger) == Decimal("0.5")


def test_the_record_answers_without_the_data(ledger: hm.Ledger, tmp_path: Path) -> None:
    """Not even whether the file has changed may decide, since that would tell about what is in it."""
    path = tmp_path / "trips.parquet"
    pq.write_table(TRIPS, path)
    first = ask(ledger, data=path)
    path.unlink()
    assert ask(ledger, data=path) == first


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon": 0.2},
        {"delta": 1e-9},
        {"value": "rider", "user": "fare"},
        {"bounds": (0, 101)},
        {"neighbors": "replace-values"},
        {"non_finite": "clamp"},
        {"resolution": 0.5},
        {"by": "city", "keys": ["a"], "max_groups": 1, "mechanism": "clipped"},
        {"mechanism": "clipped"},
        {"question": "another"},
        {"data": TRIPS.slice(1)},
        {"data": TRIPS.slice(0)},
    ],
    ids=str,
)
def test_another_question_is_charged(place: str, changed: dict[str, Any]) -> None:
    with hm.Ledger(place) as ledger:
        # About values, so that all relations may ask.
        ledger.init("trips", epsilon=5, delta=1e-5, neighbors="replace-values")
        ask(ledger)
        if "user" in changed:
            with pytest.raises(hm.InputError, match="identifies users by rider"):
                ask(ledger, **changed)
            return
        other = ask(ledger, **changed)
        assert not other.receipt.again
        assert kinds(ledger).count("charged") == 2


def test_frames_are_the_same_while_they_are_the_same_object_or_named(ledger: hm.Ledger) -> None:
    frame = pl.from_arrow(TRIPS)
    first = ask(ledger, data=frame)
    assert ask(ledger, data=frame) == first
    assert not ask(ledger, data=pl.from_arrow(TRIPS)).receipt.again
    named = ask(ledger, data=pl.from_arrow(TRIPS), question="all trips")
    assert ask(ledger, data=frame, question="all trips") == named


@dataclass(frozen=True)
class Rounding:
    """A number whose repr does not tell it from others near it, like those in an array or a series."""

    number: float

    def __iter__(self) -> Iterator[float]:
        return iter((0.0, self.number))

    def __repr__(self) -> str:
        return f"{self.number:.3f}"


@dataclass(frozen=True)
class Own(Clipped):
    """A mechanism of the caller's own, whose code may be another tomorrow."""


@pytest.mark.parametrize(
    "nearly_the_same",
    [
        lambda end: {"bounds": [np.array([0.0, end])]},
        lambda end: {"bounds": (Fraction(0), Fraction(end))},
        lambda end: {"bounds": pd.Series([0.0, end]).to_numpy()},
        lambda end: {"bounds": [pd.Series([0.0, end])]},
        lambda end: {"bounds": Rounding(end)},
        lambda end: {"bounds": None, "mechanism": Clipped(bounds=np.array([0.0, end]))},  # type: ignore[arg-type]
        lambda end: {"bounds": None, "mechanism": Clipped(bounds=(0.0, end))},
        lambda end: {"bounds": None, "mechanism": Own(bounds=(0.0, 100.0))},
    ],
)
def test_questions_that_only_look_the_same_are_charged(
    ledger: hm.Ledger, nearly_the_same: Callable[[float], dict[str, Any]]
) -> None:
    for end in (100.0, 100.0000000001):
        try:
            release = ask(ledger, **nearly_the_same(end))
        except hm.InputError:  # no bounds at all: just as well
            continue
        assert not release.receipt.again


def test_a_mechanism_is_the_same_if_it_says_all_there_is_to_it_or_is_the_same_object(
    ledger: hm.Ledger,
) -> None:
    own = Own(bounds=(0.0, 100.0))
    for first, second in ((Clipped(bounds=(0, 100)), Clipped(bounds=(0, 100))), (own, own)):
        assert not ask(ledger, bounds=None, mechanism=first).receipt.again
        assert ask(ledger, bounds=None, mechanism=second).receipt.again


def test_user_means_are_charged_too(ledger: hm.Ledger) -> None:
    options: dict[str, Any] = {"epsilon": 0.5, "bounds": (0, 10), "ledger": ledger, "dataset": "trips"}
    means = np.array([1.0, 2.0, 3.0])
    first = hm.mean_of_user_means(means, **options)
    assert hm.mean_of_user_means(means, **options) == first
    assert hm.mean_of_user_means([1.0, 2.0], **options).receipt.left.startswith("epsilon = 0,")  # type: ignore[union-attr]


def test_other_counts_of_the_same_means_are_another_question(ledger: hm.Ledger) -> None:
    means, counts = np.array([1.0, 2.0, 3.0]), np.array([1, 1, 1])
    options: dict[str, Any] = {"epsilon": 0.25, "bounds": (0, 10), "max_records": 9, "per": "record"}

    def asked(counts: Any) -> bool:
        release = hm.mean_of_user_means(means, counts, ledger=ledger, dataset="trips", **options)
        assert release.receipt is not None
        return release.receipt.again

    assert [asked(counts), asked(counts)] == [False, True]
    assert not asked(np.array([1, 1, 9]))
    assert not asked(None)


def test_a_recorded_refusal_is_given_again_at_no_cost(ledger: hm.Ledger) -> None:
    far = np.where(np.arange(20_000) % 2, 1e3, -1e3)
    options: dict[str, Any] = {
        "mechanism": "propose-test-release",
        "threshold": 1.0,
        "radius": 1e4,
        "epsilon": 0.5,
        "delta": 1e-6,
        "ledger": ledger,
        "dataset": "trips",
    }
    with pytest.raises(hm.NotReleased) as first:
        hm.mean_of_user_means(far, **options)
    with pytest.raises(hm.NotReleased, match="recorded in entry 3") as again:
        hm.mean_of_user_means(far, **options)
    assert str(first.value) in str(again.value)
    assert (again.value.epsilon, spent(ledger)) == (0.0, Decimal("0.5"))


def test_many_threads_that_ask_the_same_get_one_answer_afterwards(place: str) -> None:
    with hm.Ledger(place) as ledger:
        ledger.init("trips", epsilon=0.5)
        results: list[Any] = []

        def work() -> None:
            try:
                results.append(ask(ledger, 0.125, question="the same"))
            except hm.BudgetExhausted as error:
                results.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 8
        assert spent(ledger) <= Decimal("0.5")
        assert ledger.verify().sound


def test_a_query_does_not_make_public_how_many_users_it_finds(ledger: hm.Ledger, tmp_path: Path) -> None:
    """Who is in the result of a query depends on what they hold, so that their number is not public there."""
    pq.write_table(TRIPS, tmp_path / "t.parquet")
    query = hm.sql("select * from t where fare > 11", files=[tmp_path / "t.parquet"])
    with duckdb.connect() as connection:
        found = connection.read_parquet(str(tmp_path / "t.parquet")).filter("fare > 11")
        with pytest.raises(hm.InputError, match="use neighbors='add-remove'"):
            ask(ledger, data=found, neighbors="replace-user")
    for relation in ("replace-user", "replace-values"):
        for call in (
            lambda relation=relation: ask(ledger, data=query, neighbors=relation),
            lambda relation=relation: hm.count(
                query, user="rider", epsilon=0.1, neighbors=relation, ledger=ledger, dataset="trips"
            ),
        ):
            with pytest.raises(hm.InputError, match="use neighbors='add-remove'"):
                call()
    assert kinds(ledger) == ["opened"]
    release = ask(ledger, 0.25, data=query)
    assert release.n_users is None
    assert spent(ledger) == Decimal("0.25")
    ledger.init("replaced", epsilon=1.0, delta=1e-5, neighbors="replace-user")
    ask(ledger, 0.25, data=query, dataset="replaced")
    assert ledger.dataset("replaced").spent.loss == Decimal("0.5")


# --- looking while others write ---------------------------------------------------------------------------------------


def test_a_ledger_can_be_used_while_its_entries_are_looked_at(ledger: hm.Ledger, place: str) -> None:
    """In the same thread, in another, and by somebody else; also if the rest is never looked at."""
    looking = ledger.entries()
    assert next(looking).kind == "opened"
    ask(ledger, 0.25, question="one")
    thread = threading.Thread(target=ask, args=(ledger, 0.25), kwargs={"question": "two"})
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    with hm.Ledger(place) as other:
        other.spend("trips", epsilon=0.25)
    assert [entry.kind for entry in looking] == ["charged", "released", "charged", "released", "spent"]
    assert ledger.verify().sound


def test_entries_are_read_in_blocks_that_can_be_held(
    ledger: hm.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        ledger.spend("trips", epsilon=0.01, note=f"number {number}")
    everything = list(ledger.entries())
    longest = max(len(entry.body) for entry in everything)
    for characters, held in ((1, [1]), (2 * longest, [2, 3]), (10**9, [len(everything)])):
        monkeypatch.setattr(store, "BLOCK_CHARACTERS", characters)
        with ledger._store.reading() as rows:
            assert len(rows.block(0)) in held
            assert list(rows.entries()) == everything
        assert list(ledger.entries()) == everything
        assert ledger.verify().sound
