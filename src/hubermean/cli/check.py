"""`hubermean check`: statistics of a file for its owner, outside any privacy guarantee."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
import typer

from hubermean.cli.group_trial import FEW, GROUPS_LISTED, UnsafeGroup, UnsafeGroupTrial, unsafe_group_trial
from hubermean.cli.options import DATA, PRIVACY, AsJson, Connection, File, add_options, open_query
from hubermean.cli.private_run import private_run
from hubermean.cli.render import console, print_table
from hubermean.cli.trial import UnsafeTrial, unsafe_trial
from hubermean.errors import InputError
from hubermean.ingest.inspection import UnsafeInspection, unsafe_inspection
from hubermean.types.formatting import number
from hubermean.types.group_order import order_groups
from hubermean.types.options import TextOptions

WARNING = (
    "NOT PRIVATE: these numbers come straight from the data; do not publish them or tune a release on them."
)

_ADVICE = (
    "If these are numbers, say how they are written: --decimal, --thousands, --currency. If they are words for a "
    "missing value, nothing need be done."
)


@add_options(TextOptions)
def check(
    file: File,
    user: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column that identifies a user; repeat for several.",
            rich_help_panel=DATA,
        ),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column to inspect; repeat for several.", rich_help_panel=DATA),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column that names groups, or 'month(COLUMN)'; repeat for several. Needs --user and --value.",
            rich_help_panel=DATA,
        ),
    ] = None,
    epsilon: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            help="Privacy budget of the trial run that shows what a release would clip.",
            rich_help_panel=PRIVACY,
        ),
    ] = 1.0,
    connection: Connection = None,
    as_json: AsJson = False,
    **text: Any,
) -> None:
    """Inspect a file before releasing from it. [bold]Not private[/bold]: for the data's owner only.

    With --user and --value it lists values that cannot be used, and what a release would clip; with --by also how users
    spread over groups, and which groups differ.

    [bold]Examples[/bold]

      hubermean check trips.parquet

      hubermean check trips.parquet --user rider_id --value fare

      hubermean check trips.parquet --user rider_id --value fare --by city
    """
    if by and not (user and value):
        raise InputError("--by needs --user and --value; give them as well")
    data = open_query(file, connection)
    with private_run():
        seen = unsafe_inspection(data, user=user or None, value=value or [], **text)
        trials = [
            unsafe_trial(data, user=user, value=name, epsilon=epsilon, **text) for name in value or [] if user
        ]
        grouped = [
            unsafe_group_trial(data, user=user, value=name, by=by, epsilon=epsilon, **text)
            for name in value or []
            if user and by
        ]
    if as_json:
        shown = {"private": False, **_replace_non_finite(dataclasses.asdict(seen))}
        shown["trials"] = [_replace_non_finite(dataclasses.asdict(trial)) for trial in trials]
        shown["groups"] = [_replace_non_finite(dataclasses.asdict(trial)) for trial in grouped]
        typer.echo(json.dumps(shown, indent=2, default=str, allow_nan=False))
        return
    console().print(WARNING, style="bold red")
    print_table("Columns", ("column", "type"), seen.columns)
    print_table("Records", ("", ""), _format_counts(seen))
    for column in seen.values:
        rows = [
            ("unusable values (null, NaN, infinite, not a number)", f"{column.unusable:,}"),
            ("smallest, median, largest", _format_numbers((column.minimum, column.median, column.maximum))),
        ]
        if column.user_means is not None:
            rows.append(
                ("user means: smallest, 1%, median, 99%, largest", _format_numbers(column.user_means))
            )
        print_table(f"Values of {column.name}", ("", ""), rows)
        if column.examples:
            print_table("Unusable values", (column.name, "records"), _format_examples(column.examples))
            typer.echo(_ADVICE)
    for trial in trials:
        print_table(
            f"What a release of {trial.name} with epsilon = {epsilon:g} would clip, in one trial run",
            ("", ""),
            _format_trial(trial),
        )
    for one in grouped:
        _print_groups(one, epsilon)


def _print_groups(trial: UnsafeGroupTrial, epsilon: float) -> None:
    """Print how users spread over groups, then the groups, of many those with the largest and smallest means."""
    sizes = sorted(group.users for group in trial.groups)
    rows = [("groups", f"{len(sizes):,}")]
    if sizes:
        quantiles = np.quantile(sizes, (0.0, 0.1, 0.5, 0.9, 1.0), method="inverted_cdf")
        rows.append(("users per group: fewest, 10%, median, 90%, most", _join(quantiles)))
        rows.append(("groups per user: fewest, median, 90%, 99%, most", _join(trial.groups_per_user)))
        rows.append((f"groups with fewer than {FEW:,} users", f"{trial.small:,}"))
        rows.append(("groups that differ from the others", f"{sum(one.differs for one in trial.groups):,}"))
    most = max(trial.groups_per_user, default=0)
    if trial.max_groups is not None and most > trial.max_groups:
        note = f"each counts in {trial.max_groups:,} only; raise --max-groups"
        rows.append(("users in more groups than a release counts", note))
    if trial.refusal is not None:
        rows.append(("not released", trial.refusal))
    print_table(f"Users and groups by {', '.join(trial.by)}", ("", ""), rows)
    if not sizes:
        return
    shown = order_groups([0.0] * len(sizes), times=range(len(sizes))).cut(GROUPS_LISTED)
    listed = [_format_group(trial.groups[row]) for row in shown.first]
    if shown.left_out:
        listed.append((f"... {shown.left_out:,} more", *[""] * 6))
    listed += [_format_group(trial.groups[row]) for row in shown.last]
    headings = (", ".join(trial.by), "users", "mean", "spread", "clipped", "clipped mean", "")
    print_table(f"What a release of {trial.name} by group would clip", headings, listed)
    console().print(
        "Spread is the standard deviation of user means. Clipped are users beyond the bounds that one trial run with "
        f"epsilon = {epsilon:g} found; the clipped mean is before noise. A group differs if its mean is more than 2 "
        "spreads from that of the median group, or its spread 3 times larger or smaller."
    )


def _format_group(group: UnsafeGroup) -> tuple[str, ...]:
    share = "-" if group.clipped_users is None else f"{group.clipped_users / max(group.users, 1):.1%}"
    return (
        ", ".join(group.keys),
        f"{group.users:,}",
        _format_numbers((group.mean,)),
        _format_numbers((group.spread,)),
        share,
        _format_numbers((group.clipped_mean,)),
        "differs" if group.differs else "",
    )


def _join(numbers: Iterable[int]) -> str:
    return "; ".join(f"{number:,}" for number in numbers)


def _format_counts(seen: UnsafeInspection) -> list[tuple[str, str]]:
    rows = [("records", f"{seen.records:,}")]
    if seen.records_without_user is not None:
        rows.append(("records without a user (dropped)", f"{seen.records_without_user:,}"))
    if seen.users is not None:
        rows.append(("users", f"{seen.users:,}"))
    if seen.records_per_user is not None:
        counts = "; ".join(f"{records:,}" for records in seen.records_per_user)
        rows.append(("records per user: fewest, median, 90%, 99%, most", counts))
    return rows


def _format_examples(examples: Sequence[tuple[str | None, int]]) -> list[tuple[str, str]]:
    return [("(missing)" if cell is None else repr(cell), f"{cells:,}") for cell, cells in examples]


def _format_trial(trial: UnsafeTrial) -> list[tuple[str, str]]:
    if trial.refusal is not None:
        return [("not released", trial.refusal)]
    rows = [("mean over records, before clipping", _format_numbers((trial.mean,)))]
    if trial.clipped_users is not None:
        share = f" ({trial.clipped_users / max(trial.users, 1):.1%})"
        rows += [
            (
                "users whose contribution would be clipped",
                f"{trial.clipped_users:,} of {trial.users:,}{share}",
            ),
            ("mean after clipping, before noise", _format_numbers((trial.clipped_mean,))),
        ]
    return rows


def _format_numbers(numbers: tuple[float | None, ...]) -> str:
    return "; ".join("-" if one is None else number(one) for one in numbers)


def _replace_non_finite(shown: Any) -> Any:
    """Replace numbers that JSON cannot write by null."""
    if isinstance(shown, dict):
        return {key: _replace_non_finite(value) for key, value in shown.items()}
    if isinstance(shown, list | tuple):
        return [_replace_non_finite(value) for value in shown]
    return None if isinstance(shown, float) and not math.isfinite(shown) else shown
