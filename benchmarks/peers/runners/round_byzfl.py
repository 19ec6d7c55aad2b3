"""Rounds of byzfl's aggregators and attacks, in byzfl's environment: vectors on the standard output as JSON.

    python round_byzfl.py CASE.npz

CASE holds `updates` (rounds, clients, size) and a JSON text `case` with the name of a class and its options.
"""

from __future__ import annotations

import json
import sys
import types

import numpy as np

# byzfl's own training loops are not used here, and need a torchvision whose binary fits that of torch.
sys.modules["byzfl.benchmark"] = types.ModuleType("byzfl.benchmark")

import byzfl  # noqa: E402


def main() -> None:
    with np.load(sys.argv[1]) as stored:
        updates, case = stored["updates"], json.loads(str(stored["case"]))
    rule = getattr(byzfl, case["name"])(**case["options"])
    print(json.dumps({"models": [np.asarray(rule(sent)).tolist() for sent in updates], "ended": ""}))


if __name__ == "__main__":
    main()
