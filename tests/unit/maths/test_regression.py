"""The posterior from sums is the posterior from rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unpooled.maths.regression import (
    RegressionPosterior,
    RegressionPrior,
    RegressionSums,
    coefficients,
    draw,
    posterior,
)

RNG = np.random.default_rng(2)
ROWS, FEATURES, SITES = 14, 3, 2
PHI = np.column_stack([np.ones(ROWS), RNG.normal(size=(ROWS, FEATURES - 1))])
ARM, SITE, Y = RNG.integers(2, size=ROWS), RNG.integers(SITES, size=ROWS), RNG.normal(size=ROWS)
NOISE = RNG.uniform(0.3, 1.0, size=ROWS)  # variances; R is diagonal
T = RNG.normal(size=(FEATURES, 2, 2))
SHIFT, BETWEEN = RNG.normal(size=(2, 2)), np.linalg.cholesky([[1.0, 0.6], [0.6, 1.0]])


def _sums() -> RegressionSums:
    arms = np.eye(2)[ARM]
    sites = np.eye(SITES)[SITE]
    gram = np.einsum("n,na,nb,nf,ng->abfg", 1 / NOISE, arms, arms, PHI, PHI)
    site_gram = np.einsum("n,ns,na,nb,nf->sabf", 1 / NOISE, sites, arms, arms, PHI)
    return RegressionSums(
        gram=jnp.asarray(gram),
        moment=jnp.asarray(np.einsum("n,na,nf->af", Y / NOISE, arms, PHI)),
        square=jnp.asarray(np.sum(Y**2 / NOISE)),
        log_determinant=jnp.asarray(np.sum(np.log(NOISE))),
        site_gram=jnp.asarray(site_gram),
        site_moment=jnp.asarray(np.einsum("n,ns,na->sa", Y / NOISE, sites, arms)),
    )


def _design(shifts: bool) -> np.ndarray:
    """Rows × ξ, by hand: β_f[a] = Σ_k T[f, a, k] ξ[k, f] and g_s[a] = Σ_kt U[a, k] L[s, t] ξ[k, t]."""
    weights = np.einsum("nf,fnk->nkf", PHI, T[:, ARM, :]).reshape(ROWS, -1)
    if not shifts:
        return weights
    return np.hstack([weights, np.einsum("nk,nt->nkt", SHIFT[ARM], BETWEEN[SITE]).reshape(ROWS, -1)])


@pytest.mark.parametrize("shifts", [True, False])
def test_evidence_mean_and_spread_are_those_of_the_rows(shifts: bool) -> None:
    prior = RegressionPrior(jnp.asarray(T), jnp.asarray(SHIFT) if shifts else None, jnp.asarray(BETWEEN))
    found = posterior(_sums(), prior)
    design = _design(shifts)
    covariance = design @ design.T + np.diag(NOISE)
    evidence = -0.5 * (Y @ np.linalg.solve(covariance, Y) + np.linalg.slogdet(covariance)[1])
    np.testing.assert_allclose(found.log_evidence, evidence, rtol=1e-10)
    precision = np.eye(design.shape[1]) + design.T @ (design / NOISE[:, None])
    mean = np.linalg.solve(precision, design.T @ (Y / NOISE))
    np.testing.assert_allclose(draw(found, None), mean, rtol=1e-8, atol=1e-12)
    root = np.asarray(found.cholesky)
    np.testing.assert_allclose(root @ root.T, precision, rtol=1e-10, atol=1e-12)
    beta, shift = coefficients(prior, jnp.asarray(mean))
    fitted = np.sum(PHI * np.asarray(beta)[ARM], axis=1) + np.asarray(shift)[ARM, SITE]
    np.testing.assert_allclose(fitted, design @ mean, rtol=1e-8)


def test_draws_spread_as_the_posterior_says() -> None:
    root = np.linalg.cholesky([[2.0, 0.7], [0.7, 1.0]])
    fitted = RegressionPosterior(jnp.zeros(()), jnp.asarray(root), jnp.asarray([1.0, -2.0]))
    draws = np.stack([draw(fitted, key) for key in jax.random.split(jax.random.key(0), 400)])
    expected = np.linalg.inv(root @ root.T)
    # 400 draws: a variance is known to about 7 %, so half of it is seven standard errors.
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.5 * expected.max())
    np.testing.assert_allclose(draws.mean(axis=0), draw(fitted, None), atol=0.35)


def test_a_variance_that_goes_to_zero_does_not_break_the_posterior() -> None:
    prior = RegressionPrior(0.0 * jnp.asarray(T), 0.0 * jnp.asarray(SHIFT), jnp.asarray(BETWEEN))
    found = posterior(_sums(), prior)
    np.testing.assert_allclose(found.log_evidence, -0.5 * np.sum(Y**2 / NOISE + np.log(NOISE)))
