"""The page docs/evidence/realdata.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from realdata.aims import Verdict, not_judged, verdicts
from realdata.law_runs import FAR, SIZES, TRUTH_WITHIN
from realdata.law_tables import law_section
from realdata.other_methods import BETA, DELTA, QUANTILES, RANGE, STEPS
from realdata.plots import COVERAGE, EPSILON, RATIO
from realdata.results import ENOUGH_USERS, Results
from realdata.table_tables import (
    facts_table,
    main_table,
    methods_table,
    ratio_table,
    replace_table,
    rmse_table,
)

PAGE = """# Real data, defaults only

How close `adaptive` comes to the plain mean when you provide only the privacy budget: on {n_tables} real tables by
person, compared with other methods, and on simulated distributions. Bounds, scale and contribution bounds are all
estimated privately. This command writes the page with its tables and plots:

```
make realdata     # about a quarter of an hour; add --quick to python -m realdata for a rough run
```

## Summary

{met} of {all} aims are met. Every case that misses an aim is listed below the table, followed by cases without an aim.
The relation is add-remove, the default, unless stated. Measured with revision {revision}.

{summary}

{misses}

Cases without an aim:

{unjudged}

## Real tables

Each table comes from a package on PyPI and names the person, household or aircraft behind every record. In tables with
one record per person, the row is the person. `*` marks a table with fewer than {enough:,} users, for which there is no
aim. Kurtosis is that of user means; a normal distribution has 3.

Constants were tuned on eight tables (salaries, hits, wages, incomes, visits in the US and of the elderly, cholesterol,
lecture ratings). Results on the others were seen during development.

{facts}

The best bounds in hindsight are chosen by looking at the data, at no privacy cost: bounds on the influence of a user on
either side and, per record, also every pair of contribution bound and bounds, whichever is better, with Laplace
noise at the full epsilon. What is cut off on either side is added in absolute value, so that opposite cuts do not
cancel. No private method knows these bounds. Where its own cuts cancel, its ratio can still be below 1.

![RMSE in multiples of the best bounds in hindsight, one line per table](../img/{ratio_plot})

{main}

RMSE, bias and half width are in percent of the plain mean of the table. `ratio` is RMSE divided by that of hindsight.
`of sampling` is RMSE divided by the standard error of the plain mean as an estimate for a larger population. `coverage`
is the share of 95% intervals that hold the plain mean of the table.

![Coverage and width of 95% intervals, one line per table](../img/{coverage_plot})

{ratios}

### More budget, less error

{rmses}

![RMSE against epsilon, one panel per table](../img/{epsilon_plot})

### The relation replace-user

The same with `neighbors="replace-user"` at epsilon = 1. The number of users is then public. Hindsight is that of the
same relation.

{replaced}

## Beside other methods

RMSE in percent of the plain mean of user means, epsilon = 1. `adaptive` gets only epsilon. OpenDP and CoinPress get
numbers that you would have to guess in practice; CoinPress and Durfee have a constant chosen in hindsight.

{methods}

- **OpenDP** clamps user means to given bounds and adds Laplace noise to their mean (replace-user, public number of
  users). Right bounds (x 1) are the smallest and the largest user mean of the table; x 3 and x 10 stretch them around
  their middle. Nobody knows the right ones without the data, and they reveal two users.
- **CoinPress** (Biswas, Dong, Kamath & Ullman 2020, "CoinPress: practical private mean and covariance estimation",
  univariate) is reimplemented from the paper and was not checked against the authors' code. It gets the true standard
  deviation and the range (-r, r), r = {range:g} times the largest absolute user mean. It satisfies zero-concentrated
  differential privacy; rho is converted at delta = {delta:g}, while `adaptive` has delta = 0. Failure probability
  {beta:g}, a quarter of rho for all steps but the last. Of {steps} steps, the best for each table is shown, chosen in
  hindsight in its favor. Replace-user, public number of users.
