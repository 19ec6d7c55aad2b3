"""Releases of a table by group through `hubermean.mean`, with nothing given but the budget and the public keys."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow

import hubermean as hm
from groups.measures import LEVEL, Released
from groups.tables import GroupTable
from hubermean.noise.seeded import InsecureSeededNoise
from hubermean.noise.system import SystemNoise

_SAMPLERS = tuple(
    name
    for name, method in vars(InsecureSeededNoise).items()
    if callable(method) and not name.startswith("_")
)


@contextmanager
def seeded_noise(*case: object) -> Iterator[None]:
    """Take all noise of this process from a seed made of the case, so that the page is the same for the same code."""
    seeded = InsecureSeededNoise(zlib.crc32(repr(case).encode()))
    kept = {name: vars(SystemNoise)[name] for name in _SAMPLERS}
    for name in _SAMPLERS:
        setattr(SystemNoise, name, staticmethod(getattr(seeded, name)))
    try:
        yield
    finally:
        for name, sampler in kept.items():
            setattr(SystemNoise, name, sampler)


def release_often(
    table: GroupTable, *, per: str, epsilon: float, delta: float, runs: int, max_groups: int | None = None
) -> Released:
    """Release the table, each time with other noise; `max_groups` is left at its default if it is None."""
    records = pyarrow.table(
        {"user": table.record_users, "group": table.record_groups, "value": table.record_values}
    )
    given: dict[str, Any] = {} if max_groups is None else {"max_groups": max_groups}
    shape = (runs, table.n_groups)
    values, low, high = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    for run in range(runs):
        with seeded_noise(table.name, per, epsilon, delta, max_groups, run):
            try:
                released = hm.mean(
                    records,
                    user="user",
                    value="value",
                    by="group",
                    keys=range(table.n_groups),
                    epsilon=epsilon,
                    delta=delta,
                    per=per,
                    **given,
                )
            except hm.NotReleased:
                continue
        for group, row in enumerate(released):
            if isinstance(row, hm.Release):
                values[run, group] = row.value
                interval = row.interval(LEVEL)
                if interval is not None:
                    low[run, group], high[run, group] = interval
    return Released(values=values, low=low, high=high)
