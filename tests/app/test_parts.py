"""Parts of the page by themselves: drafts, one-use tokens, exports, predictions, moments, tables, state."""

from __future__ import annotations

import json
import math
import shlex
import threading
import time
from dataclasses import replace
from itertools import pairwise, takewhile
from pathlib import Path

import pytest

import hubermean as hm
from hubermean.app.access import Access, Principal, read_access
from hubermean.app.draft import Draft
from hubermean.app.export import Export, _defuse, to_csv
from hubermean.app.prediction import draw_curve, predict, predict_curve
from hubermean.app.runner import Runner, TooBusyError, list_moments, next_moment
from hubermean.app.settings import Settings
from hubermean.app.state import Assignment, Run, State
from hubermean.app.tables import Table, Tables
from hubermean.app.tokens import check_token, offer_token
from hubermean.ingest.catalog import select_table

ANA, BEN = Principal(name="ana", role="analyst"), Principal(name="ben", role="analyst")
SECRET = bytes(range(32))
FULL = Draft(
    table="file:a b.parquet", value=("it's", 'a "fare"'), user=("rider id",), by=("month(day)",), keys=("x y", "-z"),
    max_groups=3, bounds=(-5.0, None), max_records=4, epsilon=0.30000000000000004, delta=1e-9, fresh=True,
)  # fmt: skip


def fields_of(draft: Draft) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for name, one in draft.to_fields():
        fields.setdefault(name, []).append(one)
    return fields


@pytest.mark.parametrize("draft", [FULL, Draft(table="t", statistic="count", of="records", max_records=7)])
def test_a_draft_survives_a_form_and_a_file_to_the_last_bit(draft: Draft) -> None:
    assert Draft.read(fields_of(draft)) == draft
    assert Draft.restore(draft.to_dict()) == draft


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"epsilon": ["1,5"]}, "a number such as 0.5"),
        ({"epsilon": ["nan"]}, "a number such as 0.5"),
        ({"epsilon": ["1", "2"]}, "given twice"),
        ({"max_groups": ["1.5"], "by": ["city"]}, "a whole number"),
        ({"statistic": ["median"]}, "mean or count"),
        ({"by": ["a", "b"], "keys": ["x"]}, "one group column"),
        ({"value": ["x\0"]}, "printable"),
        ({"value": ["x"] * 101}, "at most 100"),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(fields: dict[str, list[str]], said: str) -> None:
    with pytest.raises(hm.InputError, match=said):
        Draft.read(fields)


def test_a_token_serves_one_person_for_one_request_and_some_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    token = offer_token(SECRET, ANA, "request")
    number = check_token(SECRET, token, ANA, "request")
    assert number is not None
    assert offer_token(SECRET, ANA, "request") != token
    assert check_token(SECRET, token, BEN, "request") is None
    assert check_token(SECRET, token, Principal(name="ana", role="steward"), "request") is None
    assert check_token(SECRET, token, ANA, "request ") is None
    assert check_token(bytes(32), token, ANA, "request") is None
    other = "0" * 32 + token[32:]
    assert check_token(SECRET, other, ANA, "request") is None
    until = token.split("-")[1]
    assert check_token(SECRET, token.replace(until, str(int(until) + 1)), ANA, "request") is None
    monkeypatch.setattr("time.time", lambda: int(until) + 1.0)
    assert check_token(SECRET, token, ANA, "request") is None


