"""One locked-down DuckDB connection per release: named files only, private scratch space, quiet errors."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hubermean.errors import InputError
from hubermean.ingest.engine import Limits
from hubermean.ingest.files import REJECTED, identifier, literal
from hubermean.ingest.memory import engine_limit
from hubermean.ingest.scratch import scratch_folder

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")
MOST_THREADS = 1024


class TooLongError(Exception):
    """A text file has a record that is longer than what there was room for."""


def check_limits(limits: Limits) -> None:
    """Refuse what no session would take, before there is one."""
    if limits.memory_limit is not None:
        engine_limit(limits.memory_limit)
    threads = limits.threads
    if threads is not None and (
        isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS
    ):
        raise InputError(f"threads must be a whole number from 1 to {MOST_THREADS}, not {threads!r}")


@contextlib.contextmanager
def open_session(
    paths: Sequence[str],
    *,
    memory_limit: str | None,
    threads: int | None,
    tables: Sequence[tuple[str, str]] = (),
    rejects: bool = False,
    keep_order: bool = False,
    settings: Callable[[duckdb.DuckDBPyConnection], Sequence[str]] = lambda _: (),
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that can read `paths` and nothing else, and that cleans up after itself.

    `tables` are named queries whose results are loaded before everything else is shut out; with `rejects`, records
    that they leave out are counted, and none may be. With `keep_order` rows come in the order of the files. `settings`
    may look at the files and say what more is to be set.

    Raises:
        TooLongError: a record was left out.
    """
    import duckdb

    share = None if memory_limit is None else engine_limit(memory_limit)
    with scratch_folder() as scratch:
        config: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            # The order of rows means nothing to a release; not keeping it saves memory.
            "preserve_insertion_order": "true" if keep_order else "false",
            "temp_directory": scratch,
        }
        if share is not None:
            config["memory_limit"] = share
        if threads is not None:
            config["threads"] = str(threads)
        connection = quietly(
            lambda: duckdb.connect(":memory:", config=config),
            f"the engine does not take memory_limit={memory_limit!r}; give a size such as '2GB'",
        )
        try:
            for name, query in tables:
                connection.execute(f"CREATE TABLE {identifier(name)} AS {query}").fetchall()
            if tables and rejects and connection.execute(REJECTED).fetchall()[0][0]:
                raise TooLongError
            allowed = ", ".join(literal(path) for path in paths)
            for setting in (
                # Both believe what statistics of Parquet files say of the range of ids and groups, and make one user of
                # two where that is wrong: one cuts keys to the bytes that should be enough, the other packs several
                # keys into one index. An index of one key, which `settings` may ask for, notices what does not fit.
                "disabled_optimizers = 'compressed_materialization'",
                "perfect_ht_threshold = 0",
                *settings(connection),
                # Progress is measured for a bar of our own; the engine's would print to standard output.
                "enable_progress_bar = true",
                "enable_progress_bar_print = false",
                "progress_bar_time = 0",
                f"allowed_paths = [{allowed}]",
                "enable_external_access = false",
                "lock_configuration = true",
            ):
                connection.execute(f"SET {setting}").fetchall()
            yield connection
        finally:
            connection.close()


def quietly(work: Callable[[], T], what: str, *, foreign: bool = False) -> T:
    """Do some work of the engine's; its error, whose text may quote data, becomes one fixed sentence.

    The new error is raised outside the handler of the old one, so that it does not even carry it as context.
    `foreign` work runs code of others, such as a lazy frame's, which may fail in any way.
    """
    import duckdb
    import pyarrow as pa

    try:
        return work()
    except InputError:
        raise
    except (
        duckdb.Error,
        pa.ArrowException,
        LookupError,
        UnicodeError,
        ValueError,
        TypeError,
        OSError,
        RuntimeError,
        MemoryError,
    ) as error:
        interrupted = type(error) is RuntimeError and str(error) == "Query interrupted"
    except BaseException as error:
        failed = isinstance(error, Exception) or type(error).__name__ == "PanicException"  # Rust's is none
        if not (foreign and failed):
            raise
        interrupted = False
    if interrupted:  # the engine noticed the interrupt and put an error of its own in its place
        raise KeyboardInterrupt
    raise InputError(what)


def in_one_sentence(work: Callable[[], T], what: str) -> T:
    """Do some work on records, of which every failure is one: also those that `quietly` leaves as they are."""
    with contextlib.suppress(InputError):
        return quietly(work, what, foreign=True)
    raise InputError(what)


def fetch(
    relation: duckdb.DuckDBPyRelation, connection: duckdb.DuckDBPyConnection | None, *, progress: bool
) -> pa.Table:
    """Run a query; past one second on a terminal, with a progress bar."""
    if not progress or connection is None or not sys.stderr.isatty():
        return relation.to_arrow_table()
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["table"] = relation.to_arrow_table()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
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
    """How far the engine is; not how long it took, which is for `UnsafeTimings` alone."""
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
