"""Fuzzing that could not fail would find nothing: each guarantee is broken once, on purpose, and that is seen."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from fuzz import command_line, corpus, places
from fuzz.draw import Draw
from fuzz.oracle import Rule
from fuzz.pages import Skeleton, check_page
from fuzz.randomness import CountedNoise, NoNoise, drawn_from
from fuzz.releases import check_release
from fuzz.surroundings import working_folder
from fuzz.tally import Tally
from fuzz.targets import files, frames, parameters, sql
from fuzz.violation import Violation, check_refusal, result_or_refusal

import hubermean as hm
from hubermean.data.fixed_point import ExactIntegers
from hubermean.ingest.duckdb import source as duckdb_source
from hubermean.ingest.engine import mask_engine_errors

TRIPS = pa.table({"u": [1, 1, 2], "v": [1.0, 2.0, 6.0]})
KNOWN = {"user": "u", "value": "v", "epsilon": 1, "bounds": (0, 10), "max_records": 2}


def released(**options: Any) -> tuple[hm.Release, CountedNoise]:
    with drawn_from(CountedNoise()) as noise:
        return hm.mean(TRIPS, **{**KNOWN, **options}), noise


def check_all(target: Any, inputs: Iterable[bytes]) -> None:
    for data in inputs:
        target.check(data)


def test_a_release_without_noise_is_seen() -> None:
    release, noise = released()
    check_release(release, noise)
    with pytest.raises(Violation, match="draws noise"):
        check_release(release, CountedNoise())


def test_a_value_that_is_no_number_or_out_of_bounds_is_seen() -> None:
    release, noise = released()
    for value in (float("nan"), 11.0):
        with pytest.raises(Violation):
            check_release(dataclasses.replace(release, values=(value,)), noise)


def test_without_noise_the_answer_is_the_mean() -> None:
    with drawn_from(NoNoise()) as noise:
        assert hm.mean(TRIPS, **KNOWN).value == pytest.approx(3.0, abs=1e-6)
    assert noise.draws > 0


def test_sums_that_are_off_by_the_least_step_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    table, exact = frames.user_table, ExactIntegers.__getitem__
    seeds = [seed for seed in frames.seeds() if seed[1] < 3][:40]
    check_all(frames, seeds)

    def off(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(ExactIntegers, "__getitem__", lambda self, place: exact(self, place) + 1)
        return table(*given, **options)

    monkeypatch.setattr(frames, "user_table", off)
    with pytest.raises(Violation, match="exact"):
        check_all(frames, seeds)


def test_a_lost_record_of_a_file_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotation marks that are not understood would lose records or make them up."""
    scan = duckdb_source.FileSet.scan
    monkeypatch.setattr(
        duckdb_source.FileSet,
        "scan",
        lambda self, **columns: scan(self, **columns).replace("quote = '\"'", "quote = ''"),
    )
    with pytest.raises(Violation, match="exactly"):
        check_all(files, [seed for seed in files.seeds() if seed[0] == 1])


def test_a_query_that_could_read_other_files_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def query(text: str) -> bytes:
        return bytes([0, 1, 1]) + text.encode()

    sql.check(query("select * from 'canary.csv'"))
    opened = duckdb_source.open_session

    @contextlib.contextmanager
    def unlocked(*given: Any, **options: Any) -> Iterator[Any]:
        with opened(*given, **options), duckdb.connect() as connection:
            yield connection

    monkeypatch.setattr(duckdb_source, "open_session", unlocked)
    for text in ("select * from 'canary.csv'", "select content as u, 1 as v from read_text('canary.txt')"):
        with pytest.raises(Violation, match="not named"):
            sql.check(query(text))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells who opened a file")
def test_a_canary_that_an_engine_opens_is_seen_though_nothing_comes_back() -> None:
    with pytest.raises(Violation, match="canary"), working_folder():
        duckdb.sql("select count(*) from read_csv('canary.csv') where false").fetchall()


