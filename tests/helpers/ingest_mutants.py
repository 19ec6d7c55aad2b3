"""Slips planted in reading, one at a time: does a test go red?

`python tests/helpers/ingest_mutants.py` copies the package, plants each slip, runs the tests that should find it and
says which
slips survive. `python tests/helpers/ingest_mutants.py NAME ...` plants some of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent.parent
SOURCE = HERE.parent / "src"
WAY_IN, INVARIANCE, CANARIES = (
    "privacy/test_way_in.py",
    "privacy/test_container_invariance.py",
    "privacy/test_canaries.py",
)
TEXT_FORMAT, POSTGRES, SOURCES = (
    "ingest/test_text_format.py",
    "ingest/test_postgres.py",
    "ingest/test_sources.py",
)


@dataclass(frozen=True)
class Slip:
    """`old` becomes `new` in a module; `tests` are the files, and what of them is run, that should notice.

    `more` are further replacements, where a guarantee has several guards: all of them must fall before it does.
    """

    name: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]
    only: str = "not spark"
    more: tuple[tuple[str, str], ...] = ()


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
        (INVARIANCE, "ingest/test_engines.py"),
    ),
    Slip(
        "half a surrogate pair is lost",
        "ingest/identity.py",
        "        return escape_bytes(held)",
        "        return text.encode(errors='replace').decode()",
        (INVARIANCE, WAY_IN),
    ),
    Slip(
        "the order of groups follows from codes",
        "ingest/duckdb/queries.py",
        "md5(concat_ws(chr({IDENTITY_SEPARATOR}), {', '.join([*identities, *groups])}))",
        "hash({', '.join([*users, *groups])})",
        (WAY_IN, INVARIANCE),
    ),
    Slip(
        "the order of groups forgets the user",
        "ingest/duckdb/queries.py",
        "[*identities, *groups]",
        "groups",
        ("ingest/test_engines.py",),
    ),
    Slip(
        "members of types are shown",
        "ingest/schema.py",
        'return re.split(r"[(<]", str(declared), maxsplit=1)[0]',
        "return str(declared)",
        (WAY_IN, CANARIES),
    ),
    Slip(
        "names of columns are shown",
        "ingest/schema.py",
        "list(self.types) if self.names_declared else ()",
        "list(self.types)",
        (WAY_IN, CANARIES),
    ),
    Slip(
        "names of frames are shown",
        "ingest/frames.py",
        "raise InputError(missing_column_message(name))",
        "raise InputError(missing_column_message(name, list(map(str, existing))))",
        (WAY_IN, CANARIES),
    ),
    Slip(
        "pandas infers the type of keys",
        "ingest/pandas_frames.py",
        "    return pa.array([identity_text(cell) for cell in _cells(series)], type=pa.large_string())",
        "    with contextlib.suppress(Exception):\n        return pa.array(list(series))\n"
        "    return pa.array([identity_text(cell) for cell in _cells(series)], type=pa.large_string())",
        (WAY_IN, INVARIANCE),
    ),
    Slip(
        "objects are no values",
        "ingest/pandas_frames.py",
        "    return convert_cells(_cells(series), text)",
        "    from hubermean.errors import InputError\n    raise InputError('dtype object')",
        (WAY_IN, INVARIANCE),
    ),
    Slip(
        "decimals of objects are no values",
        "ingest/pandas_frames.py",
        "isinstance(cell, Real | Decimal | np.bool_)",
        "isinstance(cell, Real | np.bool_)",
        (INVARIANCE,),
    ),
    Slip(
        "durations forget their unit",
        "ingest/pandas_frames.py",
        "per_second = _PER_SECOND[unit]",
        "per_second = 10**9",
        (INVARIANCE, "ingest/test_exact_sums.py"),
    ),
    Slip(
        "a column without values is refused",
        "ingest/schema.py",
        '_NULL = "null"',
        '_NULL = "no such type"',
        ("privacy/test_way_in_files.py",),
    ),
    Slip(
        "a byte order mark loses a record",
        "ingest/duckdb/text_files.py",
        "marked = number == 0 and block.startswith(_BYTE_ORDER_MARK)",
        "marked = False",
        (WAY_IN, "privacy/test_way_in_files.py"),
    ),
    Slip(
        "lone surrogates lose a record",
        "ingest/duckdb/text_files.py",
        "_SURROGATE_BYTES.search(before + block)",
        "False",
        (WAY_IN,),
    ),
    Slip("long records vanish", "ingest/duckdb/queries.py", "if self.rejects and", "if False and", (WAY_IN,)),
    Slip(
        "long records of a query vanish",
        "ingest/duckdb/session.py",
        "if tables and rejects and",
        "if False and",
        (WAY_IN, "privacy/test_way_in_files.py"),
    ),
    Slip(
        "memory decides about an answer",
        "ingest/duckdb/source.py",
        "again = replace(attempt, options=replace(self.options, memory_limit=None))",
        "again = attempt",
        (WAY_IN,),
    ),
    Slip(
        "odd text of Parquet files ends it",
        "ingest/duckdb/source.py",
        "again = replace(attempt, bytewise=True)",
        "again = attempt",
        (WAY_IN, "privacy/test_way_in_files.py"),
    ),
    Slip(
        "a failure is free",
        "release/path.py",
        '    raise NotReleased(f"{reason}; {cost} counts as spent"',
        '    raise InputError(reason) if cost else NotReleased(f"{reason}; {cost} counts as spent"',
        (WAY_IN,),
    ),
    Slip("lazy frames are counted", "ingest/frames.py", "roles, countable=False\n", "roles\n", (WAY_IN,)),
    Slip(
        "text files are counted",
        "ingest/duckdb/source.py",
        "yield DuckdbSource(schema=schema, options=options, countable=False, open_rows=open_rows)",
        "yield DuckdbSource(schema=schema, options=options, countable=True, open_rows=open_rows)",
        (WAY_IN,),
    ),
    Slip(
        "the data name public groups",
        "ingest/groups.py",
        "return any(os.path.samefile",
        "return False and any(os.path.samefile",
        (WAY_IN,),
    ),
    Slip(
        "a copy of the data names public groups",
        "ingest/groups.py",
        "if set(source.schema.types) != set(by):",
        "if False:",
        (WAY_IN,),
    ),
    Slip(
        "JSON numbers are text",
        "ingest/duckdb/dialect.py",
        "ELSE coalesce({self.identity(number, 'double', scale=0)}, {token}) END",
        "ELSE {token} END",
        (INVARIANCE, "privacy/test_way_in_files.py"),
    ),
    Slip(
        "text that is no number fails",
        "ingest/duckdb/dialect.py",
        "coalesce(try_cast({text} AS DOUBLE)",
        "coalesce(CAST({text} AS DOUBLE)",
        (INVARIANCE, "ingest/test_records.py"),
    ),
    Slip(
        "errors quote the engine",
        "ingest/engine.py",
        '        interrupted = type(error) is RuntimeError and str(error) == "Query interrupted"\n',
        '        interrupted = type(error) is RuntimeError and str(error) == "Query interrupted"\n'
        '        message = f"{message}: {error}"\n',
        ("hostile/test_files.py", CANARIES),
    ),
    Slip(
        "an error carries its cause",
        "ingest/engine.py",
        "        interrupted = False\n    if interrupted",
        "        raise InputError(message) from error\n    if interrupted",
        ("hostile/test_files.py", CANARIES),
    ),
    Slip(
        "names that differ in case are two columns",
        "ingest/duckdb/source.py",
        "GROUP BY lower(name)",
        "GROUP BY name",
        ("ingest/test_records.py",),
    ),
    Slip(
        "the decimal mark is guessed from the content",
        "ingest/duckdb/source.py",
        "schema = Schema(types=types, dialect=DuckdbSql(), text=text, null=text.null)",
        "from hubermean.ingest.text_format import NumberFormat\n"
        "    marks = NumberFormat(decimal=',' if b';1,5' in open(files.paths[0], 'rb').read() else '.')\n"
        "    text = text if text.numbers.is_plain is False else replace(text, numbers=marks)\n"
        "    schema = Schema(types=types, dialect=DuckdbSql(), text=text, null=text.null)",
        (TEXT_FORMAT,),
    ),
    Slip(
        "a number in another format is read as well",
        "ingest/duckdb/dialect.py",
        "f\"WHEN NOT regexp_matches({text}, '[0-9]') THEN {plain} END\"",
        'f"ELSE {plain} END"',
        (TEXT_FORMAT,),
    ),
    Slip(
        "separators of thousands are left out of some records only",
        "ingest/duckdb/dialect.py",
        "digits = f\"translate({digits}, {quote_text(numbers.thousands)}, '')\"",
        "digits = f\"CASE WHEN length({text}) > 6 THEN translate({digits}, {quote_text(numbers.thousands)}, '') "
        'ELSE {digits} END"',
        (TEXT_FORMAT,),
    ),
    Slip(
        "groups of digits may have any length",
        "ingest/text_format.py",
        "{mark}[0-9]{{2,3}})*{mark}[0-9]{{3}}|",
        "{mark}[0-9]+)*{mark}[0-9]+|",
        (TEXT_FORMAT,),
    ),
    Slip(
        "words for missing cells name users",
        "ingest/schema.py",
        'return f"({has_key} AND {self._is_no_null(identity(selected))})" if self.null else has_key',
        "return has_key",
        (TEXT_FORMAT,),
    ),
    Slip(
        "an invalid byte takes the next with it",
        "ingest/files.py",
        "return chr(0xDC00 + byte) if byte >= 0x80 else chr(byte), error.start + 1",
        "return chr(0xDC00 + byte) if byte >= 0x80 else chr(byte), min(error.start + 2, len(error.object))",
        (TEXT_FORMAT,),
    ),
    Slip(
        "another format is the same question",
        "release/question.py",
        '**({"text": text} if text else {}),',
        "",
        (TEXT_FORMAT,),
    ),
    Slip(
        "a connection may write",
        "ingest/postgres.py",
        "REPEATABLE READ READ ONLY",
        "REPEATABLE READ READ WRITE",
        (POSTGRES,),
        more=(
            ("SET default_transaction_read_only = on", "SET default_transaction_read_only = off"),
            ("current_setting('transaction_read_only') AS", "text 'on' AS"),
        ),
    ),
    Slip(
        "whether a connection may write is not checked",
        "ingest/postgres.py",
        "current_setting('transaction_read_only') AS",
        "text 'on' AS",
        (POSTGRES,),
    ),
    Slip(
        "a query of a database is counted",
        "ingest/postgres.py",
        "countable=False",
        "countable=True",
        (POSTGRES,),
    ),
    Slip(
        "a time limit of the server ends a release",
        "ingest/postgres.py",
        "SET statement_timeout = 0",
        "SET lock_timeout = 0",
        (POSTGRES,),
    ),
    Slip(
        "infinite dates travel as they are",
        "ingest/postgres.py",
        'select=f"CASE WHEN isfinite({quoted}) THEN {quoted} END"',
        "select=quoted",
        (POSTGRES,),
    ),
    Slip(
        "types may change after they were declared",
        "ingest/postgres.py",
        "if [(one.name, one.type) for one in reader.schema] != [(one.name, one.type) for one in schema]:",
        "if False:",
        (POSTGRES,),
    ),
    Slip(
        "passwords are shown",
        "ingest/locations.py",
        'if "@" in rest.partition("?")[0]:',
        "if False:",
        (POSTGRES, SOURCES),
    ),
    Slip(
        "a query of SQLite runs before the charge",
        "ingest/sqlite.py",
        "        connection.text_factory = _decode\n",
        '        connection.execute(f"SELECT * FROM {_VIEW}").fetchall()\n        connection.text_factory = _decode\n',
        (SOURCES,),
    ),
    Slip(
        "months follow the time zone of the session",
        "ingest/duckdb/dialect.py",
        'if kind == "timestamp with time zone":',
        "if False:",
        ("ingest/test_engines.py",),
        only="time_zone and not spark",
    ),
    Slip(
        "weeks have the year of their date",
        "ingest/duckdb/dialect.py",
        "(isoyear({date}) * 100",
        "(year({date}) * 100",
        ("ingest/test_engines.py",),
        only="week and not spark",
    ),
    Slip(
        "two users are one owner",
        "ingest/duckdb/queries.py",
        "row_number() OVER () - 1 AS owner",
        "row_number() OVER () // 2 AS owner",
        ("ingest/test_engines.py",),
        only="owner and not spark",
    ),
    Slip(
        "two integers have one number",
        "ingest/numbering.py",
        "occurs[offsets] = True",
        "occurs[offsets // 2] = True",
        ("ingest/test_engines.py",),
        only="owner and not spark",
    ),
    Slip(
        "owners follow from hashes",
        "ingest/duckdb/queries.py",
        "row_number() OVER () - 1 AS owner",
        "hash({own}) % 3 AS owner",
        (INVARIANCE,),
    ),
    Slip(
        "statistics decide whether values are compared with them",
        "ingest/duckdb/fast_sums.py",
        "CASE WHEN rest_{doubles[0][0]} IS NOT NULL THEN",
        "CASE WHEN true THEN",
        ("ingest/duckdb/test_fast_sums.py",),
    ),
    Slip(
        "several numbers that are too large together are added",
        "ingest/duckdb/fast_sums.py",
        "2.0**64 * _TOGETHER /",
        "2.0**60 /",
        ("ingest/duckdb/test_fast_sums.py",),
    ),
    Slip(
        "remainders of coarse units are left out",
        "ingest/duckdb/coarse_sums.py",
        "WHEN abs(value_0) < {2**52} THEN",
        "WHEN abs(value_0) < {2**40} THEN",
        ("ingest/duckdb/test_fast_sums.py",),
    ),
    Slip(
        "any number of records is exact",
        "ingest/duckdb/fast_sums.py",
        "if int(counts.max(initial=0)) > self.max_records:",
        "if False:",
        ("ingest/duckdb/test_fast_sums.py",),
    ),
    Slip(
        "parts are not rounded",
        "ingest/duckdb/fast_sums.py",
        'f"(rest_{n} + {shift}) - {shift} AS value_{n}_{place}"',
        'f"rest_{n} AS value_{n}_{place}"',
        ("ingest/duckdb/test_fast_sums.py",),
        more=(("if not np.array_equal(integers, scaled):", "if False:"),),
    ),
    Slip(
        "the stated number of users is not kept",
        "data/user_table.py",
        "    if more == 0:\n",
        "    if more >= 0:\n",
        (WAY_IN, "privacy/test_way_in_files.py"),
    ),
)


def red_test(slip: Slip, copy: Path) -> str | None:
    """The first test that goes red, and its last line; None if all are green."""
    path = copy / "hubermean" / slip.module
    text = path.read_text()
    assert slip.old in text, f"{slip.name}: {slip.module} has changed"
    assert all(old in text for old, _ in slip.more), f"{slip.name}: {slip.module} has changed"
    changed = text.replace(slip.old, slip.new)
    for old, new in slip.more:
        changed = changed.replace(old, new)
    path.write_text(changed)
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