- **Durfee** (2023, "Unbounded differentially private quantile and maximum estimation") is reimplemented from the paper
  and was not checked against the author's code; the constants are ours. Two calls find a quantile q of the positive and
  of the negative values without any range (candidates 1.01^i - 1, exponential noise). These are the bounds of a clipped
  mean. Of the budget, 10% counts users, 20% finds each bound, 50% is noise. Of q = {quantiles}, the best for each table
  is shown, chosen in hindsight in its favor. q = 0.99 is mostly the best, but with few users it sometimes finds no end.
  Add-remove.

## Simulated distributions

Mean squared error divided by the plain mean's on the same data sets, epsilon = 1, for the true mean of the
distribution. Standard errors are in parentheses. `medians` compares median squared errors. `far` is the share of
releases more than {far:g} standard errors of the plain mean off. `width` is the median width divided by that of an
interval of 1.96 times the RMSE of the releases on either side. A ratio in bold misses its aim. Where `far` is above 0,
a few wild releases dominate ratio and RMSE, and `width` looks smaller than it is.

Constants were tuned on the distributions of the last tables. Those of the first two were chosen afterwards, and the
aims are judged by them. Since they were first measured, one constant has changed, that of the search beyond ties, for a
distribution of the last tables.

{laws}

## How it is measured

- Real tables: {runs} releases per case at epsilon = 1, {other} at any other. Simulated distributions: {law_runs} data
  sets per case, each released once. The true mean of every data set is drawn anew, within {within:g} of zero before
  shift and scale.
- Every release takes the path of `hubermean.mean_of_user_means` (per user) or of a mean over records (per record) after
  the data is read, with seeded noise. The same code gives the same page, except for OpenDP's noise.
- The aims for n = 1,000 apply to n = 4,500 as well.
- Refused runs are counted in `released`; errors are those of what was released. Numbers of users: {sizes} for simulated
  distributions; 90% zeros from 4,500 on.
- The code is in `benchmarks/realdata`: `tables.py` loads, `hindsight.py` finds the best bounds, `aims.py` holds the
  aims.
"""


def write_page(path: Path, results: Results, *, revision: str) -> None:
    judged = verdicts(results)
    at_one = results.measured(epsilon=1.0)
    other = [row.runs for row in results.measured() if row.epsilon != 1.0]
    runs = sorted({row.runs for row in results.laws})
    text = PAGE.format(
        n_tables=len(results.facts),
        met=sum(verdict.word == "met" for verdict in judged),
        all=len(judged),
        summary=_summary(judged),
        misses=_misses(judged),
        unjudged="\n".join(f"- {sentence}" for sentence in not_judged(results)),
        revision=revision,
        enough=ENOUGH_USERS,
        facts=facts_table(results),
        ratio_plot=RATIO,
        coverage_plot=COVERAGE,
        epsilon_plot=EPSILON,
        main=main_table(results),
        ratios=ratio_table(results),
        rmses=rmse_table(results),
        replaced=replace_table(results),
        methods=methods_table(results),
        range=RANGE,
        delta=DELTA,
        beta=BETA,
        steps=_either(STEPS),
        quantiles=_either(QUANTILES),
        laws=law_section(results),
        far=FAR,
        runs=at_one[0].runs,
        other=other[0],
        law_runs=_either(runs),
        within=TRUTH_WITHIN,
        sizes=_either([f"{size:,}" for size in SIZES], "and"),
    )
    # What was always refused has no error.
    path.write_text(re.sub(r"\| \**nan%?\** (?=\|)", "| - ", text))


def _either(values: Sequence[object], word: str = "or") -> str:
    *most, last = (str(value) for value in values)
    return f"{', '.join(most)} {word} {last}" if most else last


def _summary(judged: Sequence[Verdict]) -> str:
    lines = [f"| {verdict.aim} | {verdict.found} | {verdict.word} |" for verdict in judged]
    return "\n".join(["| aim | found | |", "|---|---|---|", *lines])


def _misses(judged: Sequence[Verdict]) -> str:
    listed = [f"- *{verdict.aim}*: {'; '.join(verdict.misses)}." for verdict in judged if verdict.misses]
    return (
        "\n".join(["Cases beyond an aim's limit, also where the aim as a whole is met:", "", *listed])
        if listed
        else ""
    )
