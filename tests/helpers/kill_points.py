"""Kill a release at every statement it runs, and look what the ledger says: a program of its own, run by the tests.

Statements are found by tracing one release, so a new one is covered as soon as it is written. Each is then the end of a
process of its own: it is forked, runs the very command of the command line, and gets SIGKILL when it first reaches the
statement. What it had printed by then must have been charged, and recorded word for word.

With --refused it is a release that its own private steps decide against: what it leaves of its charge is given back
after the refusal is recorded, both or neither of them.

    python tests/helpers/kill_points.py LEDGER DATA.parquet [--every N] [--refused] [--charge-late] [--last]
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

import hubermean
from hubermean.cli import app
from hubermean.release.charging import LedgerCharge
from hubermean.release.ledger import Ledger

PACKAGE = str(Path(hubermean.__file__).parent)
EPSILON = 2.0**-10
RELEASED = ["--bounds", "0", "9", "--per", "user"]
REFUSED = ["--per", "user"]  # of fifty users bounds cannot be found, whatever the noise
Point = tuple[str, int]


def trace(met: Callable[[Point], None], within: str) -> None:
    """Report every line that is about to run, in this thread: of one file, or of all files of a folder."""

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            met((frame.f_code.co_filename, frame.f_lineno))
        return on_line

    def on_call(frame: FrameType, event: str, _: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith(within) else None

    sys.settrace(on_call)


def release(
    place: str,
    data: str,
    how: list[str],
    question: str,
    met: Callable[[Point], None],
    printed: Path,
    within: str = PACKAGE,
) -> int:
    """A release in a process of its own, which prints to a file; its wait status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    descriptor = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    options = ["--user", "u", "--value", "v", *how, "--threads", "1", "--json"]
    asked = ["--epsilon", repr(EPSILON), "--ledger", place, "--dataset", "d", "--question", question]
    sys.argv = ["hubermean", "release", data, *options, *asked]
    code = 1
    try:
        trace(met, within)
        app.main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.settrace(None)
        sys.stdout.flush()
        os._exit(code)


def points(place: str, data: str, how: list[str], folder: Path, *, last: bool) -> list[Point]:
    """Every statement of one release, in order of its first run (or of its last)."""
    listed = folder / "points"

    finish = finish_point(how)
    met: dict[Point, None] = {}

    def remember(point: Point) -> None:
        if last:
            met.pop(point, None)
        met[point] = None
        if point == finish:  # all is printed; the process ends without another word
            listed.write_text(json.dumps(list(met)))

    # The first release of a data set takes a way of its own; the second is like all that follow.
    release(place, data, how, "first", lambda point: None, folder / "printed")
    status = release(place, data, how, "tracing", remember, folder / "printed")
    assert os.WEXITSTATUS(status) == exit_code(how), (folder / "printed").read_text()
    return [(name, line) for name, line in json.loads(listed.read_text())]


def from_charge(found: list[Point]) -> list[Point]:
    """The statements that are met first when the charge is made, or later."""
    code = LedgerCharge.charge.__code__
    within = range(code.co_firstlineno, max(line for _, _, line in code.co_lines() if line is not None) + 1)
    first = next(
        number
        for number, (name, line) in enumerate(found)
        if name == code.co_filename and line in within and line != code.co_firstlineno
    )
    return found[first:]


def exit_code(how: list[str]) -> int:
    return hubermean.NotReleased.exit_code if how == REFUSED else 0


def finish_point(how: list[str]) -> Point:
    """The first statement of what the command does last."""
    from hubermean.cli import output

    if how == REFUSED:
        lines, first = inspect.getsourcelines(app._refuse)
        (number,) = (number for number, line in enumerate(lines, first) if "return exit_code" in line)
        return app._refuse.__code__.co_filename, number
    code = output.finish.__code__
    lines = [line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno]
    return code.co_filename, min(lines)


def outcome(place: str, after: int, question: str, printed: str) -> str:
    """What became of a release that was killed; an AssertionError where a guarantee was broken."""
    with Ledger(place) as ledger, ledger._store.reading() as rows:
        recorded = list(rows.entries(after))
    charged = [entry for entry in recorded if entry.content.get("asked", {}).get("source") == question]
    numbers = {entry.number for entry in charged}
    about = [entry for entry in recorded if entry.content.get("charge") in numbers]
    concluded = [entry for entry in about if entry.kind != "refunded"]
    refunded = [entry for entry in about if entry.kind == "refunded"]
    assert len(charged) <= 1
    assert len(concluded) <= len(charged)
    refusals = [entry for entry in concluded if entry.kind == "not-released"]
    assert [entry.number for entry in refunded] == [entry.number + 1 for entry in refusals]
    if "spent" in printed:
        assert refunded, f"a refusal was reported before it was given back: {printed}"
        return "printed"
    if refunded:
        return "refunded"
    value = None
    if '"value"' in printed:
        whole = printed.rstrip().endswith("}")
        value = json.JSONDecoder().raw_decode(printed[printed.index("{") :])[0]["value"] if whole else "cut"
    if value is not None:
        assert charged, "a value left without a charge"
        assert concluded, "a value left without a record"
        assert value in ("cut", concluded[0].content["release"]["values"][0])
    return (
        "printed" if value is not None else "recorded" if concluded else "charged" if charged else "nothing"
    )


