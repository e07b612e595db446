"""Held-out errors: their sums at the sites, the scale, and conformal intervals."""

from __future__ import annotations

from itertools import pairwise

import jax
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from unpooled.methods.fedci.ridge import RIDGE, log_odds_of
from unpooled.models.calibration import THRESHOLDS, Calibration, NoiseOfArms, arm_variances, exceedances, odds
from unpooled.protocol.rows import make_rows

RNG = np.random.default_rng(8)
N = 90
ERRORS, CHANCES = RNG.standard_t(4, N), np.exp(0.7 * RNG.normal(size=N))
TREATMENT = (RNG.random(N) < 0.4).astype(float)
TREATED = (RNG.random(3000) < 0.3).astype(int)


def _sums(least: float, errors: np.ndarray = ERRORS, chances: np.ndarray = CHANCES) -> dict[str, np.ndarray]:
    nothing = np.zeros((N, 1))
    rows = make_rows(nothing, TREATMENT, nothing[:, 0], fold=np.zeros(N), site=0, least=least)
    extra = len(rows.present) - N
    padded = [np.append(values, np.full(extra, 7.0)) for values in (errors, chances)]
    return {name: np.asarray(found) for name, found in exceedances(*padded, rows).items()}


def test_the_sums_are_those_of_a_loop_over_people() -> None:
    found = _sums(0.0)
    for arm in (0, 1):
        for j, threshold in enumerate(THRESHOLDS):
            total = beyond = 0.0
            for i in range(N):
                if TREATMENT[i] == arm:
                    weight = CHANCES[i] if arm == 0 else 1.0 / CHANCES[i]
                    total += weight
                    beyond += weight * (abs(ERRORS[i]) > threshold)
            np.testing.assert_allclose(found["total"][arm, j], total, rtol=1e-12)
            np.testing.assert_allclose(found["beyond"][arm, j], beyond, rtol=1e-12)


@pytest.mark.parametrize("spread", [0.0, 1.5])
def test_with_limits_every_difference_of_two_sums_rests_on_enough_people(spread: float) -> None:
    chances, least = np.exp(spread * RNG.normal(size=N)), 5.0
    found, told = _sums(least, chances=chances), 0
    for arm in (0, 1):
        mine = arm == TREATMENT
        kept = np.flatnonzero(found["total"][arm] > 0.0)
        told += len(kept)
        # Equal sums of weights and of people identify the groups between the thresholds that were sent.
        edges = [-1.0, *THRESHOLDS[kept], np.inf]
        for low, high in pairwise(edges):
            group = mine & (np.abs(ERRORS) > low) & (np.abs(ERRORS) <= high)
            assert not len(kept) or group.sum() > least
    assert told


def _calibration(errors: np.ndarray, weights: np.ndarray) -> Calibration:
    beyond = np.array([weights[np.abs(errors) > threshold].sum() for threshold in THRESHOLDS])
    total, squares = np.full_like(beyond, weights.sum()), np.full_like(beyond, np.sum(weights**2))
    return Calibration(
        *(np.stack([one, one]) for one in (beyond, total, squares)), np.ones((2, 4)), np.zeros(2)
    )


_compiled = jax.jit(arm_variances)


def _noise(errors: np.ndarray, treatment: np.ndarray, chances: np.ndarray) -> NoiseOfArms:
    found = _variances(errors, treatment, chances, 0.0).noise_of_arms()
    assert found is not None
    return found


def _variances(errors: np.ndarray, treatment: np.ndarray, chances: np.ndarray, least: float) -> Calibration:
    """The calibration in which only the noise of the arms is known."""
    count, nothing = len(errors), np.zeros((len(errors), 1))
    rows = make_rows(nothing, treatment, nothing[:, 0], fold=np.zeros(count), site=0, least=least)
    extra = len(rows.present) - count
    padded = [np.append(values, np.full(extra, 7.0)) for values in (errors**2, chances)]
    found = np.asarray(_compiled(*padded, rows)["noise"])
    nobody = np.zeros((2, len(THRESHOLDS)))
    return Calibration(nobody, nobody, nobody, found, np.zeros(2))


def test_the_noise_of_an_arm_is_a_weighted_mean_of_squared_errors() -> None:
    found = _noise(ERRORS, TREATMENT, CHANCES)
    relative = 0.0
    for arm in (0, 1):
        # The chance of the other arm; a mean of weighted squares and the delta method for its logarithm.
        mine = arm == TREATMENT
        weight = np.where(arm == 0, CHANCES, 1.0)[mine] / (1.0 + CHANCES[mine])
        squares = ERRORS[mine] ** 2
        mean, parts = np.average(squares, weights=weight), weight * squares
        np.testing.assert_allclose(found.variance[arm], mean, rtol=1e-12)
        relative += (np.sum(parts**2) - mean**2 * np.sum(weight**2)) / np.sum(parts) ** 2
    np.testing.assert_allclose(found.error, np.sqrt(relative), rtol=1e-12)


