"""A server that is killed in the middle of a release: the charge is recorded, and a value or a refund is shown later.

Each program below stops the real one at a point of the way, by a step that takes for ever; then the server is killed.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import hubermean as hm
from helpers.app_server import AppServer, Client, make_folder, start_app

TABLE = "file:trips.parquet"
MAIN = "from hubermean.cli.app import main; main()"
WAIT = "import time; forever = lambda *_, **__: time.sleep(600);"
BEFORE_THE_CHARGE = f"{WAIT} from hubermean.release.ledger import Ledger; Ledger.charge = forever; {MAIN}"
WHILE_READING = (
    f"{WAIT} from hubermean.ingest.reading import OpenedData; OpenedData.read_users = forever; {MAIN}"
)
BEFORE_THE_OUTCOME_IS_SHOWN = (
    f"{WAIT} import hubermean.app.runner as runner; runner.next_moment = lambda elapsed: 600.0; {MAIN}"
)


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    make_folder(tmp_path / "data")
    with hm.Ledger(str(tmp_path / "budget.sqlite")) as book:
        book.init("trips", epsilon=3.0, user="rider_id")
    tokens = tmp_path / "tokens"
    tokens.write_text(f"steward ana {'s' * 40}\nanalyst ben {'b' * 40}\nanalyst eve {'e' * 40}\n")
    tokens.chmod(0o600)
    return [
        *("--data", str(tmp_path / "data"), "--ledger", str(tmp_path / "budget.sqlite")),
        *("--state", str(tmp_path / "state"), "--tokens", str(tokens)),
    ]


def enter(server: AppServer, token: str) -> Client:
    return Client.enter(server, f"{server.address}/enter?token={token * 40}")


def entries(place: Path) -> list[str]:
    with hm.Ledger(str(place / "budget.sqlite")) as book:
        return [entry.kind for entry in book.entries("trips")]


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(300):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


def kill_while_releasing(
    options: list[str], place: Path, program: str, *, until: list[str], epsilon: str = "1"
) -> tuple[str, list[tuple[str, str]]]:
    """Ask for a release, kill the server when the ledger has these entries, return where its page is and its form."""
    server = start_app(*options, program=program)
    try:
        steward = enter(server, "s")
        steward.post("/setup", [("csrf", steward.csrf), ("table", TABLE), ("dataset", "trips")])
        ben = enter(server, "b")
        review = ben.review(table=TABLE, value="fare", epsilon=epsilon)
        location = ben.ask(review).location
        running = '"status":"running"'
        wait_for(lambda: entries(place) == until and running in ben.get(f"{location}/status").text)
        shown = ben.get("/ledger/dataset", [("name", "trips")]).text
        assert "A release is running" in shown
        assert "Charges" not in shown  # until the outcome is shown, the ledger is shown as it was before
        assert ben.get("/ledger/verify").status == 409
        assert ben.review(table=TABLE, value="minutes", epsilon="1").status == 409
        time.sleep(0.2)
    finally:
        server.kill()
    return location, [pair for pair in review.hidden() if pair[0] != "csrf"]


def ask_again(server: AppServer, form: list[tuple[str, str]]) -> str:
    """Send the same form to the server that was started again."""
    ben = enter(server, "b")
    return ben.post("/releases", [("csrf", ben.csrf), *form]).location


def test_killed_before_the_charge_nothing_is_charged(options: list[str], tmp_path: Path) -> None:
    at, form = kill_while_releasing(options, tmp_path, BEFORE_THE_CHARGE, until=["opened"])
    server = start_app(*options)
    try:
        assert ask_again(server, form) == at  # the token was used
        page = enter(server, "b").get(at).text
        assert "Nothing was charged; you can ask again" in page
        assert entries(tmp_path) == ["opened"]
        with pytest.raises(AssertionError, match="another hubermean app uses"):
            start_app(*options)
    finally:
        server.stop()


def test_an_equal_question_of_somebody_else_is_never_the_answer(options: list[str], tmp_path: Path) -> None:
    """After a kill before the charge, the same person asks another question elsewhere, with the same budget."""
    at, _ = kill_while_releasing(options, tmp_path, BEFORE_THE_CHARGE, until=["opened"])
    ledger = str(tmp_path / "budget.sqlite")
    asked = {"user": "rider_id", "epsilon": 1.0, "ledger": ledger, "dataset": "trips", "by_whom": "ben"}
    for value in ("minutes", "fare"):
        hm.mean(str(tmp_path / "data" / "trips.parquet"), value=value, **asked)
    server = start_app(*options)
    try:
        page = enter(server, "b").get(at).text
        assert "95% interval" not in page
        assert "Nothing was charged; you can ask again" in page
    finally:
        server.stop()


def test_killed_after_the_charge_the_charge_counts_and_the_page_says_so(
    options: list[str], tmp_path: Path
) -> None:
    at, form = kill_while_releasing(options, tmp_path, WHILE_READING, until=["opened", "charged"])
    server = start_app(*options)
    try:
        assert ask_again(server, form) == at
        page = enter(server, "b").get(at).text
        assert "after epsilon = 1 was charged (entry 2). The charge counts" in page
        assert "Left then: epsilon = 2." in page
        assert entries(tmp_path) == ["opened", "charged"]
    finally:
        server.stop()


def test_killed_after_the_release_its_value_is_shown_to_everybody(options: list[str], tmp_path: Path) -> None:
    at, form = kill_while_releasing(
        options, tmp_path, BEFORE_THE_OUTCOME_IS_SHOWN, until=["opened", "charged", "released"]
    )
    server = start_app(*options)
    try:
        assert ask_again(server, form) == at
        eve = enter(server, "e")
        assert "95% interval" in eve.get(at).text
        shown = json.loads(eve.get(f"{at}/release.json").text)
        with hm.Ledger(str(tmp_path / "budget.sqlite")) as book:
            recorded = list(book.entries("trips"))[-1].content["release"]["values"]
        assert [shown["value"]] == recorded
        assert (shown["ledger"]["charged"], shown["ledger"]["left"]) == ("epsilon = 1", "epsilon = 2")
        assert entries(tmp_path) == ["opened", "charged", "released"]
    finally:
        server.stop()


def test_with_another_ledger_the_page_does_not_start_and_shows_no_number(
    options: list[str], tmp_path: Path
) -> None:
    ledger, early, kept = (tmp_path / f"{name}.sqlite" for name in ("budget", "early", "kept"))
    shutil.copy(ledger, early)
    at, _ = kill_while_releasing(
        options, tmp_path, BEFORE_THE_OUTCOME_IS_SHOWN, until=["opened", "charged", "released"]
    )
    data = str(tmp_path / "data" / "trips.parquet")

    def release(value: str) -> None:
        hm.mean(data, user="rider_id", value=value, epsilon=1.0, ledger=str(ledger), dataset="trips")

    ledger.rename(kept)
    with pytest.raises(AssertionError, match="belongs to another ledger"):
        start_app(*options)  # it is gone
    with hm.Ledger(str(ledger)) as book:
        book.init("trips", epsilon=3.0, user="rider_id")
    release("minutes")
    with pytest.raises(AssertionError, match="belongs to another ledger"):
        start_app(*options)
    kept.replace(ledger)
    server = start_app(*options)
    try:
        ben = enter(server, "b")
        assert "95% interval" in ben.get(at).text
        early.replace(ledger)  # a copy from before the release, with another release since
        release("minutes")
        assert "95% interval" not in ben.get(at).text
        assert ben.get(f"{at}/release.json").status == 400
    finally:
        server.stop()


def test_killed_after_a_private_refusal_its_refund_is_shown(options: list[str], tmp_path: Path) -> None:
    kinds = ["opened", "charged", "not-released", "refunded"]
    at, _ = kill_while_releasing(options, tmp_path, BEFORE_THE_OUTCOME_IS_SHOWN, until=kinds, epsilon="0.001")
    server = start_app(*options)
    try:
        page = enter(server, "b").get(at).text
        assert "too few users" in page
        assert "Charged to trips: epsilon = 3e-05. Left then: epsilon = 2.99997." in page
    finally:
        server.stop()


@pytest.mark.slow
def test_killed_at_any_moment_every_release_has_one_outcome_and_one_charge(
    options: list[str], tmp_path: Path
) -> None:
    rng, asked = random.Random(7), []
    for turn in range(15):
        server = start_app(*options)
        try:
            steward = enter(server, "s")
            steward.post("/setup", [("csrf", steward.csrf), ("table", TABLE), ("dataset", "trips")])
            for location in asked:
                assert json.loads(steward.get(f"{location}/status").text)["over"]
            ben = enter(server, "b")
            review = ben.review(table=TABLE, value="fare", epsilon=f"0.1{turn:02d}")
            asked.append(ben.ask(review).location)
            time.sleep(rng.uniform(0.0, 1.4))
        finally:
            server.kill()
    server = start_app(*options)
    try:
        ben = enter(server, "b")
        ends = [json.loads(ben.get(f"{location}/status").text)["status"] for location in asked]
    finally:
        server.stop()
    with hm.Ledger(str(tmp_path / "budget.sqlite")) as book:
        assert book.verify().sound
        found = list(book.entries("trips"))
    charges = [entry.content["asked"]["epsilon"] for entry in found if entry.kind == "charged"]
    assert len(set(charges)) == len(charges)
    outcomes = [entry.kind for entry in found if entry.kind in ("released", "not-released")]
    assert ends.count("released") == outcomes.count("released")
    assert ends.count("not-released") == outcomes.count("not-released")
    assert set(ends) <= {"released", "not-released", "interrupted"}
    assert len(charges) - len(outcomes) <= ends.count("interrupted")


@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_server_that_is_asked_to_end_finishes_the_release_first(
    options: list[str], tmp_path: Path, how: signal.Signals
) -> None:
    server = start_app(*options)
    steward = enter(server, "s")
    steward.post("/setup", [("csrf", steward.csrf), ("table", TABLE), ("dataset", "trips")])
    location = steward.ask(steward.review(table=TABLE, value="fare", epsilon="1")).location
    assert server.stop(how) == ""
    assert entries(tmp_path) == ["opened", "charged", "released"]
    again = start_app(*options)
    try:
        assert "95% interval" in enter(again, "b").get(location).text
    finally:
        again.stop()
