"""`hubermean ledger`, and releases that are charged to one, as a person or a script uses them."""

from __future__ import annotations

import html.parser
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import hubermean as hm
from helpers.command_line import typed
from hubermean.cli.app import app
from hubermean.report.ledger_export import export_ledger
from hubermean.report.ledger_page import ledger_page

PROGRAM = str(Path(sys.executable).with_name("hubermean"))
KNOWN = ["--user", "u", "--value", "v", "--bounds", "0", "9", "--per", "user"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"u": [1, 1, 2, 3], "v": [1.0, 2.0, 3.0, 4.0]}), tmp_path / "t.parquet")
    return tmp_path


def run(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1", **environment},
    )


def test_a_team_spends_a_budget_and_is_told_when_it_is_gone(folder: Path, place: str) -> None:
    """The whole way: open, release, ask again, run out, look, verify; the first release in a process of its own."""
    made = typed("ledger", "init", place, "--dataset", "trips", "--epsilon", "1", "--user", "u")
    assert made.returncode == 0, made.stderr
    paid = ["--ledger", place, "--dataset", "trips"]
    first = run("release", "t.parquet", *KNOWN, "--epsilon", "0.75", *paid, "--json", cwd=folder)
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    assert told["ledger"] == {
        "dataset": "trips",
        "entry": 3,
        "charged": "epsilon = 0.75",
        "left": "epsilon = 0.25",
        "again": False,
        "recorded": True,
    }
    again = typed("release", "t.parquet", *KNOWN, "--epsilon", "0.75", *paid, "--quiet", cwd=folder)
    assert float(again.stdout) == told["value"]
    refused = typed("release", "t.parquet", *KNOWN, "--epsilon", "0.5", *paid, "--json", cwd=folder)
    assert refused.returncode == 3
    assert refused.stderr == (
        "error: the data set 'trips' has epsilon = 0.25 left, but this release costs epsilon = 0.5; "
        "use a smaller budget\n"
    )
    assert json.loads(refused.stdout) == {
        "released": False,
        "reason": refused.stderr.removeprefix("error: ").rstrip(),
        "epsilon_left": 0.25,
        "delta_left": 0.0,
    }
    counted = typed("count", "t.parquet", "--user", "u", "--epsilon", "0.25", *paid, cwd=folder)
    assert counted.returncode == 0
    assert "epsilon = 0.25 charged; epsilon = 0 left" in " ".join(counted.stdout.split())
    assert typed("ledger", "show", place, "--quiet").stdout == "trips\t0\t0\n"
    shown = json.loads(typed("ledger", "show", place, "--dataset", "trips", "--json").stdout)
    assert shown["datasets"][0]["spent"] == {"loss": "1", "delta": "0"}
    charges = json.loads(typed("ledger", "spend", place, "--json").stdout)["charges"]
    assert charges[0]["what"].startswith("mean of user means of v, auto, from t.parquet (")
    assert "Charges of trips" in typed("ledger", "spend", place).stdout
    verified = typed("ledger", "verify", place, "--json")
    assert verified.returncode == 0
    assert json.loads(verified.stdout)["sound"] is True


def test_charges_for_what_is_released_elsewhere(folder: Path) -> None:
    typed("ledger", "init", "l.sqlite", "--dataset", "d", "--epsilon", "1", "--delta", "1e-6", cwd=folder)
    spend = ["ledger", "spend", "l.sqlite", "--dataset", "d"]
    assert typed(*spend, "--epsilon", "0.9", "--note", "histogram", cwd=folder).returncode == 0
    over = typed(*spend, "--epsilon", "0.2", cwd=folder)
    assert (over.returncode, over.stderr.count("\n")) == (3, 1)
    assert typed(*spend, "--epsilon", "0", "--delta", "1e-6", "--quiet", cwd=folder).stdout == "0.1\n"
    assert "histogram" in typed("ledger", "spend", "l.sqlite", "--quiet", cwd=folder).stdout
    for wrong in (
        ["--note", "x"],
        ["--epsilon", "nan"],
        ["--epsilon", "-1"],
        ["--epsilon", "1", "--delta", "2"],
    ):
        ended = typed(*spend, *wrong, cwd=folder)
        assert ended.returncode == 2, wrong
        assert ended.stderr.startswith("error: ")
    missing = typed("ledger", "spend", "l.sqlite", "--epsilon", "0.1", cwd=folder)
    assert "--dataset" in missing.stderr