def make_run(draft: Draft) -> Run:
    return Run(
        id="0", draft=draft, table=draft.table, dataset="a b", neighbors="add-remove", text={"decimal": ","},
        composition="basic", by_whom="ana", at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip


def test_a_command_quotes_whatever_names_hold() -> None:
    table = Table(id=FULL.table, label="a b.parquet", data="/data/a b.parquet")
    exported = Export(make_run(FULL), table, folder="/data", ledger="/data/own ledger.sqlite")
    words = shlex.split(exported.command().replace("\\\n", ""))
    assert words[:3] == ["hubermean", "release", "a b.parquet"]
    given = list(pairwise(words))
    expected = {"--user": "rider id", "--epsilon": "0.30000000000000004", "--bounds": "-5", "--decimal": ",",
                "--ledger": "own ledger.sqlite", "--dataset": "a b", "--max-groups": "3"}  # fmt: skip
    assert expected.items() <= set(given)
    assert {("--value", "it's"), ("--value", 'a "fare"'), ("--key", "x y"), ("-5", "none")} <= set(given)
    compile(exported.script(), "script", "exec")
    assert "epsilon=0.30000000000000004" in exported.script()


def test_an_export_never_holds_a_password() -> None:
    url = "postgresql://ana:secret4711@db/trips"
    data = select_table(("public", 'my "trips"'), url)
    table = Table(id="db", label="public.trips", data=data, connection=url)
    exported = Export(make_run(FULL), table, folder="/data", ledger="postgresql://ana:secret4711@db/budgets")
    for text in (exported.command(), exported.script(), exported.notebook(), repr(table)):
        assert "secret4711" not in text
    assert 'select * from "public"."my ""trips"""' in shlex.split(exported.command().replace("\\\n", ""))


def test_a_spreadsheet_finds_no_formula_in_a_csv_file() -> None:
    import pyarrow as pa

    users = list(range(3000))
    names = ['=cmd("x")', "plain", "@b"]
    table = pa.table(
        {"user": users, "group": [names[one % 3] for one in users], "value": [1.0 + one % 7 for one in users]}
    )
    made = hm.mean(
        table, user="user", value="value", by="group", keys=names, max_groups=1, epsilon=10, bounds=(0, 10)
    )
    lines = to_csv(made).splitlines()
    assert lines[0].startswith("group,value,value_interval_low,value_interval_high")
    assert lines[1].startswith("\"'=cmd(")
    assert [line.split(",")[0] for line in lines[2:]] == ["plain", "'@b"]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("a;=b()", "a;'=b()"),
        ("a\t+1", "a\t'+1"),
        ("a\n @x", "a\n' @x"),
        ("a-b", "a-b"),
        ("\tx", "'\tx"),
        (-1.5, -1.5),
    ],
)
def test_a_formula_begins_wherever_a_spreadsheet_may_split(cell: object, shown: object) -> None:
    assert _defuse(cell) == shown


def test_a_file_that_is_named_as_an_option_is_a_file(tmp_path: Path) -> None:
    table = Table(id="file:--ledger=x.parquet", label="--ledger=x.parquet", data="/data/--ledger=x.parquet")
    exported = Export(make_run(FULL), table, folder="/data", ledger="/data/own.sqlite")
    assert shlex.split(exported.command().replace("\\\n", ""))[2] == "./--ledger=x.parquet"


def test_a_notebook_shows_names_as_text() -> None:
    draft = replace(FULL, value=("![x](http://evil.example/x.png)", "`"))
    table = Table(id="file:a.parquet", label="a.parquet", data="/data/a.parquet")
    exported = Export(make_run(draft), table, folder="/data", ledger="/data/own.sqlite")
    source = "".join(json.loads(exported.notebook())["cells"][0]["source"])
    assert "`` Mean of ![x](http://evil.example/x.png), ` by month(day) ``" in source


def test_nobody_ends_the_sessions_of_somebody_else() -> None:
    access = Access({"a" * 40: ANA, "b" * 40: BEN})
    entered = access.enter("a" * 40)
    assert entered is not None
    keys = [found[0] for _ in range(1100) if (found := access.enter("b" * 40)) is not None]
    assert access.find(entered[0]) is not None
    assert access.find(keys[0]) is None
    assert access.find(keys[-1]) is not None


