"""The Chromium of this machine, driven by Playwright; scripts/install-chromium installs one."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextlib.contextmanager
def running_chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    assert BROWSER is not None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
