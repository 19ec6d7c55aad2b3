"""One module a target.

Each has `check(data)`, which turns bytes into hostile input and raises where a guarantee is broken, and `seeds()`, the
inputs that fuzzing starts from; `DICTIONARY` may hold words that are worth inserting.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType
from typing import Protocol, cast


class Target(Protocol):
    """What a module of this folder offers."""

    __name__: str
    DICTIONARY: tuple[bytes, ...]

    def check(self, data: bytes) -> None: ...

    def seeds(self) -> Iterable[bytes]: ...


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> Target:
    module: ModuleType = importlib.import_module(f"{__name__}.{name}")
    return cast(Target, module)
