"""Simultaneous intervals, and the test of equal effects, from draws with known distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import f, kstest, norm

from unpooled.effects.subgroups import equal_effects, gate_columns, simultaneous_interval

RNG = np.random.default_rng(5)


def test_independent_groups_have_intervals_of_the_known_width() -> None:
    """For g independent normals, the quantile c of max |t| has (2Φ(c) − 1)^g = 1 − α."""
    draws = RNG.normal([0.0, 5.0, -2.0], [1.0, 2.0, 0.1], (40_000, 3))
    lower, upper = simultaneous_interval(draws, 0.05)
    reach = norm.ppf(0.5 + 0.5 * 0.95 ** (1.0 / 3.0))
    np.testing.assert_allclose((upper - lower) / 2.0, reach * np.array([1.0, 2.0, 0.1]), rtol=0.02)
    together = np.all((draws > lower) & (draws < upper), axis=1)
    assert together.mean() == pytest.approx(0.95, abs=1e-3)


def test_groups_that_move_together_need_no_wider_intervals() -> None:
    one = RNG.normal(size=(40_000, 1))
    lower, upper = simultaneous_interval(np.hstack([one, 3.0 * one + 1.0]), 0.1)
    np.testing.assert_allclose((upper - lower) / 2.0, norm.ppf(0.95) * np.array([1.0, 3.0]), rtol=0.02)


def test_a_group_without_people_leaves_the_others_as_they_are() -> None:
    draws = RNG.normal(size=(500, 3))
    draws[:, 1] = np.nan
    found, others = gate_columns(draws, 0.05), gate_columns(draws[:, [0, 2]], 0.05)
    for name, values in found.items():
        assert np.isnan(values[1])
        np.testing.assert_allclose(values[[0, 2]], others[name], rtol=1e-9)


def test_the_statistic_is_that_of_an_inverse_and_does_not_depend_on_the_reference() -> None:
    draws = RNG.normal([1.0, 1.5, 0.2, 0.0], [0.3, 0.2, 0.4, 0.3], (300, 4)) + RNG.normal(size=(300, 1))
    difference = draws[:, 1:] - draws[:, :1]
    mean, covariance = difference.mean(axis=0), np.cov(difference.T)
    found = equal_effects(draws)
    assert found.degrees == 3
    assert found.statistic == pytest.approx(mean @ np.linalg.inv(covariance) @ mean)
    assert found.p_value == pytest.approx(f.sf(found.statistic * 297 / (299 * 3), 3, 297))
    assert equal_effects(draws[:, [2, 0, 3, 1]]).statistic == pytest.approx(found.statistic)


def test_its_p_value_is_uniform_if_effects_are_equal() -> None:
    """Estimates are normal about the common effect, and draws about the estimates, with one covariance."""
    root = RNG.normal(size=(4, 4))
    values = [
        equal_effects(2.0 + root @ RNG.normal(size=4) + RNG.normal(size=(60, 4)) @ root.T).p_value
        for _ in range(600)
    ]
    assert kstest(values, "uniform").pvalue > 0.001


def test_equal_draws_of_all_groups_cannot_be_tested() -> None:
    found = equal_effects(np.repeat(RNG.normal(size=(100, 1)), 3, axis=1))
    assert found.degrees == 0
    assert np.isnan(found.p_value)
