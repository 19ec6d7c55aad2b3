"""What a fuzzer is told beside the lines it reaches: that something was said which it has not heard yet.

An engine's code is not instrumented. What it says of an input, the words of an error without what they quote, is made
one of so many branches, which atheris tells apart once it has instrumented `heard`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

BRANCHES = 256
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|[\d.,:+-]+")


def _branches() -> Callable[[int], int]:
    lines = [f"    if kind == {number}:\n        return {number}\n" for number in range(BRANCHES)]
    made: dict[str, Callable[[int], int]] = {}
    exec(compile(f"def heard(kind):\n{''.join(lines)}    return -1\n", "<branches>", "exec"), made)
    return made["heard"]


heard = _branches()


def notice(said: str) -> None:
    words = " ".join(_QUOTED.sub("", said).split()[:9])
    heard(hashlib.sha256(words.encode("utf-8", "replace")).digest()[0])
