"""The noise of individual effects follows the study's seed, beside the draws of the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unpooled as up
from oracle.world import STUDY, frames
from unpooled.protocol.rows import Rows

pytestmark = pytest.mark.slow

MODELS: dict[str, Any] = {
    "aipw": lambda seed: up.AIPW(seed=seed, draws=40),
    "causal_rff": lambda seed: up.CausalRFF(seed=seed, draws=40, confounding="observed", frequencies=3),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param](1).fit(STUDY, frames())


def individual(model: Any, seed: int, people: Rows | None = None) -> np.ndarray:
    """ITE draws at one site, under the draws of the fit."""
    adopted = model.sites_["south"].adopted
    found = adopted.method.individual_effects(
        adopted.settings, adopted.context, model.result_.draws, adopted.rows, people, seed
    )
    return np.asarray(found)[:, : adopted.count]


@pytest.mark.parametrize("own", [True, False], ids=["own people", "other people"])
def test_the_same_draws_have_other_noise_under_another_seed_and_the_same_under_the_same(
    model: Any, own: bool
) -> None:
    people = None if own else model.sites_["south"].adopted.rows
    first, again, other = (individual(model, seed, people) for seed in (1, 1, 2))
    np.testing.assert_array_equal(again, first)
    assert np.mean(other != first) > 0.99
    # Noise alone differs: its mean over 40 draws and 15 people is near zero, against the sd of one.
    assert abs((other - first).mean()) < first.std()


def test_a_fitted_model_uses_the_seed_of_its_study(model: Any) -> None:
    scale = model.result_.outcome_sd
    np.testing.assert_allclose(model.ite_draws("south"), scale * individual(model, 1), rtol=1e-12)
    assert not np.allclose(model.ite_draws("south"), scale * individual(model, 2))
