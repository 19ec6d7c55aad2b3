"""Check what other_libraries.py computes against PipelineDP and OpenDP, each in its own environment.

    python benchmarks/peers/runners/make_environments.py pipelinedp opendp
    PYTHONPATH=benchmarks python -m groups.check_libraries

Fails unless the standard deviations of the noise agree within one in a thousand, and PipelineDP's means without noise
to six digits. OpenDP's query by group is not run, see its runner.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, replace

import numpy as np

from groups.other_libraries import OPENDP, PIPELINEDP, Bounds, Ranked, concentrated, noise_of, release_often
from groups.tables import JUDGE, from_records
from peers.runners.make_environments import HERE, python_of

EPSILON, DELTA = 1.0, 1e-6
_RUNNERS = {PIPELINEDP: "pipelinedp", OPENDP: "opendp"}


def check(library: str, bounds: Bounds) -> None:
    """Everybody has few enough groups and records, so that no random choice is made; values are clamped."""
    generator = np.random.default_rng(4)
    users, groups = np.repeat(np.arange(120), 4), np.tile([0, 0, 1, 2], 120)
    values = generator.exponential(5.0, 480)
    rows = [list(row) for row in zip(users.tolist(), groups.tolist(), values.tolist(), strict=True)]
    budget = {"epsilon": EPSILON, "delta": DELTA, "rho": concentrated(EPSILON, DELTA)}
    runner = _RUNNERS[library]
    answer = subprocess.run(
        [str(python_of(runner)), str(HERE / f"groups_{runner}.py")],
        input=json.dumps({**asdict(bounds), **budget, "rows": rows}),
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(answer.stdout)
    ours = noise_of(library, bounds, EPSILON, DELTA)
    np.testing.assert_allclose([ours.count, ours.sum], [theirs["count"], theirs["sum"]], rtol=1e-3)
    if "means" not in theirs:
        return
    table = from_records(JUDGE[0], ("0", "1", "2"), users, groups, values)
    released = release_often(
        library,
        [Ranked.of(table, "record", generator)],
        replace(bounds, gaussian=False),
        3,
        generator,
        epsilon=1e9,
        delta=0.0,
    )
    np.testing.assert_allclose(released.values[0], [theirs["means"][group] for group in "012"], rtol=1e-6)


def main() -> None:
    for library in _RUNNERS:
        for gaussian in (False, True):
            for low, high, max_groups, max_records in ((0.0, 12.0, 3, 2), (-30.0, 9.0, 3, 30)):
                bounds = Bounds(
                    low=low, high=high, max_groups=max_groups, max_records=max_records, gaussian=gaussian
                )
                check(library, bounds)
                print(f"{library} agrees: {bounds}", flush=True)


if __name__ == "__main__":
    main()
