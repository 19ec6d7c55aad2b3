"""A DuckDB session for one release: a locked-down connection, and the private scratch folder it spills to.

DuckDB writes what does not fit in memory to disk: users and their values as they are. So only the owner of the process
may read the scratch folder. It is removed however the release ends, as far as Python can notice; the folder of a killed
process is removed when the next release begins. A lock, which the system frees when its holder dies, shows whether the
process of a folder is still alive.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from fractions import Fraction
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hubermean.errors import InputError
from hubermean.ingest.engine import mask_engine_errors, parse_size
from hubermean.ingest.files import COUNT_REJECTED, FileSet, quote_identifier, quote_texts
from hubermean.types.options import EngineOptions

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

locks: ModuleType | None
try:
    import fcntl as locks
except ImportError:  # not a POSIX system
    locks = None

# Results are handed over outside of the memory that DuckDB counts: about 24 bytes per user, beside the 100 or so that
# it holds itself.
_ENGINE_SHARE = Fraction(3, 4)

PREFIX = "hubermean-scratch-"
UNLOCKED_PREFIX = "hubermean-unswept-"
LOCK = "hubermean.lock"
_FOLDER_NAME = re.compile(re.escape(PREFIX) + "[a-z0-9_]{8}")
_MAX_TRIES = 100

# See `choose_id_index_bits`. An entry is created, added to those of other threads and read once: worthwhile with a few
# rows per entry.
_ROWS_PER_ENTRY = 4
_SUM_BYTES, _COUNT_BYTES = 32, 8  # of DuckDB's state for one sum and for one count
_INDEX_SHARE = 0.7  # of the memory; the index cannot spill to disk
_MIN_INDEX_BITS, _MAX_INDEX_BITS = 12, 31


# --- the connection --------------------------------------------------------------------------------------------------


class RecordTooLongError(Exception):
    """A text file has a record that is longer than the buffer for one."""


@contextlib.contextmanager
def open_session(
    paths: Sequence[str],
    options: EngineOptions = EngineOptions(),  # noqa: B008 - frozen
    *,
    tables: Sequence[tuple[str, str]] = (),
    rejects: bool = False,
    keep_order: bool = False,
    index_ids: tuple[FileSet, int] | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection that can read `paths` and no other file, and remove what it leaves on disk.

    Args:
        paths: the files that may be read.
        options: memory limit and number of threads.
        tables: names and queries of tables to load before access to other files is disabled.
        rejects: raise an error if a record of these tables was left out.
        keep_order: keep the order of rows in the files.
        index_ids: files to be grouped by one id column, and the number of sums; see `choose_id_index_bits`.

    Raises:
        RecordTooLongError: a record was left out.
    """
    import duckdb

    with scratch_folder() as scratch:
        config: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            # A release does not depend on the order of rows; not keeping it saves memory.
            "preserve_insertion_order": "true" if keep_order else "false",
            "temp_directory": scratch,
        }
        if options.memory_limit is not None:
            config["memory_limit"] = engine_memory(options.memory_limit)
        if options.threads is not None:
            config["threads"] = str(options.threads)
        connection = mask_engine_errors(
            lambda: duckdb.connect(":memory:", config=config),
            f"DuckDB does not accept memory_limit={options.memory_limit!r}; set a size such as '2GB'",
        )
        try:
            for name, query in tables:
                connection.execute(f"CREATE TABLE {quote_identifier(name)} AS {query}").fetchall()
            if tables and rejects and connection.execute(COUNT_REJECTED).fetchall()[0][0]:
                raise RecordTooLongError
            index_bits = 0
            if index_ids is not None:
                index_bits = choose_id_index_bits(connection, *index_ids, memory_limit=options.memory_limit)
            for setting in (
                # Both trust the range of ids and groups in the statistics of Parquet files, and merge users where it is
                # wrong: one cuts keys to the bytes that should suffice, the other packs several keys into one index. An
                # index of a single key notices an id out of range.
                "disabled_optimizers = 'compressed_materialization'",
                f"perfect_ht_threshold = {index_bits}",
                # Progress is measured for our own bar; that of DuckDB would print to standard output.
                "enable_progress_bar = true",
                "enable_progress_bar_print = false",
                "progress_bar_time = 0",
                f"allowed_paths = {quote_texts(paths)}",
                "enable_external_access = false",
                "lock_configuration = true",
            ):
                connection.execute(f"SET {setting}").fetchall()
            yield connection
        finally:
            connection.close()


def engine_memory(memory_limit: str) -> str:
    """Return the part of a memory limit that DuckDB may use, as a size that it accepts."""
    return f"{int(_ENGINE_SHARE * parse_size(memory_limit))}B"


