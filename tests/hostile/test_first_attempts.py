"""First attempts of new users: one sentence that says what to do, a non-zero exit code, and no budget lost."""

from __future__ import annotations

import re

import pytest

from helpers.attempts import ATTEMPTS, NOT_RELEASED, REFUSED, RELEASED, Attempt
from helpers.first_attempts import PAGE, Result, run_all

ADVICE = re.compile(
    r"\b(give|use|check|add|set|name|choose|write|see|leave|open|create|copy|must be|did you mean|quote|pass|cast|"
    r"restore|correct it|only read|must be one|lower|raise|make)\b"
)
OF_PYTHON = {"InputError", "TypeError", "BudgetExhausted"}


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    return run_all()


def of_kind(expected: str) -> list[pytest.param]:  # type: ignore[valid-type]
    return [pytest.param(one, id=one.name) for one in ATTEMPTS if one.expected == expected]


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len(ATTEMPTS) >= 40
    assert len({one.name for one in ATTEMPTS}) == len(ATTEMPTS)


@pytest.mark.parametrize("one", of_kind(REFUSED))
def test_a_refusal_is_one_sentence_that_says_what_to_do(one: Attempt, results: dict[str, Result]) -> None:
    result = results[one.name]
    assert result.exit_code in {"2", "3", "5"} | OF_PYTHON, result
    assert "⏎" not in result.message
    assert "│" not in result.message
    assert len(result.message) < 320
    assert ADVICE.search(result.message), result.message


@pytest.mark.parametrize("one", of_kind(REFUSED))
def test_a_refusal_costs_nothing(one: Attempt, results: dict[str, Result]) -> None:
    recorded = results[one.name].ledger
    if one.name == "another user column than that of the data set":  # after a release that it was charged for
        assert recorded == "released; epsilon 0.5 spent"
    else:
        assert recorded in ("nothing", "refused; epsilon 0 spent")


@pytest.mark.parametrize("one", of_kind(NOT_RELEASED))
def test_a_private_refusal_costs_at_most_what_was_given(one: Attempt, results: dict[str, Result]) -> None:
    result = results[one.name]
    assert result.exit_code == "1", result
    assert "⏎" not in result.message
    assert ADVICE.search(result.message), result.message
    assert float(result.ledger.split("epsilon ")[1].split()[0]) <= 1.0


@pytest.mark.parametrize("one", of_kind(RELEASED))
def test_what_is_unusual_but_fine_is_released(one: Attempt, results: dict[str, Result]) -> None:
    assert results[one.name].exit_code in ("0", "released"), results[one.name]


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("epsilon = 50, without a ledger", "protects a single user little"),
        ("far more records expected", "you expect 90,000"),
    ],
)
def test_what_should_be_read_with_care_says_so(name: str, warning: str, results: dict[str, Result]) -> None:
    assert warning in results[name].message


def test_the_page_lists_every_attempt() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [one.name for one in ATTEMPTS if f"| {one.name} |" not in page] == []
