"""The registry: one entry makes a mechanism known to `mean`, `auto`, plans, the command line and the documentation."""

from __future__ import annotations

import runpy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

import hubermean as hm
from hubermean.cli.app import app
from hubermean.cli.options import list_mechanisms
from hubermean.mechanisms.clipped.mechanism import Clipped, PreparedClipped
from hubermean.mechanisms.registry import REGISTRY, Auto, MechanismEntry, resolve_mechanism
from hubermean.types.options import PublicParameters
from hubermean.types.request import Neighbors, PublicFacts, Request

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Toy:
    """A mean of values that are clipped to [0, radius]."""

    radius: float
    max_records: int | None = None
    name = "toy"

    @classmethod
    def from_parameters(cls, parameters: PublicParameters) -> Toy:
        parameters.check_only("radius", "max_records", of=cls.name)
        if parameters.radius is None:
            raise hm.InputError("give radius")
        return cls(radius=parameters.radius, max_records=parameters.max_records)

    def _clipped(self) -> Clipped:
        return Clipped(bounds=(0.0, self.radius), max_records=self.max_records)

    def check(self, request: Request) -> None:
        self._clipped().check(request)

    def prepare(self, request: Request, facts: PublicFacts) -> PreparedClipped:
        return self._clipped().prepare(request, facts)


TOY = MechanismEntry(
    name="toy",
    make=Toy.from_parameters,
    summary="Clips values to the radius.",
    needs=("radius",),
)


@pytest.fixture
def with_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "toy", TOY)


@pytest.mark.usefixtures("with_toy")
def test_one_entry_reaches_mean_auto_plan_and_the_command_line(tmp_path: Path) -> None:
    table = pa.table({"u": range(500), "v": np.linspace(0.0, 9.0, 500)})
    pq.write_table(table, tmp_path / "t.parquet")
    asked: dict[str, Any] = {"user": "u", "value": "v", "epsilon": 100, "radius": 9, "per": "user"}
    release = hm.mean(table, mechanism="toy", **asked)
    assert release.mechanism == "toy"
    assert release.value == pytest.approx(4.5, abs=0.1)

    chosen = hm.mean(table, **asked)
    assert (chosen.mechanism, chosen.parameters["chosen_by"]) == ("toy", "auto")

    plan = hm.plan(n_users=500, epsilon=1, radius=9)
    row = next(row for row in plan.rows if row.mechanism == "toy")
    assert row.reason is None
    assert len(row.noise) == 1
    assert "toy" in repr(plan)
    (axes,) = plan.plot().axes
    assert any(text.get_text().startswith("toy") for text in axes.get_legend().get_texts())

    typed = [
        "release",
        str(tmp_path / "t.parquet"),
        "--user",
        "u",
        "--value",
        "v",
        "--epsilon",
        "1",
        "--per",
        "user",
    ]
    shown = CliRunner().invoke(app, [*typed, "--mechanism", "toy", "--radius", "9", "--json"])
    assert shown.exit_code == 0, shown.output
    assert '"mechanism": "toy"' in shown.output
    command: Any = typer.main.get_command(app)
    (option,) = [one for one in command.commands["release"].params if one.name == "mechanism"]
    offered = option.shell_complete(
        command.make_context("hubermean", ["release"], resilient_parsing=True), "to"
    )
    assert [str(getattr(one, "value", one)) for one in offered] == ["toy"]
    assert "'toy'" in list_mechanisms()
    assert hm.audit("toy", epsilon=1, radius=9, pairs=20).kept

    table_of_docs = runpy.run_path(str(ROOT / "docs" / "tools" / "mechanism_table.py"))
    assert '| `"toy"` | Clips values to the radius. | `radius` |' in table_of_docs["make_table"]()


def test_the_page_of_mechanisms_is_up_to_date() -> None:
    tool = runpy.run_path(str(ROOT / "docs" / "tools" / "mechanism_table.py"))
    page = tool["PAGE"].read_text(encoding="utf-8")
    assert tool["insert_table"](page) == page, "run python docs/tools/mechanism_table.py --write"


GIVEN: dict[str, Any] = {
    "bounds": (0.0, 9.0),
    "max_records": 3,
    "threshold": 2.0,
    "threshold_power": 0.5,
    "scale": 1.0,
    "radius": 9.0,
    "hostile": 0.1,
    "n_users": 500,
}


def test_every_public_parameter_is_tried() -> None:
    assert set(GIVEN) == {field.name for field in fields(PublicParameters)}


@pytest.mark.parametrize("entry", REGISTRY.values(), ids=lambda entry: entry.name)
def test_an_entry_says_what_its_mechanism_takes(entry: MechanismEntry) -> None:
    needed = {name: GIVEN[name] for name in entry.needs}
    assert resolve_mechanism(entry.name, PublicParameters(**needed)).name == entry.name
    for name in set(GIVEN) - set(entry.needs):
        parameters = PublicParameters(**needed, **{name: GIVEN[name]})
        if name in entry.takes:
            assert entry.make(parameters).name == entry.name
        else:
            with pytest.raises(hm.InputError, match=f"{name} is not used|{name} says nothing"):
                entry.make(parameters)
    if entry.needs and not entry.estimates:
        with pytest.raises(hm.InputError, match=f"give {entry.needs[0]}"):
            entry.make(PublicParameters())
    if entry.estimates:
        assert entry.make(PublicParameters()).name == entry.name


@pytest.mark.parametrize("relation", list(Neighbors))
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("entry", REGISTRY.values(), ids=lambda entry: entry.name)
def test_an_entry_says_which_guarantees_its_mechanism_offers(
    entry: MechanismEntry, delta: float, relation: Neighbors
) -> None:
    mechanism = entry.make(PublicParameters(**{name: GIVEN[name] for name in entry.needs}))
    request = Request.checked(("v",), epsilon=1.0, delta=delta, per="user", neighbors=relation)
    if relation in entry.relations and (delta > 0.0 or not entry.needs_delta):
        mechanism.check(request)
    else:
        with pytest.raises(hm.InputError):
            mechanism.check(request)


def test_auto_compares_what_the_given_parameters_suffice_for() -> None:
    def candidates(**given: Any) -> list[str]:
        return [one.name for one in Auto.from_parameters(PublicParameters(**given)).candidates]

    assert candidates() == ["adaptive"]
    assert candidates(threshold=2.0) == ["adaptive"]
    assert candidates(bounds=(0.0, None)) == ["adaptive"]
    assert candidates(bounds=(0.0, 9.0)) == ["clipped"]
    huber = ["inverse-sensitivity", "propose-test-release", "smooth-sensitivity", "winsorized"]
    assert candidates(threshold=2.0, radius=9.0) == huber
