"""One look for all figures: light, readable in grey and by color-blind people, the same bytes on every run."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

# Okabe & Ito (2008).
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#555555"
DARK_ORANGE = "#9A6700"  # for text: the other is too light to read on white

STYLE = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.hashsalt": "hubermean",
    "lines.linewidth": 2.0,
    "lines.markersize": 5.5,
}


def save(figure: Figure, path: Path) -> None:
    """Without a date, so that a figure changes only when what it shows does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    if path.suffix == ".svg":  # no blanks at line ends
        path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
