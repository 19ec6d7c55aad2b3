"""Ledgers on disks that are full or may only be read: what is released is charged, and no charge is lost."""

from __future__ import annotations

import json
import os
import pwd
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hubermean as hm
from helpers.ledger_asks import ask_means, kinds_at, opened, small_file
from hubermean.report.ledger_export import export_ledger

TESTS = Path(__file__).parent.parent
OLD = TESTS / "ledger" / "ledger-schema-1.sqlite"
PROGRAM = str(Path(sys.executable).with_name("hubermean"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return small_file(tmp_path)


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False, **options)


def release_by_command(
    place: Path, data: Path, question: str, **options: Any
) -> subprocess.CompletedProcess[str]:
    known = ["--user", "u", "--value", "v", "--bounds", "0", "9", "--per", "user", "--json"]
    paid = ["--epsilon", "0.001", "--ledger", str(place), "--dataset", "d", "--question", question]
    return run("release", str(data), *known, *paid, **options)


def test_a_full_disk_never_lets_a_value_out_unpaid(tmp_path: Path, data: Path) -> None:
    """The system refuses to let any file grow past a size; all sizes from none to enough are tried."""
    place = tmp_path / "l.sqlite"
    opened(str(place))
    seen = set()
    for size in [0, 1, 100, *range(1000, 40_000, 5000)]:
        copy = tmp_path / f"copy{size}.sqlite"
        shutil.copy(place, copy)
        question = f"at {size}"

        def limit(size: int = size) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        ended = release_by_command(copy, data, question, preexec_fn=limit)
        with hm.Ledger(copy) as ledger:
            assert ledger.verify().sound
            found = [entry.kind for entry in ledger.entries()]
        seen.add(ended.returncode)
        if ended.returncode == 0:
            assert found == ["opened", "charged", "released"]
        elif ended.returncode == 74:  # paid, handed over, and not kept
            assert json.loads(ended.stdout)["released"] is True
            assert found == ["opened", "charged"]
        else:
            assert ended.returncode == 2, ended.stderr
            assert json.loads(ended.stdout)["released"] is False
            assert "cannot be used: the disk" in ended.stderr
            assert ended.stderr.count("\n") == 1
            assert "released" not in found
    assert seen >= {0, 2}


def test_a_disk_that_fills_up_after_the_charge_costs_no_answer(tmp_path: Path) -> None:
    """SQLite itself is told that the file may not grow: the record of a long release does not fit any more."""
    place = tmp_path / "l.sqlite"
    opened(str(place))
    many = np.tile(np.arange(4.0)[:, None], (1, 400))
    with hm.Ledger(place) as ledger:
        ask_means(ledger, "first")
        connection = ledger._store._connection  # type: ignore[attr-defined]
        connection.execute(
            f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0] + 1}"
        )
        options: dict[str, Any] = {"bounds": (0, 9), "epsilon": 0.25, "delta": 1e-6}
        ledger.init("e", epsilon=1, delta=1e-5)
        connection = ledger._store._open(write=True)  # type: ignore[attr-defined]
        connection.execute(
            f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0] + 1}"
        )
        with pytest.warns(hm.NotRecorded):
            release = hm.mean_of_user_means(many, ledger=ledger, dataset="e", question="long", **options)
        assert len(release.values) == 400
    assert kinds_at(str(place))[-1] == "charged"
    with hm.Ledger(place) as ledger:
        assert ledger.verify().sound


def in_a_child(work: Callable[[], Any], *, read_only: Path) -> Any:
    """What some work returns, or the name of its error, for somebody who may only read a folder and what is in it."""
    reader, writer = os.pipe()
    for path in (*read_only.iterdir(), read_only):
        os.chmod(path, 0o555 if path.is_dir() else 0o444)
    try:
        child = os.fork()
        if child == 0:
            try:
                if os.getuid() == 0:  # whom no permission binds
                    nobody = pwd.getpwnam("nobody")
                    os.setgroups([])
                    os.setgid(nobody.pw_gid)
                    os.setuid(nobody.pw_uid)
                told = json.dumps(work())
            except BaseException as error:  # noqa: BLE001 - told to the parent
                told = json.dumps(f"{type(error).__name__}: {error}")
            os.write(writer, told.encode())
            os._exit(0)
        os.close(writer)
        with open(reader) as said:
            told = said.read()
        os.waitpid(child, 0)
        return json.loads(told)
    finally:
        for path in (read_only, *read_only.iterdir()):
            os.chmod(path, 0o755 if path.is_dir() else 0o644)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach; those of pytest are for one user."""
    folder = Path(tempfile.mkdtemp(prefix="hubermean-test-", dir="/tmp"))
    os.chmod(folder, 0o755)
    yield folder
    shutil.rmtree(folder)


def shown(place: Path) -> list[Any]:
    with hm.Ledger(place) as ledger:
        names = [one.name for one in ledger.datasets()]
        return [
            names,
            ledger.verify().sound,
            len(list(ledger.entries())),
            export_ledger(ledger)["verification"]["sound"],
        ]


@pytest.mark.parametrize("old", [False, True], ids=["of this version", "of an older one"])
def test_a_ledger_that_may_only_be_read_can_be_shown_but_not_charged(open_folder: Path, old: bool) -> None:
    place = open_folder / "l.sqlite"
    if old:
        shutil.copy(OLD, place)
    else:
        opened(str(place))
        ask_means(str(place), "asked long ago", 0.5)
    before = place.read_bytes()
    assert in_a_child(lambda: shown(place), read_only=open_folder) == [["d"], True, 3, True]

    def charged() -> Any:
        return ask_means(str(place), "something new", 0.25).value

    refused = in_a_child(charged, read_only=open_folder)
    assert refused.startswith("LedgerUnavailable: ")
    assert "it is read-only" in refused or "cannot be opened" in refused
    assert place.read_bytes() == before
    assert [path.name for path in open_folder.iterdir()] == ["l.sqlite"]
