"""`memory_limit`: what a release may hold while it reads and groups, and the engine's part of it."""

from __future__ import annotations

import re
from fractions import Fraction

from hubermean.errors import InputError

_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([KMGT]?)(i?)B\s*", re.IGNORECASE | re.ASCII)
_PREFIXES = ("", "K", "M", "G", "T")
# What the engine finds is handed over outside of what it counts as its memory: some 24 bytes of a user of which it
# holds about 100 itself.
_ENGINE_SHARE = Fraction(3, 4)
_LEAST = 10**7  # with less the engine cannot even start


def engine_limit(memory_limit: str) -> str:
    """How much of a limit the engine gets, in a form that it reads.

    Raises:
        InputError: the limit is no size, or too small a one.
    """
    size = size_in_bytes(memory_limit)
    if size < _LEAST:
        raise InputError(f"memory_limit must be at least {_LEAST // 10**6}MB, not {memory_limit!r}")
    return f"{int(_ENGINE_SHARE * size)}B"


def size_in_bytes(text: str) -> int:
    found = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InputError(f"memory_limit must be a size such as '2GB', not {text!r}")
    number, prefix, binary = found.groups()
    unit = (1024 if binary else 1000) ** _PREFIXES.index(prefix.upper())
    return int(Fraction(number) * unit)