def test_predictions_are_those_of_plan_and_know_groups() -> None:
    mean = Draft(table="t", user=("u",), value=("v",))
    (one,) = predict(mean, users=4000, neighbors="add-remove", epsilons=[1.0])
    planned = hm.plan(n_users=4000, epsilon=1.0)
    assert one.error == next(row.over_non_private for row in planned.rows if row.mechanism == "adaptive")
    assert one.risk == "73.2%"
    grouped = Draft(table="t", user=("u",), value=("v",), by=("g",), max_groups=2)
    (part,) = predict(grouped, users=4000, neighbors="add-remove", epsilons=[1.0])
    (whole,) = predict(
        mean, users=4000, neighbors="add-remove", epsilons=[0.4]
    )  # 0.8 for the means, 2 groups
    assert part.error == pytest.approx(whole.error)
    (few,) = predict(mean, users=50, neighbors="add-remove", epsilons=[0.1])
    assert few.error == math.inf
    assert few.in_words == "refused: too few people"
    count = Draft(table="t", statistic="count", user=("u",))
    for neighbors, words in (("replace-user", "exact"), ("add-remove", "± 3")):
        (number,) = predict(count, users=4000, neighbors=neighbors, epsilons=[1.0])
        assert number.in_words == words
    curve = predict_curve(mean, users=4000, neighbors="add-remove")
    errors = [point.error for point in curve if point.error is not None]
    assert errors == sorted(errors, reverse=True)  # more budget, less error
    assert draw_curve(curve, chosen=1.0, left=2.5).count("<circle") == 1


def test_moments_at_which_outcomes_are_shown_are_few() -> None:
    moments = list(takewhile(lambda moment: moment <= 3600.0, list_moments()))
    assert len(moments) == 24  # as the threat model says
    assert moments == sorted(moments)
    assert all(next_moment(moment) == moment for moment in moments)
    assert {next_moment(2.0001), next_moment(2.5), next_moment(3.0)} == {3.0}


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (hm.InputError("a column is missing"), "rejected", "A column is missing."),
        (hm.LedgerUnavailable("it cannot be reached"), "failed", "If the ledger shows a charge, it counts."),
        (hm.LedgerDamaged("it was altered"), "failed", "If the ledger shows a charge, it counts."),
        (ZeroDivisionError("secret4711"), "failed", "hubermean failed (ZeroDivisionError in"),
    ],
)
def test_what_interrupts_a_release_is_never_called_free_where_it_may_be_charged(
    error: Exception, status: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Draft, "call", fail)
    with hm.Ledger(str(tmp_path / "budget.sqlite")) as book:
        book.init("a b", epsilon=1.0, user="u")
    (tmp_path / "t.csv").write_text("a\n")
    state = State(tmp_path / "state")
    runner = Runner(str(tmp_path / "budget.sqlite"), Tables(tmp_path), state)
    run = make_run(Draft(table="file:t.csv", user=("u",)))
    state.assign(Assignment(table=run.table, dataset=run.dataset, text=run.text))
    assert runner.submit(run)
    assert not runner.submit(run)
    runner.close()
    over = state.run("0")
    assert over is not None
    assert over.status == status
    assert said in over.message
    assert "secret4711" not in over.message
    with pytest.raises(TooBusyError):  # nothing begins once the server ends
        runner.submit(replace(run, id="1"))
    state.close()


