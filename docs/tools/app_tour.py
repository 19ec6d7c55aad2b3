"""A walk through every page of `hubermean app` in Chromium, for pictures and for the tests that look at each page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TABLE = "/question?table=file%3Atrips.parquet"


def tour(page: Any, links: list[str]) -> Iterator[str]:
    """Walk through a demo that was just started, first as a steward, then as an analyst; yield a name at each page.

    Args:
        page: a Playwright page, in which nobody has signed in.
        links: those that the server printed, the steward's first.
    """
    address = links[0].partition("/enter")[0]
    page.goto(f"{address}/enter")
    yield "enter"
    page.goto(links[0])
    yield "tables"
    page.goto(f"{address}/setup?table=file%3Atrips.parquet")
    page.get_by_label("a new data set").check()
    page.get_by_text("More about the guarantee").click()
    yield "setup"
    page.get_by_role("button", name="Sign out").click()
    page.goto(links[1])
    page.get_by_role("link", name="trips.parquet").click()
    page.get_by_label("fare").check()
    yield "question"
    page.get_by_role("button", name="Choose the budget").click()
    yield "budget"
    page.get_by_role("button", name="See what it costs").click()
    yield "review"
    page.get_by_role("button", name="Release").click()
    page.get_by_role("progressbar").wait_for()
    yield "running"
    page.get_by_role("heading", name="Download").wait_for()
    yield "release"
    page.goto(f"{address}{TABLE}&value=fare&value=minutes&by=city")
    yield "question-groups"
    page.get_by_role("button", name="Choose the budget").click()
    page.get_by_role("button", name="See what it costs").click()
    page.get_by_role("button", name="Release").click()
    page.get_by_role("heading", name="Download").wait_for()
    yield "release-groups"
    page.goto(f"{address}/review?table=file%3Atrips.parquet&value=fare&epsilon=1")
    yield "review-again"
    page.goto(f"{address}/review?table=file%3Atrips.parquet&value=fare&epsilon=0.001")
    page.get_by_role("button", name="Release").click()
    page.get_by_role("link", name="Change the request").wait_for()
    yield "not-released"
    page.goto(f"{address}/review?table=file%3Atrips.parquet&value=fare&epsilon=4")
    yield "too-much"
    page.goto(f"{address}/")
    yield "tables-later"
    page.goto(f"{address}/releases")
    yield "releases"
    page.goto(f"{address}/ledger")
    yield "ledger"
    page.get_by_role("link", name="trips").click()
    yield "dataset"
    page.goto(f"{address}/ledger/verify")
    yield "verify"
