"""Tune and judge, and write the page docs/evidence/federated.md with its plots.

    PYTHONPATH=benchmarks python -m federated [--part mnist-softmax-iid ...] [--hostile 0 0.2] [--markdown PAGE]

One process per core, or `--processes`. Noise comes from seeded generators. The file of `--json` is written after each
contestant of a setting, so that a run that was stopped goes on with `--missing`. What is not measured is taken from
that file, where it has it; the page says what is missing.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from federated.contestants import BY_NAME, CONTESTANTS
from federated.measuring import judge, tune
from federated.parts import HOSTILE, IMAGE_PARTS, OTHER_PARTS, settings_of
from federated.results import Results, read, write
from federated.training import Setting

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = [*IMAGE_PARTS, *OTHER_PARTS]
    parser.add_argument("--part", nargs="*", default=parts, choices=parts, help="only these")
    parser.add_argument("--hostile", nargs="*", type=float, default=list(HOSTILE), help="shares of clients")
    parser.add_argument("--contestant", nargs="*", default=list(BY_NAME), choices=list(BY_NAME))
    parser.add_argument("--missing", action="store_true", help="leave alone what the file of --json has")
    parser.add_argument("--processes", type=int, help="at a time; by default one per core")
    parser.add_argument(
        "--json", type=Path, default=HERE / "results.json", help="keep all results in this file"
    )
    parser.add_argument("--markdown", type=Path, help="write the page to this file")
    parser.add_argument("--images", type=Path, help="write its plots into this folder")
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    results = read(options.json)
    with ProcessPoolExecutor(options.processes) as pool:
        for setting in settings_of(options.part, options.hostile):
            started = time.perf_counter()
            wanted = [one for one in CONTESTANTS if one.name in options.contestant]
            if options.missing:
                wanted = [one for one in wanted if results.missing(setting, one.name)]
            for contestant in wanted:
                known = results.choice(setting, contestant.name) if options.missing else None
                if known is None:
                    tuned = tune(setting, pool, [contestant])
                    measured = judge(tuned, pool)
                else:
                    tuned = [known]
                    measured = judge(tuned, pool, results.missing(setting, contestant.name))
                    measured = [*results.of(setting, contestant.name), *measured]
                results = read(options.json)  # another process may have added to it
                results.replace(tuned, measured)
                write(options.json, results)
            if wanted:
                show(results, setting)
                print(f"{(time.perf_counter() - started) / 60.0:.1f} minutes", flush=True)
    if "wages" in options.part:
        from federated.wages import measure_wages

        results.wages = measure_wages()
        write(options.json, results)
    if "checks" in options.part:
        from federated.checks import check_rules

        results.checked = check_rules()
        write(options.json, results)
    if options.markdown:
        from federated.page_text import write_page

        write_page(options.markdown, results)
    if options.images:
        from federated.plots import draw_all

        draw_all(options.images, results)


def show(results: Results, setting: Setting) -> None:
    print(setting.name)
    for contestant in CONTESTANTS:
        for row in results.of(setting, contestant.name):
            rate = results.rate(setting, contestant.name)
            print(
                f"  {row.contestant:32} {row.attack:20} {row.mean:6.1%} +- {row.spread:.1%} {row.broken}",
                rate or "",
                flush=True,
            )


if __name__ == "__main__":
    main()
