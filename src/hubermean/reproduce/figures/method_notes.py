"""How a run was done, in words: settings, methods, tuning and data."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping

from hubermean.ingest.incomes import IncomeRecords
from hubermean.reproduce.figures.panels import FAIR, RECORDS_PER_USER, Effort
from hubermean.reproduce.figures.summary_tables import prose
from hubermean.reproduce.figures.tuning import LEAST_CHANCE

_METHODS = {
    "HLM as printed": """`hubermean.reproduce.paper_literal`: Definition G or Gunb, eq. S, eq. param, m_c = gamma N /
    n, k_0 = floor(n / (8 gamma)); docs/paper.md lists every deviation.""",
    "HLM, local noise": "the same with noise for G(D, 0) in place of S(D). Not private.",
    "WME as printed": """`hubermean.reproduce.two_stage`: half of epsilon chooses a bin, Laplace noise; for d = 3 a
    random rotation, and epsilon / sqrt(8 d ln(1/delta)) for each coordinate. Unequal users weigh m_i / N.""",
    "winsorized, smooth, exact, tested": """mechanisms of this package, with thresholds tuned like T and tau. In
    figure 2 counts are public, as in the paper, users weigh like their records, and one threshold serves all users,
    where HLM has T_i.""",
    "auto": """told epsilon, delta and the data. In figure 2 it is run twice, with counts public, as for all others,
    and with counts private.""",
    "clipped, right bounds": """told, for every data set, the range that user means typically span around the true
    mean. Nobody knows that; it is what libraries need that ask for bounds.""",
}


def method_notes(effort: Effort, incomes: Mapping[str, IncomeRecords], *, household: bool) -> Iterator[str]:
    yield "## How it was done"
    spread, thresholds = FAIR.spread or 0.0, effort.thresholds
    notes = {
        "Users": f"""figure 1 has n users with m records each. Figure 2 has s_i = ceil(N (i/n)^gamma), m_i = s_i -
        s_(i-1), with N = {RECORDS_PER_USER} n; the paper gives neither n nor N. For gamma > 1 some m_i are 0, and
        those users take no part.""",
        "Paper setting": """the law as the paper prints it: its mean is 0 for uniform and Gaussian records, 1/3 for
        Lomax, 1 for exponential, and that of the data for incomes. Everybody is told that the mean of each column
        lies within 1 of 0 (2 for exponential records; for incomes the power of ten above mean and deviation).""",
        "Fair setting": f"""the same records, moved so that the mean of each column is drawn evenly from -{spread:g}
        to {spread:g} (for incomes times that power of ten), anew for every data set. Everybody is told that it lies
        within {2 * spread:g} of 0. What is told is R_c of HLM (sqrt(d) times as much for all columns) and B of WME.""",
        **_METHODS,
        "Thresholds": f"""chosen from {len(thresholds)} values, {thresholds[0]:g} to {thresholds[-1]:g} deviations of
        a user mean (of a record, for HLM in figure 2), on up to {effort.tuning[-1]} data sets that are not used
        again. `tested` must release with a chance of {100 * LEAST_CHANCE:g}%.""",
    }
    drawn = "one household's records for each user" if household else "all records, for every user"
    for name, records in incomes.items():
        size = f"{len(records.values):,} records, {records.missing:,} left out, {records.top_coded:,} at the largest"
        source = html.escape(records.source, quote=False)  # it may quote a codebook
        notes[name.capitalize()] = (
            f"{source} {size}. Drawn with replacement from {drawn}. Licence: {records.licence}."
        )
    yield "\n".join(f"- {prose(f'**{name}**: {note}', indent='  ')}" for name, note in notes.items())
