"""A plan in words: the one source of its text, its notebook table and its table on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hubermean.relations import DEFAULT_NEIGHBORS, Neighbors

if TYPE_CHECKING:
    from hubermean.planning.plan import Plan, Row


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def multiple(value: float) -> str:
    """How many times the non-private error; small excesses matter most."""
    if value >= 10_000:
        return f"{value:.2g}"
    return f"{value:.3f}" if value < 1.1 else f"{value:.2f}" if value < 100 else number(value)


def headings(plan: Plan) -> list[str]:
    layout = ["columns"] if plan.setting.columns > 1 else []
    return ["mechanism", *layout, "threshold", "noise", "error", "times non-private"]


def table(plan: Plan) -> list[list[str]]:
    """A line per mechanism; an arrow points to the best."""
    return [_cells(row, layout=plan.setting.columns > 1, best=row is plan.best) for row in plan.rows]


def _cells(row: Row, *, layout: bool, best: bool) -> list[str]:
    name = f"{'→' if best else ' '} {row.mechanism}"
    threshold = "-" if row.threshold is None else number(row.threshold)
    cells = [
        name,
        *(["each" if row.layout == "column by column" else row.layout] if layout else []),
        threshold,
    ]
    if row.reason is not None:
        return [*cells, "-", "-", "-"]
    noise = max(row.noise)
    return [*cells, number(noise), number(row.error), multiple(row.over_non_private)]


def title(plan: Plan) -> str:
    setting = plan.setting
    budget = f"epsilon = {setting.epsilon:g}" + (f", delta = {setting.delta:g}" if setting.delta else "")
    width = f", {setting.columns:,} columns" if setting.columns > 1 else ""
    users = f"{setting.n_users:,} user{'' if setting.n_users == 1 else 's'}"
    return f"{users}{width}, {budget}, {setting.neighbors.value}"


def notes(plan: Plan) -> list[str]:
    """What the numbers mean, and why a mechanism is missing."""
    setting = plan.setting
    lines = [
        f"Predicted from public numbers, for user means with a standard deviation of {number(setting.scale)} around a "
        f"mean within {number(setting.radius)} of 0. The error without privacy would be "
        f"{number(setting.non_private_error)}."
    ]
    if setting.neighbors is Neighbors.ADD_REMOVE:
        lines.append(
            "The number of users is private: the plan goes by your estimate, the noise of a release by the true number."
        )
    if plan.best is None:
        lines.append("No mechanism can serve with these parameters.")
    for row in plan.rows:
        if row.reason is not None:
            reason = row.reason.removeprefix("mechanism ").removeprefix(f"{row.mechanism!r} ")
            lines.append(f"{row.mechanism}: {reason}.")
        elif row.mechanism == "adaptive":
            lines.append(
                "adaptive: needs no threshold and no radius; it is what 'auto' takes where they are not given."
            )
        elif plan.best is not None and row.error < plan.best.error:
            lines.append(
                f"{row.mechanism}: as good as {plan.best.mechanism}, which goes first where predictions are alike."
            )
    return lines


def call(plan: Plan) -> str:
    """The release that the best row stands for, as code; empty where there is none."""
    return "" if plan.best is None else f"hm.mean(data, user=..., value=..., {', '.join(_arguments(plan))})"


def command(plan: Plan) -> str:
    """The same as a command."""
    if plan.best is None:
        return ""
    options = []
    for argument in _arguments(plan):
        name, _, given = argument.partition("=")
        option = "users" if name == "n_users" else name.replace("_", "-")
        options.append(f"--{option} {given.strip('()').replace(', ', ' ')}".replace('"', ""))
    return f"hubermean release FILE --user USER --value VALUE {' '.join(options)}"


def _bounds(given: Any) -> str:
    """Short numbers in brackets, also within brackets."""
    if isinstance(given, int | float):
        return f"{given:.6g}"
    return f"({', '.join(map(_bounds, given))})"


def _arguments(plan: Plan) -> list[str]:
    best, setting = plan.best, plan.setting
    assert best is not None
    arguments = [f"epsilon={setting.epsilon:g}"]
    if setting.delta:
        arguments.append(f"delta={setting.delta:g}")
    arguments.append(f'mechanism="{best.mechanism}"')
    if best.threshold is None:
        arguments.append(f"bounds={_bounds(setting.bounds)}")
    else:
        arguments += [f"threshold={best.threshold:.4g}", f"radius={setting.radius:g}"]
    arguments.append(f'per="{setting.per}"')
    if setting.neighbors is not Neighbors(DEFAULT_NEIGHBORS):
        arguments.append(f'neighbors="{setting.neighbors.value}"')
    if setting.record_cap is not None:
        arguments.append(f"record_cap={setting.record_cap}")
    if best.mechanism == "smooth" and not setting.neighbors.users_are_public:
        arguments.append(f"n_users={setting.n_users}")
    return arguments
