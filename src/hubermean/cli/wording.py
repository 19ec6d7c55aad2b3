"""Parameters as options: errors say `--max-records` where Python says `max_records`."""

from __future__ import annotations

from hubermean.errors import HubermeanError


def flag(parameter: str) -> str:
    """Return the option that sets a parameter.

    >>> flag("max_records")
    '--max-records'
    """
    return "--" + parameter.replace("_", "-")


def describe_error(error: HubermeanError) -> str:
    """Return the message of an error with options in place of parameters.

    >>> from hubermean.errors import InputError, parameter
    >>> describe_error(InputError(f"give {parameter('max_records')}, or use {parameter('per', 'user')}"))
    'give --max-records, or use --per user'
    """

    def spell(name: str, value: str) -> str:
        typed = "" if value == "True" else value.strip("'")  # a flag has no value
        return f"{flag(name)} {typed}".rstrip()

    return error.spelled(spell)
