"""Servers that all tests of a process share: started when first needed, ended with the process."""

from __future__ import annotations

import atexit
import contextlib
import functools

from helpers.postgres_server import Server, running_server
from helpers.s3_server import S3Server, running_s3

_STACK = contextlib.ExitStack()
close_servers = _STACK.close
atexit.register(close_servers)


@functools.cache
def postgres_server() -> Server:
    return _STACK.enter_context(running_server())


@functools.cache
def s3_server() -> S3Server:
    return _STACK.enter_context(running_s3())
