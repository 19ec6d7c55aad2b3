"""A real S3 server for tests and benchmarks: moto's, in a process of its own on the loopback address."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEY, SECRET = "test-key", "test/secret+key"
BUCKET = "rides"


@dataclass(frozen=True, kw_only=True)
class S3Server:
    port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """Where clients find the server and their credentials."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ALLOW_HTTP": "true",
        }

    def client(self) -> Any:
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )

    def upload(self, path: Path, name: str) -> str:
        """Store a file; return its URI."""
        self.client().upload_file(str(path), BUCKET, name)
        return f"s3://{BUCKET}/{name}"


@contextlib.contextmanager
def running_s3() -> Iterator[S3Server]:
    """The server, with one bucket, and the environment in which clients find it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    server = S3Server(port=port)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": "/tmp"},  # not that of a test
    )
    before = {name: os.environ.get(name) for name in server.environment()}
    try:
        _wait_for(server)
        os.environ.update(server.environment())
        server.client().create_bucket(Bucket=BUCKET)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=30)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _wait_for(server: S3Server) -> None:
    for attempt in range(600):
        try:
            urllib.request.urlopen(f"{server.endpoint}/moto-api/", timeout=5).close()
            return
        except OSError:
            assert attempt < 599, "the server did not start"
            time.sleep(0.1)
