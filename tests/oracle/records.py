"""Records of a study that was never run: a test gives the fields it is about, the rest is neutral."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled import FedCI
from unpooled.coordinator.result import StudyResult
from unpooled.disclosure.by_site import Trace
from unpooled.disclosure.reveals import Cost
from unpooled.methods.causal_rff.settings import CausalRFFContext
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics
from unpooled.protocol.records import GROUPS, AverageOutcomes, Draws, Scaling, SiteSummaries
from unpooled.study import ColumnSchema, Schema, Study
from unpooled.study.family import Family


def scaling(features: int = 2, sites: tuple[str, ...] = ("north",), **given: Any) -> Scaling:
    """Numeric features in standard units."""
    neutral = {
        "mean": np.zeros(features),
        "sd": np.ones(features),
        "outcome_mean": 0.0,
        "outcome_sd": 1.0,
        "correlation": np.eye(features),
        "binary_rate": np.full(features, np.nan),
        "family": "continuous",
        "incomplete_mean": np.zeros(0),
        "incomplete_sd": np.ones(0),
        "incomplete_columns": (),
        "sites": len(sites),
        "site_distances": np.zeros((len(sites), len(sites))),
    }
    counts = given.pop("counts", (40,) * len(sites))
    observed = given.pop("observed", np.zeros((len(sites), 0)))
    by_site = SiteSummaries(given.pop("site_names", sites), counts, observed)
    totals = {"people": sum(counts), "largest_site": max(counts)}
    return Scaling(**{**neutral, **totals, "by_site": by_site, **given})


def diagnostic_statistics(**given: Any) -> DiagnosticStatistics:
    """What the sites sent for the diagnostics."""
    neutral = {
        "site_people": np.zeros(0),
        "site_weights": np.zeros(0),
        "site_estimates": np.zeros(0),
        "site_errors": np.zeros(0),
        "aipw": (1.0, 0.5),
        "ipw": (1.0, 0.5),
        "difference": (1.0, 0.5),
        "arm_means": np.zeros(2),
        "summed": {},
        "per_site": {},
        "clipped": 0,
        "rounds": 1,
        "converged": True,
    }
    return DiagnosticStatistics(**{**neutral, **given})


def causal_rff_context(covariates: int = 3, **given: Any) -> CausalRFFContext:
    """CausalRFF with two frequencies and a continuous outcome, at two sites."""
    neutral = {
        "covariates": covariates,
        "rates": np.full(covariates, np.nan),
        "frequencies": np.zeros((2, covariates)),
        "fourier_columns": np.arange(covariates),
        "sites": 2,
        "people": 100,
        "family": "continuous",
        "outcome_mean": 0.0,
        "outcome_sd": 1.0,
        "latent_frequencies": np.zeros((0, 0)),
        "observed_frequencies": np.zeros((0, covariates)),
    }
    return CausalRFFContext(**{**neutral, **given})


def model(
    study: Study,
    effects: np.ndarray,
    sites: tuple[str, ...] = ("north", "south"),
    counts: tuple[int, ...] = (30, 60),
    **given: Any,
) -> FedCI:
    """A model that was never fitted, with these draws [K, site] of the sites' average effects."""
    names = study.columns.covariates
    history = Trace((9.0, 2.0, 1.5))
    neutral = {
        "schema": Schema(
            covariates=tuple(ColumnSchema(name=name, kind="numeric") for name in names),
            control="0",
            treated="1",
        ),
        "scaling": scaling(len(names), sites, counts=counts, outcome_sd=2.0),
        "context": causal_rff_context(len(names)),
        "draws": Draws(),
        "fit_diagnostics": {
            "weights": {"isotropic": 1.0},
            "structures": {"isotropic": {"objective": 1.5, "evaluations": 3, "history": history}},
        },
        "fit_checks": (),
        "calibration": None,
        "noise_of_arms": None,
        "diagnostic_statistics": None,
        "cost": Cost(
            rounds=3,
            rounds_without_bytes=0,
            seconds=0.5,
            bytes_up={site: 1500 + 100 * place for place, site in enumerate(sites)},
            bytes_down=dict.fromkeys(sites, 900),
        ),
    }
    fitted = FedCI()
    fitted.result_ = StudyResult(
        study=study,
        asked=study.hash,
        **{"average_outcomes": AverageOutcomes.of_effects(effects, effects, counts), **neutral, **given},
    )
    return fitted


def with_subgroups(people: tuple[int, ...], family: Family = "binary") -> FedCI:
    """A model of 90 people at two sites that was never fitted, with these numbers in four subgroups."""
    subgroups = {"age": [0, 50, 65], "tall": "height > 180"}
    study = Study(treatment="quit", outcome="event", covariates=["age", "height"], subgroups=subgroups)
    groups = (*GROUPS, "age 0 to 50", "age 50 to 65", "age 65 and over", "tall")
    control = np.linspace(0.2, 0.4, len(groups))
    means = np.stack([control, control + np.linspace(0.0, 0.2, len(groups))], axis=-1)
    draws = np.random.default_rng(1).normal(means, 0.02, (400, 2, len(groups), 2))
    weight = np.outer([1 / 3, 2 / 3], [90, 40, 50, 17.5, *people])
    return model(
        study,
        np.zeros((400, 2)),
        scaling=scaling(2, ("north", "south"), counts=(30, 60), family=family),
        average_outcomes=AverageOutcomes(groups, draws, draws, weight),
    )
