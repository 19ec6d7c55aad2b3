"""Warnings beside a release: when they appear, and that they come from public and released numbers alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hubermean as hm
from hubermean.mechanisms.base import Outcome
from hubermean.release.warnings import compare_records
from hubermean.types.release import Denominator

GIVEN: dict[str, Any] = {"user": "u", "value": "v", "epsilon": 1.0, "bounds": (0, 10), "max_records": 4}


def records(users: int, each: int = 2) -> pa.Table:
    return pa.table({"u": np.repeat(np.arange(users), each), "v": np.ones(users * each)})


def groups(**more: Any) -> hm.ReleaseTable:
    table = pa.table({"u": [1, 1, 2], "v": [1.0, 2.0, 3.0], "g": ["a", "b", "a"]})
    return hm.mean(table, **{**GIVEN, "by": "g", "keys": ["a", "b"], "max_groups": 2, **more})


class Measured:
    """A mechanism that measures the same number of records, whatever the data."""

    name = "measured"

    def __init__(self, denominator: Denominator | None) -> None:
        self.denominator = denominator

    def check(self, request: object) -> None: ...

    def prepare(self, request: object, facts: object) -> Measured:
        return self

    def run(self, table: object, noise: object) -> Outcome:
        return Outcome(values=(1.0,), denominator=self.denominator)


def made(measured: Denominator | None, users: int, expected: int | None) -> hm.Release:
    given = {name: value for name, value in GIVEN.items() if name not in ("bounds", "max_records")}
    return hm.mean(records(users), **given, mechanism=Measured(measured), expected_records=expected)


# --- expected records ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("high", "expected", "warned"),
    [(1_000.0, 2_000, True), (1_799.0, 2_000, True), (1_800.0, 2_000, False), (2_500.0, 2_000, False)],
)
def test_the_measured_number_decides_and_never_the_true_one(high: float, expected: int, warned: bool) -> None:
    """Ten or ten thousand true records: what was measured is all that counts."""
    measured = Denominator(value=0.9 * high, low=0.8 * high, high=high)
    shown = [made(measured, users, expected).warnings for users in (5, 900, 5_000)]
    assert shown[0] == shown[1] == shown[2]
    assert bool(shown[0]) is warned


@pytest.mark.usefixtures("seeded_releases")
@pytest.mark.parametrize("mechanism", ["clipped", "adaptive"])
def test_real_releases_warn_exactly_where_their_own_denominator_says_so(mechanism: str) -> None:
    """With so much noise that the true number and the measured one often disagree."""
    given = GIVEN if mechanism == "clipped" else {key: GIVEN[key] for key in ("user", "value")}
    table = pa.table(
        {"u": np.repeat(np.arange(1_200), 2), "v": np.random.default_rng(1).uniform(1, 9, 2_400)}
    )
    disagreed = 0
    for _ in range(40):
        try:
            release = hm.mean(
                table, **{**given, "epsilon": 0.02 if mechanism == "clipped" else 1.0}, expected_records=2_700
            )
        except hm.NotReleased:
            continue
        assert release.denominator is not None
        short = release.denominator.high < 0.9 * 2_700
        found = any("you expect 2,700" in one for one in release.warnings)
        assert found is short
        disagreed += found is not (2_400 < 0.9 * 2_700)  # by the true number, all would be warned about
    assert disagreed > 0


def test_the_message_holds_the_measured_number_and_says_what_to_do() -> None:
    (warning,) = made(Denominator(value=812.0, low=800.0, high=824.0), 5, 2_000).warnings
    assert "About 812 usable records were measured, but you expect 2,000." in warning
    assert "hubermean check" in warning


def test_a_mechanism_that_does_not_measure_says_that_it_was_not_checked() -> None:
    (warning,) = made(None, 5, 2_000).warnings
    assert "was not checked" in warning
    assert made(None, 5, None).warnings == ()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"expected_records": 0}, "must be a whole number from 1"),
        ({"expected_records": 2.5}, "must be a whole number"),
        ({"expected_records": True}, "must be a whole number"),
        ({"expected_records": 9, "per": "user", "max_records": None}, "is for per='record'"),
        ({"expected_records": 9, "by": "v", "keys": [1]}, "without groups"),
    ],
)
def test_what_cannot_be_compared_is_refused(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(hm.InputError, match=sentence):
        hm.mean(records(3), **{**GIVEN, **more})


def test_a_release_from_a_ledger_is_compared_as_well(tmp_path: Any) -> None:
    """The record holds the release, and the warning is made of it again."""
    with hm.Ledger(tmp_path / "budget.sqlite") as ledger:
        ledger.init("d", epsilon=1.0)
        table, charge = records(50), {"ledger": ledger, "dataset": "d", "question": "q"}
        first = hm.mean(table, **GIVEN, **charge)
        second = hm.mean(table, **GIVEN, **charge, expected_records=9_000)
        assert first.value == second.value
        assert first.warnings == ()
        assert len(second.warnings) == 1
        assert ledger.dataset("d").left.loss == 0


# --- groups, epsilon and their places -----------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "warned"), [(10.0, False), (10.5, True), (1e6, True)])
def test_an_epsilon_above_ten_is_mentioned(epsilon: float, warned: bool) -> None:
    releases = [
        hm.mean(records(3), **{**GIVEN, "epsilon": epsilon}),
        hm.count(records(3), user="u", epsilon=epsilon),
        hm.mean_of_user_means([1.0, 2.0], epsilon=epsilon, bounds=(0, 3)),
        groups(epsilon=epsilon),
    ]
    for release in releases:
        assert [one.startswith("Epsilon = ") for one in release.warnings] == [True] * warned


def test_warnings_stand_in_every_form_of_a_release() -> None:
    for release in (made(Denominator(value=8.0, low=7.0, high=9.0), 5, 2_000), groups(epsilon=20)):
        (warning,) = release.warnings
        words = warning[:30]
        assert release.to_dict()["warnings"] == [warning]
        assert words in " ".join(repr(release).split())
        assert words in release._repr_html_()
        assert words in release.to_html()
    # The second line, right below the number.
    shown = made(Denominator(value=8.0, low=7.0, high=9.0), 5, 2_000)
    assert repr(shown).splitlines()[1].startswith("Warning  ")


def test_the_comparison_takes_nothing_but_a_release() -> None:
    release = made(Denominator(value=8.0, low=7.0, high=9.0), 5, None)
    assert compare_records(release, 9) == []
    assert len(compare_records(release, 11)) == 1
