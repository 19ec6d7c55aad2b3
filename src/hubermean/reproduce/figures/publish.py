"""What a run leaves behind for people: a CSV file a panel, plots, and a page in Markdown and HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from hubermean.errors import InputError
from hubermean.reproduce.figures.panels import SETTINGS
from hubermean.reproduce.figures.plots import overview_figure, panel_figure, save
from hubermean.reproduce.figures.store import table, write_whole
from hubermean.reproduce.figures.summary import Page
from hubermean.reproduce.figures.web import web_page

PAGE = "RESULTS"
FIGURES: tuple[Literal["1", "2"], ...] = ("1", "2")


def publish(page: Page, folder: Path) -> None:
    """Everything, from rows alone: equal rows give equal files."""
    try:
        _write(page, folder)
    except OSError:
        raise InputError(
            f"{folder} cannot be written any more, for want of space perhaps; what was found is kept: make room and "
            "give the same command again"
        ) from None


def _write(page: Page, folder: Path) -> None:
    results = page.results
    for panel in results.panels:
        rows = results.rows[panel.name]
        write_whole(folder / f"{panel.name}.csv", table(rows))
        save(panel_figure(panel, rows, moment_order=results.moment_orders[panel.law]), folder, panel.name)
    for figure in FIGURES:
        of_figure = {
            panel.name: results.rows[panel.name] for panel in results.panels if panel.name[0] == figure
        }
        if not of_figure:
            continue
        for users in sorted({row.users for rows in of_figure.values() for row in rows}):
            for setting in SETTINGS:
                drawn = overview_figure(
                    figure,
                    of_figure,
                    setting=setting.name,
                    users=users,
                    moment_orders=results.moment_orders,
                )
                save(drawn, folder, f"figure{figure}-{setting.name}-{users}")
    text = page.markdown()
    write_whole(folder / f"{PAGE}.md", text)
    write_whole(folder / f"{PAGE}.html", web_page(text))
