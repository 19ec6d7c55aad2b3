"""`hubermean reproduce` without its terminal output: run the panels, then write CSV files, plots and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from markdown_it import MarkdownIt

from hubermean.errors import InputError
from hubermean_experiments.figures.curves import Results
from hubermean_experiments.figures.data import (
    Extract,
    fingerprint,
    load_incomes,
    load_stored_incomes,
    record_distributions,
)
from hubermean_experiments.figures.panels import PANELS, SETTINGS, Effort, PanelPoint, select_panels
from hubermean_experiments.figures.plots import overview_figure, panel_figure, save_figure
from hubermean_experiments.figures.rows import rows_to_csv
from hubermean_experiments.figures.run import ResultStore, RunSettings, run_points, write_atomically
from hubermean_experiments.figures.summary import ResultsPage

PAGE = "RESULTS"
FIGURES: tuple[Literal["1", "2"], ...] = ("1", "2")


def write_results(page: ResultsPage, folder: Path) -> None:
    """Write CSV files, plots and pages; they depend on the rows alone."""
    try:
        _write(page, folder)
    except OSError:
        raise InputError(
            f"{folder} cannot be written any more (is the disk full?); finished points are kept: free some space and "
            "run the same command again"
        ) from None


def _write(page: ResultsPage, folder: Path) -> None:
    results = page.results
    for panel in results.panels:
        rows = results.rows[panel.name]
        write_atomically(folder / f"{panel.name}.csv", rows_to_csv(rows))
        save_figure(
            panel_figure(panel, rows, moment_order=results.moment_orders[panel.distribution]),
            folder,
            panel.name,
        )
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
                save_figure(drawn, folder, f"figure{figure}-{setting.name}-{users}")
    text = page.markdown()
    write_atomically(folder / f"{PAGE}.md", text)
    write_atomically(folder / f"{PAGE}.html", render_html(text))


_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 72rem; margin: 2rem auto;
  padding: 0 1rem; }
p, li { max-width: 46rem; }
h1, h2, h3 { line-height: 1.2; margin-top: 2em; }
h1 { margin-top: 0; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: 14px;
  font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #d0d0d0; padding: .3em .7em; text-align: left; vertical-align: top; }
td:not(:first-child) { min-width: 4.5em; }
th { border-bottom: 2px solid #555; }
img { max-width: 100%; height: auto; }
summary { cursor: pointer; color: #0b5394; margin: .5em 0; }
code { background: #f2f2f2; padding: .1em .25em; border-radius: 3px; }
"""


def render_html(markdown: str) -> str:
    """Render Markdown as a standalone HTML page; its title is the first heading."""
    title = next(line.removeprefix("# ") for line in markdown.splitlines() if line.startswith("# "))
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


Progress = Callable[[PanelPoint], None]


class Reproduction:
    """A run whose arguments, data and folder have been checked; nothing has been computed yet."""

    def __init__(
        self,
        figures: Iterable[str] = (),
        *,
        effort: Effort,
        folder: Path,
        seed: int,
        jobs: int,
        extract: Extract | None = None,
    ) -> None:
        for name, given, least in (("jobs", jobs, 1), ("seed", seed, 0)):
            if given < least:
                raise InputError(f"{name} must be a whole number of at least {least}, not {given}")
        panels = select_panels(figures)
        self.points = tuple(effort.points(panels))
        self._effort, self._jobs, self._extract = effort, jobs, extract
        incomes = load_incomes(panels, extract)
        record_distributions(incomes, extract)  # raises before anything is written
        prints = {name: fingerprint(records) for name, records in incomes.items()}
        self._store = ResultStore(folder, RunSettings(seed=seed, effort=effort, incomes=prints))
        # Income panels of earlier runs stay on the page if their records are available.
        self._incomes = incomes | load_stored_incomes(self._store.incomes, incomes, extract)
        self._distributions = record_distributions(self._incomes, extract)

    def run(self, done: Progress) -> None:
        """Compute the missing points; `done` is called for every point."""
        run_points(self.points, self._distributions, self._effort, self._store, jobs=self._jobs, done=done)

    def publish(self) -> Results:
        """Write CSV files, plots and pages for all complete panels in the folder, of this run or earlier ones."""
        rows = {}
        for panel in PANELS.values():
            of_points = [self._store.rows(point) for point in self._effort.points([panel])]
            if panel.distribution in self._distributions and all(of_points):
                rows[panel.name] = [row for found in of_points for row in found or ()]
        results = Results(
            rows=rows,
            moment_orders={
                name: distribution.moment_order for name, distribution in self._distributions.items()
            },
        )
        page = ResultsPage(
            results=results,
            effort=self._effort,
            seed=self._store.run.seed,
            incomes=self._incomes,
            household=self._extract is not None and self._extract.user == "household",
        )
        write_results(page, self._store.folder)
        return results