def kill_everywhere(
    place: str, data: str, how: list[str], folder: Path, chosen: Iterable[Point]
) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, target in enumerate(chosen):

        def die(point: Point, target: Point = target) -> None:
            if point == target:
                os.kill(os.getpid(), signal.SIGKILL)

        question, printed = f"killed {number}", folder / "printed"
        with Ledger(place) as ledger, ledger._store.reading() as rows:
            head = rows.head("")
        assert head is not None
        status = release(place, data, how, question, die, printed, within=target[0])
        became = outcome(place, head[0], question, printed.read_text())
        if not os.WIFSIGNALED(status):  # on a way that the noise of this run did not take
            assert os.WEXITSTATUS(status) == exit_code(how), printed.read_text()
            became = "missed"
        found[became] = found.get(became, 0) + 1
    return found


def charge_late() -> None:
    """Break the guarantee on purpose, to see that it is missed: the answer first, then the charge."""
    charge = LedgerCharge.charge

    def late(self: LedgerCharge, privacy_cost: Any, work: Callable[[], Any], prospect: Any) -> Any:
        result = work()
        print(json.dumps({"value": result.value}), flush=True)
        return charge(self, privacy_cost, lambda: result, prospect)

    LedgerCharge.charge = late  # type: ignore[method-assign, assignment]


def refund_early() -> None:
    """Break the guarantee on purpose: what a refusal left is given back before the refusal is recorded."""
    from hubermean.ledger import ledger as module

    append = module._append_to_dataset
    waiting: list[Any] = []

    def swapped(rows: Any, dataset: Any, question: Any, kind: Any, content: Any) -> Any:
        if kind == "not-released":
            waiting.append((question, kind, content))
            return append(rows, dataset, None, "failed", {**content, "charge": 0})
        entry = append(rows, dataset, question, kind, content)
        if kind == "refunded" and waiting:
            entry = append(rows, dataset, *waiting.pop())
        return entry

    module._append_to_dataset = swapped  # type: ignore[assignment]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ledger")
    parser.add_argument("data")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0, help="begin with this statement")
    parser.add_argument(
        "--last", action="store_true", help="kill at the last run of each statement, not the first"
    )
    parser.add_argument("--refused", action="store_true")
    parser.add_argument("--loaded", action="store_true", help="leave out what runs when modules are imported")
    parser.add_argument("--charge-late", action="store_true")
    parser.add_argument("--refund-early", action="store_true")
    parser.add_argument(
        "--from-charge", action="store_true", help="leave out statements that are met before the charge"
    )
    options = parser.parse_args()
    preload(options.ledger, own=options.refused or options.loaded)
    if options.charge_late:
        charge_late()
    if options.refund_early:
        refund_early()
    how = REFUSED if options.refused else RELEASED
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        found = points(options.ledger, options.data, how, folder, last=options.last)
        chosen = from_charge(found) if options.from_charge else found
        counted = kill_everywhere(
            options.ledger, options.data, how, folder, chosen[options.offset :: options.every]
        )
    with Ledger(options.ledger) as ledger:
        verification = ledger.verify()
        spent = ledger.dataset("d").spent.loss
        entries = list(ledger.entries())
        charges = sum(entry.kind == "charged" for entry in entries)
        refunds = [entry.read_cost("refund").loss for entry in entries if entry.kind == "refunded"]
    modules = sorted({Path(name).relative_to(PACKAGE).with_suffix("").as_posix() for name, _ in found})
    print(
        json.dumps(
            {
                "statements": len(chosen),
                "killed": sum(counted.values()),
                "became": counted,
                "sound": verification.sound,
                "costs_add_up": spent == charges * Decimal(EPSILON) - sum(refunds),
                "refunds": len(refunds),
                "each_keeps": sorted({str(Decimal(EPSILON) - refund) for refund in refunds}),
                "modules": modules,
            }
        )
    )


def preload(place: str, *, own: bool) -> None:
    """Import what a release imports, so that it need not be imported in every process; nothing is opened.

    With `own` the modules of the package are imported, too; what they run then is no part of the release.
    """
    import duckdb  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    from opendp import domains, measurements, metrics, mod  # noqa: F401

    if own:
        from hubermean import _api  # noqa: F401
        from hubermean.ingest.duckdb import fast_sums, source  # noqa: F401
    if "://" in place:
        import psycopg  # noqa: F401
        import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401


if __name__ == "__main__":
    main()
