"""Nothing leaks beside the mechanism: all that a release shows, other than its value, is the same for neighbors.

The value is compared through its law elsewhere. Here everything else is compared to the letter: fields,
parameters, text, exit code, what is printed on either stream.
"""

from __future__ import annotations

import contextlib
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import hubermean as hm
from hubermean.cli.app import app

values = st.one_of(
    st.none(),
    st.floats(width=64),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e300, -1e-300, 8e12, 1e13]),
)
records = st.lists(values, min_size=1, max_size=6)
data_sets = st.lists(records, min_size=1, max_size=5)
RELATIONS = ("replace-user", "replace-values", "add-remove")


def rows(users: list[list[float | None]]) -> pa.Table:
    return pa.table(
        {
            "u": pa.array([number for number, of_user in enumerate(users) for _ in of_user], pa.int64()),
            "v": pa.array([value for of_user in users for value in of_user], pa.float64()),
        }
    )


def neighbor(
    users: list[list[float | None]], other: list[float | None], relation: str
) -> list[list[float | None]]:
    if relation == "add-remove":
        return [*users, other]
    if relation == "replace-values":
        other = (other * len(users[-1]))[: len(users[-1])]
    return [*users[:-1], other]


def beside_the_value(release: hm.Release) -> dict[str, Any]:
    """All that is shown, without the released numbers and the interval made of them."""
    shown = release.to_dict()
    shown["interval"] = {key: shown["interval"][key] for key in ("level", "covers")}
    del shown["value"], shown["denominator"]
    labels = [label for label, _ in (*release.screen.lines, *release.details)]
    return shown | {"labels": labels, "n_users": release.n_users}


@pytest.mark.parametrize("per", ["record", "user"])
@pytest.mark.parametrize("relation", RELATIONS)
@given(users=data_sets, other=records)
@settings(max_examples=25, deadline=None)
def test_all_but_the_value_is_the_same_for_neighbors(
    relation: str, per: str, users: list[list[float | None]], other: list[float | None]
) -> None:
    def shown(users: list[list[float | None]]) -> dict[str, Any]:
        cap = 3 if per == "record" else None
        return beside_the_value(
            hm.mean(
                rows(users),
                user="u",
                value="v",
                epsilon=0.5,
                per=per,  # type: ignore[arg-type]
                neighbors=relation,
                bounds=(-10, 10),
                max_records=cap,
            )
        )

    assert shown(users) == shown(neighbor(users, other, relation))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("relation", RELATIONS)
@given(users=data_sets, other=records)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_command_line_shows_the_same_for_neighboring_files(
    relation: str, kind: str, tmp_path: Path, users: list[list[float | None]], other: list[float | None]
) -> None:
    def shown(users: list[list[float | None]]) -> tuple[int, str, dict[str, Any]]:
        path = tmp_path / f"data.{kind}"
        table = rows(users)
        if kind == "parquet":
            pq.write_table(table, path)
        else:
            table.to_pandas().to_csv(path, index=False)
        options = [
            "--user",
            "u",
            "--value",
            "v",
            "--epsilon",
            "1",
            "--bounds",
            "-1",
            "1",
            "--max-records",
            "2",
        ]
        if kind == "csv" and relation == "replace-user":  # whose users are not to be counted
            options += ["--n-users", "40"]
        result = CliRunner().invoke(app, ["release", str(path), *options, "--neighbors", relation, "--json"])
        if kind == "csv" and relation == "replace-values":
            return result.exit_code, result.stderr, {}
        printed = json.loads(result.stdout)
        printed["value"] = printed["interval"]["low"] = printed["interval"]["high"] = 0
        del printed["denominator"]
        return result.exit_code, result.stderr, printed

    assert shown(users) == shown(neighbor(users, other, relation))


def test_a_leak_would_be_seen() -> None:
    """The comparison is not blind: a parameter read off the data differs between neighbors."""

    class Leaky(hm.mechanisms.Clipped):  # type: ignore[name-defined, misc]
        def prepare(self, request: Any, facts: Any) -> Any:
            inner = super().prepare(request, facts)

            class Run:
                def run(self, table: Any, noise: Any) -> Any:
                    outcome = inner.run(table, noise)
                    outcome.parameters["largest_count"] = int(table.counts.max())
                    return outcome

            return Run()

    def shown(users: list[list[float | None]]) -> dict[str, Any]:
        leaky = Leaky(bounds=(-10, 10), max_records=3)
        return beside_the_value(hm.mean(rows(users), user="u", value="v", epsilon=1, mechanism=leaky))

    assert shown([[1.0], [2.0]]) != shown([[1.0], [2.0, 3.0]])


def test_no_scratch_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", None)
    hm.mean(
        rows([[1.0], [2.0]]),
        user="u",
        value="v",
        epsilon=1,
        bounds=(0, 1),
        max_records=1,
        memory_limit="50MB",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mechanism", ["adaptive", "clipped", "inverse-sensitivity", "winsorized"])
@pytest.mark.parametrize("far", [0.0, 1e-320, 1e300, np.finfo(np.float64).max, -np.finfo(np.float64).max])
@pytest.mark.parametrize("share", [1, 900])
def test_users_at_the_end_of_all_numbers_cause_no_warning(far: float, share: int, mechanism: str) -> None:
    """A warning, or an error for who has numpy raise them, would tell that such a user is there."""
    means = np.random.default_rng(0).normal(size=2000)
    means[:share] = far
    means[share // 2 : share] *= -1.0
    told: dict[str, Any] = {"adaptive": {}, "clipped": {"bounds": (-1, 1)}}.get(
        mechanism, {"threshold": 3, "radius": 10}
    )
    relation = "replace-user" if mechanism == "winsorized" else "add-remove"
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        with contextlib.suppress(hm.NotReleased):
            hm.mean_of_user_means(means, epsilon=1.0, mechanism=mechanism, neighbors=relation, **told)
