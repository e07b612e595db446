"""Refute a study: run robustness checks and report which results are worrying."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from unpooled.data import Table
from unpooled.disclosure.limits import NONE, Limits
from unpooled.errors import StudyError, nearest
from unpooled.estimators.base import Estimator, Watcher
from unpooled.estimators.robustness import e_value as strength
from unpooled.estimators.robustness import negative_control as control
from unpooled.estimators.robustness.analysis import Analysis, Tables, fitted
from unpooled.estimators.robustness.common_cause import common_cause
from unpooled.estimators.robustness.noise_correlation import has_noise_correlation, noise_correlation
from unpooled.estimators.robustness.placebo import placebo
from unpooled.estimators.robustness.refit import Refit, RobustnessCheck
from unpooled.estimators.robustness.subsets import subsets
from unpooled.protocol.engine import RemoteSites
from unpooled.study import Study

TESTS = ("placebo", "common_cause", "subsets", "negative_control", "e_value", "noise_correlation")
REPEATS = 3
MISSING = (
    "These checks do not address whether values are missing at random, which cannot be tested; use "
    "`up.sensitivity(model, study, column=…)` or `unpooled sensitivity` for a sensitivity analysis."
)


@dataclass(frozen=True)
class Refutation:
    """The results of all checks."""

    main: Refit
    """The average effect of the main analysis."""
    table: pd.DataFrame
    """test, estimate, lower, upper, worrying, words: one row per check."""
    refits: pd.DataFrame
    """test, repeat, estimate, lower, upper, sd: one row per refit."""
    e_value: dict[str, float]
    """Risk ratio with its interval, and the E-values of the estimate and of the interval."""
    notes: tuple[str, ...] = ()
    """What these checks do not cover."""

    @property
    def worrying(self) -> list[str]:
        """The names of the checks with a worrying result."""
        return self.table.loc[self.table["worrying"], "test"].tolist()


def refute(
    model: Estimator,
    study: Study,
    sites: Mapping[str, Table] | None = None,
    *,
    tests: Sequence[str] | None = None,
    negative_control: str | None = None,
    repeats: int = REPEATS,
    limits: Limits = NONE,
    watch: Watcher | None = None,
    tell: Callable[[str], None] | None = None,
) -> Refutation:
    """Test the robustness of a study by fitting it again to changed tables.

    Parameters
    ----------
    model : Estimator
        The estimator. If it is not fitted to this study and these tables, a copy of it is fitted first.
    study : Study
        The study, as in `fit`.
    sites : dict of str to table, optional
        A table for each site, as in `fit`. By default, the tables that the study names. They must be in this
        process.
    tests : sequence of str, optional
        Some of "placebo", "common_cause", "subsets", "negative_control", "e_value" and "noise_correlation".
        By default, all that apply to the method; the negative control needs `negative_control`.
    negative_control : str, optional
        A column that the treatment cannot affect and that has no other role in the study.
    repeats : int, default=3
        Number of fits for each of "placebo", "common_cause" and "subsets".
    limits : Limits, optional
        Disclosure limits of the sites, off by default.
    watch : callable, optional
        Called with each finished `Round` of every fit.
    tell : callable, optional
        Called with a short description before every fit.

    Returns
    -------
    Refutation
        ``table`` has one row per test, ``refits`` one per fit, and ``worrying`` the names of the tests whose
        result is worrying.

    Raises
    ------
    StudyError
        If a test is unknown or impossible, or if the sites are remote.

    Examples
    --------
    >>> found = refute(model, study, sites, tests=["placebo", "e_value"])  # doctest: +SKIP
    >>> found.worrying  # doctest: +SKIP
    """
    chosen = chosen_tests(model, tests, negative_control)
    if repeats < 1:
        raise StudyError("repeats must be at least 1", found=f"repeats = {repeats}", remedy="give 1 or more")
    study = study.model_copy(update={"diagnostics": False})  # the main analysis has them
    sources = tables_here(model, study, sites)
    other = None if negative_control is None else control.about(study, negative_control, sources, limits)
    main, tables = fitted(model, study, sources, limits, watch)
    # Changed tables keep the family that was chosen for the tables of the main analysis.
    roles = study.columns.model_copy(update={"family": main.result_.scaling.family})
    study = study.model_copy(update={"columns": roles})
    analysis = Analysis(main, study, tables, repeats, limits, watch, tell)
    found = [_check(test, analysis, other, sources) for test in chosen]
    notes = (MISSING,) if study.columns.incomplete else ()
    strengths = strength.of_analysis(analysis)._asdict()
    return Refutation(analysis.main, _table(found), _refits(found), strengths, notes)


def chosen_tests(model: Estimator, tests: Sequence[str] | None, negative_control: str | None) -> list[str]:
    """The checks to run, in the order of `TESTS`; naming a negative control requests its check."""
    impossible = {
        "negative_control": negative_control is None,
        "noise_correlation": not has_noise_correlation(model),
    }
    if not tests:
        return [test for test in TESTS if not impossible.get(test)]
    named = [tests] if isinstance(tests, str) else list(tests)
    for test in named:
        if test not in TESTS:
            raise StudyError("every test must be known", found=f"'{test}'", remedy=nearest(test, TESTS))
        if impossible.get(test):
            raise _cannot(test, model)
    return [test for test in TESTS if test in named or (test == "negative_control" and negative_control)]


def _cannot(test: str, model: Estimator) -> StudyError:
    if test == "negative_control":
        return StudyError(
            "this test needs a negative control outcome",
            found="no column",
            remedy="name a column that treatment cannot affect, or omit this test",
        )
    return StudyError(
        "this test needs a method with a noise correlation: FedCI or CausalFI",
        found=f"method '{model.method}'",
        remedy="omit this test",
    )


def tables_here(model: Estimator, study: Study, sites: Mapping[str, Table] | None) -> dict[str, Table]:
    """The tables of all sites that were not lost during the fit."""
    if isinstance(sites, RemoteSites):
        raise StudyError(
            "robustness checks need the sites' tables in this process",
            found="remote sites",
            remedy="pass the tables themselves, or ask each site to run the checks on its own table",
        )
    absent = model.result_.lost_sites if hasattr(model, "result_") else {}
    named = study.sites if sites is None else sites
    return {site: table for site, table in named.items() if site not in absent}


def _check(test: str, analysis: Analysis, other: Study | None, sources: Tables) -> RobustnessCheck:
    if test == control.NAME and other is not None:
        return control.negative_control(analysis, other, sources)
    plain: dict[str, Callable[[Analysis], RobustnessCheck]] = {
        "placebo": placebo,
        "common_cause": common_cause,
        "subsets": subsets,
        "e_value": strength.e_value,
        "noise_correlation": noise_correlation,
    }
    return plain[test](analysis)


def _table(found: Sequence[RobustnessCheck]) -> pd.DataFrame:
    rows = [asdict(one) for one in found]
    return pd.DataFrame(rows, columns=["test", "estimate", "lower", "upper", "worrying", "words"])


def _refits(found: Sequence[RobustnessCheck]) -> pd.DataFrame:
    rows = [
        {"test": one.test, "repeat": number, **refit._asdict()}
        for one in found
        for number, refit in enumerate(one.refits, start=1)
    ]
    return pd.DataFrame(rows, columns=["test", "repeat", *Refit._fields])