def choose_id_index_bits(
    connection: duckdb.DuckDBPyConnection, files: FileSet, sums: int, *, memory_limit: str | None
) -> int:
    """Return the largest range of user ids, in bits, to be looked up in an array instead of a hash table.

    Where the statistics of Parquet files say that ids are whole numbers close together, DuckDB can group with an array
    that the id indexes: in little more than half the time, and in little more memory than the sums themselves. By
    default it does so up to 2^12 ids. How many more are worthwhile follows from the number of rows, and how many fit
    from the memory it may use. DuckDB stops at an id that a wrong statistic leaves out if ids are in one column; with
    several columns it does not notice, so these are not indexed.
    """
    import duckdb

    if files.kind != "parquet":  # no statistics
        return _MIN_INDEX_BITS
    try:
        ((rows, threads, most),) = connection.sql(
            "SELECT sum(num_rows), current_setting('threads'), current_setting('memory_limit') "
            f"FROM parquet_file_metadata({quote_texts(files.paths)})"
        ).fetchall()
    except duckdb.Error:  # a damaged file, which is reported when it is read
        return _MIN_INDEX_BITS
    entry_bytes = (_SUM_BYTES * sums + _COUNT_BYTES) * int(threads)
    fitting = int(_INDEX_SHARE * parse_size(memory_limit or most)) // entry_bytes
    entries = max(min(int(rows or 0) // _ROWS_PER_ENTRY, fitting), 0)
    return min(max(entries.bit_length() - 1, _MIN_INDEX_BITS), _MAX_INDEX_BITS)


def fetch(
    relation: duckdb.DuckDBPyRelation, connection: duckdb.DuckDBPyConnection | None, *, progress: bool
) -> pa.Table:
    """Run a query; show a progress bar on a terminal after one second."""
    if not progress or connection is None or not sys.stderr.isatty():
        return relation.to_arrow_table()
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["table"] = relation.to_arrow_table()
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            outcome["error"] = error

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    try:
        worker.join(1.0)
        if worker.is_alive():
            _show_progress(worker, connection)
    except KeyboardInterrupt:
        connection.interrupt()
        worker.join()
        raise
    if "error" in outcome:
        raise outcome["error"]
    return outcome["table"]


def _show_progress(worker: threading.Thread, connection: duckdb.DuckDBPyConnection) -> None:
    """Show the share of the query that is done; not the time it took, which only `UnsafeTimings` may show."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    bars = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*bars, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("Reading and grouping by user", total=100.0)
        reached = 0.0
        while worker.is_alive():
            worker.join(0.2)
            reached = max(reached, connection.query_progress())  # -1 before and after the query
            display.update(task, completed=reached)


# --- the scratch folder ----------------------------------------------------------------------------------------------


class _NoLocksError(Exception):
    """The file system does not support locks."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """Make a folder for this release in the system's directory for temporary files, and remove it afterwards.

    Formal guarantees:
    - only the user of this process may enter the folder;
    - no other process removes it while its process lives; when that is dead, the next release of the same user does;
    - nothing else is removed: a folder must match in name, owner, permissions and lock; symbolic links are not
      followed;
    - without locks, the folder is removed after the release, but folders of killed processes are not.
    """
    parent = tempfile.gettempdir()
    remove_stale_folders(parent)
    made = _make_folder(parent)
    if made is None:
        with tempfile.TemporaryDirectory(prefix=UNLOCKED_PREFIX) as path:
            yield path
        return
    path, folder, lock = made
    try:
        yield path
    finally:
        _remove_folder(path, folder)
        os.close(lock)
        os.close(folder)


def remove_stale_folders(parent: str) -> None:
    """Remove the folders of killed releases of this user; those that cannot be removed are left for the next time."""
    if locks is None:
        return
    with contextlib.suppress(OSError):
        for name in filter(_FOLDER_NAME.fullmatch, os.listdir(parent)):
            with contextlib.suppress(OSError, _NoLocksError):
                _remove_if_stale(os.path.join(parent, name))


def _make_folder(parent: str) -> tuple[str, int, int] | None:
    """Return the path of a new folder, and descriptors of the folder and its lock; None without locks.

    Another process may find the folder before it is locked. It then holds the lock, or has removed it or the folder: in
    each case the lock taken here is not the one in the folder, and another folder is made.
    """
    if locks is None:
        return None
    for _ in range(_MAX_TRIES):
        try:
            path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        except OSError:
            break
        with contextlib.suppress(OSError), contextlib.ExitStack() as descriptors:
            folder = _open_descriptor(descriptors, path, os.O_RDONLY | os.O_DIRECTORY)
            lock = _open_descriptor(descriptors, LOCK, os.O_RDWR | os.O_CREAT, within=folder)
            try:
                held = _take_lock(lock, folder)
            except _NoLocksError:
                _remove_folder(path, folder)
                return None
            if held:
                descriptors.pop_all()
                return path, folder, lock
    raise InputError("no scratch folder can be created; set TMPDIR to a folder that can be written to")


def _remove_if_stale(path: str) -> None:
    """Remove a folder whose process is dead. OSError if it is no scratch folder."""
    with contextlib.ExitStack() as descriptors:
        folder = _open_descriptor(descriptors, path, os.O_RDONLY | os.O_DIRECTORY)
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
            return
        try:
            lock = _open_descriptor(descriptors, LOCK, os.O_RDWR, within=folder)
        except FileNotFoundError:
            os.rmdir(
                path
            )  # empty, if its process died before it made a lock; otherwise it is not ours, and this fails
            return
        if _take_lock(lock, folder):
            _remove_folder(path, folder)


def _open_descriptor(
    descriptors: contextlib.ExitStack, name: str, flags: int, *, within: int | None = None
) -> int:
    """Open a file or folder, to be closed with the others; OSError for a symbolic link."""
    descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=within)
    descriptors.callback(os.close, descriptor)
    return descriptor


def _take_lock(lock: int, folder: int) -> bool:
    """Take the lock if it is free; return whether it is held and still the one in the folder."""
    assert locks is not None
    try:
        locks.flock(lock, locks.LOCK_EX | locks.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        raise _NoLocksError from None
    try:
        return os.path.samestat(os.fstat(lock), os.stat(LOCK, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _remove_folder(path: str, folder: int) -> None:
    """Remove the contents, then the lock, then the folder: wherever this ends early, the next release can go on."""
    with contextlib.suppress(OSError):
        for name in set(os.listdir(folder)) - {LOCK}:
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
                else:
                    os.unlink(name, dir_fd=folder)
        if os.listdir(folder) == [LOCK]:
            os.unlink(LOCK, dir_fd=folder)
            os.rmdir(path)
