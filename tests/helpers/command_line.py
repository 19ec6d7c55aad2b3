"""The command line in this process: as it is typed, without the second that a new interpreter takes. No test here."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from hubermean.cli.app import main


def typed(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a process would have ended with, through the same `main`."""
    printed, complained = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd or Path.cwd()),
        mock.patch.dict(os.environ, {"COLUMNS": "120", "NO_COLOR": "1", **environment}),
        mock.patch.object(sys, "argv", ["hubermean", *words]),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(complained),
    ):
        try:
            main()
            code: object = 0
        except SystemExit as stop:
            code = stop.code or 0
    assert isinstance(code, int)
    return subprocess.CompletedProcess(list(words), code, printed.getvalue(), complained.getvalue())
