"""From what was asked for to files: `hubermean reproduce` without its words on the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from hubermean.errors import InputError
from hubermean.reproduce.figures.incomes import Extract, fingerprint, incomes_before, incomes_for, laws_of
from hubermean.reproduce.figures.panels import PANELS, Effort, Point, chosen_panels
from hubermean.reproduce.figures.publish import publish
from hubermean.reproduce.figures.results import Results
from hubermean.reproduce.figures.run import run_points
from hubermean.reproduce.figures.store import Run, Store
from hubermean.reproduce.figures.summary import Page

Progress = Callable[[Point], None]


class Reproduction:
    """A run that is known to be possible: data are read and its folder is claimed, nothing has been computed."""

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
        panels = chosen_panels(figures)
        self.points = tuple(effort.points(panels))
        self._effort, self._jobs, self._extract = effort, jobs, extract
        incomes = incomes_for(panels, extract)
        laws_of(incomes, extract)  # refused before anything is written
        prints = {name: fingerprint(records) for name, records in incomes.items()}
        self._store = Store(folder, Run(seed=seed, effort=effort, incomes=prints))
        # Panels of incomes that were found before stay on the page, if their records can be had.
        self._incomes = incomes | incomes_before(self._store.incomes, incomes, extract)
        self._laws = laws_of(self._incomes, extract)

    def run(self, done: Progress) -> None:
        """Compute what is missing; `done` hears of every point."""
        run_points(self.points, self._laws, self._effort, self._store, jobs=self._jobs, done=done)

    def publish(self) -> Results:
        """Write CSV files, plots and pages of everything in the folder that is whole, asked for now or before."""
        rows = {}
        for panel in PANELS.values():
            of_points = [self._store.rows(point) for point in self._effort.points([panel])]
            if panel.law in self._laws and all(of_points):
                rows[panel.name] = [row for found in of_points for row in found or ()]
        results = Results(
            rows=rows, moment_orders={name: law.moment_order for name, law in self._laws.items()}
        )
        page = Page(
            results=results,
            effort=self._effort,
            seed=self._store.run.seed,
            incomes=self._incomes,
            household=self._extract is not None and self._extract.user == "household",
        )
        publish(page, self._store.folder)
        return results
