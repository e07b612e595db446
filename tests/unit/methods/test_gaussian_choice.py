"""The GaussianCandidate latent confounder among the candidates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unpooled as up
from oracle.world import STUDY, frames
from unpooled.methods.causal_rff import METHOD
from unpooled.methods.causal_rff.settings import CausalRFFSettings

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {
    "draws": 40, "classes": 2, "starts": 1, "rounds": 5, "sweeps": 6, "frequencies": 2,
    "latent_dimension": 2, "gaussian_rounds": 10, "monte_carlo": 2, "folds": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("confounding", "latent", "names"),
    [
        pytest.param("latent", "both", {"categorical", "gaussian"}, marks=pytest.mark.thorough),
        pytest.param("auto", "gaussian", {"observed", "categorical", "gaussian"}, marks=pytest.mark.thorough),
    ],
)
def test_candidates_are_compared_by_held_out_density(confounding: str, latent: str, names: set[str]) -> None:
    settings = {**QUICK, "confounding": confounding, "latent": latent}
    model = up.CausalRFF(seed=1, **settings).fit(STUDY, frames())
    told = model.result_.fit_diagnostics
    density = told["held_out_density"]
    assert set(density) == names
    assert all(np.isfinite(value) for value in density.values())
    assert told["chosen"] == max(density, key=lambda name: density[name])
    assert 0.0 < told["gaussian"]["acceptance"] <= 1.0
    assert model.result_.cost.rounds <= 4 + METHOD.most_rounds(CausalRFFSettings(**settings))
