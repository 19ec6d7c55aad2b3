"""Which engine reads which data; engines are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hubermean.errors import InputError
from hubermean.ingest.engine import Engine

ENGINES = {"duckdb": "hubermean.ingest.duckdb_source", "spark": "hubermean.ingest.spark_source"}
"""Modules that have an `ENGINE`, by its name."""


def _is_sparks(data: Any) -> bool:
    return type(data).__module__.startswith("pyspark.sql")


def engine_for(data: Any, name: str | None = None) -> Engine:
    """The engine of that name; without a name, that which the data belongs to."""
    if name is None:
        name = "spark" if _is_sparks(data) else "duckdb"
    if not isinstance(name, str) or name not in ENGINES:
        raise InputError(f"engine must be {' or '.join(map(repr, ENGINES))}, not {name!r}")
    engine: Engine = import_module(ENGINES[name]).ENGINE
    return engine
