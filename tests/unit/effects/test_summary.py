"""Draws into numbers, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from unpooled.effects.summary import interval, moments, table
from unpooled.protocol.records import combine

RNG = np.random.default_rng(6)
DRAWS = RNG.gamma(2.0, size=(500, 3))


def test_moments_are_scipys() -> None:
    found = moments(DRAWS[:, 0])
    assert found["mean"] == pytest.approx(DRAWS[:, 0].mean())
    assert found["variance"] == pytest.approx(DRAWS[:, 0].var())
    assert found["sd"] == pytest.approx(DRAWS[:, 0].std())
    assert found["skewness"] == pytest.approx(stats.skew(DRAWS[:, 0]))
    assert found["kurtosis"] == pytest.approx(stats.kurtosis(DRAWS[:, 0]))


def test_draws_that_never_vary_have_no_shape() -> None:
    found = moments(np.full(10, 2.0))
    assert (found["sd"], found["skewness"], found["kurtosis"]) == (0.0, 0.0, 0.0)


def test_intervals_are_equal_tailed_along_the_draws() -> None:
    lower, upper = interval(DRAWS, alpha=0.2)
    expected = stats.mstats.mquantiles(DRAWS, [0.1, 0.9], alphap=1, betap=1, axis=0)
    np.testing.assert_allclose([lower, upper], expected)
    assert np.all((lower > DRAWS).mean(axis=0) == pytest.approx(0.1, abs=0.01))


def test_sites_are_weighted_by_their_people_draw_by_draw() -> None:
    together = combine(DRAWS, [10, 30, 60])
    np.testing.assert_allclose(together, DRAWS @ np.array([0.1, 0.3, 0.6]))
    # Shared parameters stay shared: the spread of the whole is not that of independent sites.
    shared = np.repeat(DRAWS[:, :1], 3, axis=1)
    assert combine(shared, [1, 1, 1]).std() == pytest.approx(DRAWS[:, 0].std())


def test_the_table_has_a_line_per_site_and_one_for_all() -> None:
    frame = table(DRAWS, ["a", "b", "c"], [10, 30, 60], alpha=0.1)
    assert list(frame.index) == ["a", "b", "c", "all sites"]
    assert list(frame["n"]) == [10, 30, 60, 100]
    assert frame.loc["all sites", "ate"] == pytest.approx(combine(DRAWS, [10, 30, 60]).mean())
    assert frame.loc["b", "lower"] == pytest.approx(np.quantile(DRAWS[:, 1], 0.05))
    assert frame.loc["c", "sd"] == pytest.approx(DRAWS[:, 2].std())
