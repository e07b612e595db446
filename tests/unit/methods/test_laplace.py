"""Draws of hyperparameters about their mode."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from unpooled.methods.fedci.checks import noise_of_arms
from unpooled.methods.fedci.laplace import (
    LONGEST,
    SHORTEST,
    PosteriorMode,
    about,
    plausible,
    precision_of,
    reach_of,
)
from unpooled.methods.fedci.ridge import propensity_of


def test_no_direction_spreads_beyond_its_prior() -> None:
    rng = np.random.default_rng(0)
    turned, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    prior = np.diag([8.0, 1.0, 4.0, 0.01])
    likelihood = turned @ np.diag([50.0, 3.0, -6.0, -0.5]) @ turned.T  # a saddle, as modes of GPs can be
    precision = precision_of(prior + likelihood, prior)
    floor = np.diag([8.0, 1.0, 4.0, 0.5])
    assert np.linalg.eigvalsh(precision - floor).min() > -1e-9
    narrowed = turned @ np.diag([50.0, 3.0, 0.0, 0.0]) @ turned.T
    np.testing.assert_allclose(precision, floor + narrowed, atol=1e-9)


ROOT = np.array([[2.0, 0.0, 0.0], [0.5, 1.0, 0.0], [-0.3, 0.2, 0.7]])
MODE = PosteriorMode({"a": np.array([1.0, -2.0]), "b": np.array([3.0])}, 0.0, ROOT @ ROOT.T)


def _flat(draws: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(draws)], axis=1)


def test_draws_have_the_covariance_of_the_precision_and_stay_within_the_bounds() -> None:
    normal = np.random.default_rng(1).standard_normal((200_000, 3))
    flat = _flat(about(MODE, normal, {"a": (-50.0, 50.0), "b": (-50.0, 50.0)}))
    np.testing.assert_allclose(flat.mean(axis=0), [1.0, -2.0, 3.0], atol=0.03)
    np.testing.assert_allclose(np.cov(flat.T), np.linalg.inv(MODE.precision), rtol=0.06, atol=0.03)
    narrow = _flat(about(MODE, normal, {"a": (-50.0, 50.0), "b": (2.0, 4.0)}))[:, 2]
    assert narrow.min() >= 2.0 and narrow.max() <= 4.0


@pytest.mark.parametrize("steeper", [0.5, 1.0, 2.0, 9.0])
def test_a_draw_is_moved_to_where_the_objective_rises_as_expected(steeper: float) -> None:
    """On an objective that is `steeper` times as curved as the precision says, in every direction."""
    normal = np.random.default_rng(2).standard_normal((50, 3))
    bounds = {"a": (-50.0, 50.0), "b": (-50.0, 50.0)}
    centre = _flat({name: leaf[None] for name, leaf in MODE.free.items()})

    def rise(draws: np.ndarray) -> np.ndarray:
        return 0.5 * steeper * np.sum(((draws - centre) @ ROOT) ** 2, axis=1)

    expected = 0.5 * np.sum(normal**2, axis=1)
    reach = reach_of(rise(_flat(about(MODE, normal, bounds))), expected)
    moved = _flat(about(MODE, reach[:, None] * normal, bounds))
    np.testing.assert_allclose(rise(moved), expected, rtol=1e-9)


def test_a_draw_is_never_moved_out_of_all_proportion() -> None:
    reach = reach_of(np.array([1e9, 1.0, 0.0, -5.0, np.nan, np.inf]), np.ones(6))
    assert reach.tolist() == [SHORTEST, 1.0, LONGEST, LONGEST, SHORTEST, SHORTEST]


def test_draws_that_the_data_contradict_are_left_out() -> None:
    mode = PosteriorMode({}, 10.0, np.eye(2))
    furthest = 0.5 * 13.8155  # half the 99.9 % point of χ² with two degrees of freedom
    values = np.array([10.0, 10.0 + furthest - 0.01, 10.0 + furthest + 0.01, 12.0, 500.0, 11.0])
    assert plausible(values, mode).tolist() == [0, 1, 3, 5]
    # A draw better than the mode moves the region; however poor the approximation, half of them stay.
    assert plausible(values - np.array([0.0, 0, 0, 0, 0, 500.0]), mode).tolist() == [0, 3, 5]


def test_the_propensity_is_a_regression_of_the_treatment_in_units_of_its_fit() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3)) + 0.3
    w = (x[:, 0] + rng.normal(size=400) > 0.0).astype(float)
    ones = np.column_stack([np.ones(400), x])
    gram = np.stack([ones.T @ (ones * arm[:, None]) for arm in (1.0 - w, w)])
    found = propensity_of(gram)
    centred = x - x.mean(axis=0)
    slopes = np.linalg.solve(centred.T @ centred + np.eye(3), centred.T @ w)
    np.testing.assert_allclose(found, slopes / (centred @ slopes).std(), rtol=1e-8)


def test_the_noise_of_the_arms_from_draws_of_its_log_sd() -> None:
    rng = np.random.default_rng(4)
    equal = 0.05 * rng.standard_normal((400, 2))
    assert noise_of_arms(equal).check().passed
    for arm in (0, 1):
        found = noise_of_arms(equal + 0.25 * (np.arange(2) == arm))
        expected = np.exp(0.5 - 2.0 * 1.96 * 0.05 * np.sqrt(2.0))
        np.testing.assert_allclose(found.check().found, expected, rtol=0.05)
        assert not found.check().passed
        np.testing.assert_allclose(found.unexplained, np.sqrt(np.exp(0.5) - 1.0), rtol=0.05)
        effects = found.unexplained_effects(400, 3)
        np.testing.assert_allclose(effects.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(effects.std(axis=0), found.unexplained, rtol=0.01)
        assert not np.any(noise_of_arms(equal).unexplained_effects(400, 3))
