"""`hubermean doctor`: checks that this machine can make a release."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Callable
from fractions import Fraction

import typer

from hubermean._version import __version__
from hubermean.cli.options import AsJson, Quiet, check_output
from hubermean.cli.render import console, print_lines, print_table
from hubermean.errors import InputError
from hubermean.types.screen import Lines

PACKAGES = (
    "numpy",
    "scipy",
    "duckdb",
    "pyarrow",
    "narwhals",
    "opendp",
    "dp-accounting",
    "typer",
    "rich",
    "pandas",
    "polars",
    "matplotlib",
    "sqlalchemy",
    "psycopg",
)


def doctor(as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Check that noise, exact arithmetic and the data engine work on this machine.

    [bold]Examples[/bold]

      hubermean doctor

      hubermean doctor --quiet
    """
    check_output(as_json=as_json, quiet=quiet)
    results = [(what, _passes(test)) for what, test in CHECKS]
    versions = [("hubermean", __version__), ("Python", platform.python_version())]
    versions += [(package, _installed(package)) for package in PACKAGES]
    healthy = all(passed for _, passed in results)
    if as_json:
        typer.echo(
            json.dumps({"healthy": healthy, "checks": dict(results), "versions": dict(versions)}, indent=2)
        )
    elif quiet:
        typer.echo("ready" if healthy else "not ready")
    else:
        print_table(
            "Checks", ("check", "result"), [(what, "ok" if passed else "FAILED") for what, passed in results]
        )
        listed = ", ".join(f"{package} {version}" for package, version in versions)
        print_lines(Lines((("Versions", listed),)))
        console().print(
            "[green]This machine is ready to release.[/green]"
            if healthy
            else "[red]Do not release on this machine before the failed checks are fixed.[/red]"
        )
    if not healthy:
        raise typer.Exit(2)


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _passes(test: Callable[[], bool]) -> bool:
    try:
        return test()
    except Exception:  # noqa: BLE001 - whatever went wrong, the check did not pass
        return False


def _noise() -> bool:
    """Noise differs between draws, has both signs, and about the right scale."""
    from hubermean.noise.system import SystemNoise

    first, second = (SystemNoise().discrete_laplace(2.0**30, 400) for _ in range(2))
    scale = sum(abs(draw) for draw in first) / len(first) / 2.0**30
    return first != second and min(first) < 0 < max(first) and 0.6 < scale < 1.5


def _exact_sums() -> bool:
    """Sums of the engine equal sums in rational arithmetic, for values of very different size."""
    import pyarrow as pa

    from hubermean.ingest.reading import user_table

    values = [1e12, 1e-12, -1e12, 0.1, -7.25, 2.0**-60]
    table = user_table(pa.table({"u": [1] * len(values), "v": values}), user="u", value="v")
    unit = Fraction(1, 2**60)
    return (
        table.collect().sums[0].fraction(0) == sum(round(Fraction(value) / unit) for value in values) * unit
    )


def _other_files_stay_closed() -> bool:
    """A query cannot read a file that was not named."""
    from hubermean.ingest.reading import user_table
    from hubermean.ingest.sql import sql

    with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as other:
        other.write("u,v\n1,2\n")
    try:
        user_table(sql(f"select * from read_csv('{other.name}')"), user="u", value="v")
    except InputError:
        return True
    finally:
        os.unlink(other.name)
    return False


def _charges_are_kept() -> bool:
    """A charge is on disk when it is made, and one too many is refused."""
    from hubermean.errors import BudgetExhausted
    from hubermean.release.ledger import Ledger

    with tempfile.TemporaryDirectory(prefix="hubermean-") as folder, Ledger(f"{folder}/l.sqlite") as ledger:
        ledger.init("d", epsilon=1.0)
        ledger.spend("d", epsilon=1.0)
        try:
            ledger.spend("d", epsilon=1e-9)
        except BudgetExhausted:
            with Ledger(ledger.location) as other:
                return other.verify().sound and other.dataset("d").left.loss == 0
    return False


CHECKS: tuple[tuple[str, Callable[[], bool]], ...] = (
    ("noise comes from the operating system's entropy", _noise),
    ("sums are exact integers", _exact_sums),
    ("a query reads no file that was not named", _other_files_stay_closed),
    ("a ledger keeps what is charged to it", _charges_are_kept),
)
