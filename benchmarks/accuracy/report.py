"""How the accuracy benchmark shows its results: lines for a terminal, and the page docs/evidence/accuracy.md."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from accuracy.contestants import FAR, SHARES
from accuracy.draws import RADIUS
from accuracy.result import Result
from common.page import error_of, number, numbered, table_heading, table_line, verdict, with_error

BESIDE = ("winsorized", "literal", "clipped")

PAGE = """# Accuracy

Mean squared error against the true mean, divided by that of the non-private mean of user means, at epsilon = 1. A ratio
of 1 is as good as no privacy. This command writes the page:

```
make accuracy     # about half an hour; python -m accuracy.run --quick for a rough run
```

## Summary

{says}

## How it is measured

- {runs:,} data sets per case. Thresholds are tuned on up to {tuning} others, over a grid with steps of 2^(1/2), then
  2^(1/4) around the best. A threshold is rated by its error plus one standard error. All mechanisms are tuned alike and
  see the same data sets. `T` is in standard deviations of a user mean.
- `propose-test-release` also tunes its public `share` over {shares}. Choices that release in less than 99.5% of the
  tuning runs, less one standard error, are excluded. Its errors are those of what was released.
- The true mean is uniform in [-{half:g}, {half:g}] per column, so no grid of bins is favored. All mechanisms get the
  radius {radius:g}; `clipped` uses it as bounds.
- The denominator is the formula d sigma^2/(n m). Regression on the plain mean's own error removes the luck of the data
  sets. `paired` is the ratio of two averages over the same data sets and `formula` the ratio without regression: the
  same quantity with more scatter. Standard errors are in parentheses.
- The noise of `inverse-sensitivity`, `propose-test-release` and the literal paper is averaged over its distribution;
  that of the others is sampled once per data set. `drawn` is the ratio with one sample per data set, as a check.
- `far` is the probability of an answer more than {far:g} standard deviations of a user mean off. It follows from the
  output distribution of `inverse-sensitivity`; {runs:,} samples would not show it. The ratio leaves such answers out,
  and `with far` includes them. For `winsorized` only samples exist: a ratio in the thousands means that it
  sometimes chose a wrong bin.
- delta is 0 for `inverse-sensitivity`, `winsorized` (WME) and `clipped` in one column, 1e-5 in three. The literal paper
  runs with delta = 1e-5, which it does not satisfy in one column: its constants give 1.28e-3
  ([the paper and this package](../concepts/paper.md)).
- A verdict is `close` if the target is within two standard errors.

## One column: `inverse-sensitivity`

{exact}

## Three columns, delta = 1e-5: `propose-test-release`

