"""The docstring of every public name describes exactly the parameters of its signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import unpooled
from unpooled.estimators import ESTIMATORS
from unpooled.study import ColumnRoles, Study

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", flags=re.MULTILINE)


def sections(documented: object) -> dict[str, str]:
    """The text of each numpydoc section by its title; what comes before the first has no title."""
    parts = SECTION.split(inspect.getdoc(documented) or "")
    return dict(zip(["", *parts[1::2]], parts[::2], strict=True))


def described(documented: object) -> dict[str, str]:
    """The description of each parameter; one line such as `first, second : int` describes two."""
    text = sections(documented).get("Parameters", "")
    entries = re.split(r"^(?=\S)", text, flags=re.MULTILINE)
    heads = [(entry.partition("\n")[0], entry.partition("\n")[2]) for entry in entries if entry.strip()]
    return {
        name.strip(): description.strip()
        for head, description in heads
        for name in head.partition(" : ")[0].split(",")
    }


def parameters(documented: Callable[..., Any]) -> set[str]:
    if documented is Study:  # its constructor takes the roles of the columns as keywords as well
        return {*Study.model_fields, *ColumnRoles.model_fields}
    return set(inspect.signature(documented).parameters) - {"self"}


def methods(kind: type) -> dict[str, Callable[..., Any]]:
    """The public methods that this package defines, whether in the class or in a base of it."""
    found = inspect.getmembers(kind, inspect.isfunction)
    return {
        f"{kind.__name__}.{name}": member
        for name, member in found
        if not name.startswith("_") and member.__module__.startswith("unpooled.")
    }


PUBLIC = {name: getattr(unpooled, name) for name in unpooled.__all__ if name != "plot"}
FIGURES = {f"plot.{name}": getattr(unpooled.plot, name) for name in unpooled.plot.__all__}
METHODS = {name: member for kind in ESTIMATORS.values() for name, member in methods(kind).items()}
CALLABLES = {**PUBLIC, **FIGURES, **METHODS}


@pytest.mark.parametrize("name", CALLABLES)
def test_every_parameter_is_described_and_no_other(name: str) -> None:
    found = described(CALLABLES[name])
    assert set(found) == parameters(CALLABLES[name])
    assert [parameter for parameter, text in found.items() if len(text.split()) < 2] == []


@pytest.mark.parametrize("name", CALLABLES)
def test_every_docstring_has_a_summary_of_one_line(name: str) -> None:
    summary = sections(CALLABLES[name])[""].split("\n")
    assert summary[0].endswith(".")
    assert [*summary, ""][1] == ""


@pytest.mark.parametrize("name", [*PUBLIC])
def test_every_public_name_has_an_example(name: str) -> None:
    assert ">>> " in sections(PUBLIC[name]).get("Examples", "")


@pytest.mark.parametrize("name", [*FIGURES, *METHODS])
def test_every_function_says_what_it_returns(name: str) -> None:
    assert sections(CALLABLES[name])["Returns"].strip()


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
def test_an_estimator_is_described_in_its_own_class(estimator: Any) -> None:
    found = sections(estimator)
    assert {"Parameters", "Attributes", "References", "Examples"} <= set(found)
    assert {"result_", "sites_"} <= {line.partition(" :")[0] for line in found["Attributes"].split("\n")}
    assert "settings" not in (inspect.getdoc(estimator) or "").lower()


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
def test_defaults_in_docstrings_are_those_of_the_signature(estimator: Any) -> None:
    text = sections(estimator)["Parameters"]
    stated = dict(re.findall(r"^(\w+) : .*?(default=.+|optional)$", text, flags=re.MULTILINE))
    signature = inspect.signature(estimator).parameters.values()
    expected = {
        one.name: "optional" if one.default is None else "default=" + repr(one.default).replace("'", '"')
        for one in signature
    }
    assert stated == expected
