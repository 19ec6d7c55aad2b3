"""The way from a table to a release over plain HTTP, its exports, and what is charged on it: each thing once."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hubermean as hm
from helpers.app_server import AppServer, Client, make_folder, query_of, running_app

TABLE = "file:trips.parquet"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("app")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[AppServer]:
    make_folder(place / "data")
    ledger = place / "budget.sqlite"
    with hm.Ledger(str(ledger)) as book:
        book.init("other people", epsilon=1.0)
    options = ("--data", str(place / "data"), "--ledger", str(ledger), "--state", str(place / "state"))
    with running_app(*options) as running:
        steward = Client.enter(running, running.links[0])
        opened = steward.post(
            "/setup",
            [("csrf", steward.csrf), ("table", TABLE), ("dataset", "new"), ("name", "trips"), ("user", "rider_id"),
             ("epsilon", "6"), ("delta", "1e-5"), ("neighbors", "add-remove"), ("composition", "basic")],
        )  # fmt: skip
        assert opened.location == "/question?table=file%3Atrips.parquet"
        yield running


@pytest.fixture(scope="module")
def analyst(server: AppServer) -> Client:
    return Client.enter(server, server.links[1])


def entries(place: Path) -> list[str]:
    with hm.Ledger(str(place / "budget.sqlite")) as book:
        return [entry.kind for entry in book.entries("trips")]


def run_in_data(place: Path, *command: str) -> str:
    done = subprocess.run(
        command, cwd=place / "data", capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_release_is_charged_once_and_its_exports_return_it_at_no_cost(
    server: AppServer, analyst: Client, place: Path
) -> None:
    review = analyst.review(table=TABLE, value=["fare", "minutes"], by="city", epsilon="1", delta="1e-6")
    assert "epsilon = 1, delta = 1e-06" in review.text
    assert "epsilon = 5, delta = 9e-06" in review.text  # what would be left
    before = entries(place)
    asked = [analyst.ask(review) for _ in range(3)]  # the button, pressed three times
    assert {one.status for one in asked} == {303}
    assert len({one.location for one in asked}) == 1
    at = asked[0].location
    page = analyst.wait(at)
    assert "Mean of fare, minutes by city" in page.text
    assert entries(place)[len(before) :] == ["charged", "released"]

    shown = json.loads(analyst.get(f"{at}/release.json").text)
    rows = list(csv.DictReader(io.StringIO(analyst.get(f"{at}/release.csv").text)))
    assert [float(row["fare"]) for row in rows] == [row["value"][0] for row in shown["rows"]]
    assert len(rows) == 5
    report = analyst.get(f"{at}/release.html")
    assert report.headers["content-disposition"] == 'attachment; filename="release.html"'
    assert "<h1>Mean of fare, minutes by city</h1>" in report.text
    assert "style-src 'sha256-" in analyst.get(f"{at}/report").headers["content-security-policy"]

    command = analyst.get(f"{at}/release.sh").text
    printed = json.loads(run_in_data(place, "bash", "-c", command.rstrip("\n") + " --json"))
    assert [row["value"] for row in printed["rows"]] == [row["value"] for row in shown["rows"]]
    script = analyst.get(f"{at}/release.py").text
    by_script = run_in_data(place, sys.executable, "-c", f"{script}\nprint(release.to_json())").splitlines()[
        -1
    ]
    assert json.loads(by_script)["rows"] == printed["rows"]
    notebook = json.loads(analyst.get(f"{at}/release.ipynb").text)
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    by_cells = run_in_data(place, sys.executable, "-c", "\n".join([*cells, "print(release.to_json())"]))
    assert json.loads(by_cells)["rows"] == printed["rows"]
    assert entries(place)[len(before) :] == ["charged", "released"]  # nobody was charged again

    again = {
        "table": TABLE,
        "value": ["fare"],
        "epsilon": "0.01",
        "fresh": "yes",
        "bounds_low": "0",
        "bounds_high": "50",
    }
    review = analyst.review(**again)
    assert "asked again already" not in review.text
    analyst.wait(analyst.ask(review).location)
    assert "charged once more" in analyst.review(**again).text  # where the back button leads


PEOPLE = {"statistic": "count", "epsilon": "0.1"}
RECORDS = {"statistic": "count", "of": "records", "by": "city", "keys": "Arden\nBrook", "epsilon": "0.3"}
BOUNDS = {"value": "fare", "per": "user", "bounds_low": "-1", "bounds_high": "200", "epsilon": "0.2"}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(PEOPLE, marks=pytest.mark.slow),
        {**RECORDS, "max_groups": "2", "max_records": "50"},
        BOUNDS,
        pytest.param({"value": "fare", "bounds_low": "0", "epsilon": "0.5"}, marks=pytest.mark.slow),
    ],
    ids=["people", "records", "bounds", "one-sided"],
)
def test_every_kind_of_question_is_the_one_that_its_command_asks(
    fields: dict[str, str], analyst: Client, place: Path
) -> None:
    review = analyst.review(table=TABLE, **fields)
    assert review.status == 200, review.text
    at = analyst.ask(review).location
    page = analyst.wait(at)
    before = entries(place)
    assert before[-1] == "released", re.sub("<[^>]*>", " ", page.text)
    shown = json.loads(analyst.get(f"{at}/release.json").text)
    printed = json.loads(
        run_in_data(place, "bash", "-c", analyst.get(f"{at}/release.sh").text.rstrip("\n") + " --json")
    )
    assert entries(place) == before
    for given in (shown, printed):
        given.pop("ledger")
        for row in given.get("rows", ()):
            row.pop("ledger", None)
    assert shown == printed


def test_a_form_that_was_changed_or_is_of_somebody_else_charges_nothing(
    server: AppServer, analyst: Client, place: Path
) -> None:
    review = analyst.review(table=TABLE, value="fare", epsilon="0.25")
    before = entries(place)
    hidden = review.hidden()
    changed = [(name, "2.0" if name == "epsilon" else one) for name, one in hidden]
    assert analyst.post("/releases", changed).status == 400
    without = [pair for pair in hidden if pair[0] != "token"]
    assert analyst.post("/releases", without).status == 400
    assert analyst.post("/releases", [*hidden, ("token", dict(hidden)["token"])]).status == 400
    steward = Client.enter(server, server.links[0])
    theirs = [(name, steward.csrf if name == "csrf" else one) for name, one in hidden]
    assert steward.post("/releases", theirs).status == 400
    assert entries(place) == before


def test_an_analyst_cannot_open_or_move_a_budget(server: AppServer, analyst: Client) -> None:
    assert analyst.get("/setup", [("table", TABLE)]).status == 403
    sent = [("csrf", analyst.csrf), ("table", TABLE), ("dataset", "other people")]
    refused = analyst.post("/setup", sent)
    assert refused.status == 403
    assert "Only a steward" in refused.text
    assert "A person is identified by <strong>rider_id" in analyst.get("/question", [("table", TABLE)]).text


def test_what_was_reviewed_is_what_is_released(server: AppServer, analyst: Client, place: Path) -> None:
    steward = Client.enter(server, server.links[0])
    table = "file:moving.parquet"
    (place / "data" / "moving.parquet").write_bytes((place / "data" / "trips.parquet").read_bytes())

    def charge_to(name: str, *more: tuple[str, str]) -> None:
        sent = [("csrf", steward.csrf), ("table", table), ("dataset", name), *more]
        assert steward.post("/setup", sent).status == 303

    opened = [
        ("name", "moved"),
        ("user", "rider_id"),
        ("epsilon", "2"),
        ("delta", "0"),
        ("neighbors", "replace-user"),
    ]
    charge_to("new", *opened)
    charge_to("trips")
    review = analyst.review(table=table, value="fare", epsilon="0.01")
    charge_to("moved")
    before = entries(place)
    answer = analyst.ask(review)
    assert answer.status == 400
    assert "what it asks for was changed" in answer.text
    assert entries(place) == before
    assert "moved" in analyst.review(table=table, value="fare", epsilon="0.01").text


def test_nobody_but_the_steward_says_who_a_person_is(server: AppServer, analyst: Client) -> None:
    steward = Client.enter(server, server.links[0])
    assert "other people" not in steward.get("/setup", [("table", TABLE)]).text
    sent = [("csrf", steward.csrf), ("table", TABLE), ("dataset", "other people")]
    refused = steward.post("/setup", sent)  # it was opened without user columns
    assert refused.status == 400
    assert "does not state which columns identify a person" in refused.text
    assert analyst.review(table=TABLE, value="fare", epsilon="0.1").status == 200


def test_users_of_a_data_set_cannot_be_chosen_again(analyst: Client, place: Path) -> None:
    review = analyst.review(table=TABLE, user="city", value="fare", epsilon="0.1")
    assert dict(review.hidden())["user"] == "rider_id"


def test_a_steward_opens_a_budget_once_however_often_the_form_is_sent(server: AppServer, place: Path) -> None:
    steward = Client.enter(server, server.links[0])
    (place / "data" / "visits.csv").write_text("customer;amount\n1;2,5\n")
    table = "file:visits.csv"
    first = steward.get("/setup", [("table", table)])
    assert "customer" not in first.text  # the first line of a file may be somebody's record
    named = steward.get("/setup", [("table", table), ("header", "yes"), ("delimiter", ";")])
    assert "customer (text)" in named.text
    form = [("csrf", steward.csrf), ("table", table), ("dataset", "new"), ("name", "visits"), ("user", "customer"),
            ("epsilon", "2"), ("delta", "0"), ("header", "yes"), ("delimiter", ";"), ("decimal", ",")]  # fmt: skip
    wrong = [(name, "costumer" if name == "user" else one) for name, one in form]
    assert "there is no column" in steward.post("/setup", wrong).text.lower()
    assert "visits" not in steward.get("/ledger").text
    assert [steward.post("/setup", form).status for _ in range(2)] == [303, 303]
    other = [(name, "3" if name == "epsilon" else one) for name, one in form]
    assert "exists already" in steward.post("/setup", other).text
    assert "amount" in steward.get("/question", [("table", table)]).text
    review = steward.review(table=table, value="amount", epsilon="1")
    assert review.status == 200, review.text
    command = steward.wait(steward.ask(review).location)  # one person is too few
    assert "too few" in command.text


def test_the_budget_page_says_what_epsilon_buys_and_means(analyst: Client) -> None:
    pairs = [("table", TABLE), ("value", "fare"), ("users", "300")]
    page = analyst.get("/budget", pairs).text
    assert "Someone who is 50% sure that a person is in the data becomes" in page  # add-remove
    assert "at most 73.2% sure" in page
    assert "with epsilon = 1, someone who is 50% sure of it becomes at most 88.1% sure" in page
    assert "refused: too few people" in page  # 0.1 with 300 people
    assert '<svg width="100%"' in page
    assert (
        "choose a column to average"
        in analyst.get(analyst.get("/budget", [("table", TABLE)]).location).text.lower()
    )
    count = analyst.get("/budget", [("table", TABLE), ("statistic", "count")]).text
    assert "± 3" in count


def test_another_epsilon_is_predicted_and_never_guessed(analyst: Client) -> None:
    asked = [("table", TABLE), ("value", "fare"), ("users", "900")]
    page = analyst.get("/budget", [*asked, ("epsilon", "own"), ("own", "0.7")])
    assert page.status == 200
    assert "epsilon = 0.7, someone" in page.text
    page = analyst.get("/budget", [*asked, ("epsilon", "own"), ("own", "")])
    assert page.status == 200
    assert "Type a number for epsilon" in page.text
    for given in (
        [("epsilon", "own"), ("own", " ")],
        [("epsilon", "own")],
        [("epsilon", "1.0"), ("own", "0.7")],
    ):
        answer = analyst.get("/review", [*asked, *given])
        assert answer.status == 400, given
        assert "epsilon" in answer.text
    chosen = analyst.get("/review", [*asked, ("epsilon", "own"), ("own", "0.7")])
    assert dict(chosen.hidden())["epsilon"] == "0.7"


def test_names_of_columns_are_sent_back_as_they_are(server: AppServer, place: Path) -> None:
    odd = [" person", "two  spaces", "end "]
    columns = {odd[0]: [1, 2], odd[1]: ["a", "b"], odd[2]: [1.0, 2.0], "a\u202eb": [1.0, 2.0]}
    pq.write_table(pa.table(columns), place / "data" / "odd.parquet")
    steward = Client.enter(server, server.links[0])
    setup = steward.get("/setup", [("table", "file:odd.parquet")]).text
    assert '<option value=" person">' in setup
    assert "1 column of this table cannot be chosen here" in setup
    sent = [("csrf", steward.csrf), ("table", "file:odd.parquet"), ("dataset", "new"), ("name", "odd"),
            ("user", odd[0]), ("epsilon", "2"), ("delta", "0")]  # fmt: skip
    assert steward.post("/setup", sent).status == 303
    question = steward.get("/question", [("table", "file:odd.parquet")]).text
    assert '<option value="two  spaces">' in question
    assert 'name="value" value="end "' in question
    assert "1 column of this table cannot be chosen here" in question
    review = steward.review(table="file:odd.parquet", value=odd[2], by=odd[1], keys="a", epsilon="1")
    assert review.status == 200, review.text


def test_more_than_is_left_is_refused_before_and_after_the_last_click(
    server: AppServer, analyst: Client, place: Path
) -> None:
    too_much = analyst.review(table=TABLE, value="fare", epsilon="100")
    assert too_much.status == 409
    assert "use a smaller budget" in too_much.text
    before = entries(place)
    review = analyst.review(table=TABLE, value="minutes", epsilon="1")
    with hm.Ledger(str(place / "budget.sqlite")) as book:
        left = book.dataset("trips").left.loss
        book.spend("trips", epsilon=float(left) - 0.75)
    page = analyst.wait(analyst.ask(review).location)
    assert "too little budget is left" in page.text
    assert "Nothing was charged" in page.text
    assert entries(place)[len(before) :] == ["spent", "refused"]
    ledger = analyst.get("/ledger/dataset", [("name", "trips")]).text
    assert "A release was refused once" in ledger
    assert 'class="chart history"' in ledger


def test_ledger_pages_and_files(analyst: Client) -> None:
    assert "other people" in analyst.get("/ledger").text
    assert "All entries match their digests" in analyst.get("/ledger/verify").text
    exported = json.loads(analyst.get("/ledger/ledger.json").text)
    assert exported["verification"]["sound"]
    assert {"refusals", "history"} <= set(exported)
    assert "Privacy budgets" in analyst.get("/ledger/ledger.html").text
    assert analyst.get("/ledger/budget.sqlite").status == 404


def test_on_postgresql_from_a_table_of_postgresql(postgres: object, tmp_path: Path) -> None:
    import psycopg

    server = postgres
    url = server.new_database("app_data")  # type: ignore[attr-defined]
    ledger = server.new_database("app_ledger")  # type: ignore[attr-defined]
    with psycopg.connect(url.replace("postgresql+psycopg", "postgresql"), autocommit=True) as connection:
        connection.execute(
            'CREATE TABLE "my visits" (person bigint, amount numeric(8, 2), day date, kind text)'
        )
        connection.execute(
            'INSERT INTO "my visits" '
            "SELECT n % 2000, (n % 97) / 3.0, '2024-01-01', 'a' FROM generate_series(1, 8000) n"
        )
    (tmp_path / "data").mkdir()
    options = ("--data", str(tmp_path / "data"), "--ledger", ledger, "--connection", url)
    with running_app(*options, "--state", str(tmp_path / "state")) as running:
        steward = Client.enter(running, running.links[0])
        tables = steward.get("/").text
        assert "public.my visits" in tables
        found = re.search(r'href="(/setup\?[^"]*)"', tables)
        assert found is not None
        table = query_of(found[1].replace("&amp;", "&"))["table"]
        steward.post(
            "/setup",
            [("csrf", steward.csrf), ("table", table), ("dataset", "new"), ("name", "visits"), ("user", "person"),
             ("epsilon", "3"), ("delta", "0")],
        )  # fmt: skip
        question = steward.get("/question", [("table", table)]).text
        assert "month(day)" in question
        assert 'name="value" value="kind"' not in question  # a text has no mean
        at = steward.ask(steward.review(table=table, value="amount", per="user", epsilon="1")).location
        assert "Mean of user means of amount" in steward.wait(at).text
        value = json.loads(steward.get(f"{at}/release.json").text)["value"]
        assert abs(value - 16) < 2
        assert 'select * from "public"."my visits"' in steward.get(f"{at}/release.sh").text
        with hm.Ledger(ledger) as book:
            assert [entry.kind for entry in book.entries()] == ["opened", "charged", "released"]
