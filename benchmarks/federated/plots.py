"""The plots of docs/evidence/federated.md: accuracy per round, and by share of hostile clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from common.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, STYLE, save
from federated.attacks import DIRECTED
from federated.contestants import CONTESTANTS
from federated.results import Measured, Results
from federated.training import Setting

ROUNDS, WORST = "federated-rounds.svg", "federated-worst.svg"
PLAIN_MEAN = "plain mean"
_LINES = {
    "hubermean, defaults": (BLUE, "-", "o"),
    "hubermean, small clip": (BLUE, "--", "s"),
    "hubermean, Huber center": (PURPLE, "-", "D"),
    "hubermean, adaptive": (BLUE, ":", "^"),
    "Flower, fixed clip": (ORANGE, "-", "o"),
    "Flower, adaptive clip": (RED, "-", "s"),
    "adaptive clip, sign corrected": (ORANGE, ":", "^"),
    "geometric median": (GREEN, "--", "D"),
    "centered clipping": (GREEN, ":", "v"),
    PLAIN_MEAN: (GREY, "--", "x"),
}
assert set(_LINES) == {contestant.name for contestant in CONTESTANTS}


def draw_all(folder: Path, results: Results) -> None:
    if not results.measured:
        return
    with plt.rc_context(STYLE):
        save(_by_round(results, _kinds(results)[0]), folder / ROUNDS)
        save(_by_share(results), folder / WORST)


def _kinds(results: Results) -> list[tuple[str, str, str]]:
    return list(dict.fromkeys((one.images, one.model, one.split) for one in results.settings()))


def _percent(axis: Axes) -> None:
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))


def _by_round(results: Results, kind: tuple[str, str, str]) -> plt.Figure:
    """One panel per share of hostile clients; under each contestant's own worst directed attack."""
    settings = [one for one in results.settings() if (one.images, one.model, one.split) == kind]
    figure, axes = plt.subplots(
        1,
        len(settings),
        figsize=(1.8 + 4.2 * len(settings), 4.4),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for setting, axis in zip(settings, axes[0], strict=True):
        for name, (color, line, _) in _LINES.items():
            row = results.worst(setting, name)
            if row is not None:
                axis.plot(
                    range(1, len(row.rounds) + 1),
                    row.rounds,
                    color=color,
                    linestyle=line,
                    linewidth=1.6,
                    label=name,
                )
        axis.set_title(f"{setting.hostile:.0%} hostile" if setting.hostile else "no attack")
        axis.set_xlabel("round")
        axis.set_ylim(0.0, 1.0)
        _percent(axis)
    axes[0][0].set_ylabel("accuracy on test images")
    _legend(figure, axes[0])
    return figure


def _by_share(results: Results) -> plt.Figure:
    kinds = _kinds(results)
    columns = min(len(kinds), 4)
    lines = -(-len(kinds) // columns)
    figure, grid = plt.subplots(
        lines,
        columns,
        figsize=(2.2 + 3.6 * columns, 0.8 + 3.4 * lines),
        squeeze=False,
        layout="constrained",
    )
    for kind, axis in zip(kinds, grid.flat, strict=False):
        settings = [one for one in results.settings() if (one.images, one.model, one.split) == kind]
        for name in _LINES:
            _draw_shares(axis, results, settings, name)
        axis.set_title(", ".join(kind), fontsize=10)
        axis.set_ylim(_least(results, settings) - 0.02)
        axis.set_xticks([0.0, 0.1, 0.2, 0.4], ["0", "10%", "20%", "40%"])
        axis.set_xlabel("hostile clients")
        _percent(axis)
    for axis in grid.flat[len(kinds) :]:
        axis.set_axis_off()
    grid[0][0].set_ylabel("accuracy, worst directed attack")
    _legend(figure, grid.flat)
    return figure


def _least(results: Results, settings: Sequence[Setting]) -> float:
    """The plain mean may leave the panel, so that the others can be distinguished."""
    rows = [results.worst(setting, name) for setting in settings for name in _LINES if name != PLAIN_MEAN]
    return min((row.mean for row in rows if row is not None), default=0.0)


def _draw_shares(axis: Axes, results: Results, settings: Sequence[Setting], name: str) -> None:
    worst: list[tuple[float, Measured]] = [
        (setting.hostile, row)
        for setting in settings
        if (row := results.worst(setting, name, DIRECTED)) is not None
    ]
    if worst:
        color, line, marker = _LINES[name]
        axis.errorbar(
            [share for share, _ in worst],
            [row.mean for _, row in worst],
            yerr=[row.spread for _, row in worst],
            color=color,
            linestyle=line,
            marker=marker,
            markersize=4,
            linewidth=1.4,
            capsize=2,
            label=name,
        )


def _legend(figure: plt.Figure, axes: Sequence[Axes]) -> None:
    handles: dict[str, object] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        [handles[name] for name in handles],
        list(handles),
        loc="outside right center",
        frameon=False,
        fontsize=9,
    )
