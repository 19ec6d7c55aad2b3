"""What tests share."""

from __future__ import annotations

import gc
import itertools
import math
import shutil
import uuid
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import hubermean as hm
from helpers.damaged_ledgers import filled
from helpers.postgres_server import Server
from helpers.s3_server import S3Server
from helpers.servers import close_servers, postgres_server, s3_server
from helpers.spark_sessions import running_spark
from hubermean import _api as api
from hubermean.noise.seeded import InsecureSeededNoise


@pytest.hookimpl(tryfirst=True)  # before cases are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-all` what is not in the fair sample of a test marked `fair_sample(share)`.

    Tests of Spark come first: one of two workers then has them all, and only one starts a session. The longest test
    comes next, so that no worker waits for it at the end.
    """
    items.sort(key=lambda item: (not _needs_spark(item), "every_example_prints" not in item.name))
    sampled: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("fair_sample"):
            sampled.setdefault(item.nodeid.split("[")[0], []).append(item)
    for cases in sampled.values():
        (share,) = cases[0].get_closest_marker("fair_sample").args  # type: ignore[union-attr]
        kept = fair_sample(cases, math.ceil(share * len(cases)))
        for case in cases:
            if case.nodeid not in kept:
                case.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is collected lives to the end: the garbage collector need not look at it again after every few tests."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """End the servers while there is time: a worker that exits slowly is killed, and its servers would outlive it."""
    gc.unfreeze()
    gc.collect()  # modules that count their objects at the end would report leaks
    close_servers()


def _needs_spark(item: pytest.Item) -> bool:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "spark" in getattr(item, "fixturenames", ()) or "spark" in [*map(str, parameters)]


def fair_sample(cases: Sequence[pytest.Function], size: int) -> set[str]:
    """Return the names of at least `size` cases, the same in every run, in which parameters have all their values.

    A parameter with another value in every case is left out: only all cases have all its values.
    """
    values = [{(name, id(value)) for name, value in case.callspec.params.items()} for case in cases]
    repeated = {value for value, times in Counter(itertools.chain(*values)).items() if times > 1}
    order = sorted(range(len(cases)), key=lambda index: zlib.crc32(cases[index].nodeid.encode()))
    kept: list[int] = []
    for index in order:
        if values[index] & repeated:
            kept.append(index)
            repeated -= values[index]
    kept += [index for index in order if index not in kept][: max(size - len(kept), 0)]
    return {cases[index].nodeid for index in kept}


@pytest.fixture
def seeded_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases draw from seeds, so that figures over many of them are the same in every run."""
    seeds = itertools.count()
    monkeypatch.setattr(api, "SystemNoise", lambda: InsecureSeededNoise(next(seeds)))


@pytest.fixture(scope="session")
def postgres() -> Server:
    """One real server for all tests of a process."""
    return postgres_server()


@pytest.fixture(scope="session")
def s3() -> S3Server:
    """One real S3 server for all tests of a process."""
    return s3_server()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new, empty place for a ledger: a file, and a database."""
    if request.param == "sqlite":
        return str(tmp_path / "budget.sqlite")
    server: Server = request.getfixturevalue("postgres")
    return server.new_database(f"ledger_{uuid.uuid4().hex}")


@pytest.fixture
def ledger(place: str) -> Iterator[hm.Ledger]:
    """A new ledger with one data set."""
    with hm.Ledger(place) as made:
        made.init("trips", epsilon=1.0, delta=1e-5)
        yield made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ledger") / "whole.sqlite"
    filled(place)
    assert not place.with_name(place.name + "-wal").exists()
    return place


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    place = tmp_path / "copy.sqlite"
    shutil.copy(whole, place)
    return place


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One real session on this machine for all tests of a process."""
    with running_spark() as session:
        yield session
