"""What a release writes to disk: private while it runs, removed after it, swept after a crash."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import hubermean as hm
from hubermean.ingest.duckdb import session
from hubermean.ingest.duckdb.session import LOCK, PREFIX, remove_stale_folders, scratch_folder

fcntl = pytest.importorskip("fcntl")

MARKER = "someone-with-this-name"
HOLD_A_FOLDER = """
import sys
from hubermean.ingest.duckdb.session import scratch_folder
with scratch_folder() as path:
    open(path + "/spilled", "w").write("values")
    print(path, flush=True)
    sys.stdin.read()
"""
RELEASE = """
import sys
import hubermean as hm
hm.count(sys.argv[1], user="u", value="v", epsilon=1, memory_limit="60MB", threads=1)
"""
COMMAND = "from hubermean.cli.app import main; main()"


@pytest.fixture
def folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing else is in it, and subprocesses use it too."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture(scope="module")
def large_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More users than fit in the memory that the releases below are given."""
    path = tmp_path_factory.mktemp("large") / "data.parquet"
    users = f"'{MARKER}-' || (7919 * i) % 1500000"
    duckdb.sql(f"COPY (SELECT {users} AS u, i AS v FROM range(3000000) t(i)) TO '{path}'")
    return path


@contextlib.contextmanager
def process(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def left_behind(place: Path, *, name: str = "abcdefgh", locked: bool = True) -> Path:
    """A folder such as a killed release leaves."""
    folder = place / (PREFIX + name)
    folder.mkdir(mode=0o700)
    if locked:
        (folder / LOCK).touch()
        (folder / "spilled").write_text("values")
    return folder


def small_release() -> None:
    hm.count(pa.table({"u": [1, 2, 3]}), user="u", epsilon=1)


def test_only_the_user_may_enter(folder_for_temporary_files: Path) -> None:
    before = os.umask(0)
    try:
        with scratch_folder() as path:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
            assert stat.S_IMODE(os.stat(Path(path) / LOCK).st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize("ending", [ValueError, KeyboardInterrupt, SystemExit, None])
def test_it_is_gone_however_the_release_ends(
    folder_for_temporary_files: Path, ending: type[BaseException] | None
) -> None:
    with contextlib.suppress(ValueError, KeyboardInterrupt, SystemExit), scratch_folder() as path:
        (Path(path) / "spilled").write_text("values")
        (Path(path) / "deeper").mkdir()
        (Path(path) / "deeper" / "spilled").write_text("values")
        if ending is not None:
            raise ending
    assert list(folder_for_temporary_files.iterdir()) == []


def test_a_live_process_keeps_its_folder_and_a_dead_ones_is_swept(folder_for_temporary_files: Path) -> None:
    with process(HOLD_A_FOLDER) as other:
        assert other.stdout is not None
        path = Path(other.stdout.readline().strip())
        small_release()
        assert (path / "spilled").exists()
        other.kill()
        other.wait()
        assert (path / "spilled").exists()
        small_release()
        assert list(folder_for_temporary_files.iterdir()) == []


def test_what_a_release_spilled_before_it_was_killed_is_removed_by_the_next(
    folder_for_temporary_files: Path, large_data: Path
) -> None:
    # The engine cannot encrypt what it spills without a download, so that removing it matters.
    with process(RELEASE, str(large_data)) as killed:
        while killed.poll() is None and not _names_on_disk(folder_for_temporary_files):
            time.sleep(0.002)
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL, "it ended before it could be killed"
    assert _names_on_disk(folder_for_temporary_files)
    small_release()
    assert list(folder_for_temporary_files.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_asked_to_end_leaves_nothing(
    folder_for_temporary_files: Path, large_data: Path, how: signal.Signals
) -> None:
    arguments = ["count", str(large_data), "--user", "u", "--value", "v", "--epsilon", "1"]
    with process(COMMAND, *arguments, "--memory-limit", "60MB", "--threads", "1") as ended:
        while ended.poll() is None and not _names_on_disk(folder_for_temporary_files):
            time.sleep(0.002)
        ended.send_signal(how)
        printed, _ = ended.communicate()
    # Click takes an interrupt for an abort, and ends with 1 or 130.
    assert ended.returncode == 143 if how == signal.SIGTERM else ended.returncode in (1, 130, -signal.SIGINT)
    assert printed == ""
    assert list(folder_for_temporary_files.iterdir()) == []


def test_an_interrupt_of_the_engine_stays_one(folder_for_temporary_files: Path, large_data: Path) -> None:
    script = f"try:\n    {RELEASE.strip().splitlines()[-1]}\nexcept BaseException as error: print(type(error).__name__)"
    with process(f"import sys\nimport hubermean as hm\n{script}", str(large_data)) as ended:
        while ended.poll() is None and not _names_on_disk(folder_for_temporary_files):
            time.sleep(0.002)
        ended.send_signal(signal.SIGINT)
        printed, _ = ended.communicate()
    assert printed.strip() == "KeyboardInterrupt"


def test_the_command_leaves_no_core_of_its_memory() -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("no core is ever written here")
    program = (
        "import resource as r; r.setrlimit(r.RLIMIT_CORE, (r.getrlimit(r.RLIMIT_CORE)[1],) * 2)\n"
        "import sys; sys.argv[1:] = ['--version']\n"
        "from hubermean.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: print(r.getrlimit(r.RLIMIT_CORE)[0])\n"
    )
    with process(program) as command:
        printed, _ = command.communicate()
    assert printed.split()[-1] == "0"


def _names_on_disk(place: Path) -> bool:
    for path in place.glob(f"{PREFIX}*/*"):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            if MARKER.encode() in file.read(1 << 22):
                return True
    return False


def test_nothing_is_swept_that_is_not_ours(
    folder_for_temporary_files: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = folder_for_temporary_files
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / LOCK).touch()
    (precious / "kept").touch()
    (place / (PREFIX + "symlink_")).symlink_to(precious)
    file = place / (PREFIX + "filefile")
    file.touch()
    without_lock = left_behind(place, name="nolockno", locked=False)
    (without_lock / "kept").touch()
    another_name = left_behind(place).rename(place / "hubermean-results")
    readable = left_behind(place, name="readable")
    readable.chmod(0o755)
    linked_lock = left_behind(place, name="locklink", locked=False)
    (linked_lock / LOCK).symlink_to(precious / LOCK)
    kept = [precious / "kept", file, without_lock / "kept", another_name / "spilled", readable / "spilled"]
    remove_stale_folders(str(place))
    assert all(path.exists() for path in [*kept, linked_lock / LOCK])
    readable.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    remove_stale_folders(str(place))
    assert readable.exists()
    monkeypatch.undo()
    remove_stale_folders(str(place))
    assert not readable.exists()


def test_a_link_among_what_was_spilled_is_removed_not_followed(
    folder_for_temporary_files: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "kept").touch()
    (left_behind(folder_for_temporary_files) / "link").symlink_to(precious)
    remove_stale_folders(str(folder_for_temporary_files))
    assert list(folder_for_temporary_files.iterdir()) == []
    assert (precious / "kept").exists()


def test_a_folder_that_was_never_locked_is_swept(folder_for_temporary_files: Path) -> None:
    left_behind(folder_for_temporary_files, locked=False)
    small_release()
    assert list(folder_for_temporary_files.iterdir()) == []


def test_a_sweeper_that_comes_before_the_lock_file_costs_a_second_try(
    folder_for_temporary_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, made = tempfile.mkdtemp, []

    def swept_at_first(**given: str) -> str:
        made.append(make(**given))
        if len(made) == 1:
            remove_stale_folders(str(folder_for_temporary_files))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", swept_at_first)
    with scratch_folder() as path:
        assert path == made[1]
        assert [str(one) for one in folder_for_temporary_files.iterdir()] == [path]


def test_a_sweeper_that_comes_before_the_lock_is_taken_costs_a_second_try(
    folder_for_temporary_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, found = fcntl.flock, []

    def swept_at_first(lock: int, how: int) -> None:
        if not found:
            found.extend(folder_for_temporary_files.iterdir())
            remove_stale_folders(str(folder_for_temporary_files))
        take(lock, how)

    monkeypatch.setattr(session.locks, "flock", swept_at_first)
    with scratch_folder() as path:
        assert len(found) == 1
        assert str(found[0]) != path
        assert list(folder_for_temporary_files.iterdir()) == [Path(path)]
        remove_stale_folders(str(folder_for_temporary_files))
        assert Path(path).exists()


def test_sweepers_and_makers_at_once_never_take_what_is_in_use(
    folder_for_temporary_files: Path, tmp_path: Path
) -> None:
    lost: list[str] = []

    def make_and_look() -> None:
        for _ in range(40):
            with scratch_folder() as path:
                (Path(path) / "spilled").write_text("values")
                time.sleep(0.0005)
                if not (Path(path) / "spilled").exists():
                    lost.append(path)

    def leave() -> None:
        for number in range(40):
            folder = left_behind(tmp_path, name=f"{number:08d}")
            folder.rename(folder_for_temporary_files / folder.name)

    workers = [threading.Thread(target=make_and_look) for _ in range(6)] + [threading.Thread(target=leave)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    remove_stale_folders(str(folder_for_temporary_files))
    assert lost == []
    assert list(folder_for_temporary_files.iterdir()) == []


def test_what_could_not_be_removed_can_be_swept_later(
    folder_for_temporary_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = os.unlink

    def stubborn(path: str, **given: int) -> None:
        if path == "spilled":
            raise PermissionError
        remove(path, **given)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", stubborn)
        with scratch_folder() as path:
            (Path(path) / "spilled").write_text("values")
    assert (Path(path) / "spilled").exists()
    remove_stale_folders(str(folder_for_temporary_files))
    assert not Path(path).exists()


def test_where_the_file_system_takes_no_locks_a_release_still_cleans_up(
    folder_for_temporary_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(lock: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(session.locks, "flock", refused)
    left = left_behind(folder_for_temporary_files)
    with scratch_folder() as path:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
        assert not Path(path).name.startswith(
            PREFIX
        )  # with locks elsewhere, a sweeper must not take it for dead
        assert set(folder_for_temporary_files.iterdir()) == {left, Path(path)}
    assert list(folder_for_temporary_files.iterdir()) == [left]


def test_where_no_folder_can_be_made_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    with pytest.raises(hm.HubermeanError, match="TMPDIR"):
        small_release()


def test_the_copy_of_a_file_that_is_no_utf8_does_not_outlive_a_crash(tmp_path: Path) -> None:
    """Killed while the copy is there; the next release removes it."""
    data, temporary = tmp_path / "data.csv", tmp_path / "temporary"
    temporary.mkdir()
    data.write_bytes(b"u,v\n1,2\nM\xfcller,3\n")
    environment = {**os.environ, "TMPDIR": str(temporary)}
    killed = (
        "import os, sys\n"
        "from hubermean.ingest.files import FileSet\n"
        "from hubermean.ingest.duckdb.text_files import make_readable\n"
        "with make_readable(FileSet.find(sys.argv[1])):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert (
        subprocess.run([sys.executable, "-c", killed, str(data)], env=environment, check=False).returncode
        == -9
    )
    assert len(list(temporary.glob("*/*.copy"))) == 1
    released = (
        "import sys, hubermean as hm\n"
        "hm.mean(sys.argv[1], user='u', value='v', epsilon=1, bounds=(0, 9), per='user')\n"
    )
    subprocess.run([sys.executable, "-c", released, str(data)], env=environment, check=True)
    assert list(temporary.iterdir()) == []
