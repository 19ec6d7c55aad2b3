"""Mean squared error beside the non-private mean's, epsilon = 1, thresholds tuned on separate draws.

Per law, number of users n and records per user m: the error of each mechanism over that of the plain mean of
user means, with its standard error. The true mean is drawn at random for each data set, since a mechanism that
works with bins around zero would be lucky there. Seeded noise: this is a simulation, not a release.
"""

import argparse
from collections.abc import Callable

import numpy as np

from hubermean.api import release_table
from hubermean.mechanisms import Clipped, Exact, Mechanism, Request, Winsorized
from hubermean.noise.insecure import InsecureSeededNoise
from hubermean.relations import Neighbors
from hubermean.user_table import UserTable

RADIUS = 100.0
LAWS: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], np.ndarray], float, float]] = {
    "uniform": (lambda g, size: g.uniform(-1, 1, size), 0.0, 3**-0.5),
    "gaussian": (lambda g, size: g.standard_normal(size), 0.0, 1.0),
    "lomax(4)": (lambda g, size: g.pareto(4.0, size), 1 / 3, (4 / (9 * 2)) ** 0.5),
}
MECHANISMS: dict[str, Callable[[float], Mechanism]] = {
    "exact": lambda spread: Exact(threshold=spread, radius=RADIUS),
    "winsorized": lambda spread: Winsorized(threshold=spread, radius=RADIUS),
    # What somebody who knows the radius alone would do; bounds around the true mean would give the answer away.
    "clipped to the radius": lambda _: Clipped(bounds=(-RADIUS, RADIUS)),
}


class Draws:
    """Data sets of one case with a random true mean each, as user means."""

    def __init__(self, law: str, n: int, m: int, seed: int) -> None:
        self._sample, self._mean, self._deviation = LAWS[law]
        self._n, self._m = n, m
        self._generator = np.random.default_rng(seed)
        self.spread = self._deviation / m**0.5

    def next(self) -> tuple[np.ndarray, float]:
        centre = self._generator.uniform(-RADIUS / 2, RADIUS / 2)
        rows = self._sample(self._generator, (self._n, self._m))
        return rows.mean(axis=1) - self._mean + centre, centre


def squared_errors(make: Callable[[float], Mechanism], spread: float, draws: Draws, runs: int) -> np.ndarray:
    request = Request(columns=("mean",), epsilon=1.0, delta=0.0, neighbors=Neighbors.REPLACE_USER, per="user")
    noise = InsecureSeededNoise(5)
    errors = []
    for _ in range(runs):
        means, truth = draws.next()
        release = release_table(UserTable.from_means(means), request, make(spread), noise)
        errors.append((release.values[0] - truth) ** 2)
    return np.array(errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--tuning-runs", type=int, default=120)
    parser.add_argument("--users", type=int, nargs="+", default=[100, 300, 1000, 10_000])
    parser.add_argument("--records", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--laws", nargs="+", default=list(LAWS), choices=list(LAWS))
    parser.add_argument("--mechanisms", nargs="+", default=list(MECHANISMS), choices=list(MECHANISMS))
    options = parser.parse_args()
    print(
        f"MSE over the non-private mean's, epsilon = 1, {options.runs} runs (standard error); threshold in deviations"
    )
    for n in options.users:
        for law in options.laws:
            for m in options.records:
                plain = Draws(law, n, m, seed=1).spread ** 2 / n
                cells = []
                for name in options.mechanisms:
                    tuning = Draws(law, n, m, seed=2)
                    factors = np.array([0.7, 1, 1.5, 2, 2.5, 3, 4, 6, 9, 14])
                    tuned = [
                        squared_errors(
                            MECHANISMS[name], factor * tuning.spread, tuning, options.tuning_runs
                        ).mean()
                        for factor in factors
                    ]
                    best = factors[int(np.argmin(tuned))]
                    fresh = Draws(law, n, m, seed=3)
                    errors = (
                        squared_errors(MECHANISMS[name], best * fresh.spread, fresh, options.runs) / plain
                    )
                    deviation = errors.std() / len(errors) ** 0.5
                    cells.append(f"{name} {errors.mean():5.2f} ({deviation:.2f}) at {best:g}")
                print(f"n = {n:>6,}  {law:<9} m = {m:<4} " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main()