def test_a_file_that_python_opens_is_seen_and_named_ones_are_not() -> None:
    with working_folder() as folder:
        (folder / "named.csv").write_text("u,v\n")
    with pytest.raises(Violation, match="not named"), working_folder(), contextlib.suppress(OSError):
        Path("/etc/hostname").read_text()


def test_an_inner_error_is_no_refusal() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        result_or_refusal(broken)


def test_an_error_that_quotes_data_or_carries_an_engines_error_is_seen() -> None:
    with pytest.raises(Violation, match="quotes no data"):
        check_refusal(hm.HubermeanError("no column Zq7a"), hidden=["Zq7"])
    try:
        try:
            duckdb.sql("select cast('Zq7' as int)").fetchall()
        except duckdb.Error as inner:
            raise hm.HubermeanError("it failed") from inner
    except hm.HubermeanError as error:
        with pytest.raises(Violation, match="engine"):
            check_refusal(error)
    with pytest.raises(hm.HubermeanError) as caught:
        mask_engine_errors(lambda: duckdb.sql("select cast('Zq7' as int)").fetchall(), "it failed")
    check_refusal(caught.value)


def test_markup_on_a_page_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    release, _ = released()
    hostile = dataclasses.replace(release, columns=('<b onclick="x">',))
    check_page(hostile, source="<i>.csv", title="</title><u>")
    monkeypatch.setattr("hubermean.report.document.html.escape", lambda text, quote=True: text)
    with pytest.raises(Violation):
        check_page(hostile)


@pytest.mark.parametrize(
    "text", ["<script></script>", "<p onload=x></p>", "<!-- x -->", '<p href="x"></p>', "<p>"]
)
def test_what_no_page_may_hold_is_seen(text: str) -> None:
    with pytest.raises(Violation):
        Skeleton(text)


@pytest.mark.parametrize("code", [70, 3])
def test_a_fault_of_the_command_line_is_seen(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "main", lambda: sys.exit(code))
    with pytest.raises(Violation, match="exit code"):
        parameters.check(bytes([4]))


def test_the_oracle_knows_the_rules_of_the_documentation() -> None:
    plain, clamped = Rule(), Rule(clamp=True)
    assert plain.real(float("inf")) is None
    assert clamped.real(float("-inf")) == -8 * 10**12
    assert plain.real(1e13) == 8 * 10**12
    assert plain.real(2.0**-61) == 0  # half a unit goes to the even one
    assert plain.real(3 * 2.0**-61) == Fraction(2, 2**60)
    assert plain.whole(2**64 - 1) == 2**63 - 1
    assert Rule(resolution=0.01).real(0.126) == Fraction(13, 100)


def test_choices_run_out_without_an_end() -> None:
    draw = Draw(b"\x05")
    assert [draw.below(4), draw.below(4), draw.text(), draw.rest()] == [1, 0, "", b""]


def test_a_corpus_keeps_what_reaches_something_new() -> None:
    steps = {b"a": {1, 2}, b"bb": {1, 2}, b"c": {3}, b"ddd": {2, 3}, b"e": set()}
    reached = {data: frozenset(("file", one, one) for one in of) for data, of in steps.items()}
    assert corpus.cover(reached) == [b"a", b"c"]


def test_an_input_is_told_by_the_steps_it_makes() -> None:
    first, second = (corpus.steps("parameters", bytes([door])) for door in (1, 3))
    assert first
    assert second
    assert first != second


def test_a_count_outlives_who_counts(tmp_path: Path) -> None:
    with Tally(tmp_path) as one, Tally(tmp_path) as other:
        one.add()
        other.add()
        assert one.count == other.count == 2


@pytest.mark.slow
def test_guided_fuzzing_runs_and_counts() -> None:
    pytest.importorskip("atheris")
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "frames", "--seconds", "5"],
        cwd=places.HERE.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    counted = re.fullmatch(r"frames: ([\d,]+) executions, \d+ s, 0 findings\n", done.stdout)
    assert counted is not None
    assert int(counted.group(1).replace(",", "")) > 0
