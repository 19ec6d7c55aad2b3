"""The tables of the page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from hubermean.privacy import gaussian_alpha, gaussian_delta
from hubermean.reproduce.constants import printed_constants
from hubermean.reproduce.figures.claims import PAIRS, Claim, Number
from hubermean.reproduce.figures.estimate import Estimate, words
from hubermean.reproduce.figures.methods import NON_PRIVATE
from hubermean.reproduce.figures.panels import DELTA, EPSILON, FAIR, Panel
from hubermean.reproduce.figures.point import Row
from hubermean.reproduce.figures.results import Results
from hubermean.reproduce.figures.slopes import Slope
from hubermean.reproduce.figures.theory import enough_users


def privacy_table(results: Results) -> str:
    """What the printed constants claim and what they give."""
    rows = []
    for dimension in sorted({panel.columns for panel in results.panels}):
        constants = printed_constants(EPSILON, DELTA, dimension=dimension)
        alpha, beta = constants.alpha, constants.beta
        delta = gaussian_delta(EPSILON, alpha=alpha, beta=beta, dimension=dimension)
        enough = gaussian_alpha(EPSILON, DELTA, beta=beta, dimension=dimension)
        rows.append(
            [
                f"HLM, d = {dimension}",
                f"{DELTA:g}",
                f"{delta:.2e}",
                f"{enough / alpha:.2f} times the standard deviation that would do"
                if enough > alpha
                else f"{enough / alpha:.2f} times the standard deviation that it takes",
            ]
        )
    if any(panel.axis == "gamma" for panel in results.panels):
        rows.append(
            [
                "HLM, unequal users",
                f"{DELTA:g}",
                f"at least {rows[0][2]}",
                "its sensitivity bound is too small as well (docs/paper.md, item 3)",
            ]
        )
    rows.append(["WME, d = 1", "0", "0", "as claimed"])
    if any(panel.columns > 1 for panel in results.panels):
        part = EPSILON / math.sqrt(8 * 4 * math.log(1 / DELTA))
        rows.append(
            [
                "WME, d = 3",
                f"{DELTA:g}",
                "0",
                f"4 coordinates of epsilon {part:.3f} each are {4 * part:.2f}-DP without any delta: "
                f"{1 / (4 * part):.1f} times the noise that plain addition asks for",
            ]
        )
    return table(["method", "delta claimed", "delta in fact", "noise"], rows)


def verdict_words(claim: Claim) -> str:
    return f"**{claim.verdict}**" + (f", {claim.qualifier}" if claim.qualifier else "")


def fair_numbers(claim: Claim) -> str:
    """The numbers of the fair setting, pair by pair."""
    return "<br>".join(
        f"{one.pair}, n = {one.users:,}: {_yes(one)}, {one.value}"
        for pair in PAIRS
        for one in claim.numbers
        if (one.pair, one.setting) == (pair, FAIR.name)
    )


def claim_details(claim: Claim) -> str:
    rows = [[one.setting, f"{one.users:,}", one.pair, one.value, _yes(one)] for one in claim.numbers]
    names = ["setting", "n", "pair", "measured", "bears it out"]
    start = prose(f"**{claim.name}.** {claim.says} {verdict_words(claim)}. Measured: {claim.measured}.")
    return f"{start}\n\n{table(names, rows)}"


def _yes(number: Number) -> str:
    return "yes" if number.true else "no"


def conditions_table(results: Results) -> str:
    """How few users the theorems could do with."""
    rows = []
    for panel in results.panels:
        assumed = {"mse": "R_c = T", "heavytail": "T = 1", "mseunb": ""}[panel.theorem]
        for x in (1, 2, 5, 10) if panel.theorem == "mseunb" else (1,):
            about = f"gamma = {x}" if panel.theorem == "mseunb" else f"d = {panel.columns}, {assumed}"
            row = [f"Thm {panel.theorem}, {about}", f"{_least(partial(_suffice, panel, x)):,}"]
            if row not in rows:
                rows.append(row)
    return table(["condition", "smallest n"], sorted(rows)) if rows else ""


def _suffice(panel: Panel, x: int, users: int) -> bool:
    return enough_users(panel, users, x)


def _least(enough: Callable[[int], bool]) -> int:
    """To one percent."""
    n = 16
    while not enough(n):
        n = math.ceil(n * 1.01)
    return n


def slope_table(group: Sequence[Slope]) -> str:
    methods = [
        name for name in dict.fromkeys(name for one in group for name in one.found) if name != NON_PRIVATE
    ]
    rows = []
    for one in group:
        cells = [_slope_words(one.found.get(name)) for name in methods]
        rows.append([one.panel, one.setting, one.users, f"{one.bound:.2f} ({one.theorem})", *cells])
    return table(["panel", "setting", "n", "bound (theorem)", *methods], rows)


def _slope_words(found: Estimate | None) -> str:
    return "" if found is None or math.isnan(found.value) else f"{found.value:.2f} ± {found.error:.2f}"


def panel_table(results: Results, panel: Panel, users: int, setting: str) -> str:
    rows = [row for row in results.rows[panel.name] if (row.users, row.setting) == (users, setting)]
    xs = sorted({row.x for row in rows})
    found = {(row.method, row.x): row for row in rows}
    methods = [name for name in dict.fromkeys(row.method for row in rows) if name != NON_PRIVATE]
    variable = "m" if panel.axis == "records" else "gamma"
    ratios = [["*non-private MSE*", *(f"{found[NON_PRIVATE, x].non_private:.3g}" for x in xs)]]
    ratios += [[name, *(_ratio_words(found.get((name, x))) for x in xs)] for name in methods]
    errors = [[name, *(_mse_words(found.get((name, x))) for x in xs)] for name in [NON_PRIVATE, *methods]]
    heads = [f"{variable} = {x:,}" for x in xs]
    return f"""**n = {users:,}, {setting} setting**

{table(["", *heads], ratios)}

<details><summary>Mean squared errors, panel {panel.name}, n = {users:,}, {setting} setting</summary>

{table(["", *heads], errors)}

</details>"""


def _ratio_words(row: Row | None) -> str:
    if row is None or row.ratio is None or row.ratio_error is None:
        return "refuses" if row is not None else ""
    often = f" ({100 * row.released:.1f}%)" if row.released < 0.9995 else ""
    return words(Estimate(value=row.ratio, error=row.ratio_error)) + often


def _mse_words(row: Row | None) -> str:
    if row is None or row.mse is None or row.mse_error is None:
        return ""
    return f"{row.mse:.3e} ± {row.mse_error:.1e}"


def tuning_table(rows: Sequence[Row]) -> str:
    """Both ways of tuning, side by side."""
    cells = [
        [
            row.panel,
            row.setting,
            f"{row.users:,}",
            str(row.x),
            row.method,
            *(f"{number:.3g}" for number in (row.ratio, (row.same_draws_mse or 0.0) / row.non_private)),
            *(f"{number:.3g}" for number in (row.factor, row.same_draws_factor)),
        ]
        for row in rows
    ]
    heads = ["panel", "setting", "n", "x", "method", "separate draws", "same draws"]
    return table([*heads, "threshold, separate", "threshold, same"], cells)


def prose(text: str, *, indent: str = "") -> str:
    """A paragraph, wrapped."""
    return textwrap.fill(
        " ".join(text.split()),
        width=118,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(heads), line("---" for _ in heads), *(line(row) for row in rows)])
