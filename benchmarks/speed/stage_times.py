"""How long reading and grouping take, and all that comes after them, in one warm release: a line of JSON.

A process of its own, so that its memory is as a user's would be; `suite_machine.py` starts it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import hubermean as hm
from speed.engines import EPSILON

_READING = "reading and grouping"
_TURNS = 2  # the first makes everything warm


def main() -> None:
    given: dict[str, Any] = json.loads(sys.argv[1])
    for _ in range(_TURNS):
        with hm.UnsafeTimings() as timings:
            hm.mean(given["path"], epsilon=EPSILON, **{name: given[name] for name in given if name != "path"})
    outer = {name: taken for name, taken in timings.stages.items() if ":" not in name}
    reading = outer.pop(_READING)
    print(json.dumps({"reading": reading, "after": sum(outer.values())}))


if __name__ == "__main__":
    main()