{tested}
"""


def at(one: Result) -> str:
    """The tuned threshold, in deviations of a user mean."""
    return "" if one.factor is None else f" @{one.factor:.2g}"


def print_header(runs: int, tuning: int) -> None:
    print(
        f"MSE over the non-private mean's (standard error) @ tuned threshold in deviations of a user mean.\n"
        f"epsilon = 1, replace-user, {runs} runs, thresholds tuned on up to {tuning} other draws, radius {RADIUS:g}, "
        f"true mean uniform within half of it.\n"
        f"delta = 0 for exact, winsorized and clipped in one column; 1e-5 for everything in three columns.\n"
        f"literal: the paper as printed for delta = 1e-5, which it does NOT keep in one column (1.28e-3; "
        f"docs/concepts/paper.md).\n"
        f"clipped: bounds are the radius. 'far': chance of an answer more than {FAR:g} deviations off; 'with far': the "
        f"ratio with those counted.\n"
        f"'close': the target is within two standard errors.\n"
    )
    print(
        f"{'users':>6} {'law':<9}{'m':>4}  d {'mechanism':<10}{'ratio':>15} {'at':<6}{'target':>7}  {'verdict':<12}"
        f"{'released':<9}{'far':>8}{'with far':>9}  " + "".join(f"{name:>24}" for name in BESIDE)
    )


def print_row(results: Sequence[Result]) -> None:
    for columns in sorted({one.columns for one in results}):
        first, *others = (one for one in results if one.columns == columns)
        share = f"/{first.share:g}" if first.share is not None else ""
        cells = "".join(f"{with_error(one.ratio, one.error) + at(one):>24}" for one in others)
        far, total = (f"{first.far:.0e}", number(first.total)) if math.isfinite(first.far) else ("", "")
        print(
            f"{first.users:>6,} {first.law:<9}{first.records:>4}  {columns} {first.mechanism:<10}"
            f"{with_error(first.ratio, first.error):>15}{at(first) + share:<7}"
            f"{'' if first.target is None else format(first.target, 'g'):>7}  "
            f"{verdict(first.met, close=first.close):<12}"
            f"{first.chance:<9.2%}{far:>8}{total:>9}  {cells}",
            flush=True,
        )


def write_markdown(path: Path, results: Sequence[Result], *, runs: int, tuning: int) -> None:
    exact = [one for one in results if one.mechanism == "inverse-sensitivity"]
    tested = [one for one in results if one.mechanism == "propose-test-release"]
    page = PAGE.format(
        says=numbered(_sentences(results, exact, tested)),
        runs=runs,
        tuning=tuning,
        shares=", ".join(f"{share:g}" for share in SHARES),
        half=RADIUS / 2,
        radius=RADIUS,
        far=FAR,
        exact="\n".join(
            [
                *_heading("inverse-sensitivity", "far", "with far"),
                *(_line(one, results, [f"{one.far:.0e}", number(one.total)]) for one in exact),
            ]
        ),
        tested="\n".join(
            [
                *_heading("propose-test-release", "share", "released"),
                *(_line(one, results, [f"{one.share:g}", f"{one.chance:.2%}"]) for one in tested),
            ]
        ),
    )
    path.write_text(page)


def _heading(name: str, *own: str) -> list[str]:
    cells = [
        "n",
        "distribution",
        "m",
        f"`{name}`",
        "T",
        "target",
        "verdict",
        "paired",
        "formula",
        "drawn",
        *own,
        *BESIDE,
    ]
    return table_heading(cells, left=("distribution", "verdict"))


def _line(one: Result, results: Sequence[Result], own: Sequence[str]) -> str:
    key = (one.law, one.users, one.records, one.columns)
    beside = {
        other.mechanism: with_error(other.ratio, other.error)
        for other in results
        if (other.law, other.users, other.records, other.columns) == key
    }
    cells = [
        f"{one.users:,}",
        one.law,
        str(one.records),
        f"**{number(one.ratio)}** ({error_of(one.error)})",
        f"{one.factor:.2g}",
        "" if one.target is None else f"{one.target:g}",
        verdict(one.met, close=one.close),
        with_error(one.paired, one.paired_error),
        with_error(one.formula, one.formula_error),
        with_error(one.drawn, one.drawn_error),
        *own,
        *(beside[name] for name in BESIDE),
    ]
    return table_line(cells)


def _sentences(results: Sequence[Result], exact: Sequence[Result], tested: Sequence[Result]) -> Iterable[str]:
    """Five, each from the numbers."""
    if exact:
        usual = [one for one in exact if one.law == "Gaussian" and one.records == 10]
        yield (
            f"`inverse-sensitivity`, in the worst case over distributions and m: {_per_size(exact, max)}; for "
            f"Gaussian records, ten per user: "
            f"{_per_size(usual, max)}."
        )
    if tested:
        yield (
            f"`propose-test-release` in three columns, in the worst case: {_per_size(tested, max)}; "
            f"released in at least "
            f"{min(one.chance for one in tested):.2%} of runs."
        )
    beside = {name: [one for one in results if one.mechanism == name and one.columns == 1] for name in BESIDE}
    medians = "; ".join(
        f"{name}: {_per_size(found, statistics.median)}" for name, found in beside.items() if found
    )
    yield f"The others in one column, the median over distributions and m: {medians}."
    missed = [one for one in results if one.met is False]
    judged = [one for one in results if one.met is not None]
    names = "; ".join(
        f"{one.mechanism}, n = {one.users:,}, {one.law}, m = {one.records}: {with_error(one.ratio, one.error)} "
        f"for {one.target:g}, released {one.chance:.2%}"
        for one in missed
    )
    met = f"{len(judged) - len(missed)} of {len(judged)} targets are met"
    yield f"{met}; missed: {names}." if missed else f"{met}."
    if exact:
        worst = max(exact, key=lambda one: one.far)
        others = max((one.far for one in exact if one.users > worst.users), default=0.0)
        yield (
            f"With {worst.users:,} users `inverse-sensitivity` has a chance of up to {worst.far:.0e} to "
            f"answer anywhere within the "
            f"radius, which a thousand runs do not show and which alone brings the expected ratio to "
            f"{number(max(one.total for one in exact))} at worst; a smaller radius or more users help (with more "
            f"users here that chance is at most {others:.0e})."
        )


def _per_size(results: Sequence[Result], of: Callable[[Sequence[float]], float]) -> str:
    sizes = sorted({one.users for one in results})
    return ", ".join(
        f"{number(of([one.ratio for one in results if one.users == size]))} at n = {size:,}" for size in sizes
    )
