"""R̂ and effective sample sizes: values of arviz, and chains whose autocorrelation is known."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled.maths.convergence import effective_draws, split_rhat


def autoregressive(sweeps: int, chains: int, rho: float, rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal((sweeps, chains))
    found = noise.copy()
    for t in range(1, sweeps):
        found[t] = rho * found[t - 1] + np.sqrt(1.0 - rho**2) * noise[t]
    return found


def test_both_are_those_of_arviz() -> None:
    """Computed once with arviz-stats 0.8.0: `array_stats.rhat(method="rank")` and `ess(method="bulk")`."""
    rng = np.random.default_rng(5)
    expected = [
        (20, 8, 0.0, 1.0055866217390177, 154.96097993209835),
        (41, 4, 0.6, 1.060913657659783, 47.333366564526244),
        (100, 8, 0.9, 1.1768813871408341, 34.39517168379032),
        (60, 3, -0.5, 0.9979427298133658, 405.9490509185951),
    ]
    for sweeps, chains, rho, rhat, effective in expected:
        draws = np.exp(autoregressive(sweeps, chains, rho, rng))
        np.testing.assert_allclose(split_rhat(draws), rhat, rtol=1e-12)
        np.testing.assert_allclose(effective_draws(draws), effective, rtol=1e-12)


def test_the_effective_size_is_that_of_theory() -> None:
    draws = autoregressive(4000, 8, 0.5, np.random.default_rng(1))
    assert effective_draws(draws) == pytest.approx(32_000 * (1.0 - 0.5) / (1.0 + 0.5), rel=0.1)


def test_a_trend_and_chains_apart_in_place_or_scale_show() -> None:
    rng = np.random.default_rng(2)
    draws = rng.standard_normal((100, 4))
    assert split_rhat(draws) < 1.02
    assert split_rhat(draws + np.linspace(0.0, 3.0, 100)[:, None]) > 1.1
    assert split_rhat(draws + np.array([0.0, 0.0, 0.0, 2.0])) > 1.1
    assert split_rhat(draws * np.array([1.0, 1.0, 1.0, 8.0])) > 1.1


def test_many_quantities_are_measured_at_once_and_constants_are_mixed() -> None:
    rng = np.random.default_rng(3)
    draws = rng.standard_normal((30, 5, 2, 3))
    draws[:, :, 0, 0] = 4.0
    each = [[split_rhat(draws[:, :, i, j]) for j in range(3)] for i in range(2)]
    np.testing.assert_allclose(split_rhat(draws), each)
    assert split_rhat(draws)[0, 0] == 1.0
    assert effective_draws(draws)[0, 0] == 150.0
    stuck = np.tile(np.arange(5.0), (30, 1))
    assert split_rhat(stuck) > 1e3  # infinite, but for rounding


def test_too_few_draws_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        split_rhat(np.zeros((3, 2)))
