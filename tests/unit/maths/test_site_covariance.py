"""Coefficients that go together between sites, against the dense Gaussian over all rows."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracle.partly_shared import People, make_people
from unpooled.maths import partial_pooling as pooling
from unpooled.maths.site_covariance import (
    SiteCovariancePrior,
    SiteCovarianceSums,
    borrowed_shares,
    coefficients,
    posterior,
)

M, P = 3, 4
PEOPLE = make_people(12, rows=45, size=P, sites=M)
RNG = np.random.default_rng(13)
V = np.array([0.9, 0.4, 1.3, 0.2])
FACTORS = {
    "any": RNG.normal(size=(M, M)),
    "fewer causes than sites": RNG.normal(size=(M, 2)),
    "opposite": np.array([[1.0, 0.0], [-0.8, 0.6], [0.0, 1.0]]),
}


def _sums(people: People) -> SiteCovarianceSums:
    weight = np.eye(M)[people.site] / people.noise[:, None]
    h = people.design
    gram, score = (
        np.einsum("ns,np,nq->spq", weight, h, h),
        np.einsum("ns,np,n->sp", weight, h, people.outcome),
    )
    return SiteCovarianceSums(jnp.asarray(gram), jnp.asarray(score))


def _prior(factor: np.ndarray, variances: np.ndarray = V) -> SiteCovariancePrior:
    return SiteCovariancePrior(jnp.asarray(factor), jnp.asarray(variances))


def _dense(people: People, prior: SiteCovariancePrior) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and covariance of the stacked θ_s, and the log evidence without its constant part."""
    rows = np.einsum("ns,np->nsp", np.eye(M)[people.site], people.design).reshape(len(people.site), -1)
    whole = np.kron(prior.between @ prior.between.T, np.diag(prior.variances))
    seen = rows @ whole @ rows.T + np.diag(people.noise)
    y, gain = people.outcome, whole @ rows.T @ np.linalg.inv(seen)
    evidence = y @ np.linalg.solve(seen, y) + np.linalg.slogdet(seen)[1]
    evidence -= np.sum(y**2 / people.noise + np.log(people.noise))
    return gain @ y, whole - gain @ rows @ whole, -0.5 * evidence


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("variances", [V, V * [1.0, 0.0, 1.0, 1.0]], ids=["all free", "one known"])
def test_evidence_and_means_are_the_dense_ones(name: str, variances: np.ndarray) -> None:
    prior = _prior(FACTORS[name], variances)
    mean, _, evidence = _dense(PEOPLE, prior)
    fitted = posterior(_sums(PEOPLE), prior)
    np.testing.assert_allclose(fitted.log_evidence, evidence, rtol=1e-11)
    np.testing.assert_allclose(np.ravel(coefficients(fitted, prior)), mean, rtol=1e-10, atol=1e-12)


def test_draws_have_the_posteriors_mean_and_covariance() -> None:
    prior = _prior(FACTORS["any"])
    mean, covariance, _ = _dense(PEOPLE, prior)
    fitted = posterior(_sums(PEOPLE), prior)
    keys = jax.random.split(jax.random.key(3), 4000)
    drawn = np.reshape(jax.vmap(lambda key: coefficients(fitted, prior, key))(keys), (4000, -1))
    variance = np.diagonal(covariance)
    assert np.all(np.abs(drawn.mean(axis=0) - mean) <= 5.0 * np.sqrt(variance / 4000))
    spread = np.sqrt((np.outer(variance, variance) + covariance**2) / 4000)
    assert np.all(np.abs(np.cov(drawn.T) - covariance) <= 5.0 * spread)


def test_no_covariance_between_sites_is_separate_fits() -> None:
    found = coefficients(posterior(_sums(PEOPLE), _prior(np.eye(M))), _prior(np.eye(M)))
    for site in range(M):
        here = PEOPLE.site == site
        h, weight = PEOPLE.design[here], 1.0 / PEOPLE.noise[here]
        alone = np.linalg.solve(h.T * weight @ h + np.diag(1.0 / V), h.T * weight @ PEOPLE.outcome[here])
        np.testing.assert_allclose(found[site], alone, rtol=1e-10)


def test_full_borrowing_is_the_pooled_fit_of_m_times_the_variance() -> None:
    """Each site's coefficients are the sum of m independent ones, the same sum at every site."""
    prior = _prior(np.ones((M, M)))
    found = coefficients(posterior(_sums(PEOPLE), prior), prior)
    h, weight = PEOPLE.design, 1.0 / PEOPLE.noise
    pooled = np.linalg.solve(h.T * weight @ h + np.diag(1.0 / (M * V)), h.T * weight @ PEOPLE.outcome)
    np.testing.assert_allclose(found, np.tile(pooled, (M, 1)), rtol=1e-8)


def test_a_common_part_and_parts_of_their_own_are_partial_pooling() -> None:
    """A = [1, √c·I] is θ + b_s with variances v and cv: two solves, one answer."""
    prior = _prior(np.hstack([np.ones((M, 1)), np.sqrt(0.3) * np.eye(M)]))
    sums = _sums(PEOPLE)
    both = pooling.PoolingSums(
        sums.gram.sum(axis=0), sums.score.sum(axis=0), sums.gram, sums.gram, sums.score
    )
    shared = pooling.PoolingPrior(jnp.diag(np.sqrt(V)), jnp.diag(np.sqrt(0.3 * V)))
    other = pooling.posterior(both, shared)
    parts = pooling.coefficients(other, shared)
    fitted = posterior(sums, prior)
    np.testing.assert_allclose(fitted.log_evidence, other.log_evidence, rtol=1e-11)
    np.testing.assert_allclose(coefficients(fitted, prior), parts.common + parts.site, rtol=1e-9, atol=1e-11)


def _by_changing_outcomes(prior: SiteCovariancePrior) -> np.ndarray:
    """Raise a site's outcomes by orthonormal functions, one after the other: how much is seen in each fit?"""

    def fit(people: People) -> np.ndarray:
        return np.sum(people.design * _dense(people, prior)[0].reshape(M, P)[people.site], axis=1)

    weighted = PEOPLE.design / PEOPLE.noise[:, None]
    functions = PEOPLE.design @ np.linalg.inv(np.linalg.cholesky(PEOPLE.design.T @ weighted)).T
    together = np.zeros((M, M))
    for function in functions.T:
        for v in range(M):
            changed = PEOPLE.outcome + np.where(PEOPLE.site == v, function, 0.0)
            seen = function * (fit(replace(PEOPLE, outcome=changed)) - fit(PEOPLE)) / PEOPLE.noise
            together[:, v] += np.bincount(PEOPLE.site, weights=seen)
    return together / together.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", FACTORS)
def test_borrowed_shares_are_what_changed_outcomes_do_to_the_fits(name: str) -> None:
    prior = _prior(FACTORS[name])
    found = borrowed_shares(_sums(PEOPLE), prior)
    np.testing.assert_allclose(found, _by_changing_outcomes(prior), rtol=1e-8, atol=1e-10)


def test_sites_that_go_opposite_ways_borrow_below_zero() -> None:
    assert borrowed_shares(_sums(PEOPLE), _prior(FACTORS["opposite"]))[0, 1] < 0.0
