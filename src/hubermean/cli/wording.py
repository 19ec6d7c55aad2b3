"""Errors in the words of the command line: `--record-cap`, where Python says `record_cap=`."""

from __future__ import annotations

import re
from collections.abc import Sequence

PARAMETERS = (
    *(
        "user",
        "value",
        "epsilon",
        "delta",
        "per",
        "neighbors",
        "mechanism",
        "bounds",
        "record_cap",
        "threshold",
        "threshold_power",
    ),
    *(
        "scale",
        "radius",
        "hostile",
        "n_users",
        "resolution",
        "non_finite",
        "memory_limit",
        "threads",
        "engine",
    ),
    *("by", "keys", "max_groups", "of", "groups", "private_keys"),
    *("ledger", "dataset", "question", "fresh", "composition", "note"),
)

_NAME = "|".join(PARAMETERS)
# Names that are no English words are parameters wherever they stand; the others where they are assigned to, or begin a
# sentence that lays down the law. What is quoted, or follows "columns are:", is a name from the data.
_PYTHON = "|".join(
    (
        rf"(?<![\w./\\-])(?P<assigned>{_NAME})=(?:'(?P<text>[^']*)'|(?P<number>[\d.+-][\w.+-]*)|(?=[,;) (]|$))",
        rf"^(?P<first>{_NAME})(?= (?:must be|may be|is not used|is for)\b)",
        rf"(?<![\w./\\'-])(?P<alone>{'|'.join(name for name in PARAMETERS if '_' in name)})(?![\w./\\'-])",
        r"\((?P<low>-?[\d.e+-]+|low), (?P<high>-?[\d.e+-]+|high)\)",
        r"(?P<data>'[^']*'|columns are: .*)",
    )
)


def flag(parameter: str) -> str:
    """The option that sets a parameter.

    >>> flag("record_cap"), flag("n_users")
    ('--record-cap', '--users')
    """
    return "--users" if parameter == "n_users" else "--" + parameter.replace("_", "-")


def spoken(message: str, typed: Sequence[str] = ()) -> str:
    """A message with options for parameters; words that were typed, such as the name of a file, stay as they are.

    >>> spoken("give record_cap= (the largest number of records a user counts for), or use per='user'")
    'give --record-cap (the largest number of records a user counts for), or use --per user'
    """
    kept = [re.escape(word) for word in typed if not word.startswith("-") and re.search(r"[=_./\\]", word)]
    pattern = "|".join(
        [rf"(?P<typed>{'|'.join(sorted(kept, key=len, reverse=True))})", _PYTHON] if kept else [_PYTHON]
    )

    def translated(found: re.Match[str]) -> str:
        parts = found.groupdict()
        if parameter := parts["assigned"]:
            given = parts["text"] if parts["text"] is not None else parts["number"]
            between = " " if found.string[found.end() : found.end() + 1] == "(" else ""
            return flag(parameter) + (f" {given}" if given else between)
        if parameter := parts["first"] or parts["alone"]:
            return flag(parameter)
        if parts["low"]:
            return "LOW HIGH" if parts["low"] == "low" else f"{parts['low']} {parts['high']}"
        return found.group()

    return re.sub(pattern, translated, message)
