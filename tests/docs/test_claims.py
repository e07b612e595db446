"""What the pages claim about the code is compared with the code."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from tests.docs.markdown import ROOT, blocks, quoted, rows

from oracle import records
from unpooled.methods.diagnostics import rounds
from unpooled.methods.method import find
from unpooled.protocol import codec, messages
from unpooled.protocol.records import IncompleteColumn, Scaling

SOURCES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def readme_reveals(page: str = "README.md") -> dict[str, str]:
    return {quoted(row[0])[0]: row[1] for row in rows(ROOT / page) if len(row) == 2}


REPLIES = [
    kind
    for kind in messages.Reply.__subclasses__()
    if kind.__module__.startswith("unpooled.") and kind is not messages.Replies
]


def test_every_reply_is_found() -> None:
    """A reply in a module that the codec does not import might be unknown here, and escape the README."""
    written = {
        path.stem for path in SOURCES if re.search(r"^class \w+\(Reply\):", SOURCES[path], re.MULTILINE)
    }
    assert written == {"messages", *(one.__name__.rpartition(".")[2] for one in codec.MESSAGES)}
    assert messages.Statistics in REPLIES


@pytest.mark.parametrize("reply", REPLIES, ids=lambda kind: kind.__name__)
def test_the_readme_says_what_each_reply_reveals(reply: type[messages.Message]) -> None:
    assert readme_reveals()[reply.__name__] == reply.reveals


def scaling_of_a_default_study() -> Scaling:
    import numpy as np

    return records.scaling(
        sites=("north", "south"),
        counts=(50, 50_000),  # a large site, so that every stage there is takes part
        incomplete_mean=np.zeros(1),
        incomplete_sd=np.ones(1),
        incomplete_columns=(IncompleteColumn("u", "numeric", 1),),
        observed=np.array([[40], [40_000]]),
    )


def stages_of(name: str) -> dict[str, Any]:
    """The classes of the stages of a default study."""
    method: Any = find(name)
    settings = method.Settings()
    stages = method.stages(settings, method.context(settings, scaling_of_a_default_study(), 0))
    return {type(stage).__name__: stage for stage in stages.values()}


PAGES = {
    "fedci": "README.md",
    "causal_rff": "docs/causal_rff.md",
    "causal_fi": "docs/causal_fi.md",
    "aipw": "docs/comparators.md",
    "meta_analysis": "docs/comparators.md",
    "causal_forest": "docs/trees.md",
    "boosted_arms": "docs/trees.md",
    "super_learner": "docs/trees.md",
}
ALSO = {"super_learner": ("README.md",)}
"""Further pages, for stages that other methods have too."""


@pytest.mark.parametrize(("method", "page"), PAGES.items())
def test_a_page_says_what_each_stage_of_a_default_study_reveals(method: str, page: str) -> None:
    found = {name: stage.reveals for name, stage in stages_of(method).items()}
    pages = (page, *ALSO.get(method, ()))
    known = {name: words for one in reversed(pages) for name, words in readme_reveals(one).items()}
    said = {name: known.get(name) for name in found}
    assert said == found


def test_a_page_says_what_the_diagnostics_reveal() -> None:
    stages = rounds.stages(scaling_of_a_default_study())
    rows_of = {quoted(row[0])[1]: row for row in rows(ROOT / "docs/diagnostics.md") if len(row) == 2}
    said = {name: (quoted(row[0])[0], row[1]) for name, row in rows_of.items()}
    assert said == {name: (type(stage).__name__, stage.reveals) for name, stage in stages.items()}


def test_every_name_of_the_notation_table_is_in_the_code() -> None:
    names = [name for row in rows(ROOT / "docs/notation.md") for name in quoted(row[1])]
    text = "\n".join(SOURCES.values())
    assert len(names) > 30
    assert [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)] == []


def contract(name: str) -> dict[str, Any]:
    return next(item for item in PROJECT["tool"]["importlinter"]["contracts"] if item["id"] == name)


def test_the_layers_on_paper_are_the_layers_checked() -> None:
    drawn = [block.text.split("\n")[:-1] for block in blocks(ROOT / "docs/architecture.md")]
    assert contract("layers")["layers"] in drawn


def test_every_folder_is_explained() -> None:
    folders = {path.parent.name + "/" for path in (ROOT / "src/unpooled").glob("*/__init__.py")}
    explained = {row[0].strip("`") for row in rows(ROOT / "docs/architecture.md")}
    assert folders <= explained


def test_contracts_about_outside_packages_cover_every_folder() -> None:
    folders = {f"unpooled.{path.parent.name}" for path in (ROOT / "src/unpooled").glob("*/__init__.py")}
    assert folders - set(contract("terminal")["source_modules"]) == {"unpooled.cli"}
    assert folders - set(contract("figures")["source_modules"]) == {"unpooled.report"}


def test_decisions_are_numbered_without_gaps() -> None:
    names = sorted(path.name for path in (ROOT / "docs/decisions").glob("*.md"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))


def test_decision_1_explains_every_dependency() -> None:
    page = ROOT / "docs/decisions/0001-dependencies.md"
    explained = {name for row in rows(page) for name in row[0].split(", ")}
    assert explained == {Requirement(item).name for item in PROJECT["project"]["dependencies"]}


def test_the_tested_versions_lie_within_the_bounds() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {Requirement(line).name.lower(): Requirement(line) for line in lines if not line.startswith("#")}
    optional = PROJECT["project"]["optional-dependencies"].values()
    groups = PROJECT["dependency-groups"].values()
    stated = [
        *PROJECT["project"]["dependencies"],
        *[item for group in [*optional, *groups] for item in group],
    ]
    for requirement in map(Requirement, stated):
        (pin,) = pinned[requirement.name.lower()].specifier
        assert pin.operator == "=="
        assert requirement.specifier.contains(Version(pin.version)), requirement


def test_no_file_is_read_with_pickle() -> None:
    assert [path.name for path, text in SOURCES.items() if "allow_pickle=True" in text] == []


def test_the_version_is_said_once_over() -> None:
    import unpooled

    assert unpooled.__version__ == version("unpooled") == PROJECT["project"]["version"]
    assert f"[{unpooled.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