def test_damage_is_exit_code_five_and_names_the_entry(folder: Path) -> None:
    place = folder / "l.sqlite"
    typed("ledger", "init", str(place), "--dataset", "d", "--epsilon", "1")
    typed("ledger", "spend", str(place), "--dataset", "d", "--epsilon", "0.5", "--note", "histogram")
    page = place.read_bytes()
    place.write_bytes(page.replace(b"histogram", b"histogrAm"))
    shown = typed("ledger", "verify", str(place))
    assert shown.returncode == 5
    assert "entry 2: it was altered" in shown.stdout
    assert typed("ledger", "verify", str(place), "--quiet").stdout == "damaged\n"
    assert json.loads(typed("ledger", "verify", str(place), "--json").stdout)["faults"][0]["entry"] == 2
    release = typed(
        "release",
        "t.parquet",
        *KNOWN,
        "--epsilon",
        "0.1",
        "--ledger",
        str(place),
        "--dataset",
        "d",
        cwd=folder,
    )
    assert (release.returncode, release.stdout) == (5, "")
    assert release.stderr == "error: entry 2 was altered\n" or "entry 2 was altered" in release.stderr
    exported = typed("ledger", "export", str(place), "--out", "l.html", cwd=folder)
    assert exported.returncode == 5
    assert "Release nothing against it" in (folder / "l.html").read_text()


def test_a_ledger_in_the_environment_must_be_used(folder: Path) -> None:
    """Whoever sets it means every release: one that names no data set is refused."""
    place = str(folder / "l.sqlite")
    typed("ledger", "init", place, "--dataset", "d", "--epsilon", "1")
    release = ["release", "t.parquet", *KNOWN, "--epsilon", "0.5"]
    refused = typed(*release, cwd=folder, HUBERMEAN_LEDGER=place)
    assert refused.returncode == 2
    assert refused.stderr == (
        "error: the environment variable HUBERMEAN_LEDGER gives a ledger, but no data set is given; add --dataset "
        "or set HUBERMEAN_DATASET, or unset HUBERMEAN_LEDGER to release without a ledger\n"
    )
    half = typed(*release, cwd=folder, HUBERMEAN_DATASET="d")
    assert half.returncode == 2
    assert "HUBERMEAN_DATASET gives a data set, but no ledger is given; add --ledger" in half.stderr
    for more in (["--ledger", place], ["--dataset", "d"], ["--fresh"], ["--by-whom", "Anna"]):
        typed_by_hand = typed(*release, *more, cwd=folder)
        assert typed_by_hand.returncode == 2
        assert typed_by_hand.stderr.startswith("error: --ledger and --dataset go together; give both")
    assert typed(*release, "--dataset", "d", cwd=folder, HUBERMEAN_LEDGER=place).returncode == 0
    assert "0.5" in typed("ledger", "show", HUBERMEAN_LEDGER=place).stdout
    again = typed(*release, "--quiet", cwd=folder, HUBERMEAN_LEDGER=place, HUBERMEAN_DATASET="d")
    assert again.returncode == 0
    assert typed("ledger", "show", place, "--quiet").stdout == "d\t0.5\t0\n"


