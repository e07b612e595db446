"""What a method must offer, and how it is found by name."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from pydantic import BaseModel, ValidationError

from unpooled.errors import StudyError, nearest
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.study import Study

METHODS = {
    name: f"unpooled.methods.{name}" for name in ("fedci", "causal_rff", "causal_fi", "aipw", "meta_analysis")
}
"""A new method joins with a folder and a line."""


@dataclass(frozen=True)
class Fitted:
    """What a fit leaves at the coordinator, in standardised units. Arrays and JSON only."""

    draws: Tree
    site_effects: np.ndarray
    diagnostics: dict[str, Any]


class Method(Protocol):
    """The face of a method's folder."""

    Settings: type[BaseModel]
    takes_incomplete: bool
    """Whether covariates listed as incomplete are used."""

    def context(self, settings: Any, scaling: Tree, seed: int) -> Tree:
        """Arrays that all parties share beside the settings."""
        ...

    def stages(self, settings: Any, context: Tree) -> dict[str, Stage]:
        """Every stage by name, the same at the coordinator and at the sites."""
        ...

    def fit(self, settings: Any, context: Tree, seed: int) -> Procedure[Fitted]:
        """The whole inference as a procedure."""
        ...

    def folds(self, settings: Any) -> int:
        """In how many folds people are held out in turn; 0: nobody is, and sites make no folds."""
        ...

    def features(self, settings: Any, context: Tree) -> int:
        """Most numbers per person that any stage's statistics rest on: what a site's limits look at."""
        ...

    def most_rounds(self, settings: Any) -> int:
        """A bound on the rounds of `fit`: for whoever waits, or decides whether to begin."""
        ...

    def conditional_effects(
        self, settings: Any, context: Tree, draws: Tree, rows: Rows, people: Rows
    ) -> np.ndarray:
        """CATE draws [K, people]; they stay at the site."""
        ...

    def individual_effects(
        self, settings: Any, context: Tree, draws: Tree, rows: Rows, people: Rows | None
    ) -> np.ndarray:
        """ITE draws [K, people] where outcomes are known (None: the site's own); they stay at the site."""
        ...


def find(name: str) -> Method:
    """A method by the name a study gives it."""
    if name not in METHODS:
        raise StudyError("the method must be known", found=f"method '{name}'", remedy=nearest(name, METHODS))
    return import_module(METHODS[name]).METHOD


def spelled_out(study: Study) -> Study:
    """The study with every setting of its method, so that equal questions have equal hashes."""
    settings = settings_of(find(study.method.name), study.method.settings)
    method = {"name": study.method.name, **settings.model_dump(mode="json")}
    return Study(**{**study.model_dump(), "method": method})


def settings_of(method: Method, values: dict[str, Any]) -> Any:
    """Checked settings; an unknown key names the nearest known one."""
    try:
        return method.Settings(**values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = str(problem["loc"][0])
        if problem["type"] == "extra_forbidden":
            remedy = nearest(key, method.Settings.model_fields)
            raise StudyError("every setting must be known", found=f"setting '{key}'", remedy=remedy) from None
        found = f"{key} = {problem['input']!r}: {problem['msg']}"
        raise StudyError(f"setting '{key}' must be valid", found=found, remedy=f"correct '{key}'") from None
