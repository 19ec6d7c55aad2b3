"""The most memory that reading by group holds under a limit: a process of its own per limit, libraries included.

The file is that of `speed.groups`: users in about five groups each, so five million entries by default.
"""

import argparse
import sys

from common.watched import watch
from speed.groups import make_grouped

_READ = """
import sys
from hubermean.ingest.reading import group_table
path, column, limit = sys.argv[1:]
how = {"user": ["user_id"], "value": [column], "by": ["several"], "keys": None, "max_groups": None}
group_table(path, threads=2, memory_limit=limit, **how)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--limits", nargs="*", default=["500MB", "1GB", "2GB"])
    options = parser.parse_args()
    path = str(make_grouped(options.rows, options.users, options.groups))
    for limit in options.limits:
        for column in ("amount", "whole"):
            command = [sys.executable, "-c", _READ, path, column, limit]
            found = watch(command, most_seconds=600, most_bytes=2**36)
            peak = f"{found.peak_bytes / 1e6:,.0f} MB" if found.done else found.complaints
            print(f"memory_limit={limit}, {column}: {peak}", flush=True)


if __name__ == "__main__":
    main()
