"""Every method and every engine that the contract covers; a new one joins by a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unpooled.engines.in_process import InProcess
from unpooled.protocol.engine import Engine
from unpooled.site.site import Site

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
    "causal_fi": ("causal_fi", {"draws": 40, "sweeps": 10, "structure": "linear"}),
    "aipw": ("aipw", {"draws": 40}),
    "aipw, weights": ("aipw", {"draws": 40, "estimator": "ipw", "folds": 2}),
    "meta_analysis": ("meta_analysis", {"draws": 40}),
    "causal_rff, transfer": (
        "causal_rff",
        {"draws": 40, "confounding": "observed", "frequencies": 1, "site_terms": "transfer"},
    ),
}
"""A name, the method, and settings that make it quick."""
SLOWEST = {
    "fedci",
    "fedci, variational",
    "causal_rff",
    "causal_rff, gaussian",
    "causal_rff, transfer",
    "aipw, weights",
}
"""Those that compile for long, where a quicker case of the same method is there."""

ENGINES: dict[str, Callable[[Mapping[str, Site]], Engine]] = {"in_process": InProcess}
