"""OpenDP on a whole file, by its Polars API: user means are its own way to bound what a user contributes.

Neighbors differ by one user who is there or not, with all records; the number of users is private. OpenDP must know
how many records there are at most, for the rounding of sums of floats: it is given the true number.
"""

from __future__ import annotations

import os

from whole_file import Load, Release, Work, nothing_to_load, serve


def start(work: Work) -> tuple[Load, Release]:
    os.environ["POLARS_MAX_THREADS"] = str(work.threads)
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    middle = (work.mean_low + work.mean_high) / 2

    def release(_: None) -> float:
        context = dp.Context.compositor(
            data=pl.scan_parquet(work.path).select(work.user, work.value),
            privacy_unit=dp.unit_of(contributions=1, identifier=pl.col(work.user)),
            privacy_loss=dp.loss_of(epsilon=work.epsilon),
            split_evenly_over=1,
            margins=[dp.polars.Margin(max_length=work.rows)],
        )
        means = context.query().group_by(work.user).agg(pl.col(work.value).mean())
        private = pl.col(work.value).fill_nan(middle).dp.mean((work.mean_low, work.mean_high))
        return float(means.select(private).release().collect().item())

    return nothing_to_load, release


if __name__ == "__main__":
    serve(start, packages=("opendp", "polars"))
