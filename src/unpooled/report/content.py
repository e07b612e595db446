"""The content of report.json: every number in the report. Small sites are withheld, so it may be shared."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from unpooled.coordinator.one_arm import one_arm_words
from unpooled.diagnostics.borrowed_strength import borrowed
from unpooled.diagnostics.missingness import missing_shares
from unpooled.diagnostics.study_diagnostics import StudyDiagnostics, of_result
from unpooled.disclosure.reveals import Sent
from unpooled.errors import UnpooledError
from unpooled.estimators import Estimator
from unpooled.maths.e_value import of_difference, of_means
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics
from unpooled.report import words
from unpooled.report.json_types import (
    CostContent,
    DiagnosticsContent,
    PolicyContent,
    RefutationContent,
    ReportContent,
    ReportCost,
    ResultContent,
    Rows,
    SentByKind,
    StudyCard,
)
from unpooled.study import Study
from unpooled.study.subgroups import subgroup_words


def report_content(
    model: Estimator,
    result: ResultContent,
    curves: pd.DataFrame | None,
    refutation: RefutationContent | None,
    policy: PolicyContent | None,
) -> ReportContent:
    """The report's content, from a model, its result.json and the optional files of its results folder."""
    outcome = model.result_
    hidden = result["hidden"]
    diagnostics, unavailable = study_diagnostics(model)
    return {
        "study": card(result, outcome.study),
        "sentence": words.sentence(result),
        "answer": {
            "estimate": result["ate"],
            "lower": result["ate_interval"][0],
            "upper": result["ate_interval"][1],
            "probability": result["interval_probability"],
            "sd": result["sd"],
            "people": result["people"],
            "sites": result["site_count"],
        },
        "estimand": words.ESTIMANDS[outcome.study.target],
        "assumptions": [
            *words.assumptions(result["method"], _chosen(result)),
            *one_arm_words(outcome.study, outcome.scaling),
        ],
        "sites": result["sites"],
        "hidden": hidden,
        "average_effects": result.get("average_effects", []),
        "effect_names": words.effect_names(result),
        "effect_notes": words.effect_notes(result),
        "subgroups": result.get("subgroups", []),
        "subgroup_tests": result.get("subgroup_tests", []),
        "hidden_groups": result.get("hidden_groups", {}),
        "lost_sites": result["lost_sites"],
        "notes": result.get("notes", []),
        "checks": result.get("checks", []),
        "failed": words.failed_checks(result),
        "diagnostics": None if diagnostics is None else tables(diagnostics),
        "unavailable_reason": unavailable,
        "effects": [] if curves is None else records(curves),
        "borrowed": _square(borrowed(outcome.fit_diagnostics, outcome.sites), hidden),
        "missing": _missing(model, hidden),
        "e_value": _e_value(model, result),
        "refutation": refutation,
        "policy": policy,
        "left": left(result["cost"].get("left", {})),
        "cost": _cost(result["cost"]),
        "limits": list(words.LIMITS),
        "citation": words.citation(result["study"], result["versions"]["unpooled"], result["study_hash"]),
        "versions": result["versions"],
    }


def study_diagnostics(model: Estimator) -> tuple[StudyDiagnostics | None, str]:
    """The diagnostics of the study, or None and the reason why they are unavailable."""
    try:
        return of_result(model.result_), ""
    except UnpooledError as error:
        return None, f"{error.expected}: {error.found}. {error.remedy}."


def card(result: ResultContent, study: Study) -> StudyCard:
    """What was estimated, and everything needed to repeat the study."""
    return {
        "name": result["study"],
        "treatment": result["treatment"],
        "outcome": result["outcome"],
        "outcome_unit": result["outcome_unit"],
        "outcome_words": result.get("outcome_words", ""),
        "units": result["columns"]["units"],
        "covariates": result["columns"]["covariates"],
        "incomplete": result["columns"]["incomplete"],
        "subgroups": [subgroup_words(name, entry) for name, entry in study.subgroups.items()],
        "method": words.METHODS.get(result["method"], result["method"]),
        "settings": result["settings"],
        "seed": result["seed"],
        "hash": result["study_hash"],
    }


def tables(diagnostics: StudyDiagnostics) -> DiagnosticsContent:
    """The data frames of the diagnostics as records."""
    return {
        "checks": records(diagnostics.checks),
        "table_one": records(diagnostics.table_one),
        "weights": records(diagnostics.weights),
        "balance": records(diagnostics.balance),
        "overlap": records(diagnostics.overlap),
        "sites": records(diagnostics.sites),
        "leave_one_out": records(diagnostics.leave_one_out),
        "comparators": records(diagnostics.comparators),
        "heterogeneity": diagnostics.heterogeneity,
        "outside_support": diagnostics.outside_support,
        "extreme": diagnostics.extreme,
    }


def records(frame: pd.DataFrame) -> Rows:
    """The rows of a data frame, by column name."""
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def left(by_site: Mapping[str, list[Sent]]) -> list[SentByKind]:
    """What left the sites, by kind of message; `cost` has the bytes by site."""
    kinds: dict[str, SentByKind] = {}
    for entries in by_site.values():
        for entry in entries:
            empty = SentByKind(kind=entry["kind"], reveals=entry["reveals"], sites=0, count=0, bytes=0)
            kind = kinds.setdefault(entry["kind"], empty)
            kind["sites"] += 1
            kind["count"] = max(kind["count"], entry["count"])
            kind["bytes"] += entry["bytes"]
    return list(kinds.values())


def _cost(cost: CostContent) -> ReportCost:
    return {
        "rounds": cost["rounds"],
        "seconds": cost["seconds"],
        "bytes_up": {**cost["bytes_up"]},
        "bytes_down": {**cost["bytes_down"]},
        "megabytes_up": sum(cost["bytes_up"].values()) / 1e6,
        "megabytes_down": sum(cost["bytes_down"].values()) / 1e6,
    }


def _square(shares: pd.DataFrame | None, hidden: dict[str, str]) -> Rows | None:
    if shares is None:
        return None
    shown = shares.drop(index=list(hidden), columns=list(hidden), errors="ignore")
    return None if shown.empty else records(shown.reset_index())


def _missing(model: Estimator, hidden: dict[str, str]) -> Rows:
    shares = missing_shares(model.result_.scaling, model.result_.sites, hidden)
    return [] if shares is None else records(shares.reset_index(names="site"))


def _e_value(model: Estimator, result: ResultContent) -> dict[str, float] | None:
    """The E-values of the estimate and of the interval's limit closest to no effect."""
    ate, sd, (lower, upper) = result["ate"], result["sd"], result["ate_interval"]
    if ate is None or sd is None or lower is None or upper is None:
        return None
    if not np.isfinite([ate, sd, lower, upper]).all():
        return None
    scaling, statistics = model.result_.scaling, model.result_.diagnostic_statistics
    if result["columns"]["family"] == "continuous":
        found = of_difference(ate, sd, scaling.outcome_sd)
    elif not isinstance(statistics, DiagnosticStatistics):
        return None
    else:
        arms = np.asarray(statistics.summed["arms"])
        share = float(arms[1] / arms.sum())
        found = of_means(ate, lower, upper, scaling.outcome_mean, share)
    return {"estimate": found.estimate, "interval": found.interval}


def _chosen(result: ResultContent) -> str | None:
    """The candidate that was chosen, for methods with several."""
    found = result.get("diagnostics", {}).get("chosen")
    return found if isinstance(found, str) else None
