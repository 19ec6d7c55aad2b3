"""One of `engines.py` alone in a process, on a whole file, in the manner of the peers' runners.

`options`: `engine`; `columns`, where there are several; `small`, a file of which the same is asked first, so that what
is kept from the first question on is there and does not count as memory of the question; `given_bounds`, whether
hubermean is given the bounds of user means; and what else it is given.
"""

from __future__ import annotations

from dataclasses import replace

from peers.runners.whole_file import Load, Release, Work, nothing_to_load, serve
from speed.engines import ENGINES, Question


def start(work: Work) -> tuple[Load, Release]:
    given = dict(work.options)
    engine, small = ENGINES[given.pop("engine")], given.pop("small", None)
    columns = given.pop("columns", [work.value])
    if given.pop("given_bounds", False):
        given["bounds"] = (work.mean_low, work.mean_high)
    asked = Question(path=work.path, user=work.user, columns=columns, threads=work.threads, **given)
    if small:
        engine(replace(asked, path=small))()
    job = engine(asked)
    return nothing_to_load, lambda _: job()[0]


if __name__ == "__main__":
    serve(start, packages=("hubermean", "duckdb", "polars"))