@pytest.mark.parametrize("changed", ["dataset", "text", "users", "nothing"])
def test_a_run_whose_terms_changed_before_it_began_is_not_charged(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[Draft] = []

    def note(self: Draft, *_: object, **__: object) -> None:
        called.append(self)
        raise hm.InputError("it is over")

    monkeypatch.setattr(Draft, "call", note)
    with hm.Ledger(str(tmp_path / "budget.sqlite")) as book:
        book.init("a b", epsilon=1.0, user="v" if changed == "users" else "u")
        book.init("other", epsilon=1.0, user="u")
    (tmp_path / "t.csv").write_text("a\n")
    state = State(tmp_path / "state")
    run = make_run(Draft(table="file:t.csv", user=("u",)))
    state.assign(
        Assignment(
            table=run.table,
            dataset="other" if changed == "dataset" else run.dataset,
            text={} if changed == "text" else run.text,
        )
    )
    runner = Runner(str(tmp_path / "budget.sqlite"), Tables(tmp_path), state)
    runner.submit(run)
    runner.close()
    over = state.run("0")
    assert over is not None
    assert over.status == "rejected"
    assert bool(called) == (changed == "nothing")
    assert ("was changed after" in over.message) == (changed != "nothing")
    state.close()


def test_no_release_begins_while_another_runs_also_of_another_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of its entry would tell when the other one ended, long before the outcome is shown."""
    begun, may_end = threading.Event(), threading.Event()

    def wait(self: Draft, *_: object, **__: object) -> None:
        if self.epsilon == 1.0:
            begun.set()
            may_end.wait(30)
        raise hm.InputError("it is over")

    monkeypatch.setattr(Draft, "call", wait)
    with hm.Ledger(str(tmp_path / "budget.sqlite")) as book:
        for name in ("a b", "other"):
            book.init(name, epsilon=1.0, user="u")
    (tmp_path / "t.csv").write_text("a\n")
    state = State(tmp_path / "state")
    runner = Runner(str(tmp_path / "budget.sqlite"), Tables(tmp_path), state)
    first = make_run(Draft(table="file:t.csv", user=("u",)))
    then = replace(first, id="1", dataset="other", draft=replace(first.draft, epsilon=0.5))
    for run in (first, then):
        state.assign(Assignment(table=run.table, dataset=run.dataset, text=run.text))
        runner.submit(run)
        assert begun.wait(30)
    time.sleep(0.3)
    waiting = state.run("1")
    assert waiting is not None
    assert (waiting.status, runner.position(waiting)) == ("waiting", 1)
    may_end.set()
    while not (found := state.run("1")) or not found.is_over:
        time.sleep(0.05)
    runner.close()
    state.close()


def test_tables_are_files_below_the_folder(tmp_path: Path) -> None:
    for name in (
        "b.csv",
        "a.PARQUET",
        "deep/c.tsv.gz",
        "d.parquet.gz",
        "e.txt",
        "odd[1].csv",
        ".f.csv",
        "deep/.g/h.csv",
    ):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "data" / "pipe.csv.link").symlink_to(tmp_path)
    tables = Tables(tmp_path / "data")
    assert [table.label for table in tables.listed()[0]] == ["a.PARQUET", "b.csv", "deep/c.tsv.gz"]
    assert tables.find("file:b.csv") is not None
    for other in ("b.csv", "file:./b.csv", "file:deep/../b.csv", "file:e.txt", "db:x"):
        assert tables.find(other) is None
    found, problems = Tables(tmp_path / "data", ["sqlite:///nowhere.db"]).listed()
    assert len(found) == 3
    assert "there is no file" in problems[0]


def test_one_process_at_a_time_uses_a_state_folder(tmp_path: Path) -> None:
    state = State(tmp_path)
    assert state.add(make_run(FULL))
    assert not state.add(make_run(Draft(table="other")))  # the same token
    with pytest.raises(hm.InputError, match="another hubermean app uses"):
        State(tmp_path)
    secret = state.secret
    state.close()
    again = State(tmp_path)
    assert again.run("0") == make_run(FULL)
    assert again.secret == secret
    again.close()
    (tmp_path / "app.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(hm.InputError, match="name another folder"):
        State(tmp_path)


def test_lines_of_a_tokens_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.touch(mode=0o600)
    for content in ("", "steward ana short", f"owner ana {'a' * 40}", f"analyst ana b {'a' * 40}"):
        path.write_text(content)
        with pytest.raises(hm.InputError):
            read_access(path)
    path.write_text(f"# people\n\nanalyst ana {'a' * 40}\n")
    access = read_access(path)
    entered = access.enter("a" * 40)
    assert entered is not None
    assert entered[1].principal == ANA
    assert access.find(entered[0]) == entered[1]
    assert access.enter("b" * 40) is None
    assert access.find("nothing") is None
    assert Access({}).enter("") is None


def test_names_of_hosts(tmp_path: Path) -> None:
    local = Settings(folder=tmp_path, ledger="l", state=tmp_path)
    assert local.checked().hosts(80) == {"localhost:80", "127.0.0.1:80", "[::1]:80"}
    with pytest.raises(hm.InputError, match="state the names"):
        Settings(folder=tmp_path, ledger="l", state=tmp_path, host="0.0.0.0").checked()
    odd = Settings(folder=tmp_path, ledger="l", state=tmp_path, names=("a.example:8443",))
    assert "a.example:8443" in odd.checked().hosts(80)
    named = Settings(folder=tmp_path, ledger="l", state=tmp_path, host="0.0.0.0", names=("A.example",))
    assert named.checked().hosts(80) == {"a.example", "a.example:80"}
