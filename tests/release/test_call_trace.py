"""A reader who follows the default call visits few modules, in one direction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_default_call_passes_through_fewer_than_35_modules() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "trace_calls.py"), "--most", "34"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
