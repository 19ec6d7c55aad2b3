"""User means by Polars, for libraries that have no way of their own to bound what a user contributes."""

from __future__ import annotations

import os
from typing import Any

from whole_file import Work


def by_polars(work: Work) -> Any:
    """One mean a user, a NumPy array, in any order."""
    os.environ["POLARS_MAX_THREADS"] = str(work.threads)
    import polars as pl

    grouped = pl.scan_parquet(work.path).group_by(work.user).agg(pl.col(work.value).mean())
    return grouped.collect(engine="streaming")[work.value].to_numpy()
