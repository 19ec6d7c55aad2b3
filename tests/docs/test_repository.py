"""The repository keeps its own rules."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_pinned_versions_name_no_host() -> None:
    of_peers = sorted((ROOT / "benchmarks" / "peers" / "runners").glob("requirements-*.txt"))
    assert of_peers
    for path in [ROOT / "constraints.txt", *of_peers]:
        lines = path.read_text().splitlines()
        assert lines
        assert all(re.fullmatch(r"[A-Za-z0-9_.\-]+==[A-Za-z0-9_.+!]+", line) for line in lines), path.name


def test_every_dependency_is_pinned() -> None:
    import tomllib

    wanted = []
    for folder in (ROOT, ROOT / "experiments"):
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        extras = project.get("optional-dependencies", {}).values()
        wanted += [*project["dependencies"], *(one for extra in extras for one in extra)]
    names = {re.split(r"[\[<>=!~ ]", requirement)[0].lower() for requirement in wanted} - {"hubermean"}
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert names <= pinned


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "proofs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_paths_named_on_pages_exist() -> None:
    roots = [ROOT, ROOT / "src" / "hubermean", ROOT / "experiments" / "src" / "hubermean_experiments"]
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for path in re.findall(r"`(\w+/[\w/-]*\w(?:\.py|\.md|/))(?:: [^`]*)?`", page.read_text()):
            assert any((root / path).exists() for root in roots), f"{page.name} names {path}"


def test_lemmas_cited_by_code_exist() -> None:
    for module in [*(ROOT / "src").rglob("*.py"), *(ROOT / "experiments" / "src").rglob("*.py")]:
        for note in re.findall(r"proofs/([a-z-]+\.md)", module.read_text()):
            assert (ROOT / "proofs" / note).exists(), f"{module.name} cites proofs/{note}"


def test_every_public_name_is_in_the_reference() -> None:
    import hubermean

    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    named = set(re.findall(r"(?:^::: |heading: )hubermean\.(\w+)$", pages, re.MULTILINE))
    assert set(hubermean.__all__) - {"__version__"} <= named


def test_everything_in_the_reference_can_be_imported() -> None:
    from importlib import import_module

    for page in (ROOT / "docs" / "reference").glob("*.md"):
        for name in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE):
            module, _, attribute = name.rpartition(".")
            if module == "hubermean.flower.strategy":  # Flower has an environment of its own
                continue
            assert hasattr(import_module(module), attribute), f"{page.name} names {name}"
