"""The page in a real browser: the whole way, the back button, a double click, reload, two analysts, accessibility."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.tools.app_tour import tour

import hubermean as hm
from helpers.app_server import AppServer, Client, make_folder, running_app, start_app
from helpers.chromium import BROWSER, running_chromium

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium on this machine; run scripts/install-chromium"
)

PHONE = {"viewport": {"width": 390, "height": 800}}
DESKTOP = {"viewport": {"width": 1000, "height": 800}}
EXPECTED = re.compile(
    r"status of 4\d\d"
)  # what Chromium writes to its console where a page refuses something


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_chromium() as running:
        yield running


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("browser")
    make_folder(place / "data")
    (place / "data" / "rides.parquet").write_bytes((place / "data" / "trips.parquet").read_bytes())
    with hm.Ledger(str(place / "budget.sqlite")) as book:
        book.init("rides", epsilon=2.0, user="rider_id")
    return place


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[AppServer]:
    options = ("--data", str(place / "data"), "--ledger", str(place / "budget.sqlite"))
    with running_app(*options, "--state", str(place / "state")) as running:
        steward = Client.enter(running, running.links[0])
        steward.post(
            "/setup", [("csrf", steward.csrf), ("table", "file:rides.parquet"), ("dataset", "rides")]
        )
        yield running


def entries(place: Path, dataset: str = "rides") -> list[str]:
    with hm.Ledger(str(place / "budget.sqlite")) as book:
        return [entry.kind for entry in book.entries(dataset)]


def open_page(browser: Any, link: str, **settings: Any) -> Any:
    """A page of its own, with its own cookies, in which any complaint of the browser is an error."""
    page = browser.new_context(**(settings or DESKTOP)).new_page()
    page.set_default_timeout(30_000)
    page.complaints = []
    page.on(
        "console", lambda message: page.complaints.append(message.text) if message.type == "error" else None
    )
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on(
        "request",
        lambda request: page.complaints.append(request.url) if not is_ours(request.url, link) else None,
    )
    page.goto(link)
    return page


def is_ours(url: str, link: str) -> bool:
    return url.startswith((link.partition("/enter")[0], "data:,"))


def close(page: Any) -> None:
    complaints = [one for one in page.complaints if not EXPECTED.search(one)]
    page.context.close()
    assert not complaints


def go_to_last_click(page: Any, column: str, epsilon: str) -> None:
    page.get_by_role("link", name="Tables", exact=True).click()
    page.get_by_role("link", name="rides.parquet").click()
    page.get_by_label(column).check()
    page.get_by_role("button", name="Choose the budget").click()
    page.get_by_label("Another epsilon").fill(epsilon)
    page.get_by_role("button", name="See what it costs").click()
    page.get_by_role("button", name=re.compile("^(Release|Show the release)$")).wait_for()


def wait_for_end(page: Any) -> None:
    page.get_by_role("link", name=re.compile("^(Change the request|Ask another question)$")).wait_for()


def test_from_a_table_to_a_number_and_nothing_twice(browser: Any, server: AppServer, place: Path) -> None:
    steward = open_page(browser, server.links[0])
    assert "token" not in steward.url  # nor in the history of what is opened next
    steward.get_by_role("link", name="trips.parquet").click()
    steward.get_by_label("Column that identifies a person").select_option("rider_id")
    steward.get_by_label("Total epsilon").fill("3")
    steward.get_by_role("button", name="Open and continue").click()
    steward.get_by_label("fare").check()
    steward.get_by_role("button", name="Choose the budget").click()
    assert steward.get_by_role("row", name="1 1.2% at most 73.2% sure").is_visible()
    steward.get_by_role("button", name="See what it costs").click()
    # A double click; what the script stops is also stopped by the server (test_pages.py).
    steward.get_by_role("button", name="Release").dblclick()
    wait_for_end(steward)
    released = steward.url
    value = steward.locator(".value").inner_text()
    assert entries(place, "trips") == ["opened", "charged", "released"]

    steward.reload()
    assert steward.locator(".value").inner_text() == value
    steward.go_back()  # to the last click
    assert steward.get_by_text("This was released before").is_visible()
    steward.get_by_role("button", name="Show the release").click()
    wait_for_end(steward)
    assert steward.locator(".value").inner_text() == value
    assert steward.url != released
    assert entries(place, "trips") == ["opened", "charged", "released"]

    with steward.expect_download() as download:
        steward.get_by_role("link", name="Numbers (CSV)").click()
    assert value[:3] in Path(download.value.path()).read_text()
    steward.get_by_role("link", name="Report as a page of its own").click()
    assert steward.locator(".value").inner_text() == value
    close(steward)


def test_two_analysts_race_for_the_last_of_a_budget(browser: Any, server: AppServer, place: Path) -> None:
    pages = [open_page(browser, server.links[1]) for _ in range(2)]
    before = entries(place)
    for page, column in zip(pages, ("fare", "minutes"), strict=True):
        go_to_last_click(page, column, "1.5")  # of 2
    for page in pages:
        page.get_by_role("button", name="Release").click(no_wait_after=True)
    for page in pages:
        wait_for_end(page)
    headings = sorted(page.get_by_role("heading", level=1).inner_text() for page in pages)
    assert headings[1] == "Not released: too little budget is left"
    assert headings[0] in ("Mean of fare", "Mean of minutes")
    assert sorted(entries(place)[len(before) :]) == ["charged", "refused", "released"]
    pages[0].get_by_role("link", name="Ledger", exact=True).click()
    pages[0].get_by_role("link", name="rides").click()
    assert pages[0].get_by_role("heading", name="Refusals").is_visible()
    with hm.Ledger(str(place / "budget.sqlite")) as book:
        assert book.dataset("rides").left_in_words == "epsilon = 0.5"
    for page in pages:
        close(page)


def test_an_analyst_sees_budgets_and_cannot_set_them(browser: Any, server: AppServer, place: Path) -> None:
    (place / "data" / "more.parquet").write_bytes((place / "data" / "trips.parquet").read_bytes())
    page = open_page(browser, server.links[1])
    page.get_by_role("link", name="more.parquet").click()
    assert page.get_by_text("Only a steward can do this").is_visible()
    page.get_by_role("link", name="Ledger").click()
    page.get_by_role("link", name="rides").click()
    assert page.get_by_role("img", name="epsilon left over time").is_visible()
    close(page)


def test_everything_can_be_done_with_the_keyboard_and_without_scripts(
    browser: Any, server: AppServer
) -> None:
    page = open_page(browser, server.links[1], java_script_enabled=False)
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the content"
    page.get_by_role("link", name="rides.parquet").focus()
    page.keyboard.press("Enter")
    page.get_by_label("minutes").focus()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Choose the budget").focus()
    page.keyboard.press("Enter")
    page.get_by_role("radio", name="0.1").check()
    page.get_by_role("button", name="See what it costs").press("Enter")
    page.get_by_role("button", name="Release").press("Enter")
    wait_for_end(page)
    assert page.get_by_text("Mean of minutes").first.is_visible()
    page.context.close()


def test_the_page_outlives_a_server_that_is_killed(browser: Any, place: Path, tmp_path: Path) -> None:
    """The real server, but that it keeps an outcome for ten minutes; it is killed while the browser waits for it."""
    with hm.Ledger(str(tmp_path / "budget.sqlite")) as book:
        book.init("trips", epsilon=2.0, user="rider_id")
    options = ["--data", str(place / "data"), "--ledger", str(tmp_path / "budget.sqlite")]
    options += ["--state", str(tmp_path / "state"), "--tokens", str(tmp_path / "tokens")]
    slow = "import hubermean.app.runner as runner; runner.next_moment = lambda elapsed: 600.0; "
    server = start_app(*options, program=f"{slow} from hubermean.cli.app import main; main()")
    token = (tmp_path / "tokens").read_text().split()[-1]
    page = open_page(browser, f"{server.address}/enter?token={token}")
    try:
        steward = Client.enter(
            server, f"{server.address}/enter?token={(tmp_path / 'tokens').read_text().split()[-4]}"
        )
        steward.post(
            "/setup", [("csrf", steward.csrf), ("table", "file:trips.parquet"), ("dataset", "trips")]
        )
        page.goto(f"{server.address}/review?table=file%3Atrips.parquet&value=fare&epsilon=1")
        page.get_by_role("button", name="Release").click()
        page.get_by_text("Charging and computing").wait_for()
        with hm.Ledger(str(tmp_path / "budget.sqlite")) as book:
            while [entry.kind for entry in book.entries()][-1] != "released":
                page.wait_for_timeout(50)
    finally:
        server.kill()
    page.get_by_text("The server does not answer").wait_for()
    with running_app(*options, "--port", str(server.port)):
        page.get_by_label("Token").wait_for()  # the page tries again by itself, and the session is over
        released = page.url
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.goto(released)
        page.get_by_role("heading", name="Download").wait_for()
        assert page.get_by_text("95% interval").first.is_visible()
        page.go_back()
        page.context.close()
    with hm.Ledger(str(tmp_path / "budget.sqlite")) as book:
        assert [entry.kind for entry in book.entries()] == ["opened", "charged", "released"]


@pytest.mark.parametrize(
    ("scheme", "settings"),
    [
        ("light", DESKTOP),
        pytest.param("dark", PHONE, marks=pytest.mark.slow),
        pytest.param("light", PHONE, marks=pytest.mark.slow),
        pytest.param("dark", DESKTOP, marks=pytest.mark.slow),
    ],
    ids=["desktop-light", "phone-dark", "phone-light", "desktop-dark"],
)
def test_every_page_is_accessible_and_fits(browser: Any, scheme: str, settings: dict[str, Any]) -> None:
    from axe_playwright_python.sync_playwright import Axe

    axe, seen = Axe(), []
    with running_app("--demo") as server:
        page = open_page(browser, f"{server.address}/enter", **settings, color_scheme=scheme, bypass_csp=True)
        for name in tour(page, server.links):
            seen.append(name)
            found = axe.run(page).response
            assert len(found["passes"]) > 10  # it looked
            serious = [
                (one["id"], one["nodes"][0]["html"])
                for one in found["violations"]
                if one["impact"] != "minor"
            ]
            assert not serious, (name, serious)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"
        close(page)
    assert len(seen) > 15
