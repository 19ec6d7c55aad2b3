"""Check what other_libraries.py computes for PipelineDP against the library itself, in its own environment.

    python benchmarks/peers/runners/make_environments.py pipelinedp
    PYTHONPATH=benchmarks python -m groups.check_pipelinedp

Fails unless the standard deviations of the noise agree within one in a thousand, and means without noise to six digits.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict

import numpy as np

from groups.other_libraries import PIPELINEDP, Bounds, Ranked, pipelinedp_noise, release_often
from groups.tables import JUDGE, from_records
from peers.runners.make_environments import HERE, python_of

EPSILON, DELTA = 1.0, 1e-6


def check(bounds: Bounds) -> None:
    """Everybody has few enough groups and records, so that no random choice is made; values are clamped."""
    generator = np.random.default_rng(4)
    users, groups = np.repeat(np.arange(120), 4), np.tile([0, 0, 1, 2], 120)
    values = generator.exponential(5.0, 480)
    rows = [list(row) for row in zip(users.tolist(), groups.tolist(), values.tolist(), strict=True)]
    case = {**asdict(bounds), "epsilon": EPSILON, "delta": DELTA, "rows": rows}
    answer = subprocess.run(
        [str(python_of("pipelinedp")), str(HERE / "groups_pipelinedp.py")],
        input=json.dumps(case),
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(answer.stdout)
    ours = pipelinedp_noise(bounds, EPSILON, DELTA if bounds.gaussian else 0.0)
    np.testing.assert_allclose([ours.count, ours.sum], [theirs["count"], theirs["sum"]], rtol=1e-3)
    table = from_records(JUDGE[0], ("0", "1", "2"), users, groups, values)
    released = release_often(
        PIPELINEDP,
        [Ranked.of(table, "record", generator)],
        Bounds(**{**asdict(bounds), "gaussian": False}),
        3,
        generator,
        epsilon=1e9,
        delta=0.0,
    )
    np.testing.assert_allclose(released.values[0], [theirs["means"][group] for group in "012"], rtol=1e-6)


def main() -> None:
    for gaussian in (False, True):
        for low, high in ((0.0, 12.0), (-30.0, 9.0)):
            for max_groups, max_records in ((3, 2), (20, 30)):
                bounds = Bounds(
                    low=low,
                    high=high,
                    max_groups=max_groups,
                    max_records=max_records,
                    gaussian=gaussian,
                )
                check(bounds)
                print(f"agrees: {bounds}", flush=True)


if __name__ == "__main__":
    main()
