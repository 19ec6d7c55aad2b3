"""What the command line prints and writes: bare answers, pages, help, completion, a first look, and its own words."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

import hubermean as hm
from helpers.command_line import typed
from hubermean.cli import lazy
from hubermean.cli.app import app, main
from hubermean.cli.audit import ONLY_AUDITED
from hubermean.cli.options import list_mechanisms
from hubermean.cli.wording import describe_error, flag
from hubermean.errors import parameter
from hubermean.mechanisms.registry import REGISTRY

GOOD = ["--user", "u", "--value", "v", "--epsilon", "1", "--bounds", "-5", "5", "--max-records", "2"]
PLAIN = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
COMMANDS = ("release", "count", "plan", "audit", "reproduce", "check", "doctor", "demo")
LEDGER_COMMANDS = ("init", "show", "spend", "verify", "export")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(
        pa.table({"u": [1, 1, 2, 3], "v": [1.0, 2.0, 3.0, 4.0], "w": [1, 2, 3, 4]}), tmp_path / "t.parquet"
    )
    return tmp_path


# --- the report -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", [[], ["--json"], ["--quiet"]], ids=str)
def test_a_report_is_written_beside_what_is_printed(output: list[str], folder: Path) -> None:
    shown = typed("release", "t.parquet", *GOOD, "--report", "out.html", *output, cwd=folder)
    assert shown.returncode == 0, shown.stderr
    page = (folder / "out.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "From t.parquet." in page
    assert str(folder) not in page
    if not output:
        assert "Report: out.html" in shown.stdout
    if output == ["--json"]:
        assert json.loads(shown.stdout)["released"] is True
    if output == ["--quiet"]:
        assert -5 <= float(shown.stdout) <= 5
    assert sorted(path.name for path in folder.iterdir()) == ["out.html", "t.parquet"]


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("no/such/place.html", "the folder no/such for the report does not exist; create it first"),
        (".", "is a folder"),
        ("t.parquet", "must end in .html"),
        ("locked.html", "you may not write to"),
    ],
)
def test_a_report_that_cannot_be_written_costs_nothing(
    place: str,
    sentence: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Refused before the data is so much as opened."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the budget was spent")

    before = (folder / "t.parquet").read_bytes()
    (folder / "locked.html").write_text("mine")
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: access(path, mode) and Path(path).name != "locked.html"
    )
    monkeypatch.setattr("hubermean._api.mean", never)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        sys, "argv", ["hubermean", "release", "t.parquet", *GOOD, "--report", place, "--json"]
    )
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert json.loads(printed.out)["released"] is False
    assert (folder / "t.parquet").read_bytes() == before
    assert (folder / "locked.html").read_text() == "mine"
    assert len(list(folder.iterdir())) == 2


def test_a_release_whose_report_is_lost_is_still_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        sys, "argv", ["hubermean", "release", "t.parquet", *GOOD, "--report", "out.html", "--json"]
    )
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 74
    printed = capsys.readouterr()
    assert json.loads(printed.out)["released"] is True
    assert printed.err.count("\n") == 1
    assert "no report could be written to out.html" in printed.err
    assert [path.name for path in folder.iterdir()] == ["t.parquet"]


# --- printing less ----------------------------------------------------------------------------------------------------


def test_quiet_prints_bare_values_one_per_line(folder: Path) -> None:
    shown = typed("release", "t.parquet", *GOOD, "--value", "w", "--quiet", cwd=folder)
    assert shown.returncode == 0
    assert shown.stderr == ""
    assert len(list(map(float, shown.stdout.splitlines()))) == 2
    failed = typed("release", "nowhere.parquet", *GOOD, "--quiet", cwd=folder)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("error: there is no file")


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["plan", "--n-users", "10000", "--epsilon", "1", "--bounds", "0", "1"], r"[a-z-]+\n"),
        (["audit", "--mechanism", "clipped", "--bounds", "0", "1", "--pairs", "20"], "kept\n"),
        (["doctor"], "ready\n"),
    ],
)
def test_quiet_is_the_answer_alone(arguments: list[str], answer: str) -> None:
    shown = CliRunner().invoke(app, [*arguments, "--quiet"])
    assert shown.exit_code == 0
    assert re.fullmatch(answer, shown.output)


@pytest.mark.parametrize(
    "arguments",
    [["release", "t.parquet", *GOOD], ["plan", "--n-users", "9", "--epsilon", "1"], ["audit"], ["doctor"]],
)
def test_json_and_quiet_exclude_each_other(arguments: list[str]) -> None:
    shown = CliRunner().invoke(app, [*arguments, "--json", "--quiet"])
    assert isinstance(shown.exception, hm.InputError)
    assert "--json or --quiet" in str(shown.exception)


# --- help and completion ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [*([name] for name in COMMANDS), *(["ledger", name] for name in LEDGER_COMMANDS)], ids=" ".join
)
def test_help_has_examples_to_copy(command: list[str]) -> None:
    """Each on a line of its own at 80 columns, parsed by the very command."""
    shown = CliRunner().invoke(app, [*command, "--help"], env=PLAIN)
    assert shown.exit_code == 0
    before_panels = shown.stdout.split("╭")[0]
    joined = re.sub(r"\\ *\n *", "", before_panels.split("Examples")[1])
    examples = [line.strip() for line in joined.splitlines() if line.strip()]
    assert examples
    known: Any = typer.main.get_command(app)
    for name in command:
        known = known.commands[name]
    flags = {name for option in known.params for name in option.opts}
    for example in examples:
        words = example.split()
        assert words[: 1 + len(command)] == ["hubermean", *command], example
        assert {word for word in words if word.startswith("--")} <= flags, example


@pytest.mark.parametrize("command", sorted({*lazy.COMMANDS} - {"ledger", "reproduce"}))
def test_the_list_of_commands_says_what_their_help_says(command: str) -> None:
    """Commands are imported when they are used, so that the list holds their first line itself."""
    shown: Any = typer.main.get_command(app)
    assert shown.commands[command].loaded.help.splitlines()[0] == lazy.COMMANDS[command]


def test_options_are_grouped() -> None:
    shown = CliRunner().invoke(app, ["release", "--help"], env=PLAIN).stdout
    titles = re.findall(r"╭─ ([\w ]+?) ─", shown)
    assert titles == [
        "Arguments",
        "Options",
        "Data",
        "Privacy",
        "Groups",
        "Public parameters",
        "Ledger",
        "Output",
    ]


def test_help_names_the_mechanisms_of_the_registry() -> None:
    assert all(repr(name) in list_mechanisms() for name in REGISTRY)
    assert set(ONLY_AUDITED) == {"count", "paper-literal"}


@pytest.mark.parametrize(
    ("given", "offered"),
    [
        (["hubermean", ""], {*COMMANDS, "ledger", "app"}),
        (["hubermean", "ledger", ""], set(LEDGER_COMMANDS)),
        (["hubermean", "release", "t.csv", "--per", ""], {"record", "user"}),
        (["hubermean", "release", "t.csv", "--neighbors", "replace-u"], {"replace-user"}),
        (["hubermean", "release", "t.csv", "--mechanism", ""], set(REGISTRY)),
        (["hubermean", "audit", "--mechanism", "pa"], {"paper-literal"}),
        (["hubermean", "release", "--rep"], {"--report"}),
    ],
)
def test_bash_completes(given: list[str], offered: set[str]) -> None:
    shown = typed(
        _HUBERMEAN_COMPLETE="complete_bash", COMP_WORDS=" ".join(given), COMP_CWORD=str(len(given) - 1)
    )
    assert set(shown.stdout.split()) == offered


def test_the_completion_script_asks_for_what_is_answered() -> None:
    # Else the shell is found out by the parent process, which is none where tests run in the background.
    shown = typed("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_HUBERMEAN_COMPLETE=complete_bash" in shown.stdout
    assert shown.stdout.rstrip().endswith("hubermean")


# --- a first look -----------------------------------------------------------------------------------------------------


def test_demo_shows_the_truth_of_made_up_data_and_says_so() -> None:
    shown = typed("demo", COLUMNS="100")
    assert shown.returncode == 0, shown.stderr
    for words in (
        "made-up data",
        "Mean fare",
        "True mean of all fares: 16.26",
        "hubermean release",
    ):
        assert words in " ".join(shown.stdout.split())


def test_demo_for_machines() -> None:
    shown = CliRunner().invoke(app, ["demo", "--json", "--epsilon", "50"])
    assert shown.exit_code == 0
    made = json.loads(shown.output)
    assert made["epsilon"] == 50
    assert "made-up" in made["data"]
    assert made["value"] == pytest.approx(made["true_mean"], rel=0.1)


def test_the_commands_that_demo_names_work(tmp_path: Path) -> None:
    kept = typed("demo", "--save", "trips.parquet", cwd=tmp_path, COLUMNS="200")
    assert kept.returncode == 0, kept.stderr
    (command,) = [line.split() for line in kept.stdout.splitlines() if line.startswith("  hubermean release")]
    shown = typed(*command[1:], cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "fare.html").exists()
    again = typed("demo", "--save", "trips.parquet", cwd=tmp_path)
    assert again.returncode == 2
    assert "exists already" in again.stderr
    for name in ("trips.csv", "no/where.parquet"):
        refused = CliRunner().invoke(app, ["demo", "--save", str(tmp_path / name)])
        assert isinstance(refused.exception, hm.InputError)


def test_made_up_trips_are_the_same_every_time_and_hard_enough() -> None:
    from hubermean.cli.example_trips import example_trips

    trips = example_trips()
    assert trips.equals(example_trips())
    rides = trips["rider_id"].value_counts().field("counts").to_numpy()
    assert rides.max() > 50 * sorted(rides.tolist())[len(rides) // 2]
    assert min(trips["fare"].to_pylist()) > 0


# --- the words of the command line ------------------------------------------------------------------------------------


def flags_of(command: str) -> set[str]:
    found: Any = typer.main.get_command(app)
    return {given for option in found.commands[command].params for given in option.opts}


@pytest.mark.parametrize(
    ("command", "call"), [("release", hm.mean), ("count", hm.count), ("plan", hm.plan), ("audit", hm.audit)]
)
def test_every_parameter_is_an_option(command: str, call: Callable[..., Any]) -> None:
    """What a message may name can be typed."""
    own = set(inspect.signature(call).parameters) - {"data", "progress"}
    missing = {flag(one) for one in own} - flags_of(command)
    assert not missing, f"hubermean {command} cannot say {missing}"


MENTION = re.compile(r"parameter\('(\w+)'")
ONLY_IN_PYTHON = {"length"}  # of `hm.vectors`


def test_every_mention_names_a_parameter() -> None:
    """What a message of the package mentions is an option of some command."""
    ledger: Any = typer.main.get_command(app)
    flags = set().union(*(flags_of(name) for name in ("release", "count", "plan", "audit", "app")))
    for command in ledger.commands["ledger"].commands.values():
        flags |= {given for option in command.params for given in option.opts}
    folder = Path(hm.__file__).parent
    # Federated runs are for Python alone.
    federated = {*folder.glob("federated/*.py"), *folder.glob("flower/*.py"), folder / "accounting/rounds.py"}
    modules = set(folder.rglob("*.py")) - federated
    found = {name for path in modules for name in MENTION.findall(path.read_text("utf-8"))}
    assert {"max_records", "bounds", "per"} <= found
    assert {flag(name) for name in found - ONLY_IN_PYTHON} <= flags


def test_messages_speak_of_options() -> None:
    error = hm.InputError(
        f"{parameter('max_records')} is for {parameter('per', 'record')}; "
        f"{parameter('fresh', True)} is not 'max_records'"
    )
    assert str(error) == "max_records is for per='record'; fresh=True is not 'max_records'"
    assert describe_error(error) == "--max-records is for --per record; --fresh is not 'max_records'"
    assert error.parameters == ("max_records", "per", "fresh")


def test_names_in_messages_stay_as_they_are() -> None:
    """A file or a column may be named like a parameter, or hold control characters."""
    error = hm.InputError("there is no file user=1/n_users.csv\x1b[2J; columns are: max_records")
    assert describe_error(error) == str(error)
    assert (
        str(error)
        == "there is no file user=1/n_users.csv\N{REPLACEMENT CHARACTER}[2J; columns are: max_records"
    )
    assert error.parameters == ()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (["--max-records", "0"], "error: --max-records must be"),
        (["--per", "user"], "error: --max-records is for --per record; with --per user every"),
        (
            ["--mechanism", "propose-test-release"],
            "error: --bounds is not used by mechanism 'propose-test-release'",
        ),
        (["--memory-limit", "lots"], "error: --memory-limit must be a size"),
        (["--non-finite", "keep"], "error: --non-finite must be 'drop' or 'clamp'"),
    ],
)
def test_errors_name_what_was_typed(changed: list[str], sentence: str, folder: Path) -> None:
    shown = typed("release", "t.parquet", *GOOD, *changed, "--json", cwd=folder)
    assert shown.returncode == 2
    assert shown.stderr.startswith(sentence), shown.stderr
    assert shown.stderr == f"error: {json.loads(shown.stdout)['reason']}\n"
