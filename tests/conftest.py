"""What tests share."""

from __future__ import annotations

import itertools
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hubermean as hm
from helpers.damaged_ledgers import filled
from helpers.postgres_server import Server, running_server
from helpers.spark_sessions import running_spark
from hubermean import _api as api
from hubermean.noise.seeded import InsecureSeededNoise


@pytest.fixture
def seeded_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases draw from seeds, so that figures over many of them are the same in every run."""
    seeds = itertools.count()
    monkeypatch.setattr(api, "SystemNoise", lambda: InsecureSeededNoise(next(seeds)))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """One real server for all tests of a process."""
    with running_server() as server:
        yield server


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
