"""A real cluster on the loopback address: a master and workers, each a process, that end with the test."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

_CLASSES = {
    "master": "org.apache.spark.deploy.master.Master",
    "worker": "org.apache.spark.deploy.worker.Worker",
}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Its URL, and the processes of its workers."""

    url: str
    workers: list[subprocess.Popen[bytes]]


@contextlib.contextmanager
def running_cluster(folder: Path, *, workers: int) -> Iterator[Cluster]:
    port, screen = _free_port(), _free_port()
    address = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as running:
        running.enter_context(_process(folder, "master", "--port", str(port), "--webui-port", str(screen)))
        _wait_for(folder / "master.log", "New state: ALIVE")
        started = []
        for number in range(workers):
            name = f"worker-{number}"
            work = [
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(folder / name),
                "--webui-port",
                "0",
                address,
            ]
            started.append(running.enter_context(_process(folder, name, *work)))
            _wait_for(folder / f"{name}.log", "Successfully registered with master")
        yield Cluster(url=address, workers=started)


@contextlib.contextmanager
def _process(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    home = Path(pyspark.__file__).parent
    command = [
        str(home / "bin" / "spark-class"),
        _CLASSES[name.split("-")[0]],
        "--host",
        "127.0.0.1",
        *arguments,
    ]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (
        open(folder / f"{name}.log", "wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(log: Path, words: str) -> None:
    for _ in range(600):
        if words in log.read_text(errors="replace"):
            return
        time.sleep(0.2)
    raise AssertionError(f"{log.name} never said {words!r}")


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
