"""Negative control outcome: an outcome that treatment cannot affect should show no effect."""

from __future__ import annotations

from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import open_sites
from unpooled.errors import StudyError
from unpooled.estimators.robustness.analysis import Analysis, Tables
from unpooled.estimators.robustness.refit import RobustnessCheck
from unpooled.study import Study

NAME = "negative_control"


def negative_control(analysis: Analysis, study: Study, sources: Tables) -> RobustnessCheck:
    """Refit with the negative control outcome (`study` is from `about`); the interval should include 0."""
    found = analysis.refit(study, sources, NAME)
    control, outcome = study.columns.outcome, analysis.study.columns.outcome
    words = (
        f"Refitted with the negative control outcome '{control}' instead of '{outcome}'. The result is "
        f"worrying if the interval excludes 0, because what confounds '{control}' is then likely to confound "
        f"'{outcome}' too. "
        f"Here it {'includes' if found.includes_zero else 'excludes'} 0."
    )
    return RobustnessCheck(
        NAME, found.estimate, found.lower, found.upper, not found.includes_zero, words, refits=(found,)
    )


def about(study: Study, control: str, sources: Tables, limits: Limits = NONE) -> Study:
    """The study with the negative control as its outcome; errors are raised before anything is fitted."""
    if control in study.columns.names:
        raise StudyError(
            "a negative control outcome must have no other role in the study",
            found=f"'{control}', which the study already uses",
            remedy="name another column, or remove this one from the study's columns first",
        )
    columns = study.columns.model_dump()
    units = {name: unit for name, unit in columns["units"].items() if name != study.columns.outcome}
    changed = {**columns, "outcome": control, "units": units, "family": "auto"}
    asked = study.with_changes(columns=changed)
    open_sites(asked, sources, limits)
    return asked
