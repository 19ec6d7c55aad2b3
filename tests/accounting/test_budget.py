"""A release accounts for its budget: the entries are public and add up to no more than the guarantee."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubermean as hm
from hubermean.accounting.budget import format_amounts
from hubermean.accounting.concentrated import largest_rho
from hubermean.mechanisms.winsorized.budget_split import TwoStageSplit

RNG = np.random.default_rng(17)
MEANS = RNG.normal(5.0, 1.0, (20_000, 3))
COUNTS = RNG.integers(1, 9, 20_000)
KNOWN = {"threshold": 4.0, "radius": 100.0}
REPLACED = {"neighbors": "replace-user"}

LOCATION = ["scale and center"]
INFLUENCE = ["influence bound", "first step", "the mean"]
RECORDS = [*LOCATION, "contribution bound", "weight of all users", *INFLUENCE]
USERS = ["number of users", *LOCATION, "bounds", "the mean"]
ACCOUNTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "adaptive, nothing told": ({}, ["number of users", *RECORDS]),
    "adaptive, an estimate of the users": ({"n_users": 20_000}, RECORDS),
    "adaptive, users public": (REPLACED, ["number of users", *RECORDS]),
    "adaptive, scale told": (
        {"scale": 1.0, "max_records": 5},
        ["number of users", "center of user means", "weight of all users", *INFLUENCE],
    ),
    "adaptive, several columns": ({"columns": 3, "per": "user"}, USERS),
    "adaptive, concentrated": ({"columns": 3, "per": "user", "delta": 1e-6}, USERS),
    "clipped": ({"bounds": (0, 10), "max_records": 5}, ["the mean"]),
    "clipped, delta": ({"bounds": (0, 10), "max_records": 5, "delta": 1e-6}, ["the mean"]),
    "inverse-sensitivity": ({**KNOWN, "mechanism": "inverse-sensitivity", "max_records": 5}, ["the mean"]),
    "smooth-sensitivity": (
        {**KNOWN, "mechanism": "smooth-sensitivity", "delta": 1e-6, "per": "user"},
        ["the mean"],
    ),
    "propose-test-release": (
        {**KNOWN, "mechanism": "propose-test-release", "delta": 1e-6, "per": "user"},
        ["weight of all users", "the test and the mean"],
    ),
    "tested, users public": (
        {**KNOWN, **REPLACED, "mechanism": "propose-test-release", "delta": 1e-6, "per": "user"},
        ["the test and the mean"],
    ),
    "tested, weight_estimated": (
        {**KNOWN, "mechanism": "propose-test-release", "delta": 1e-6, "max_records": 5},
        ["weight of all users", "the test and the mean"],
    ),
    "winsorized": (
        {**KNOWN, **REPLACED, "mechanism": "winsorized", "per": "user"},
        ["interval of user means", "the mean"],
    ),
    "winsorized, one interval": (
        {**REPLACED, "threshold": 100.0, "radius": 100.0, "mechanism": "winsorized", "per": "user"},
        ["the mean"],
    ),
}


def release_of(options: dict[str, Any]) -> hm.Release:
    columns = options.get("columns", 1)
    rest = {name: given for name, given in options.items() if name != "columns"}
    means = MEANS[:, 0] if columns == 1 else MEANS[:, :columns]
    return hm.mean_of_user_means(means, COUNTS, epsilon=1.0, **rest)


def check_breakdown(release: hm.Release) -> None:
    """Every entry is positive, and a unit's entries add up to all there was of it, but for rounding down."""
    wholes = {"epsilon": release.epsilon, "delta": release.delta}
    if release.delta > 0:
        wholes["rho"] = largest_rho(release.epsilon, release.delta)
    units = {entry.unit for entry in release.budget_breakdown}
    assert units in ({"epsilon"}, {"epsilon", "delta"}, {"rho"})
    assert ("epsilon" in units) <= (("delta" in units) == (release.delta > 0))
    for unit in units:
        amounts = [entry.amount for entry in release.budget_breakdown if entry.unit == unit]
        assert min(amounts) > 0
        assert sum(map(Fraction, amounts)) <= Fraction(wholes[unit])
        assert sum(amounts) == pytest.approx(wholes[unit], rel=1e-9)


@pytest.mark.parametrize("case", ACCOUNTS)
def test_every_mechanism_accounts_for_its_budget(case: str) -> None:
    options, expected = ACCOUNTS[case]
    release = release_of(options)
    assert [entry.what for entry in release.budget_breakdown if entry.unit != "delta"] == expected
    check_breakdown(release)
    assert ("spent on" in repr(release.details)) == (len(expected) > 1)
    assert json.loads(release.to_json())["budget_breakdown"] == [
        {"what": entry.what, "amount": entry.amount, "unit": entry.unit} for entry in release.budget_breakdown
    ]


@pytest.mark.parametrize("accounting", ["pure", "gaussian", "concentrated"])
def test_two_stages_account_in_their_own_unit(accounting: Any) -> None:
    """Four coordinates choose with 1/16 each; noise has 1/8 for each, or for all together."""
    split = TwoStageSplit(accounting=accounting, selection_epsilon=1 / 16, noise_budget=1 / 8, dimension=4)
    entries = split.break_down_budget(1e-6)
    expected = {
        "pure": [("epsilon", 1 / 4), ("epsilon", 1 / 2), ("delta", 1e-6)],
        "gaussian": [("epsilon", 1 / 4), ("epsilon", 1 / 8), ("delta", 1e-6)],
        "concentrated": [("rho", 4 / 16**2 / 8), ("rho", 1 / 8)],
    }
    assert [(entry.unit, entry.amount) for entry in entries] == expected[accounting]


@pytest.mark.parametrize(
    ("users", "mechanism"), [(300, "inverse-sensitivity"), (3_000, "propose-test-release")]
)
def test_auto_accounts_for_the_weighing_whichever_mechanism_it_called_for(users: int, mechanism: str) -> None:
    means = np.random.default_rng(5).normal(size=(users, 3))
    known = {"threshold": 6.0, "radius": 100.0}
    release = hm.mean_of_user_means(means, epsilon=1, delta=1e-6, neighbors="add-remove", **known)  # type: ignore[arg-type]
    assert release.mechanism == mechanism
    assert [entry.what for entry in release.budget_breakdown][:2] == [
        "weight of all users",
        "the mean" if mechanism == "inverse-sensitivity" else "the test and the mean",
    ]
    check_breakdown(release)


@given(st.lists(st.floats(min_value=1e-9, max_value=10), min_size=1, max_size=8))
@settings(deadline=None)
def test_what_is_shown_never_adds_up_to_more_than_was_spent(amounts: list[float]) -> None:
    texts = format_amounts(amounts)
    assert len(texts) == len(amounts)
    whole = sum(map(Fraction, amounts))
    assert sum(map(Fraction, texts)) <= whole * (1 + Fraction(1, 10**11))
    for text, amount in zip(texts, amounts, strict=True):
        assert float(text) == pytest.approx(amount, rel=0.05)
