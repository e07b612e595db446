"""Refuting a study: each test says what a worrying result looks like, and whether this one is."""

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
    """Put a study to the test, beside its tables.

    Parameters
    ----------
    model : Estimator
        Fitted to this study and these tables; else a copy of it is fitted first.
    study, sites
        As for `fit`; the tables must be in this process.
    tests : sequence of str, optional
        Some of placebo, common_cause, subsets, negative_control, e_value and noise_correlation; if not given,
        all that the method and a named control allow.
    negative_control : str, optional
        A column that treatment cannot affect and that has no other role in the study.
    repeats : int, optional
        How often the placebo, the random common cause and the subsets are drawn and fitted.
    limits, watch : optional
        As for `fit`, for every fit there is.
    tell : callable, optional
        Called with a few words before every fit.
    """
    chosen = chosen_tests(model, tests, negative_control)
    if repeats < 1:
        raise StudyError("a test is done once or more", found=f"repeats = {repeats}", remedy="give 1 or more")
    study = study.model_copy(update={"diagnostics": False})  # at the main analysis one has looked already
    sources = tables_here(model, study, sites)
    other = None if negative_control is None else control.about(study, negative_control, sources, limits)
    main, tables = fitted(model, study, sources, limits, watch)
    analysis = Analysis(main, study, tables, repeats, limits, watch, tell)
    found = [_finding(test, analysis, other, sources) for test in chosen]
    notes = (MISSING,) if study.columns.incomplete else ()
    strengths = strength.of_analysis(analysis)._asdict()
    return Refutation(analysis.main, _table(found), _refits(found), strengths, notes)


def chosen_tests(model: Estimator, tests: Sequence[str] | None, negative_control: str | None) -> list[str]:
    """In the order of `TESTS`; a control that is named is a test that is asked for."""
    impossible = {
        "negative_control": negative_control is None,
        "noise_correlation": not has_noise_correlation(model),
    }
    if not tests:
        return [test for test in TESTS if not impossible.get(test)]
    named = [tests] if isinstance(tests, str) else list(tests)
    for test in named:
        if test not in TESTS:
            raise StudyError("a test must be a known one", found=f"'{test}'", remedy=nearest(test, TESTS))
        if impossible.get(test):
            raise _cannot(test, model)
    return [test for test in TESTS if test in named or (test == "negative_control" and negative_control)]


def _cannot(test: str, model: Estimator) -> StudyError:
    if test == "negative_control":
        return StudyError(
            "a negative control must be named",
            found="no column",
            remedy="name a column that treatment cannot affect, or leave this test out",
        )
    return StudyError(
        "this test needs a method that has a noise correlation: FedCI or CausalFI",
        found=f"method '{model.method}'",
        remedy="leave this test out",
    )


def tables_here(model: Estimator, study: Study, sites: Mapping[str, Table] | None) -> dict[str, Table]:
    """The tables, without those that the fit went on without."""
    if isinstance(sites, RemoteSites):
        raise StudyError(
            "tables are changed and fitted again in this process",
            found="sites that are elsewhere",
            remedy="give the tables themselves, or ask whoever holds them to run this test on their own",
        )
    absent = model.result_.lost_sites if hasattr(model, "result_") else {}
    named = study.sites if sites is None else sites
    return {site: table for site, table in named.items() if site not in absent}


def _finding(test: str, analysis: Analysis, other: Study | None, sources: Tables) -> RobustnessCheck:
    if test == control.NAME and other is not None:
        return control.finding(analysis, other, sources)
    plain: dict[str, Callable[[Analysis], RobustnessCheck]] = {
        "placebo": placebo,
        "common_cause": common_cause,
        "subsets": subsets,
        "e_value": strength.finding,
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
