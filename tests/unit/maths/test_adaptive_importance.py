"""Adaptive importance sampling: of targets that are far from the first proposals, and skewed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from unpooled.maths.adaptive_importance import (
    DEGREES,
    Student,
    WeightedPoints,
    effective_points,
    fitted_to,
    independence_chains,
    none_yet,
    tempered,
)

SIZE = 6


def student(centre: Any, scale: Any) -> Any:
    return stats.multivariate_t(centre, scale, df=DEGREES)  # pyright: ignore[reportArgumentType]


def log_target(points: np.ndarray) -> np.ndarray:
    """A normal distribution of which one coordinate is the logarithm of a gamma variable."""
    others = points[:, 1:] - 0.5 * points[:, :1]
    return 3.0 * points[:, 0] - np.exp(points[:, 0]) - 0.5 * np.sum(others**2, axis=1) / 0.25


def adapted(start: Student, rounds: int, count: int = 600) -> WeightedPoints:
    rng, points, proposal = np.random.default_rng(2), none_yet(SIZE), start
    for _ in range(rounds):
        drawn = proposal.draw(count, rng)
        points = points.with_points(drawn, log_target(drawn), proposal)
        proposal = points.fitted()
    return points


def test_the_density_is_that_of_a_t_distribution() -> None:
    rng = np.random.default_rng(1)
    root = np.tril(rng.standard_normal((3, 3))) + 2.0 * np.eye(3)
    one, points = Student(rng.standard_normal(3), root), rng.standard_normal((5, 3))
    expected = student(one.centre, root @ root.T).logpdf(points)
    found = one.log_density(points)
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-10)
    drawn = one.draw(200_000, rng)
    np.testing.assert_allclose(np.cov(drawn.T), root @ root.T * DEGREES / (DEGREES - 2.0), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_proposals_that_start_far_off_and_too_narrow_find_the_target(shift: float) -> None:
    points = adapted(Student(np.full(SIZE, shift), 0.3 * np.eye(SIZE)), rounds=8)
    logs = points.log_weights
    weights = np.exp(logs - logs.max())
    assert effective_points(weights) > 600.0
    mean = weights @ points.points / weights.sum()
    # The mean of the logarithm of a gamma variable of shape 3 is ψ(3).
    expected = 0.92278
    np.testing.assert_allclose(mean, [expected, *[0.5 * expected] * (SIZE - 1)], atol=0.06)


def test_weights_count_every_distribution_that_points_came_from() -> None:
    wide, narrow = Student(np.zeros(1), np.eye(1) * 2.0), Student(np.zeros(1), np.eye(1) * 0.5)
    points = np.array([[0.0], [1.0]])
    found = WeightedPoints(points, np.zeros(2), (wide, narrow)).log_weights
    densities = [student([0.0], [[size**2]]).pdf(points[:, 0]) for size in (2.0, 0.5)]
    expected = -np.log(densities[0] + densities[1])
    np.testing.assert_allclose(found[1] - found[0], expected[1] - expected[0])


def test_weights_are_tempered_only_as_far_as_needed() -> None:
    logs = np.append(np.zeros(50), np.full(50, -8.0))
    np.testing.assert_allclose(tempered(logs, 40.0), np.exp(logs) / np.exp(logs).sum())
    assert effective_points(tempered(np.arange(100.0), 30.0)) == pytest.approx(30.0, abs=0.1)
    weights = tempered(np.array([0.0, -np.inf, -1.0, -2.0]), 4.0)
    assert weights[1] == 0.0 and weights.sum() == pytest.approx(1.0)


def test_chains_over_the_points_have_the_targets_distribution_and_stick_if_few_points_count() -> None:
    points = adapted(Student(np.zeros(SIZE), np.eye(SIZE)), rounds=8)
    logs, rng = points.log_weights, np.random.default_rng(3)
    chains = independence_chains(logs, 4, rng)
    assert chains.shape == (len(logs) // 4, 4)
    weights = np.exp(logs - logs.max())
    first = points.points[:, 0]
    expected = weights @ first / weights.sum()
    assert first[chains].mean() == pytest.approx(expected, abs=0.08)
    stuck = independence_chains(30.0 * rng.standard_normal(400), 4, rng)
    assert len(np.unique(stuck)) < 30


def test_a_fit_to_equally_weighted_points_has_their_moments() -> None:
    points = np.random.default_rng(4).standard_normal((50, 3))
    found = fitted_to(points, np.full(50, 0.02))
    np.testing.assert_allclose(found.centre, points.mean(axis=0))
    np.testing.assert_allclose(found.root @ found.root.T, np.cov(points.T, ddof=0), rtol=1e-6, atol=1e-8)
