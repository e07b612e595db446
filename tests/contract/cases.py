"""Every method and every engine that the contract covers; a new one joins by a line."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from oracle.world import SIZES, STUDY, frames
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.engines.pipes import PipeTransport
from unpooled.engines.remote import RemoteEngine
from unpooled.protocol.engine import Engine
from unpooled.site.approval import Approvals
from unpooled.site.folder import APPROVALS, SiteFolder
from unpooled.site.identity import public_identity
from unpooled.study import Source, Study

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fedci": ("fedci", {"draws": 80, "evaluations": 8, "basis": 6}),
    "fedci, one structure": (
        "fedci",
        {"draws": 80, "evaluations": 8, "structure": "projection"},
    ),
    "fedci, variational": (
        "fedci",
        {"inference": "variational", "draws": 40, "rounds": 12, "monte_carlo": 2},
    ),
    "causal_rff": (
        "causal_rff",
        {"draws": 40, "classes": 2, "starts": 2, "rounds": 6, "sweeps": 6, "frequencies": 3},
    ),
    "causal_rff, gaussian": (
        "causal_rff",
        {
            "draws": 40,
            "confounding": "latent",
            "latent": "gaussian",
            "frequencies": 3,
            "latent_dimension": 2,
            "gaussian_rounds": 12,
            "monte_carlo": 2,
        },
    ),
    "causal_rff, observed": ("causal_rff", {"draws": 40, "confounding": "observed", "frequencies": 3}),
    "causal_fi": ("causal_fi", {"draws": 40, "sweeps": 10, "most_sweeps": 10, "structure": "linear"}),
    "aipw": ("aipw", {"draws": 40}),
    "aipw, weights": ("aipw", {"draws": 40, "estimator": "ipw", "folds": 2}),
    "meta_analysis": ("meta_analysis", {"draws": 40}),
    "causal_forest": ("causal_forest", {"draws": 40, "trees": 20, "nuisance_trees": 10}),
    "boosted_arms": ("boosted_arms", {"draws": 40, "steps": 2, "folds": 2}),
    "super_learner": (
        "super_learner",
        {"draws": 40, "folds": 2, "candidates": ("causal_forest", "boosted_arms")},
    ),
    "causal_rff, transfer": (
        "causal_rff",
        {"draws": 40, "confounding": "observed", "frequencies": 1, "site_terms": "transfer"},
    ),
}
"""A name, the method, and settings that make it quick."""
OF_COUNTS: dict[str, tuple[str, dict[str, Any]]] = {
    "causal_rff, counts": CASES["causal_rff"],
    "causal_rff, observed, counts": CASES["causal_rff, observed"],
}
"""The same where the outcome is a count."""
SLOWEST = {
    "fedci",
    "fedci, variational",
    "causal_rff",
    "causal_rff, gaussian",
    "causal_rff, transfer",
    "causal_rff, counts",
    "aipw, weights",
    "super_learner",
}
"""Those that compile for long: three site processes would each do so again."""


def study_of(case: str) -> Study:
    family = "count" if case in OF_COUNTS else "auto"
    return STUDY.with_changes(columns={**STUDY.columns.model_dump(), "family": family})


def tables_of(case: str) -> dict[str, pd.DataFrame]:
    tables = frames()
    if case not in OF_COUNTS:
        return tables
    return {name: table.assign(y=np.round(np.exp(0.8 + 0.4 * table["y"]))) for name, table in tables.items()}


def in_process(study: Study, tables: Mapping[str, pd.DataFrame]) -> Engine:
    return InProcess(open_sites(study, tables, NONE))


def masked(study: Study, tables: Mapping[str, pd.DataFrame]) -> Engine:
    return InProcess(open_sites(study, tables, NONE), masked=True)


def over_pipes(study: Study, tables: Mapping[str, pd.DataFrame]) -> Engine:
    transport, folders = _site_processes()
    sites = {name: public_identity(SiteFolder.read(folder).identity) for name, folder in folders.items()}
    for name, folder in folders.items():
        tables[name].to_parquet(folder / "table.parquet")
        Approvals(folder / APPROVALS).decide(study, approved=True, sites=sites)
    return RemoteEngine(transport, study)


@cache
def _site_processes() -> tuple[PipeTransport, dict[str, Path]]:
    """Site processes that import JAX once and end with this process."""
    root = tempfile.TemporaryDirectory(prefix="unpooled-")
    atexit.register(root.cleanup)
    folders = {name: Path(root.name) / name for name in SIZES}
    for name, folder in folders.items():
        SiteFolder.create(
            folder, name, Source(path=str(folder / "table.parquet")), limits=NONE, rehearsal=True
        )
    transport = PipeTransport(folders)
    atexit.register(transport.close)
    return transport, folders


MASKED = {"masked", "pipes"}
"""Engines over which the coordinator sees sums only."""
ENGINES: dict[str, Callable[[Study, Mapping[str, pd.DataFrame]], Engine]] = {
    "in_process": in_process,
    "masked": masked,
    "pipes": over_pipes,
}
