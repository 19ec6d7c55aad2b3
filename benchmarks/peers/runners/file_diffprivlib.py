"""diffprivlib on a whole file: Polars makes the user means, `tools.mean` clips them and adds the noise.

Neighbors differ in one user's mean, and the number of users is public.
"""

from __future__ import annotations

from typing import Any

from whole_file import Load, Release, Work, serve


def start(work: Work) -> tuple[Load, Release]:
    from diffprivlib.tools import mean
    from user_means import by_polars

    def release(means: Any) -> float:
        return float(mean(means, epsilon=work.epsilon, bounds=(work.mean_low, work.mean_high)))

    return lambda: by_polars(work), release


if __name__ == "__main__":
    serve(start, packages=("diffprivlib", "polars"))
