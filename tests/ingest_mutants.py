"""Slips planted in reading, one at a time: does a test go red?

`python tests/ingest_mutants.py` copies the package, plants each slip, runs the tests that should find it and says which
slips survive. `python tests/ingest_mutants.py NAME ...` plants some of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src"
WAY_IN, INVARIANCE, CANARIES = "test_way_in.py", "test_container_invariance.py", "test_canaries.py"


@dataclass(frozen=True)
class Slip:
    """`old` becomes `new` in a module; `tests` are the files, and what of them is run, that should notice."""

    name: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]
    only: str = "not spark"


SLIPS = (
    Slip(
        "whole floats keep their point",
        "ingest/identity.py",
        "return str(int(number))",
        "return repr(number)",
        (INVARIANCE,),
    ),
    Slip(
        "flags are numbers",
        "ingest/identity.py",
        '"true" if cell else "false"',
        '"1" if cell else "0"',
        (INVARIANCE,),
    ),
    Slip(
        "decimals keep trailing zeros",
        "ingest/identity.py",
        'text.rstrip("0").rstrip(".") if "." in text else text',
        "text",
        (INVARIANCE, "test_engines.py"),
    ),
    Slip(
        "half a surrogate pair is lost",
        "ingest/identity.py",
        "        return stand_ins_for(held)",
        "        return text.encode(errors='replace').decode()",
        (INVARIANCE, WAY_IN),
    ),
    Slip(
        "the order of groups follows from codes",
        "ingest/group_query.py",
        "md5(concat_ws(chr({SEPARATOR}), {', '.join([*identities, *groups])}))",
        "hash({', '.join([*users, *groups])})",
        (WAY_IN, INVARIANCE),
    ),
    Slip(
        "the order of groups forgets the user",
        "ingest/group_query.py",
        "[*identities, *groups]",
        "groups",
        ("test_engines.py",),
    ),
    Slip(
        "members of types are shown",
        "ingest/columns.py",
        'return re.split(r"[(<]", str(declared), maxsplit=1)[0]',
        "return str(declared)",
        (WAY_IN, CANARIES),
    ),
    Slip(
        "names of columns are shown",
        "ingest/columns.py",
        "list(self.types) if self.names_declared else ()",
        "list(self.types)",
        (WAY_IN, CANARIES),
    ),
    Slip(
        "names of frames are shown",
        "ingest/frames.py",
        "raise InputError(missing_column(name))",
        "raise InputError(missing_column(name, list(map(str, existing))))",
        (WAY_IN, CANARIES),
    ),
    Slip(
        "pandas infers the type of keys",
        "ingest/pandas_columns.py",
        "    return pa.array([identity_text(cell) for cell in _cells(series)], type=pa.large_string())",
        "    with contextlib.suppress(Exception):\n        return pa.array(list(series))\n"
        "    return pa.array([identity_text(cell) for cell in _cells(series)], type=pa.large_string())",
        (WAY_IN, INVARIANCE),
    ),
    Slip(
        "objects are no values",
        "ingest/pandas_columns.py",
        "    return _cell_values(_cells(series))",
        "    from hubermean.errors import InputError\n    raise InputError('dtype object')",
        (WAY_IN, INVARIANCE),
    ),
    Slip(
        "decimals of objects are no values",
        "ingest/pandas_columns.py",
        "isinstance(cell, Real | Decimal | np.bool_)",
        "isinstance(cell, Real | np.bool_)",
        (INVARIANCE,),
    ),
    Slip(
        "durations forget their unit",
        "ingest/pandas_columns.py",
        "per_second = _PER_SECOND[unit]",
        "per_second = 10**9",
        (INVARIANCE, "test_ingest_exact.py"),
    ),
    Slip(
        "a column without values is refused",
        "ingest/columns.py",
        '_NULL = "null"',
        '_NULL = "no such type"',
        ("test_way_in_files.py",),
    ),
    Slip(
        "a byte order mark loses a record",
        "ingest/text_bytes.py",
        "(number == 0 and block.startswith(_MARK)) or",
        "",
        (WAY_IN, "test_way_in_files.py"),
    ),
    Slip(
        "lone surrogates lose a record",
        "ingest/text_bytes.py",
        "_SURROGATE_BYTES.search(before + block)",
        "False",
        (WAY_IN,),
    ),
    Slip("long records vanish", "ingest/rows.py", "if self.rejects and", "if False and", (WAY_IN,)),
    Slip(
        "long records of a query vanish",
        "ingest/session.py",
        "if tables and rejects and",
        "if False and",
        (WAY_IN, "test_way_in_files.py"),
    ),
    Slip(
        "memory decides about an answer",
        "ingest/duckdb_source.py",
        "again = replace(attempt, limits=replace(self.limits, memory_limit=None))",
        "again = attempt",
        (WAY_IN,),
    ),
    Slip(
        "odd text of Parquet files ends it",
        "ingest/duckdb_source.py",
        "again = replace(attempt, bytewise=True)",
        "again = attempt",
        (WAY_IN, "test_way_in_files.py"),
    ),
    Slip(
        "a failure is free",
        "releasing.py",
        '    raise NotReleased(f"{reason}; {spent} counts as spent"',
        '    raise InputError(reason) if spent else NotReleased(f"{reason}; {spent} counts as spent"',
        (WAY_IN,),
    ),
    Slip("lazy frames are counted", "ingest/frames.py", "roles, countable=False\n", "roles\n", (WAY_IN,)),
    Slip(
        "text files are counted",
        "ingest/duckdb_source.py",
        "yield DuckdbSource(schema=schema, limits=limits, countable=False, rows=opened)",
        "yield DuckdbSource(schema=schema, limits=limits, countable=True, rows=opened)",
        (WAY_IN,),
    ),
    Slip(
        "the data name public groups",
        "ingest/keys.py",
        "return any(os.path.samefile",
        "return False and any(os.path.samefile",
        (WAY_IN,),
    ),
    Slip(
        "a copy of the data names public groups",
        "ingest/keys.py",
        "if set(source.schema.types) != set(by):",
        "if False:",
        (WAY_IN,),
    ),
    Slip(
        "JSON numbers are text",
        "ingest/duckdb_sql.py",
        "ELSE coalesce({self.identity(number, 'double', scale=0)}, {token}) END",
        "ELSE {token} END",
        (INVARIANCE, "test_way_in_files.py"),
    ),
    Slip(
        "text that is no number fails",
        "ingest/duckdb_sql.py",
        "coalesce(try_cast({text} AS DOUBLE)",
        "coalesce(CAST({text} AS DOUBLE)",
        (INVARIANCE, "test_ingest_records.py"),
    ),
    Slip(
        "errors quote the engine",
        "ingest/session.py",
        '        interrupted = type(error) is RuntimeError and str(error) == "Query interrupted"\n',
        '        interrupted = type(error) is RuntimeError and str(error) == "Query interrupted"\n'
        '        what = f"{what}: {error}"\n',
        ("test_hostile_files.py", CANARIES),
    ),
    Slip(
        "an error carries its cause",
        "ingest/session.py",
        "        interrupted = False\n    if interrupted",
        "        raise InputError(what) from error\n    if interrupted",
        ("test_hostile_files.py", CANARIES),
    ),
    Slip(
        "names that differ in case are two columns",
        "ingest/duckdb_source.py",
        "GROUP BY lower(name)",
        "GROUP BY name",
        ("test_ingest_records.py",),
    ),
    Slip(
        "the stated number of users is not kept",
        "user_table.py",
        "    if more == 0:\n",
        "    if more >= 0:\n",
        (WAY_IN, "test_way_in_files.py"),
    ),
)


def red_test(slip: Slip, copy: Path) -> str | None:
    """The first test that goes red, and its last line; None if all are green."""
    path = copy / "hubermean" / slip.module
    text = path.read_text()
    assert slip.old in text, f"{slip.name}: {slip.module} has changed"
    path.write_text(text.replace(slip.old, slip.new))
    try:
        tests = [str(HERE / name) for name in slip.tests if (HERE / name).exists()]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "-k",
            slip.only,
            *tests,
        ]
        environment = os.environ | {"PYTHONPATH": str(copy), "HUBERMEAN_QUICK_RED": "1"}
        done = subprocess.run(command, env=environment, cwd=HERE.parent, capture_output=True, check=False)
        if done.returncode == 0:
            return None
        said = [line for line in done.stdout.decode().splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return said[0] if said else f"pytest ended with {done.returncode}"
    finally:
        path.write_text(text)


def main(names: list[str]) -> int:
    alive = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "src")
        shutil.copytree(SOURCE, copy)
        for slip in SLIPS:
            if names and slip.name not in names:
                continue
            red = red_test(slip, copy)
            print(f"{'found' if red else 'SURVIVES':10}{slip.name}: {red}", flush=True)
            alive += [slip.name] * (red is None)
    print(f"{len(alive)} of {len(names) or len(SLIPS)} survive")
    return bool(alive)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
