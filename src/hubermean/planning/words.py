"""The text of a plan: shared by its repr, its notebook table and its table on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hubermean.mechanisms.registry import REGISTRY
from hubermean.types.request import DEFAULT_NEIGHBORS, Neighbors

if TYPE_CHECKING:
    from hubermean.planning.plan import Plan, PlanRow


_MOST_NOISE = 0.25  # of the radius: with more, a release says hardly more than the radius does


def format_number(value: float) -> str:
    """Format a number with three significant digits."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def format_ratio(value: float) -> str:
    """Format an error relative to the non-private one; small excesses get more digits."""
    if value >= 10_000:
        return f"{value:.2g}"
    return f"{value:.3f}" if value < 1.1 else f"{value:.2f}" if value < 100 else format_number(value)


def list_headings(plan: Plan) -> list[str]:
    """Return the headings of the table."""
    layout = ["columns"] if plan.setting.columns > 1 else []
    return ["mechanism", *layout, "threshold", "noise", "error", "ratio"]


def list_rows(plan: Plan) -> list[list[str]]:
    """Return the cells of the table, one row per mechanism; an arrow marks what `auto` would choose."""
    return [_cells(row, layout=plan.setting.columns > 1, best=row is plan.best) for row in plan.rows]


def _cells(row: PlanRow, *, layout: bool, best: bool) -> list[str]:
    name = f"{'→' if best else ' '} {row.mechanism}"
    threshold = "-" if row.threshold is None else format_number(row.threshold)
    cells = [
        name,
        *(["each" if row.layout == "column by column" else row.layout] if layout else []),
        threshold,
    ]
    if row.reason is not None:
        return [*cells, "-", "-", "-"]
    noise = max(row.noise)
    return [*cells, format_number(noise), format_number(row.error), format_ratio(row.over_non_private)]


def format_title(plan: Plan) -> str:
    """Return the public parameters in one line."""
    setting = plan.setting
    budget = f"epsilon = {setting.epsilon:g}" + (f", delta = {setting.delta:g}" if setting.delta else "")
    width = f", {setting.columns:,} columns" if setting.columns > 1 else ""
    users = f"{setting.n_users:,} user{'' if setting.n_users == 1 else 's'}"
    return f"{users}{width}, {budget}, {setting.neighbors.value}, per {setting.per}"


def list_notes(plan: Plan) -> list[str]:
    """Return sentences on what the numbers mean."""
    setting = plan.setting
    lines = [
        f"Predicted for user means with standard deviation {format_number(setting.scale)} and a mean within "
        f"{format_number(setting.reach)} of 0. Without privacy the error is "
        f"{format_number(setting.non_private_error)}; the ratio is relative to it."
    ]
    if setting.neighbors is Neighbors.ADD_REMOVE:
        lines.append(
            "The number of users is private: the plan uses your estimate, a release the number it measures."
        )
    if plan.best is None:
        lines.append("'auto' would refuse a release with these parameters.")
    assumes = [name for name in ("threshold", "radius") if getattr(setting, name) is None]
    if assumes and any(
        row.reason is None and "threshold" in REGISTRY[row.mechanism].needs for row in plan.rows
    ):
        lines.append(
            "Mechanisms that need a threshold and a radius are shown as if you knew them. 'auto' uses them only if "
            f"you give both; here it has no {' and no '.join(assumes)}."
        )
    candidates = setting.candidates()
    for row in plan.rows:
        if row.reason is not None:
            continue
        needs = REGISTRY[row.mechanism].needs
        if "radius" in needs and max(row.noise) > _MOST_NOISE * setting.reach:
            lines.append(
                f"{row.mechanism}: of no use here, its noise of {format_number(max(row.noise))} would hide a mean that "
                f"is known to lie within {format_number(setting.reach)} of 0; raise epsilon, or release fewer columns."
            )
        elif row.mechanism not in candidates:
            if not needs:
                lines.append(
                    f"{row.mechanism}: needs no public parameters; 'auto' uses it where others lack theirs."
                )
        elif plan.best is not None and row.error < plan.best.error:
            lines.append(f"{row.mechanism}: about as good as {plan.best.mechanism}, which 'auto' prefers.")
    return lines


def list_reasons(plan: Plan) -> list[str]:
    """Return sentences on why a mechanism cannot serve, and what it needs."""
    return [
        f"{row.mechanism}: {row.reason.removeprefix('mechanism ').removeprefix(f'{row.mechanism!r} ')}."
        for row in plan.rows
        if row.reason is not None
    ]


def format_call(plan: Plan) -> str:
    """Return the Python call of the best row; empty where there is none."""
    return "" if plan.best is None else f"hm.mean(data, user=..., value=..., {', '.join(_arguments(plan))})"


def format_command(plan: Plan) -> str:
    """Return the same release as a command."""
    if plan.best is None:
        return ""
    options = []
    for argument in _arguments(plan):
        name, _, given = argument.partition("=")
        options.append(f"--{name.replace('_', '-')} {given.strip('()').replace(', ', ' ')}".replace('"', ""))
    return f"hubermean release FILE --user USER --value VALUE {' '.join(options)}"


def _format_bounds(given: Any) -> str:
    """Format numbers, pairs and lists of pairs."""
    if isinstance(given, int | float):
        return f"{given:.6g}"
    return f"({', '.join(map(_format_bounds, given))})"


def _arguments(plan: Plan) -> list[str]:
    best, setting = plan.best, plan.setting
    assert best is not None
    arguments = [f"epsilon={setting.epsilon:g}"]
    if setting.delta:
        arguments.append(f"delta={setting.delta:g}")
    arguments.append(f'mechanism="{best.mechanism}"')
    needs = REGISTRY[best.mechanism].needs
    if "bounds" in needs:
        arguments.append(f"bounds={_format_bounds(setting.bounds)}")
    if best.threshold is not None:
        arguments.append(f"threshold={best.threshold:.4g}")
    if "radius" in needs or (not needs and setting.radius is not None):
        arguments.append(f"radius={setting.reach:g}")
    arguments.append(f'per="{setting.per}"')
    if setting.neighbors is not Neighbors(DEFAULT_NEIGHBORS):
        arguments.append(f'neighbors="{setting.neighbors.value}"')
    if setting.max_records is not None:
        arguments.append(f"max_records={setting.max_records}")
    if "n_users" in REGISTRY[best.mechanism].takes and not setting.neighbors.users_are_public:
        arguments.append(f"n_users={setting.n_users}")
    return arguments
