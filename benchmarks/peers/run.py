"""hubermean beside OpenDP, PipelineDP and diffprivlib: excess error at epsilon = 1, bounds right or too wide.

    make peers      # or: python -m peers.run [--quick] [--markdown docs/evidence/peers.md]

Every peer runs in an environment of its own (benchmarks/peers/runners/make_environments.py) and sees the same data sets
as hubermean, through files. The excess is what the squared error against the true mean has above the non-private
mean's, in units of the latter. Each peer is compared with hubermean under the neighbor relation that its guarantee is
for. A peer without an environment is named and left out. One process at a time.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hubermean as hm
from accuracy.draws import Case, Floats
from peers.data import WIDTHS, DataSets
from peers.excess import Comparison, Estimate, excess_scores
from peers.report import print_tables, write_markdown
from peers.result import FAR, PEERS, REPLACED, Comparisons, Missing, Ours, Peer, Row
from peers.runners.make_environments import HERE as RUNNERS
from peers.runners.make_environments import is_ready, python_of

EPSILON = 1.0
USERS = (1_000, 10_000)
RECORDS = (1, 10)
COMPARED_LAWS = ("Gaussian", "Lomax(4)")
QUICK_RUNS, QUICK_RELEASES = 50, 2


@dataclass(frozen=True, kw_only=True)
class Released:
    """What everybody released: per contestant and case an array of shape (widths, data sets, releases)."""

    cases: Sequence[DataSets]
    ours: Mapping[Ours, Sequence[Floats]]
    theirs: Mapping[Peer, Sequence[Floats]]

    def rows(self) -> list[Row]:
        return [
            self._row(peer, which, width)
            for peer in self.theirs
            for which in range(len(self.cases))
            for width in range(len(WIDTHS))
        ]

    def _row(self, peer: Peer, which: int, width: int) -> Row:
        data = self.cases[which]
        theirs = _scores(self.theirs[peer][which], data, width, same_bounds=True)
        same_bounds, replaced, no_bounds = (
            _scores(self.ours[ours][which], data, width, same_bounds=ours.same_bounds)
            for ours in (peer.same_bounds, REPLACED, peer.no_bounds)
        )
        released = self.ours[peer.no_bounds][which][width]
        return Row(
            peer=peer,
            case=data.case,
            factor=WIDTHS[width],
            theirs=Estimate.of(theirs),
            same_bounds=Estimate.of(same_bounds),
            beside_same_bounds=Comparison.of(theirs, same_bounds),
            replaced=Estimate.of(replaced),
            no_bounds=Estimate.of(no_bounds),
            beside_no_bounds=Comparison.of(theirs, no_bounds),
            refused=float(np.isnan(released).mean()),
            far=int((np.abs(released - data.plain[:, None]) > FAR * data.case.spread).sum()),
        )


def _scores(released: Floats, data: DataSets, width: int, *, same_bounds: bool) -> Floats:
    """The excess by data set, in units of the plain mean's error."""
    clipped = data.clipped[width] if same_bounds else None
    scores = excess_scores(released[width], truth=data.truth, plain=data.plain, clipped=clipped)
    return scores / data.unit


def release_ours(ours: Ours, data: DataSets, releases: int) -> Floats:
    """All releases of one of our contestants; where bounds are not given they cannot matter, so once for all widths."""
    if not ours.same_bounds:
        once = [[_release(ours, means, None) for _ in range(releases)] for means in data.means]
        return np.broadcast_to(np.array(once), (len(WIDTHS), len(data.means), releases))
    released = np.full((*data.low.shape, releases), np.nan)
    for width, which in np.ndindex(data.low.shape):
        if ours == REPLACED and WIDTHS[width] != 1:
            continue
        bounds = (float(data.low[width, which]), float(data.high[width, which]))
        released[width, which] = [_release(ours, data.means[which], bounds) for _ in range(releases)]
    return released


def _release(ours: Ours, means: Floats, bounds: tuple[float, float] | None) -> float:
    """Not a number for a refusal."""
    try:
        release = hm.mean_of_user_means(means, epsilon=EPSILON, neighbors=ours.neighbors, bounds=bounds)
    except hm.NotReleased:
        return float("nan")
    return float(release.values[0])


def release_theirs(peer: Peer, work: Sequence[Path], into: Path, releases: int) -> tuple[list[Floats], str]:
    """(releases by case, version), from the peer's own environment.

    Raises:
        CalledProcessError: the runner failed; what it said is on the terminal.
    """
    into.mkdir()
    command = [str(python_of(peer.key)), str(RUNNERS / f"run_{peer.key}.py")]
    options = ["--epsilon", str(EPSILON), "--releases", str(releases), "--into", str(into)]
    subprocess.run([*command, *options, *map(str, work)], check=True)
    answers, version = [], ""
    for path in work:
        with np.load(into / path.name) as answer:
            answers.append(answer["released"])
            version = str(answer["version"])
    return answers, version


def compare(cases: Sequence[Case], *, runs: int, releases: int) -> Comparisons:
    data = [DataSets.draw(case, runs) for case in cases]
    theirs: dict[Peer, Sequence[Floats]] = {}
    versions, missing = {}, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work = [one.save(folder) for one in data]
        for peer in PEERS:
            if not is_ready(peer.key):
                missing.append(
                    Missing(peer=peer, why="it has no environment; `make peers` makes it where pip can")
                )
                continue
            try:
                with _timed(peer.title):
                    theirs[peer], versions[peer] = release_theirs(peer, work, folder / peer.key, releases)
            except subprocess.CalledProcessError:
                missing.append(Missing(peer=peer, why="its runner failed"))
    ours: dict[Ours, Sequence[Floats]] = {}
    for one in sorted({REPLACED} | {ours for peer in theirs for ours in (peer.same_bounds, peer.no_bounds)}):
        with _timed(str(one)):
            ours[one] = [release_ours(one, sets, releases) for sets in data]
    return Comparisons(
        rows=Released(cases=data, ours=ours, theirs=theirs).rows(),
        versions=versions,
        missing=missing,
        runs=runs,
        releases=releases,
    )


@contextmanager
def _timed(name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=500, help="data sets per case")
    parser.add_argument("--releases", type=int, default=4, help="independent releases per data set")
    parser.add_argument("--users", type=int, nargs="+", default=USERS)
    parser.add_argument("--quick", action="store_true", help="few draws: under a minute, rough")
    parser.add_argument("--markdown", type=Path, help="write the page docs/evidence/peers.md to this file")
    options = parser.parse_args()
    runs, releases = (QUICK_RUNS, QUICK_RELEASES) if options.quick else (options.runs, options.releases)
    cases = [
        Case(law=law, users=users, records=records, columns=1)
        for users in options.users
        for law in COMPARED_LAWS
        for records in RECORDS
    ]
    found = compare(cases, runs=runs, releases=releases)
    print_tables(found)
    if options.markdown:
        write_markdown(options.markdown, found)


if __name__ == "__main__":
    main()
