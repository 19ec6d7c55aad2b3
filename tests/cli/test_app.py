"""The command line as a person meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import hubermean
from helpers.command_line import typed
from hubermean.cli.app import app

PROGRAM = str(Path(sys.executable).with_name("hubermean"))
GOOD = ["--user", "u", "--value", "v", "--epsilon", "1", "--bounds", "-5", "5", "--max-records", "2"]
PUBLIC = ["--neighbors", "replace-user"]


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False, cwd=cwd)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    table = pa.table(
        {"u": [1, 1, 2, 3], "v": [1.0, 2.0, 3.0, 4.0], "w": [1, 2, 3, 4], "name": ["a", "b", "c", "d"]}
    )
    pq.write_table(table, folder / "t.parquet")
    table.to_pandas().to_csv(folder / "t.csv", index=False)
    (folder / "empty.csv").write_text("")
    (folder / "empty.parquet").write_bytes(b"")
    (folder / "broken.parquet").write_bytes(b"PAR1 this is not a table PAR1")
    (folder / "t.xlsx").write_bytes(b"x")
    pq.write_table(table.slice(0, 0), folder / "nobody.parquet")
    (folder / "twice.csv").write_text("u,v,v\n1,2,3\n")
    return folder


def with_option(name: str, *given: str) -> list[str]:
    options = list(GOOD)
    if name in options:
        position = options.index(name)
        del options[position : position + (3 if name == "--bounds" else 2)]
    return [*options, name, *given] if given else options


BAD_INPUT = {
    "missing file": ("nowhere.parquet", GOOD, "there is no file"),
    "no file matches": ("no-*.parquet", GOOD, "there is no file"),
    "empty csv": ("empty.csv", GOOD, "is empty"),
    "empty parquet": ("empty.parquet", GOOD, "is empty"),
    "broken parquet": ("broken.parquet", GOOD, "cannot be read"),
    "unknown kind": ("t.xlsx", GOOD, "unknown format"),
    "folder": (".", GOOD, "is a folder"),
    "remote": ("ftp://host/t.parquet", GOOD, "neither a local path nor on s3://"),
    "no users": ("nobody.parquet", [*GOOD, *PUBLIC], "no users"),
    "two columns of one name": ("twice.csv", GOOD, "different, non-empty name"),
    "unknown value column": ("t.parquet", with_option("--value", "fare"), "columns are: u, v, w, name"),
    "unknown user column": ("t.csv", with_option("--user", "rider"), "no column 'rider'; check its spelling"),
    "text column": ("t.parquet", with_option("--value", "name"), "has no mean"),
    "same column twice": ("t.parquet", with_option("--value", "u"), "both user and value"),
    "epsilon zero": ("t.parquet", with_option("--epsilon", "0"), "epsilon must be"),
    "epsilon negative": ("t.parquet", with_option("--epsilon", "-1"), "epsilon must be"),
    "epsilon nan": ("t.parquet", with_option("--epsilon", "nan"), "epsilon must be"),
    "epsilon infinite": ("t.parquet", with_option("--epsilon", "inf"), "epsilon must be"),
    "delta one": ("t.parquet", with_option("--delta", "1"), "delta must be"),
    "delta negative": ("t.parquet", with_option("--delta", "-0.1"), "delta must be"),
    "delta nan": ("t.parquet", with_option("--delta", "nan"), "delta must be"),
    "reversed bounds": ("t.parquet", with_option("--bounds", "5", "-5"), "low < high"),
    "infinite bounds": ("t.parquet", with_option("--bounds", "0", "inf"), "finite"),
    "bounds beyond range": ("t.parquet", with_option("--bounds", "0", "1e13"), "give resolution"),
    "no bounds and few users": ("t.parquet", [*with_option("--bounds"), *PUBLIC], "give bounds"),
    "no bounds and an estimate of few users": (
        "t.csv",
        [*with_option("--bounds"), "--n-users", "3"],
        "give bounds",
    ),
    "cap zero": ("t.parquet", with_option("--max-records", "0"), "max_records must be"),
    "no cap": ("t.parquet", [*with_option("--max-records"), *PUBLIC], "give max_records"),
    "cap per user": ("t.parquet", with_option("--per", "user"), "leave it out"),
    "unknown per": ("t.parquet", with_option("--per", "row"), "per must be"),
    "unknown relation": ("t.parquet", with_option("--neighbors", "replace"), "neighbors must be"),
    "unknown mechanism": ("t.parquet", with_option("--mechanism", "magic"), "mechanism must be"),
    "bad memory limit": ("t.parquet", with_option("--memory-limit", "lots"), "memory_limit"),
    "bad threads": ("t.parquet", with_option("--threads", "0"), "threads must be"),
    "bad resolution": ("t.parquet", with_option("--resolution", "0"), "resolution must be"),
    "bad non-finite": ("t.parquet", with_option("--non-finite", "keep"), "non_finite must be"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_clear_sentence(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, options, sentence = BAD_INPUT[case]
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, ["release", file, *options])
    assert isinstance(result.exception, hubermean.InputError), result.output
    assert sentence in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.exception.exit_code == 2


def test_bounds_are_given_once(folder: Path) -> None:
    """The last pair served all columns, in silence."""
    given = ["--user", "u", "--value", "v", "--epsilon", "1", "--bounds", "0", "1", "--bounds", "0", "9"]
    shown = typed("release", "t.parquet", *given, cwd=folder)
    assert shown.returncode == 2
    assert "give --bounds once" in shown.stderr


def test_the_program_prints_the_sentence_and_exits_with_two(folder: Path) -> None:
    result = run("release", "nowhere.parquet", *GOOD, cwd=folder)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == "error: there is no file nowhere.parquet; check the path\n"
    refused = run("release", "nowhere.parquet", *GOOD, "--json", cwd=folder)
    assert json.loads(refused.stdout) == {
        "released": False,
        "reason": "there is no file nowhere.parquet; check the path",
    }


@pytest.mark.parametrize(
    "arguments", [["release"], ["release", "t.csv"], ["nonsense"], ["release", "t.csv", "--epsilon", "x"]]
)
def test_wrong_usage_exits_with_two_and_no_traceback(arguments: list[str], folder: Path) -> None:
    result = typed(*arguments, cwd=folder)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_a_bug_of_ours_shows_no_data(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hubermean.cli.app import main

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret-473")

    monkeypatch.setattr("hubermean._api.mean", fail)
    monkeypatch.setattr(sys, "argv", ["hubermean", "release", str(folder / "t.parquet"), *GOOD])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 70
    printed = capsys.readouterr()
    assert "473" not in printed.out + printed.err
    assert "RuntimeError" in printed.err


@pytest.mark.parametrize("file", ["t.parquet", "t.csv"])
def test_a_release_for_machines(file: str, folder: Path) -> None:
    result = typed("release", file, *with_option("--epsilon", "100000"), "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    release = json.loads(result.stdout)
    assert release["released"] is True
    assert release["value"] == pytest.approx(2.5, abs=1e-2)
    assert release["columns"] == ["v"]
    assert {"epsilon", "delta", "neighbors", "mechanism", "per", "interval", "parameters"} <= set(release)
    assert set(release["interval"]) == {"level", "low", "high", "covers"}


def test_a_release_for_people(folder: Path) -> None:
    result = typed("release", "t.parquet", *GOOD, "--value", "w", cwd=folder)
    assert result.returncode == 0, result.stderr
    for word in ("Means of 2 columns", "column", "95% interval", "Adding or removing", "Details: --verbose"):
        assert word in result.stdout
    assert "add-remove" not in result.stdout
    verbose = typed("release", "t.parquet", *GOOD, "--value", "w", "--verbose", cwd=folder)
    for word in ("Means of 2 columns", "mean over records", "add-remove", "noise scale of sum"):
        assert word in verbose.stdout
    for one in (result, verbose):
        assert "users (public)" not in one.stdout


def test_check_says_that_it_is_not_private(folder: Path) -> None:
    result = typed("check", "t.csv", "--user", "u", "--value", "v", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "NOT PRIVATE" in result.stdout
    assert "records per user" in result.stdout
    assert typed("check", "t.parquet", "--user", "u", "--value", "name", cwd=folder).returncode == 2
    shown = json.loads(
        typed("check", "t.parquet", "--user", "u", "--value", "v", "--json", cwd=folder).stdout
    )
    assert shown["private"] is False
    assert shown["users"] == 3


def test_wrong_usage_is_json_for_machines(folder: Path) -> None:
    result = typed("release", "t.csv", "--epsilon", "abc", "--json", cwd=folder)
    assert result.returncode == 2
    assert json.loads(result.stdout)["released"] is False


def test_check_survives_extreme_values_and_names(folder: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [1, 1], "its_value": [1.7e308, 1.7e308]}), tmp_path / "t.parquet")
    result = typed("check", "t.parquet", "--user", "v", "--value", "its_value", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["users"] == 1


def test_doctor_finds_this_machine_fit() -> None:
    result = typed("doctor", "--json")
    assert result.returncode == 0, result.stdout
    assert all(json.loads(result.stdout)["checks"].values())


def test_version() -> None:
    assert run("--version").stdout.strip() == f"hubermean {hubermean.__version__}"


def test_import_loads_no_engine() -> None:
    """Engines, SciPy and the samplers load when used, so that importing stays fast."""
    heavy = ("duckdb", "pyarrow", "scipy", "opendp", "pandas", "polars", "narwhals", "typer", "rich")
    code = f"import sys, hubermean; print([name for name in {heavy!r} if name in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_a_release_of_a_file_does_not_import_pandas(folder: Path) -> None:
    """Neither does Arrow in passing, which would take longer than the release itself."""
    code = (
        "import sys, hubermean\n"
        "hubermean.mean('t.parquet', user='name', value='v', epsilon=1, bounds=(0, 9), per='user')\n"
        "print('pandas' in sys.modules, 'pyarrow.dataset' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False False\n"
