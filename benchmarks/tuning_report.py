"""The page docs/tuning.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from draws import RADIUS
from page import numbered
from tuning_part import Effort, Part

PAGE = """# Nothing told but epsilon

How good `tuned` is, the mechanism for values about which nothing is known: no bounds, no threshold, no radius, no cap
on records; epsilon = 1 unless stated. Targets that are missed are marked as plainly as those that are met. This page
is written by

```
make tuning     # about half an hour; python benchmarks/tuning.py --quick for a rough one
```

## What it says

{says}

## How it is measured

- {runs:,} data sets per case, twice as many against hostile users. Each is released once per row through the public
  function `hubermean.mean_of_user_means`, with noise from the operating system, so the page differs a little each time
  it is written. Rows of one case share their data sets.
- The true mean is drawn anew for every data set, uniform in [-{half:g}, {half:g}], so no grid is lucky; then the data
  are left as they are, shifted by a million, or scaled by 1e-6 or 1e6.
- Laws: uniform and Gaussian (light), Lomax(4) and log-normal(1) (heavy). All but Gaussian records are drawn one by one,
  so a mean of a hundred is not quite Gaussian. Log-normal records are in units of their deviation.
- The denominator is the plain mean's error by its formula, sigma^2/(n m). The luck of the draws is taken out by
  regression on the plain mean's own error, whose expectation that is. `paired` is the ratio of two averages over the
  same draws and `medians` the ratio of two medians. Standard errors are in brackets; those of medians and widths by the
  bootstrap.
- Refusals are counted (`released`), errors are those of what was released. A series that begins with twenty refusals is
  not continued.
- A verdict is `close` where the target is within two standard errors.

{sections}
"""


def write_markdown(
    path: Path, found: Mapping[str, Sequence[Any]], parts: Sequence[Part], effort: Effort
) -> None:
    page = PAGE.format(
        says=numbered(sentence for part in parts for sentence in part.says(found[part.name])),
        runs=effort.runs,
        half=RADIUS / 2,
        sections="\n\n".join(part.section(found[part.name]) for part in parts),
    )
    path.write_text(page)
