"""Tables and notes of the results page."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from hubermean.accounting.gaussian import gaussian_alpha, gaussian_delta
from hubermean_experiments.figures.claims import PAIRS, Measurement, PaperClaim
from hubermean_experiments.figures.curves import Results, Slope, enough_users
from hubermean_experiments.figures.methods import NON_PRIVATE
from hubermean_experiments.figures.panels import DELTA, EPSILON, FAIR, RECORDS_PER_USER, Effort, Panel
from hubermean_experiments.figures.rows import MeanEstimate, ResultRow, format_estimate
from hubermean_experiments.figures.simulation import MIN_RELEASE_PROBABILITY
from hubermean_experiments.incomes.records import IncomeRecords
from hubermean_experiments.paper.constants import printed_constants


def privacy_table(results: Results) -> str:
    """The delta that the printed constants claim and the delta that they give."""
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
                f"{enough / alpha:.2f} times the standard deviation that would suffice"
                if enough > alpha
                else f"{enough / alpha:.2f} times the standard deviation that is required",
            ]
        )
    if any(panel.axis == "gamma" for panel in results.panels):
        rows.append(
            [
                "HLM, unequal users",
                f"{DELTA:g}",
                f"at least {rows[0][2]}",
                "its sensitivity bound is too small as well (docs/concepts/paper.md, item 3)",
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
                f"{1 / (4 * part):.1f} times the noise that basic composition requires",
            ]
        )
    return markdown_table(["method", "claimed delta", "actual delta", "noise"], rows)


def format_verdict(claim: PaperClaim) -> str:
    return f"**{claim.verdict}**" + (f", {claim.qualifier}" if claim.qualifier else "")


def format_fair_measurements(claim: PaperClaim) -> str:
    """The measurements of the fair setting, by pair."""
    return "<br>".join(
        f"{one.pair}, n = {one.users:,}: {_yes_or_no(one)}, {one.value}"
        for pair in PAIRS
        for one in claim.measurements
        if (one.pair, one.setting) == (pair, FAIR.name)
    )


def claim_details(claim: PaperClaim) -> str:
    rows = [
        [one.setting, f"{one.users:,}", one.pair, one.value, _yes_or_no(one)] for one in claim.measurements
    ]
    names = ["setting", "n", "pair", "measured", "supports the claim"]
    start = wrap_paragraph(
        f"**{claim.name}.** {claim.says} {format_verdict(claim)}. Measured: {claim.measured}."
    )
    return f"{start}\n\n{markdown_table(names, rows)}"


def _yes_or_no(found: Measurement) -> str:
    return "yes" if found.supports else "no"


def conditions_table(results: Results) -> str:
    """The smallest n that the conditions of the theorems allow."""
    rows = []
    for panel in results.panels:
        assumed = {"mse": "R_c = T", "heavytail": "T = 1", "mseunb": ""}[panel.theorem]
        for x in (1, 2, 5, 10) if panel.theorem == "mseunb" else (1,):
            about = f"gamma = {x}" if panel.theorem == "mseunb" else f"d = {panel.columns}, {assumed}"
            row = [f"Thm {panel.theorem}, {about}", f"{_least(partial(_suffice, panel, x)):,}"]
            if row not in rows:
                rows.append(row)
    return markdown_table(["condition", "smallest n"], sorted(rows)) if rows else ""


def _suffice(panel: Panel, x: int, users: int) -> bool:
    return enough_users(panel, users, x)


def _least(enough: Callable[[int], bool]) -> int:
    """The smallest sufficient n, to one percent."""
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
        cells = [_format_slope(one.found.get(name)) for name in methods]
        rows.append([one.panel, one.setting, one.users, f"{one.bound:.2f} ({one.theorem})", *cells])
    return markdown_table(["panel", "setting", "n", "bound (theorem)", *methods], rows)


def _format_slope(found: MeanEstimate | None) -> str:
    return "" if found is None or math.isnan(found.value) else f"{found.value:.2f} ± {found.error:.2f}"


def panel_table(results: Results, panel: Panel, users: int, setting: str) -> str:
    rows = [row for row in results.rows[panel.name] if (row.users, row.setting) == (users, setting)]
    xs = sorted({row.x for row in rows})
    found = {(row.method, row.x): row for row in rows}
    methods = [name for name in dict.fromkeys(row.method for row in rows) if name != NON_PRIVATE]
    variable = "m" if panel.axis == "records" else "gamma"
    ratios = [["*non-private MSE*", *(f"{found[NON_PRIVATE, x].non_private:.3g}" for x in xs)]]
    ratios += [[name, *(_format_ratio(found.get((name, x))) for x in xs)] for name in methods]
    errors = [[name, *(_format_mse(found.get((name, x))) for x in xs)] for name in [NON_PRIVATE, *methods]]
    heads = [f"{variable} = {x:,}" for x in xs]
    return f"""**n = {users:,}, {setting} setting**

