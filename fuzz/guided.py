"""The process that fuzzes: atheris chooses inputs by the lines of hubermean that they reach.

Errors are written down and fuzzing goes on; only a crash, a hang or too much memory ends the process, and libFuzzer
then saves the input.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import sys
import traceback
import warnings
from pathlib import Path

import atheris

from fuzz import novelty, places, targets
from fuzz.tally import Tally


def main() -> None:
    name, counted, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["hubermean"], enable_loader_override=False):
        import hubermean

        for module in pkgutil.walk_packages(hubermean.__path__, "hubermean."):
            importlib.import_module(module.name)
    novelty.heard = atheris.instrument_func(novelty.heard)
    warnings.simplefilter("error")
    target = targets.load(name)
    tally = Tally(Path(counted).parent)

    def one(data: bytes) -> None:
        tally.add()
        try:
            target.check(data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            save(name, data, error)

    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


def save(name: str, data: bytes, error: BaseException) -> None:
    """One input for each place where errors come from: the shortest."""
    trace = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in trace if "hubermean" in frame.filename or "/fuzz/" in frame.filename]
    where = ours[-1]
    said = str(error) if isinstance(error, AssertionError) else ""
    place = f"{type(error).__name__} {Path(where.filename).name} {where.name} {said}"
    digest = hashlib.sha256(place.encode("utf-8", "replace")).hexdigest()[:12]
    path = places.findings() / f"{name}-error-{digest}"
    if path.exists() and path.stat().st_size <= len(data):
        return
    path.write_bytes(data)
    told = "".join(traceback.format_exception(error))
    path.with_suffix(".txt").write_text(f"{place}\n\n{told}", encoding="utf-8", errors="replace")


if __name__ == "__main__":
    main()
