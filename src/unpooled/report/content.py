"""report.json: every number of the report, as it may be handed on. Sites with few people are not in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from unpooled.diagnostics.borrowed_strength import borrowed
from unpooled.diagnostics.gap_shares import gap_shares
from unpooled.diagnostics.look import Look, look_at
from unpooled.errors import UnpooledError
from unpooled.maths.e_value import of_difference, of_means
from unpooled.report import words
from unpooled.report.model import Model


def report_content(
    model: Model, result: dict[str, Any], curves: pd.DataFrame | None, refutation: dict[str, Any] | None
) -> dict[str, Any]:
    """From a model, its result.json, and what else its results folder holds."""
    outcome = model.result_
    hidden = result["hidden"]
    look, why_not = looked(model)
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
        "left_out": result["left_out"],
        "looked": None if look is None else tables(look),
        "not_looked": why_not,
        "effects": [] if curves is None else records(curves),
        "borrowed": _square(borrowed(outcome.diagnostics, outcome.sites), hidden),
        "missing": _missing(model, hidden),
        "e_value": _e_value(model, result),
        "refutation": refutation,
        "left": left(result["cost"].get("left", {})),
        "cost": _cost(result["cost"]),
        "limits": list(words.LIMITS),
        "citation": words.citation(result["study"], result["versions"]["unpooled"], result["study_hash"]),
        "versions": result["versions"],
    }


def looked(model: Model) -> tuple[Look | None, str]:
    """What was seen beside the fit, or why nothing was."""
    try:
        return look_at(model.result_), ""
    except UnpooledError as error:
        return None, f"{error.expected}: {error.found}. {error.remedy}."


def card(result: dict[str, Any]) -> dict[str, Any]:
    """The question, and everything needed to ask it again."""
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


def tables(look: Look) -> dict[str, Any]:
    """A look's frames as records."""
    frames = ("checks", "table_one", "weights", "balance", "overlap", "sites", "leave_one_out", "comparators")
    found: dict[str, Any] = {name: records(getattr(look, name)) for name in frames}
    return {
        **found,
        "heterogeneity": look.heterogeneity,
        "outside_support": look.outside_support,
        "extreme": look.extreme,
    }


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def left(by_site: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What left the sites, by kind of message; bytes by site are in `cost`."""
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


def _missing(model: Model, hidden: dict[str, str]) -> list[dict[str, Any]]:
    shares = gap_shares(model.result_.scaling, model.result_.sites, hidden)
    return [] if shares is None else records(shares.reset_index(names="site"))


def _e_value(model: Model, result: dict[str, Any]) -> dict[str, float] | None:
    """Of the estimate, and of the interval's end nearest to no effect."""
    numbers = (result["ate"], result["sd"], *result["ate_interval"])
    if not all(value is not None and np.isfinite(value) for value in numbers):
        return None
    scaling, looked_at = model.result_.scaling, model.result_.looked
    if result["columns"]["family"] == "continuous":
        found = of_difference(result["ate"], result["sd"], float(scaling["outcome_sd"]))
    elif looked_at is None or "why_not" in looked_at:
        return None
    else:
        arms = np.asarray(looked_at["total"]["arms"])
        share = float(arms[1] / arms.sum())
        lower, upper = result["ate_interval"]
        found = of_means(result["ate"], lower, upper, float(scaling["outcome_mean"]), share)
    return {"estimate": found.estimate, "interval": found.interval}