{markdown_table(["", *heads], ratios)}

<details><summary>Mean squared errors, panel {panel.name}, n = {users:,}, {setting} setting</summary>

{markdown_table(["", *heads], errors)}

</details>"""


def _format_ratio(row: ResultRow | None) -> str:
    if row is None or row.ratio is None or row.ratio_error is None:
        return "refuses" if row is not None else ""
    often = f" ({100 * row.released:.1f}%)" if row.released < 0.9995 else ""
    return format_estimate(MeanEstimate(value=row.ratio, error=row.ratio_error)) + often


def _format_mse(row: ResultRow | None) -> str:
    if row is None or row.mse is None or row.mse_error is None:
        return ""
    return f"{row.mse:.3e} ± {row.mse_error:.1e}"


def tuning_table(rows: Sequence[ResultRow]) -> str:
    """Compare both ways of tuning."""
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
    return markdown_table([*heads, "threshold, separate", "threshold, same"], cells)


def wrap_paragraph(text: str, *, indent: str = "") -> str:
    """Wrap a paragraph at 118 characters."""
    return textwrap.fill(
        " ".join(text.split()),
        width=118,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(heads), line("---" for _ in heads), *(line(row) for row in rows)])


_METHODS = {
    "HLM as printed": """`hubermean_experiments.paper.paper_literal`: Definition G or Gunb, eq. S, eq. param,
    m_c = gamma N / n, k_0 = floor(n / (8 gamma)); docs/concepts/paper.md lists every deviation.""",
    "HLM, local noise": "the same with noise for G(D, 0) in place of S(D). Not private.",
    "WME as printed": """`hubermean_experiments.paper.two_stage`: half of epsilon selects a bin, the other half adds
    Laplace noise; for d = 3 a random rotation, and epsilon / sqrt(8 d ln(1/delta)) for each coordinate. Users of
    unequal size have weight m_i / N.""",
    "winsorized, smooth-sensitivity, inverse-sensitivity, propose-test-release": """mechanisms of hubermean, with
    thresholds tuned like T and tau. In figure 2 counts are public, as in the paper, users are weighted by their number
    of records, and all users have the same threshold, where HLM has T_i.""",
    "auto": """gets epsilon, delta and the data only. In figure 2 it is run twice: with public counts, like all others,
    and with private counts.""",
    "clipped, right bounds": """an oracle that gets, for each data set, the typical range of user means around the true
    mean. Libraries that require bounds need this, and no analyst knows it.""",
}


def write_notes(effort: Effort, incomes: Mapping[str, IncomeRecords], *, household: bool) -> Iterator[str]:
    yield "## Method"
    reach, thresholds = FAIR.mean_range or 0.0, effort.thresholds
    notes = {
        "Users": f"""figure 1 has n users with m records each. Figure 2 has s_i = ceil(N (i/n)^gamma), m_i = s_i -
        s_(i-1), with N = {RECORDS_PER_USER} n; the paper states neither n nor N. For gamma > 1 some m_i are 0, and
        those users are left out.""",
        "Paper setting": """the distribution of the paper: its mean is 0 for uniform and Gaussian records, 1/3 for
        Lomax, 1 for exponential records, and that of the data for incomes. The public radius of each column is 1 (2 for
        exponential records; for incomes the power of ten above mean and standard deviation).""",
        "Fair setting": f"""the same records, shifted so that the mean of each column is uniform on -{reach:g} to
        {reach:g} (for incomes times that power of ten), drawn anew for each data set. The public radius is
        {2 * reach:g}. It is R_c of HLM (sqrt(d) times as much for all columns) and B of WME.""",
        **_METHODS,
        "Thresholds": f"""chosen from {len(thresholds)} values, {thresholds[0]:g} to {thresholds[-1]:g} standard
        deviations of a user mean (of a record, for HLM in figure 2), on up to {effort.tuning[-1]} data sets that are
        not used again. `propose-test-release` must release with a probability of
        {100 * MIN_RELEASE_PROBABILITY:g}%.""",
    }
    drawn = "the records of one household for each user" if household else "all records for every user"
    for name, records in incomes.items():
        size = f"{len(records.values):,} records, {records.missing:,} left out, {records.top_coded:,} at the largest"
        source = html.escape(records.source, quote=False)  # it may quote a codebook
        notes[name.capitalize()] = (
            f"{source} {size}. Drawn with replacement from {drawn}. License: {records.license}."
        )
    yield "\n".join(f"- {wrap_paragraph(f'**{name}**: {note}', indent='  ')}" for name, note in notes.items())