@pytest.mark.parametrize("tails", [30, 5])
def test_equal_noise_seldom_fails_the_check_and_unequal_noise_often(tails: int) -> None:
    rng, failed = np.random.default_rng(3), np.zeros(2)
    for _ in range(300):
        treatment = (rng.random(400) < 0.4).astype(float)
        errors = rng.standard_t(tails, 400)
        for case, ratio in enumerate((1.0, 2.0)):
            scaled = np.where(treatment > 0.0, np.sqrt(ratio) * errors, errors)
            failed[case] += not _noise(scaled, treatment, np.ones(400)).check().passed
    equal, unequal = failed / 300
    assert equal <= 0.05
    assert unequal >= (0.95 if tails == 30 else 0.6)


def test_noise_that_depends_on_a_confounder_is_the_same_in_both_arms() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=4000)
    chances = np.exp(x)
    treatment = (rng.random(4000) < chances / (1.0 + chances)).astype(float)
    errors = np.exp(0.5 * x) * rng.normal(size=4000)
    assert _noise(errors, treatment, chances).check().passed
    assert not _noise(errors, treatment, np.ones(4000)).check().passed


def test_with_limits_no_person_dominates_the_noise_of_an_arm() -> None:
    treatment, others = np.arange(N) % 2.0, N / 2 - 1
    for far in (1.0, 1e3, 1e6):
        errors = np.append(far, np.ones(N - 1))
        _, _, total, fourth = _variances(errors, treatment, np.ones(N), 5.0).noise[0]
        # Everybody else adds 0.5 and 0.25; the first person at most a fifth of the sum of squares.
        assert fourth <= 0.25 * others * 5.0 / 4.0 + 1e-9
        assert total <= 0.5 * others + np.sqrt(fourth / 5.0) + 1e-9


def test_an_arm_of_few_people_tells_nothing_of_its_noise() -> None:
    treatment = (np.arange(N) < 4).astype(float)
    found = _variances(ERRORS, treatment, np.ones(N), 5.0)
    assert found.noise is not None and not found.noise[1].any() and found.noise[0].all()
    assert found.noise_of_arms() is None


def test_a_quantile_is_that_of_weighted_conformal_prediction() -> None:
    errors, weights = RNG.normal(size=400), np.exp(RNG.normal(size=400))
    calibration = _calibration(errors, weights)
    for own in (0.2, 1.0, 8.0):
        # The person's weight is at infinity: the smallest error that all but alpha of the weights reach.
        order = np.argsort(np.abs(errors))
        reached = np.cumsum(weights[order]) / (weights.sum() + own)
        exact = np.abs(errors)[order][np.argmax(reached >= 0.9)]
        (found,) = calibration.quantile(np.array([0]), np.array([own]), 0.1)
        assert found >= exact
        assert found == THRESHOLDS[exact <= THRESHOLDS].min()
        (other,) = calibration.quantile(np.array([1]), np.array([1.0 / own]), 0.1)
        assert other == found


def test_a_person_whom_nobody_resembles_has_an_infinite_interval() -> None:
    calibration = _calibration(RNG.normal(size=30), np.ones(30))
    assert np.isinf(calibration.quantile(np.array([0]), np.array([99.0]), 0.05))


@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (0.7, True), (1.5, False)])
def test_the_scale_is_the_factor_by_which_errors_are_too_large(factor: float, passed: bool) -> None:
    errors = factor * norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    calibration = _calibration(errors, np.ones(20_000))
    np.testing.assert_allclose(calibration.scale(), factor, rtol=0.02)
    expected = 2.0 * norm.cdf(norm.ppf(0.975) / factor) - 1.0
    np.testing.assert_allclose(calibration.share_within(), expected, atol=0.004)
    assert calibration.check().passed == passed


def test_with_few_people_the_scale_is_near_one_and_chance_does_not_fail_the_check() -> None:
    errors = 1.5 * norm.ppf((np.arange(10) + 0.5) / 10)
    calibration = _calibration(errors, np.ones(10))
    assert np.all(np.abs(np.log(calibration.scale())) < 0.25 * np.log(1.5))
    assert calibration.check().passed


def test_odds_are_kept_within_bounds() -> None:
    found = odds(np.array([0.5, 2.0]), np.array([[0.0], [1.0], [50.0], [-50.0]]))
    np.testing.assert_allclose(found, [np.exp(0.5), np.exp(2.5), 99.0, 1.0 / 99.0], rtol=1e-12)


def test_log_odds_are_those_of_a_linear_discriminant() -> None:
    x = RNG.normal(size=(3000, 3)) + TREATED[:, None] * np.array([0.5, -0.3, 0.0])
    features = np.column_stack([np.ones(3000), x])
    gram = np.stack([features[arm == TREATED].T @ features[arm == TREATED] for arm in (0, 1)])
    expected = LinearDiscriminantAnalysis().fit(x, TREATED)
    found = log_odds_of(gram)
    slack = 3.0 * RIDGE / 3000
    np.testing.assert_allclose(found[1:], expected.coef_[0], atol=slack)
    np.testing.assert_allclose(found[0], expected.intercept_[0], atol=slack)
