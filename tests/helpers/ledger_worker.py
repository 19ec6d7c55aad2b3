"""Many processes that ask one budget at once: a program of its own, run by the tests.

    python tests/helpers/ledger_worker.py LEDGER FOLDER PROCESSES REQUESTS EPSILON KILLED

All is loaded once and the processes are forked from there. They begin together; the first `KILLED` of them get SIGKILL
soon after. Each prints a line for every answer to FOLDER/its number: the entry and the value.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import psycopg  # noqa: F401
import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401

import hubermean as hm

MEANS = np.array([1.0, 2.0, 3.0])


def ask(place: str, name: str, requests: int, epsilon: float) -> None:
    with hm.Ledger(place) as ledger:
        for number in range(requests):
            try:
                release = hm.mean_of_user_means(
                    MEANS,
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


def main() -> None:
    place, folder = sys.argv[1:3]
    processes, requests, killed = int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[6])
    hm.mean_of_user_means(MEANS, epsilon=1, bounds=(0, 9))  # all is loaded before the start
    start, go = os.pipe()
    workers = []
    for number in range(processes):
        worker = os.fork()
        if worker:
            workers.append(worker)
            continue
        code = 1
        try:
            os.close(go)
            os.read(start, 1)  # returns when nobody can write any more
            sys.stdout = Path(folder, str(number)).open("w")  # noqa: SIM115
            ask(place, f"worker {number}", requests, float(sys.argv[5]))
            code = 0
        except BaseException:  # noqa: BLE001 - the process ends here
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(go)
    for number, worker in enumerate(workers[:killed]):
        time.sleep(0.05 * (number + 1))
        os.kill(worker, signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
    sys.exit(any(codes[killed:]))


if __name__ == "__main__":
    main()