def test_a_dry_run_says_what_would_happen_and_leaves_no_trace(folder: Path) -> None:
    place = str(folder / "l.sqlite")
    typed("ledger", "init", place, "--dataset", "d", "--epsilon", "1")
    before = Path(place).read_bytes()
    release = ["release", "t.parquet", "--user", "u", "--value", "v", "--ledger", place, "--dataset", "d"]
    shown = typed(*release, "--epsilon", "0.25", "--dry-run", cwd=folder)
    assert shown.returncode == 0
    said = " ".join(shown.stdout.replace("│", " ").split())
    assert "Dry run: no record was read, nothing was charged" in said
    assert "epsilon = 0.25 would be charged, epsilon = 0.75 would be left" in said
    assert re.search(r"about [\d,]+ users with usable records", said)
    data = json.loads(typed(*release, "--epsilon", "0.25", "--dry-run", "--json", cwd=folder).stdout)
    assert (data["dry_run"], data["released"], data["mechanism"]) == (True, False, "adaptive")
    assert data["steps"][0] == "number of users"
    for arguments, code, words in (
        (["--epsilon", "1.5"], 3, "this release costs epsilon = 1.5"),
        (["--epsilon", "1", "--value", "none"], 2, "none"),
        (["--epsilon", "1", "--n-users", "4"], 2, "--n-users expects 4"),
        (["--epsilon", "1", "--report", "r.html"], 2, "a dry run releases nothing"),
        (["--epsilon", "1", "--mechanism", "propose-test-release"], 2, "needs delta > 0"),
    ):
        ended = typed(*release, *arguments, "--dry-run", cwd=folder)
        assert ended.returncode == code, arguments
        assert words in ended.stderr
    assert Path(place).read_bytes() == before
    with hm.Ledger(place) as ledger:
        assert [entry.kind for entry in ledger.entries()] == [
            "opened"
        ]  # a refusal of a dry run is not recorded
    known = ["release", "t.parquet", *KNOWN, "--epsilon", "0.5", "--ledger", place, "--dataset", "d"]
    assert typed(*known, "--by-whom", "Anna", "--quiet", cwd=folder).returncode == 0
    repeated = typed(*known, "--dry-run", cwd=folder).stdout
    assert "recorded in entry 3, so nothing would be charged" in " ".join(repeated.replace("│", " ").split())
    (charge,) = json.loads(typed("ledger", "spend", place, "--json").stdout)["charges"]
    assert charge["by_whom"] == "Anna"


def test_who_asks_is_the_systems_user_by_default(folder: Path) -> None:
    place = str(folder / "l.sqlite")
    typed("ledger", "init", place, "--dataset", "d", "--epsilon", "1", "--by-whom", "the steward")
    typed("ledger", "spend", place, "--dataset", "d", "--epsilon", "0.1", LOGNAME="anna")
    typed("ledger", "spend", place, "--dataset", "d", "--epsilon", "0.1", "--by-whom", "Bea", LOGNAME="anna")
    over = typed("ledger", "spend", place, "--dataset", "d", "--epsilon", "5", LOGNAME="carl")
    assert over.returncode == 3
    wrong = typed("ledger", "spend", place, "--dataset", "d", "--epsilon", "0.1", "--by-whom", "")
    assert (wrong.returncode, wrong.stderr[:24]) == (2, "error: --by-whom must be")
    with hm.Ledger(place) as ledger:
        assert [entry.content["by_whom"] for entry in ledger.entries()] == [
            "the steward",
            "anna",
            "Bea",
            "carl",
        ]
        assert ledger.verify().sound
        page = ledger_page(export_ledger(ledger))
    assert "by whom" in page
    assert "Bea" in page


def test_a_refund_is_shown_wherever_charges_are(folder: Path) -> None:
    place = str(folder / "l.sqlite")
    typed("ledger", "init", place, "--dataset", "d", "--epsilon", "1")
    release = ["release", "t.parquet", "--user", "u", "--value", "v", "--ledger", place, "--dataset", "d"]
    refused = typed(*release, "--epsilon", "1", "--json", cwd=folder)
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["epsilon_spent"] == 0.03
    assert "epsilon = 0.03 of 1 was spent" in refused.stderr
    (charge,) = json.loads(typed("ledger", "spend", place, "--json").stdout)["charges"]
    assert (charge["loss"], charge["refunded"]) == ("0.03", {"loss": "0.97", "delta": "0"})
    assert charge["outcome"].endswith("; 0.97 given back")
    assert typed("ledger", "show", place, "--quiet").stdout == "d\t0.97\t0\n"
    with hm.Ledger(place) as ledger:
        exported = export_ledger(ledger)
    assert exported["verification"]["sound"]
    assert "0.97 given back" in ledger_page(exported)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["ledger", "show", "none.sqlite"],
            "there is no ledger none.sqlite; create one with hubermean ledger init",
        ),
        (
            ["ledger", "init", "no/l.sqlite", "--dataset", "d", "--epsilon", "1"],
            "the folder no of ledger l.sqlite does not exist",
        ),
        (
            ["ledger", "init", "l.sqlite", "--dataset", "d", "--epsilon", "0"],
            "epsilon must be a number from 1e-9",
        ),
        (
            ["ledger", "init", "l.sqlite", "--dataset", "d", "--epsilon", "1", "--delta", "1"],
            "delta must be 0",
        ),
        (
            ["ledger", "init", "l.sqlite", "--dataset", "d", "--epsilon", "1", "--composition", "best"],
            "--composition must be 'basic' or 'concentrated', not 'best'",
        ),
        (["ledger", "init", "t.parquet", "--dataset", "d", "--epsilon", "1"], "or not a ledger"),
        (["ledger", "export", "l.sqlite", "--out", "x.txt"], "must end in .html or .htm or .json"),
    ],
)
def test_errors_are_one_sentence(folder: Path, arguments: list[str], sentence: str) -> None:
    before = (folder / "t.parquet").read_bytes()
    ended = typed(*arguments, cwd=folder)
    assert ended.returncode in (2, 5)
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert (folder / "t.parquet").read_bytes() == before


