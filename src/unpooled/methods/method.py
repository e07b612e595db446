"""What a method must offer, and how it is found by name."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import ValidationError

from unpooled.disclosure.by_site import Diagnostics, require_typed
from unpooled.errors import StudyError, nearest
from unpooled.methods.settings import MethodSettings
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Draws, Record, Scaling
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.study import Study

METHODS = {
    folder.name: f"unpooled.methods.{folder.name}"
    for folder in sorted(file.parent for file in Path(__file__).parent.glob("*/method.py"))
}
"""The module of each method, which defines `METHOD`: every folder beside this file that has a `method.py`."""


@dataclass(frozen=True)
class Fit(Record):
    """What a fit leaves at the coordinator, in standard units."""

    draws: Draws
    site_effects: np.ndarray
    """Draws of the sites' average effects [K, site]."""
    diagnostics: Diagnostics
    """How the fit went. What belongs to single sites is a `BySite`; bare lists and arrays are refused."""

    def __post_init__(self) -> None:
        require_typed(self.diagnostics)


class Method(Protocol):
    """The face of a method's folder."""

    Settings: type[MethodSettings]
    Context: type
    """A dataclass of what all parties share beside the settings."""
    takes_incomplete: bool
    """Whether covariates listed as incomplete are used."""

    def context(self, settings: Any, scaling: Scaling, seed: int) -> Any:
        """The method's `Context`, made by the coordinator once the sites have agreed."""
        ...

    def stages(self, settings: Any, context: Any) -> dict[str, Stage]:
        """Every stage by name, the same at the coordinator and at the sites."""
        ...

    def fit(self, settings: Any, context: Any, seed: int) -> Procedure[Fit]:
        """The whole inference as a procedure."""
        ...

    def folds(self, settings: Any) -> int:
        """The number of folds for which people are held out in turn; 0 if nobody is."""
        ...

    def features(self, settings: Any, context: Any) -> int:
        """The most numbers per person that any stage's statistics rest on, for the sites' limits."""
        ...

    def most_rounds(self, settings: Any) -> int:
        """An upper bound on the rounds of `fit`, for progress bars and for custodians."""
        ...

    def conditional_effects(
        self, settings: Any, context: Any, draws: Draws, rows: Rows, people: Rows
    ) -> np.ndarray:
        """CATE draws [K, people]; they stay at the site."""
        ...

    def individual_effects(
        self, settings: Any, context: Any, draws: Draws, rows: Rows, people: Rows | None, seed: int
    ) -> np.ndarray:
        """ITE draws [K, people] of people whose outcomes are known (None: the site's own)."""
        ...


def find(name: str) -> Method:
    """A method by the name a study gives it."""
    if name not in METHODS:
        raise StudyError("the method must be known", found=f"method '{name}'", remedy=nearest(name, METHODS))
    return import_module(METHODS[name]).METHOD


def with_settings(study: Study, name: str, values: dict[str, Any], seed: int | None = None) -> Study:
    """The study with this method, every setting checked and spelled out, so equal studies hash equally."""
    settings = settings_of(find(name), values)
    method = {"name": name, **settings.model_dump(mode="json")}
    chosen = study.seed if seed is None else seed
    return Study(**{**study.model_dump(), "seed": chosen, "method": method})


def spelled_out(study: Study) -> Study:
    """The study with every setting of its own method."""
    return with_settings(study, study.method.name, study.method.settings)


def settings_of(method: Method, values: dict[str, Any]) -> Any:
    """Checked settings; an unknown key names the nearest known one."""
    try:
        return method.Settings(**values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = str(problem["loc"][0]) if problem["loc"] else "settings"
        if problem["type"] == "extra_forbidden":
            remedy = nearest(key, method.Settings.model_fields)
            raise StudyError("every setting must be known", found=f"setting '{key}'", remedy=remedy) from None
        if not problem["loc"]:
            found = problem["msg"].removeprefix("Value error, ")
            raise StudyError("every setting must apply", found=found, remedy="leave it out") from None
        found = f"{key} = {problem['input']!r}: {problem['msg']}"
        raise StudyError(f"setting '{key}' must be valid", found=found, remedy=f"correct '{key}'") from None
