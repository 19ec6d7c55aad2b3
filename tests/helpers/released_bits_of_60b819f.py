"""Released bits of commit 60b819f, the last before modules and parameters got the names that they have now.

    git worktree add ../before 60b819f
    PYTHONPATH=../before/src .venv/bin/python tests/helpers/released_bits_of_60b819f.py --write before.json
    .venv/bin/python tests/helpers/released_bits.py --compare before.json

All options of `released_bits.py` work here too; only the tables of names differ.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import released_bits as bits

bits.MECHANISM |= {
    "inverse-sensitivity": "exact",
    "propose-test-release": "tested",
    "smooth-sensitivity": "smooth",
}
bits.OPTION["max_records"] = bits.PARAMETER["max_records"] = "record_cap"
bits.PARAMETER["margin_of_test"] = "margin_of_test"
bits.ATTRIBUTE["spent"] = "spent"


@contextlib.contextmanager
def seeded_noise(seed: int) -> Iterator[None]:
    """Make releases draw from a seed, as `released_bits.seeded_noise` does in today's modules."""
    api = importlib.import_module("hubermean.api")
    seeded = importlib.import_module("hubermean.noise.insecure").InsecureSeededNoise
    system = api.SystemNoise
    made: list[int] = []

    def source() -> object:
        made.append(seed)
        return seeded(seed)

    api.SystemNoise = source  # type: ignore[attr-defined]
    try:
        yield
    finally:
        api.SystemNoise = system  # type: ignore[attr-defined]
    if len(made) != 1:
        raise AssertionError(f"one source of noise was expected in a release, not {len(made)}")


bits.seeded_noise = seeded_noise

if __name__ == "__main__":
    sys.exit(bits.main())
