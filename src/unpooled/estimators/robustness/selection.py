"""Which tests there are, which of them a study allows, and whether its tables are here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unpooled.data import Table
from unpooled.errors import StudyError, nearest
from unpooled.estimators.base import Estimator
from unpooled.estimators.robustness.noise_correlation import takes_part
from unpooled.protocol.engine import RemoteSites
from unpooled.study import Study

TESTS = ("placebo", "common_cause", "subsets", "negative_control", "e_value", "noise_correlation")


def chosen_tests(model: Estimator, tests: Sequence[str] | None, negative_control: str | None) -> list[str]:
    """In the order of `TESTS`; a control that is named is a test that is asked for."""
    impossible = {
        "negative_control": negative_control is None,
        "noise_correlation": not takes_part(model),
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
