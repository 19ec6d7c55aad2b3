"""What tests share."""

from __future__ import annotations

import itertools

import pytest

from hubermean import api
from hubermean.noise.insecure import InsecureSeededNoise


@pytest.fixture
def seeded_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases draw from seeds, so that figures over many of them are the same in every run."""
    seeds = itertools.count()
    monkeypatch.setattr(api, "SystemNoise", lambda: InsecureSeededNoise(next(seeds)))
