"""Refuting a study: each test says what a worrying result looks like, and whether this one is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from unpooled.data import Table
from unpooled.disclosure.limits import NONE, Limits
from unpooled.errors import StudyError
from unpooled.estimators.base import Estimator, Watcher
from unpooled.estimators.robustness import e_value as strength
from unpooled.estimators.robustness import negative_control as control
from unpooled.estimators.robustness.analysis import Analysis, Tables, fitted
from unpooled.estimators.robustness.common_cause import common_cause
from unpooled.estimators.robustness.noise_correlation import noise_correlation
from unpooled.estimators.robustness.placebo import placebo
from unpooled.estimators.robustness.selection import chosen_tests, tables_here
from unpooled.estimators.robustness.subsets import subsets
from unpooled.estimators.robustness.verdict import Finding, Refit
from unpooled.study import Study

REPEATS = 3
MISSING = (
    "Whether values are missing at random is another question, and no data can tell: "
    "`up.sensitivity(model, study, column=…)` and `unpooled sensitivity` ask it."
)


@dataclass(frozen=True)
class Refutation:
    """What every test found."""

    main: Refit
    """The analysis that is questioned."""
    table: pd.DataFrame
    """test, estimate, lower, upper, worrying, words: one row per test."""
    refits: pd.DataFrame
    """test, repeat, estimate, lower, upper, sd: one row per fit."""
    e_value: dict[str, float]
    """Risk ratio with its interval, and the E-values of the estimate and of the interval."""
    notes: tuple[str, ...] = ()
    """What these tests do not ask."""

    @property
    def worrying(self) -> list[str]:
        """The tests whose result is worrying."""
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
        raise StudyError("a test is done once or more", found=f"repeats = {repeats}", remedy="give 1 or more")
    study = study.model_copy(update={"diagnostics": False})  # the main analysis has them
    sources = tables_here(model, study, sites)
    other = None if negative_control is None else control.about(study, negative_control, sources, limits)
    main, tables = fitted(model, study, sources, limits, watch)
    analysis = Analysis(main, study, tables, repeats, limits, watch, tell)
    found = [_finding(test, analysis, other, sources) for test in chosen]
    notes = (MISSING,) if study.columns.incomplete else ()
    strengths = strength.of_analysis(analysis)._asdict()
    return Refutation(analysis.main, _table(found), _refits(found), strengths, notes)


def _finding(test: str, analysis: Analysis, other: Study | None, sources: Tables) -> Finding:
    if test == control.NAME and other is not None:
        return control.finding(analysis, other, sources)
    plain: dict[str, Callable[[Analysis], Finding]] = {
        "placebo": placebo,
        "common_cause": common_cause,
        "subsets": subsets,
        "e_value": strength.finding,
        "noise_correlation": noise_correlation,
    }
    return plain[test](analysis)


def _table(found: Sequence[Finding]) -> pd.DataFrame:
    rows = [asdict(one) for one in found]
    return pd.DataFrame(rows, columns=["test", "estimate", "lower", "upper", "worrying", "words"])


def _refits(found: Sequence[Finding]) -> pd.DataFrame:
    rows = [
        {"test": one.test, "repeat": number, **refit._asdict()}
        for one in found
        for number, refit in enumerate(one.refits, start=1)
    ]
    return pd.DataFrame(rows, columns=["test", "repeat", *Refit._fields])