def test_what_is_paid_for_but_not_recorded_is_printed_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(folder / "l.sqlite")
    with hm.Ledger(place) as ledger:
        ledger.init("d", epsilon=1)

    def full(*_: object) -> None:
        raise hm.LedgerUnavailable("the disk is full")

    monkeypatch.setattr(hm.Ledger, "conclude", full)
    options = [*KNOWN, "--epsilon", "0.5", "--ledger", place, "--dataset", "d", "--json"]
    shown = CliRunner().invoke(app, ["release", str(folder / "t.parquet"), *options])
    assert shown.exit_code == 74
    assert json.loads(shown.stdout)["released"] is True
    assert "could not be recorded; keep it" in shown.stderr


# --- the page ---------------------------------------------------------------------------------------------------------


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, str]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen |= {(tag, name) for name, _ in attrs} | {(tag, "")}


def tags(page: str) -> set[tuple[str, str]]:
    found = Tags()
    found.feed(page)
    return found.seen


def exported_with(folder: Path, name: str, note: str, column: str) -> dict[str, Any]:
    place = folder / "l.sqlite"
    place.unlink(missing_ok=True)
    with hm.Ledger(place) as ledger:
        ledger.init(name, epsilon=3, delta=1e-6, composition="concentrated", user=[column])
        ledger.spend(name, epsilon=0.1, note=note)
        table = pa.table({column: [1, 2, 3], f"v{column}": [1.0, 2.0, 3.0]})
        hm.mean(
            table,
            user=column,
            value=f"v{column}",
            bounds=(0, 9),
            per="user",
            epsilon=0.1,
            ledger=ledger,
            dataset=name,
            question=note,
        )
        return export_ledger(ledger)


text = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=40).filter(
    lambda one: one.strip() and one.isprintable()
)


@pytest.fixture(scope="module")
def plain_tags(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tags(ledger_page(exported_with(tmp_path_factory.mktemp("plain"), "trips", "histogram", "u")))


@settings(max_examples=40, deadline=None)
@given(name=text, note=text, column=text)
def test_a_page_shows_names_as_text(
    tmp_path_factory: pytest.TempPathFactory, plain_tags: Any, name: str, note: str, column: str
) -> None:
    page = ledger_page(exported_with(tmp_path_factory.mktemp("page"), name, note, column))
    assert tags(page) == plain_tags


def test_a_page_escapes_markup(tmp_path: Path) -> None:
    hostile = "<script>alert('x')</script>\"&"
    page = ledger_page(exported_with(tmp_path, hostile, hostile, hostile))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"https?://", page)


def test_export_is_json_that_can_be_read(folder: Path) -> None:
    typed("ledger", "init", "l.sqlite", "--dataset", "d", "--epsilon", "1", cwd=folder)
    typed(
        "release", "t.parquet", *KNOWN, "--epsilon", "1", "--ledger", "l.sqlite", "--dataset", "d", cwd=folder
    )
    printed = json.loads(typed("ledger", "export", "l.sqlite", cwd=folder).stdout)
    typed("ledger", "export", "l.sqlite", "--out", "l.json", cwd=folder)
    written = json.loads((folder / "l.json").read_text())
    assert printed["entries"] == written["entries"]
    assert [entry["kind"] for entry in written["entries"]] == ["opened", "charged", "released"]
    assert str(folder) not in (folder / "l.json").read_text()
