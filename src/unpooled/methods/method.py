"""The interface of a method, the registry of methods, and the validation of their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from unpooled.disclosure.by_site import Diagnostics, require_typed
from unpooled.errors import Problems, StudyError, nearest
from unpooled.methods.expected import Course
from unpooled.methods.settings import MethodSettings
from unpooled.models.calibration import Calibration, NoiseOfArms
from unpooled.models.held_out_effects import HeldOutEffects
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import AverageOutcomes, Check, Draws, Parameters, Record, Scaling
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.study import Study
from unpooled.study.family import Family

METHODS = {
    folder.name: f"unpooled.methods.{folder.name}"
    for folder in sorted(file.parent for file in Path(__file__).parent.glob("*/method.py"))
}
"""The module of each method, which defines `METHOD`: every folder beside this file that has a `method.py`."""


@dataclass(frozen=True)
class Fit(Record):
    """The result of a fit, in standard units."""

    draws: Draws
    outcomes: AverageOutcomes
    """Mean outcomes by arm, from which all average effects follow."""
    diagnostics: Diagnostics
    """Diagnostics of the fit. Values by site must be `BySite`; bare lists and arrays raise `TypeError`."""
    checks: tuple[Check, ...] = ()
    """Verdicts on the fit itself, such as whether its chains have converged."""
    calibration: Calibration | None = None
    """Held-out errors, by which intervals of individual effects are calibrated; None if there are none."""
    noise_of_arms: NoiseOfArms | None = None
    """The noise of both arms, by which intervals of conditional effects can be widened; None if unknown."""
    held_out: Parameters | None = None
    """What a `HeldOutEffects` of the method needs of this fit; None if nobody was held out."""

    def __post_init__(self) -> None:
        require_typed(self.diagnostics)


S = TypeVar("S", bound=MethodSettings)
C = TypeVar("C")


class Method(Protocol[S, C]):
    """The interface that `METHOD` in every method's folder implements, for its own settings and context."""

    Settings: type[MethodSettings]
    Context: type
    """A dataclass of the values that all parties share in addition to the settings."""
    takes_incomplete: bool
    """Whether the method uses covariates listed as incomplete."""
    takes_weights: bool
    """Whether the method is right if `Rows.present` holds sampling weights."""
    takes_clusters: bool
    """Whether the method's errors are by cluster, if `Rows.cluster` names clusters."""

    def context(self, settings: S, scaling: Scaling, seed: int) -> C:
        """The method's `Context`, created by the coordinator after the sites have agreed."""
        ...

    def outcome_model(self, settings: S, family: Family) -> str:
        """How the method models outcomes of a family, in words that follow "models it"."""
        ...

    def stages(self, settings: S, context: C) -> dict[str, Stage]:
        """All stages by name, identical at the coordinator and at the sites."""
        ...

    def fit(self, settings: S, context: C, seed: int) -> Procedure[Fit]:
        """The complete inference as a procedure."""
        ...

    def folds(self, settings: S) -> int:
        """The number of cross-validation folds; 0 if no rows are held out."""
        ...

    def features(self, settings: S, context: C) -> int:
        """The largest number of features per person in any stage's statistics, for the sites' limits."""
        ...

    def plans(self, settings: S) -> tuple[S, ...]:
        """Settings to choose from, first as asked, then with fewer folds and features for small sites."""
        ...

    def budget(self, settings: S, context: C) -> dict[str, int]:
        """The largest number of θ for which `fit` may ask each stage, in all rounds together."""
        ...

    def most_rounds(self, settings: S) -> int:
        """An upper bound on the rounds of `fit`, for progress bars and custodians."""
        ...

    def expected(self, settings: S, context: C) -> Course:
        """What `fit` usually asks, by stage: for plans, where `budget` and `most_rounds` are for limits.

        At the coordinator, before any question. It must not make arrays that grow with the number of sites:
        those of the context may stand for ten thousand of them.
        """
        ...

    def conditional_effects(
        self, settings: S, context: C, draws: Draws, rows: Rows, people: Rows
    ) -> np.ndarray:
        """CATE draws [K, people]; computed at the site and not sent."""
        ...

    def individual_effects(
        self, settings: S, context: C, draws: Draws, rows: Rows, people: Rows | None, seed: int
    ) -> np.ndarray:
        """ITE draws [K, people] for people with known outcomes (None: the site's own rows)."""
        ...


@runtime_checkable
class Transports(Protocol):
    """A method that also predicts outcomes at a site that took no part."""

    def outcomes_elsewhere(
        self, settings: Any, context: Any, draws: Draws, people: Rows, distances: np.ndarray, seed: int
    ) -> np.ndarray:
        """Draws [K, people, 2] of the mean outcomes in both arms, in standard units.

        How the site differs from the others is the same for the same `draws`, whoever the people are; `seed`
        is of what is drawn for the people alone. `distances` are those of the site's moments from the
        reference sites, as in `Scaling.site_distances`.
        """
        ...

    def elsewhere_words(self, settings: Any) -> str:
        """How a site that took no part is taken to differ from those that did, as a sentence."""
        ...


@runtime_checkable
class Candidate(Protocol):
    """A method that can be a candidate of the super learner."""

    def held_out_effects(self, settings: Any, context: Any) -> HeldOutEffects:
        """How a site computes effects of its own people from `Fit.held_out`."""
        ...


def find(name: str) -> Method[MethodSettings, object]:
    """Look up a method by name."""
    if name not in METHODS:
        raise StudyError("the method must be known", found=f"method '{name}'", remedy=nearest(name, METHODS))
    return import_module(METHODS[name]).METHOD


def with_settings(study: Study, name: str, values: Mapping[str, object], seed: int | None = None) -> Study:
    """The study with this method and explicit, validated settings, so that equal studies hash equally."""
    settings = settings_of(find(name), values)
    if settings.needs_sites and not study.by_site:
        raise StudyError(
            "effects by site may be left out only if the method does not combine them",
            found=f"by_site = false with the method '{name}'",
            remedy="remove by_site, or choose another method, such as 'aipw'",
        )
    method = {"name": name, **settings.model_dump(mode="json")}
    chosen = study.seed if seed is None else seed
    return study.with_changes(seed=chosen, method=method)


def with_explicit_settings(study: Study) -> Study:
    """The study with every setting of its method made explicit."""
    return with_settings(study, study.method.name, study.method.settings)


def compares_sites(study: Study) -> bool:
    """Whether the study's method needs the moments of each site's covariates."""
    return settings_of(find(study.method.name), study.method.settings).compares_sites


def settings_of(method: Method[MethodSettings, object], values: Mapping[str, object]) -> MethodSettings:
    """Validate settings; for an unknown name the error suggests the nearest known one."""
    try:
        return method.Settings.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False)
    problems = Problems()
    for one in found:
        with problems.collected():
            raise _explained(one, method)
    problems.raise_all()
    raise AssertionError("a setting that is not valid has a problem")


def _explained(problem: ErrorDetails, method: Method[MethodSettings, object]) -> StudyError:
    key = str(problem["loc"][0]) if problem["loc"] else "settings"
    if problem["type"] == "extra_forbidden":
        remedy = nearest(key, method.Settings.model_fields)
        return StudyError("every setting must be known", found=f"setting '{key}'", remedy=remedy)
    if not problem["loc"]:
        found = problem["msg"].removeprefix("Value error, ")
        return StudyError("every setting must have an effect", found=found, remedy="remove it")
    found = f"{key} = {problem['input']!r}: {problem['msg']}"
    return StudyError(f"setting '{key}' must be valid", found=found, remedy=f"correct '{key}'")
