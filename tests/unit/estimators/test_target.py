"""Averages over the people of a study and over their population."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.errors import StudyError
from unpooled.methods.aipw.model import of_residuals, of_scores
from unpooled.models.effects import averages, group_weights
from unpooled.protocol.rows import make_rows

N = 90


def test_the_population_is_as_uncertain_as_a_sample_from_it() -> None:
    effects = np.random.default_rng(0).normal(2.0, 3.0, N)
    nothing = np.zeros(N)
    rows = make_rows(nothing[:, None], nothing, nothing, fold=nothing, site=0)
    padded = np.pad(effects, (0, len(rows.fold) - N), constant_values=1e9)
    both = np.broadcast_to(np.stack([np.zeros_like(padded), padded], axis=1), (4000, len(padded), 2))
    found = averages(both, group_weights(rows), rows, jax.random.key(1))
    np.testing.assert_allclose(found["sample"][:, 0, 1], effects.mean(), rtol=1e-9)
    population = np.asarray(found["population"][:, 0, 1])
    assert population.mean() == pytest.approx(effects.mean(), abs=0.03)
    # The Bayesian bootstrap of a mean: Var = Σ(τ − τ̄)² / (n(n + 1)).
    assert population.std() == pytest.approx(effects.std() / np.sqrt(N + 1), rel=0.05)


def test_the_error_in_the_sample_leaves_out_how_effects_differ() -> None:
    rng = np.random.default_rng(2)
    effect, noise = rng.normal(1.0, 2.0, N), rng.normal(0.0, 0.5, N)
    score = effect + noise
    sums = {
        "people": np.array(float(N)),
        "weight": np.array(float(N)),
        "mean": score.mean(),
        "noise": np.sum(noise**2),
    }
    sums["squares"] = np.sum((score - score.mean()) ** 2)
    sample, population = of_residuals(sums), of_scores(sums)
    assert sample.estimate == population.estimate == score.mean()
    assert population.error == pytest.approx(score.std(ddof=1) / np.sqrt(N))
    assert sample.error == pytest.approx(np.sqrt(np.sum(noise**2) / (N - 1) / N))


def test_a_study_says_which_average_it_wants() -> None:
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=3 * N), np.arange(3 * N) % 2
    frame = pd.DataFrame({"x": x, "w": w, "y": w * (1.0 + 3.0 * x) + 0.3 * rng.normal(size=3 * N)})
    sites = {f"s{i}": frame.iloc[i * N : (i + 1) * N] for i in range(3)}
    roles = {"treatment": "w", "outcome": "y", "covariates": ["x"]}
    models = {
        target: up.AIPW(draws=400, repeats=1).fit(up.Study(**roles, target=target), sites)
        for target in ("population", "sample")
    }
    widths = {name: np.ptp(model.ate_interval()) for name, model in models.items()}
    assert widths["population"] > 5.0 * widths["sample"]
    one = models["sample"].result_
    np.testing.assert_array_equal(one.site_effects, one.average_outcomes.effects("sample")[:, :, 0])
    np.testing.assert_array_equal(
        models["population"].result_.average_outcomes.sample, one.average_outcomes.sample
    )
    assert up.Study(**roles).target == "population"
    with pytest.raises(StudyError):
        up.Study(**roles, target="everybody")
