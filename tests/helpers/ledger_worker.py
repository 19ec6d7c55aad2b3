"""One of many processes that ask one budget at once: a program of its own, run by the tests.

    python tests/helpers/ledger_worker.py LEDGER NAME REQUESTS EPSILON

It waits for a line on standard input, then asks, and prints a line for every answer: the entry and the value.
"""

from __future__ import annotations

import sys

import numpy as np

import hubermean as hm


def main() -> None:
    place, name, requests, epsilon = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    means = np.array([1.0, 2.0, 3.0])
    hm.mean_of_user_means(means, epsilon=1, bounds=(0, 9))  # all is loaded before the start
    print("ready", flush=True)
    sys.stdin.readline()
    with hm.Ledger(place) as ledger:
        for number in range(requests):
            try:
                release = hm.mean_of_user_means(
                    means,
                    epsilon=epsilon,
                    bounds=(0, 9),
                    ledger=ledger,
                    dataset="d",
                    question=f"{name} {number}",
                )
            except hm.BudgetExhausted:
                print("exhausted", flush=True)
                continue
            assert release.receipt is not None
            print(release.receipt.entry, repr(release.value), flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
