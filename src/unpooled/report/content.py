"""The content of report.json: every number in the report. Small sites are withheld, so it may be shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from unpooled.diagnostics.borrowed_strength import borrowed
from unpooled.diagnostics.missingness import missing_shares
from unpooled.diagnostics.study_diagnostics import StudyDiagnostics, of_result
from unpooled.errors import UnpooledError
from unpooled.estimators import Estimator
from unpooled.maths.e_value import of_difference, of_means
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics
from unpooled.report import words


def report_content(
    model: Estimator, result: dict[str, Any], curves: pd.DataFrame | None, refutation: dict[str, Any] | None
) -> dict[str, Any]:
    """The report's content, from a model, its result.json and the optional files of its results folder."""
    outcome = model.result_
    hidden = result["hidden"]
    diagnostics, unavailable = study_diagnostics(model)
    return {
        "study": card(result),
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
        "estimand": words.ESTIMAND,
        "assumptions": words.assumptions(result["method"]),
        "sites": result["sites"],
        "hidden": hidden,
        "lost_sites": result["lost_sites"],
        "diagnostics": None if diagnostics is None else tables(diagnostics),
        "unavailable_reason": unavailable,
        "effects": [] if curves is None else records(curves),
        "borrowed": _square(borrowed(outcome.fit_diagnostics, outcome.sites), hidden),
        "missing": _missing(model, hidden),
        "e_value": _e_value(model, result),
        "refutation": refutation,
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


def card(result: dict[str, Any]) -> dict[str, Any]:
    """What was estimated, and everything needed to repeat the study."""
    return {
        "name": result["study"],
        "treatment": result["treatment"],
        "outcome": result["outcome"],
        "outcome_unit": result["outcome_unit"],
        "units": result["columns"]["units"],
        "covariates": result["columns"]["covariates"],
        "incomplete": result["columns"]["incomplete"],
        "method": words.METHODS.get(result["method"], result["method"]),
        "settings": result["settings"],
        "seed": result["seed"],
        "hash": result["study_hash"],
    }


def tables(diagnostics: StudyDiagnostics) -> dict[str, Any]:
    """The data frames of the diagnostics as records."""
    frames = ("checks", "table_one", "weights", "balance", "overlap", "sites", "leave_one_out", "comparators")
    found: dict[str, Any] = {name: records(getattr(diagnostics, name)) for name in frames}
    return {
        **found,
        "heterogeneity": diagnostics.heterogeneity,
        "outside_support": diagnostics.outside_support,
        "extreme": diagnostics.extreme,
    }


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def left(by_site: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What left the sites, by kind of message; `cost` has the bytes by site."""
    kinds: dict[str, dict[str, Any]] = {}
    for entries in by_site.values():
        for entry in entries:
            empty = {"kind": entry["kind"], "reveals": entry["reveals"], "sites": 0, "count": 0, "bytes": 0}
            kind = kinds.setdefault(entry["kind"], empty)
            kind["sites"] += 1
            kind["count"] = max(kind["count"], entry["count"])
            kind["bytes"] += entry["bytes"]
    return list(kinds.values())


def _cost(cost: dict[str, Any]) -> dict[str, Any]:
    return {
        "rounds": cost["rounds"],
        "seconds": cost["seconds"],
        "bytes_up": {**cost["bytes_up"]},
        "bytes_down": {**cost["bytes_down"]},
        "megabytes_up": sum(cost["bytes_up"].values()) / 1e6,
        "megabytes_down": sum(cost["bytes_down"].values()) / 1e6,
    }


def _square(shares: pd.DataFrame | None, hidden: dict[str, str]) -> list[dict[str, Any]] | None:
    if shares is None:
        return None
    shown = shares.drop(index=list(hidden), columns=list(hidden), errors="ignore")
    return None if shown.empty else records(shown.reset_index())


def _missing(model: Estimator, hidden: dict[str, str]) -> list[dict[str, Any]]:
    shares = missing_shares(model.result_.scaling, model.result_.sites, hidden)
    return [] if shares is None else records(shares.reset_index(names="site"))


def _e_value(model: Estimator, result: dict[str, Any]) -> dict[str, float] | None:
    """The E-values of the estimate and of the interval's limit closest to no effect."""
    numbers = (result["ate"], result["sd"], *result["ate_interval"])
    if not all(value is not None and np.isfinite(value) for value in numbers):
        return None
    scaling, statistics = model.result_.scaling, model.result_.diagnostic_statistics
    if result["columns"]["family"] == "continuous":
        found = of_difference(result["ate"], result["sd"], scaling.outcome_sd)
    elif not isinstance(statistics, DiagnosticStatistics):
        return None
    else:
        arms = np.asarray(statistics.summed["arms"])
        share = float(arms[1] / arms.sum())
        lower, upper = result["ate_interval"]
        found = of_means(result["ate"], lower, upper, scaling.outcome_mean, share)
    return {"estimate": found.estimate, "interval": found.interval}
