"""Releases in the background: one at a time, each once, each outcome shown at a fixed moment.

How long a release takes depends on the data, and no guarantee covers that. So an outcome is held back until the next of
a few fixed moments after the release began (`MOMENTS`), and until then the page shows the ledger of that data set as it
was before. Entries of all data sets have one numbering, so a release of another one would show by its number when this
one ended: it waits. This leaves little to measure, not nothing: docs/concepts/threat-model.md.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from hubermean.app.draft import LABELS
from hubermean.app.settings import MOST_WAITING
from hubermean.app.state import Run, State, make_run
from hubermean.app.tables import Tables, require
from hubermean.errors import (
    BudgetExhausted,
    HubermeanError,
    InputError,
    LedgerDamaged,
    NotReleased,
)
from hubermean.ledger.amounts import NOTHING
from hubermean.ledger.dataset import dataset_from_entries
from hubermean.ledger.entries import OUTCOMES, Entry
from hubermean.release.ledger import Ledger
from hubermean.release.records import record_release
from hubermean.types.dry_run import DryRun
from hubermean.types.release import Release
from hubermean.types.release_table import ReleaseTable

Released = Release | ReleaseTable


def list_moments() -> Iterator[float]:
    """Iterate over the moments at which an outcome may be shown, in seconds: 1, 1.5, 2, 3, 4, 6, 8, 12, ..."""
    moment = 1.0
    while True:
        yield moment
        yield 1.5 * moment
        moment *= 2.0


def next_moment(elapsed: float) -> float:
    """Return the first moment that is not before `elapsed`.

    >>> next_moment(0.2), next_moment(1.2), next_moment(5.0), next_moment(100.0)
    (1.0, 1.5, 6.0, 128.0)
    """
    return next(moment for moment in list_moments() if moment >= elapsed)


class TooBusyError(Exception):
    """Too many releases wait; nothing was kept or charged."""


class LedgerOfRun(Ledger):
    """The ledger, whose charges are those of one run: each holds the id of the run, by which it is found again."""

    def __init__(self, location: str, run_id: str) -> None:
        super().__init__(location)
        self._run_id = run_id

    def make_token(self) -> str:
        return self._run_id


class Runner:
    """Runs releases, and says which are running.

    Args:
        ledger: file or URL of the ledger.
        tables: what can be released from.
        state: where runs are kept.
    """

    def __init__(self, ledger: str, tables: Tables, state: State) -> None:
        self._ledger, self._tables, self._state = ledger, tables, state
        self._changed = threading.Condition()
        self._waiting: list[Run] = []
        self._running: tuple[Run, float] | None = None  # with the time of its beginning
        self._closing = False

    def submit(self, run: Run) -> bool:
        """Start a run, or let it wait; False where its token was used before.

        Raises:
            TooBusyError: too many wait.
        """
        with self._changed:
            if self._closing or len(self._waiting) >= MOST_WAITING:
                if self._state.run(run.id) is not None:
                    return False
                raise TooBusyError
            if not self._state.add(run):
                return False
            self._waiting.append(run)
            self._start_next()
        return True

    def before(self) -> dict[str, int]:
        """Return the data set that a release is running on, and the last entry of the ledger before it began."""
        with self._changed:
            if self._running is None or self._running[0].status != "running":
                return {}
            run = self._running[0]
            return {run.dataset: run.before}

    def position(self, run: Run) -> int:
        """Return how many releases come before a run that waits."""
        with self._changed:
            ids = [one.id for one in self._waiting]
            return ids.index(run.id) + (self._running is not None) if run.id in ids else 0

    def elapsed(self, run: Run) -> float:
        """Return for how many seconds a run has been running."""
        with self._changed:
            found = self._running
            return time.monotonic() - found[1] if found is not None and found[0].id == run.id else 0.0

    def close(self) -> None:
        """Wait for the releases that are running; those that wait were not charged and are not begun."""
        with self._changed:
            self._closing = True
            self._waiting.clear()
            while self._running is not None:
                self._changed.wait()

    def recover(self) -> None:
        """Find out, after a stop of the server, how the runs ended that had begun."""
        for run in self._state.unfinished():
            with Ledger(self._ledger) as ledger:
                self._state.update(find_outcome(ledger, run))

    # --- in the background --------------------------------------------------------------------------------------------

    def _start_next(self) -> None:
        """Start the next release if none is running; called with the lock held."""
        if self._running is not None or not self._waiting or self._closing:
            return
        run = self._waiting.pop(0)
        self._running = (run, time.monotonic())
        threading.Thread(target=self._work, args=(run,), name="hubermean release").start()

    def _work(self, run: Run) -> None:
        begun = time.monotonic()
        over = replace(run, status="failed", message=_explain_fault(None))
        try:
            over = self._release(run, begun)
        except Exception as fault:  # noqa: BLE001 - its text might quote data
            over = replace(over, message=_explain_fault(fault))
        finally:
            time.sleep(max(next_moment(time.monotonic() - begun) - (time.monotonic() - begun), 0.0))
            with suppress(Exception):  # it is found in the ledger at the next start
                self._state.update(over)
            with self._changed:
                self._running = None
                self._start_next()
                self._changed.notify_all()

    def _release(self, run: Run, begun: float) -> Run:
        """Make the release and return its run with the outcome."""
        try:
            with LedgerOfRun(self._ledger, run.id) as ledger:
                run = replace(run, status="running", before=ledger.last_number())
                with self._changed:
                    self._running = (run, begun)
                self._state.update(run)  # before the charge: a restart then looks for it
                self._check_terms(ledger, run)
                table = require(self._tables.find(run.table))
                made = run.draft.call(
                    table.data,
                    neighbors=run.neighbors,
                    text=run.text,
                    ledger=ledger,
                    dataset=run.dataset,
                    by_whom=run.by_whom,
                )
                assert not isinstance(made, DryRun)
                return _keep(ledger, run, made)
        except NotReleased as refusal:
            return replace(self._add_cost(run), status="not-released", message=describe_error(refusal))
        except BudgetExhausted as refusal:
            return replace(run, status="refused", message=describe_error(refusal))
        except InputError as error:  # always before the charge
            return replace(run, status="rejected", message=describe_error(error))
        except HubermeanError as error:  # of the ledger: whether the charge was committed may be unknown
            message = f"{describe_error(error)} If the ledger shows a charge, it counts."
            return replace(run, status="failed", message=message)

    def _check_terms(self, ledger: Ledger, run: Run) -> None:
        """Raise InputError where a steward has changed what was reviewed."""
        assignment = self._state.assignments().get(run.table)
        if assignment is not None and assignment.dataset == run.dataset:
            dataset = ledger.dataset(run.dataset)
            if make_run(run.draft, assignment, dataset, by_whom=run.by_whom).terms == run.terms:
                return
        raise InputError(
            "how this table is charged or read was changed after the request was made; look at it again"
        )

    def _add_cost(self, run: Run) -> Run:
        """Return the run of a refusal with what it cost, as the ledger has it; a repeated refusal costs nothing."""
        with suppress(HubermeanError), Ledger(self._ledger) as ledger:
            found = find_outcome(ledger, run)
            return replace(run, entry=found.entry, charged=found.charged, left=found.left)
        return run


def describe_error(error: HubermeanError) -> str:
    """Return the message of an error as a sentence, with the words of the forms in place of parameters.

    >>> from hubermean.errors import parameter
    >>> describe_error(InputError(f"give {parameter('max_records')}"))
    'Give the number of records per user.'
    """
    text = error.spelled(
        lambda name, value: LABELS.get(name, name.replace("_", " ")) + (f" {value}" if value else "")
    )
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _explain_fault(fault: BaseException | None) -> str:
    where = ""
    if fault is not None:
        frame = traceback.extract_tb(fault.__traceback__)[-1]
        where = f" ({type(fault).__name__} in {frame.name}, line {frame.lineno})"
    return f"hubermean failed{where}. If the ledger shows a charge, it counts. Please report this."


def _keep(ledger: Ledger, run: Run, made: Released) -> Run:
    """Return the run of a release."""
    receipt = made.receipt
    assert receipt is not None
    entry = next(ledger.entries(run.dataset, after=receipt.entry - 1)) if receipt.recorded else None
    return replace(
        run,
        status="released",
        entry=receipt.entry,
        digest="" if entry is None else entry.digest,
        charged=receipt.charged,
        left=receipt.left,
        record=None if receipt.recorded else record_release(made),
    )


# --- after a stop -----------------------------------------------------------------------------------------------------


def find_outcome(ledger: Ledger, run: Run) -> Run:
    """Return how a run ended that a stop of the server interrupted, from what the ledger holds.

    The charge is the one that holds the id of the run. An entry that is only about the same request may be of somebody
    else, so nothing is concluded from it.
    """
    if run.status == "waiting":
        return replace(run, status="interrupted", message=_NOT_BEGUN)
    entries = list(ledger.entries(run.dataset, after=run.before))
    own = next((entry for entry in entries if _is_of(entry, run)), None)
    if own is None:
        return replace(run, status="interrupted", message=_NOT_BEGUN)
    if own.kind == "refused":
        return replace(run, status="refused", message=_REFUSED, entry=own.number)
    later = [entry for entry in entries if entry.content.get("charge") == own.number]
    outcome = next((entry for entry in later if entry.kind in OUTCOMES), None)
    refund = next((entry for entry in later if entry.kind == "refunded"), None)
    budget = dataset_from_entries(_find_opening(ledger, own), refund or own)
    charged = own.read_cost("cost") - (refund.read_cost("refund") if refund else NOTHING)
    words = budget.composition.format_cost(charged)
    run = replace(run, charged=words, left=budget.left_in_words, entry=(outcome or own).number)
    if outcome is None or outcome.kind == "failed":
        return replace(run, status="interrupted", message=_CHARGED.format(charged=words, entry=own.number))
    if outcome.kind == "not-released":
        return replace(run, status="not-released", message=outcome.read_text("reason"))
    return replace(run, status="released", digest=outcome.digest)


_NOT_BEGUN = "The server stopped before this release began. Nothing was charged; you can ask again."
_REFUSED = "Too little budget is left for this release. Nothing was charged."
_CHARGED = (
    "The server stopped while this release was made, after {charged} was charged (entry {entry}). The charge counts, "
    "because what was computed may have depended on the data. There is no result; asking again is charged again."
)


def _is_of(entry: Entry, run: Run) -> bool:
    return entry.kind in ("charged", "refused") and entry.content.get("token") == run.id


def _find_opening(ledger: Ledger, entry: Entry) -> Entry:
    found = next((one for one in ledger.entries(entry.dataset) if one.kind == "opened"), None)
    if found is None:
        raise LedgerDamaged(f"entry {entry.number} belongs to no data set")
    return found
