"""`python -m fuzz TARGET --seconds N`; see README.md beside this file."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path

from fuzz import corpus, results, running, targets


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz", description="Fuzz whatever reads what others wrote."
    )
    parser.add_argument("target", choices=[*targets.names(), "all"])
    parser.add_argument("--seconds", type=int, default=60, help="how long each target is fuzzed")
    parser.add_argument("--limit", type=int, default=30, help="seconds after which one execution is a hang")
    parser.add_argument("--memory", type=int, default=4096, help="megabytes that one process may take")
    parser.add_argument(
        "--at-once", type=int, default=1, help="with 'all': targets that are fuzzed side by side"
    )
    parser.add_argument("--write", type=Path, help="with 'all': a page for the table of executions")
    parser.add_argument(
        "--replay", type=Path, nargs="+", metavar="FILE", help="run these inputs once, and no fuzzing"
    )
    parser.add_argument("--seed", action="store_true", help="put the target's own seeds into its corpus")
    parser.add_argument(
        "--minimise",
        action="store_true",
        help="keep of the corpus, old and newly found, what covers all it covers",
    )
    given = parser.parse_args()
    chosen = targets.names() if given.target == "all" else [given.target]
    if given.replay:
        return max([_replay(given.target, path) for path in given.replay])
    if given.seed or given.minimise:
        for name in chosen:
            if given.seed:
                corpus.seed(name)
            kept, held = corpus.minimise(name) if given.minimise else (0, 0)
            if given.minimise:
                print(f"{name}: kept {kept} of {held} inputs")
        return 0
    limits = running.Limits(seconds=given.seconds, execution=given.limit, megabytes=given.memory)
    runs = running.fuzz_all(chosen, limits, at_once=given.at_once)
    if given.write is not None:
        given.write.write_text(results.page(runs), encoding="utf-8")
    return 1 if any(run.findings for run in runs) else 0


def _replay(name: str, path: Path) -> int:
    try:
        targets.load(name).check(path.read_bytes())
    except Exception:
        traceback.print_exc()
        return 1
    print(f"{path.name}: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
