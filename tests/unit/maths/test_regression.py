"""The posterior from sums is the posterior from rows, and its slopes are those of the evidence."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unpooled.maths.regression import (
    RegressionPrior,
    RegressionSums,
    coefficients,
    evidence_slopes,
    noise_size,
    posterior,
    with_combination,
    without_combination,
)

RNG = np.random.default_rng(2)
ROWS, FEATURES, SITES, REFERENCES = 24, 3, 4, 2
PHI = np.column_stack([np.ones(ROWS), RNG.normal(size=(ROWS, FEATURES - 1))])
ARM, SITE, Y = RNG.integers(2, size=ROWS), RNG.integers(SITES, size=ROWS), RNG.normal(size=ROWS)
SAME = SITE[:, None] == SITE[None, :]
MIXED = RNG.normal(size=(ROWS, ROWS))
NOISE = np.where(SAME, MIXED @ MIXED.T / ROWS, 0.0) + np.diag(RNG.uniform(0.3, 1.0, size=ROWS))
"""R: people of one site are correlated, so that there are products of different arms."""
WEIGHT = np.linalg.inv(NOISE)
T = RNG.normal(size=(FEATURES, 2, 2))
SHIFT, BETWEEN = RNG.normal(size=(2, 2)), RNG.normal(size=(SITES, REFERENCES))
OWN = RNG.uniform(0.2, 1.0, size=SITES)
PRIORS = {
    "no shifts": RegressionPrior(T, None, np.zeros((SITES, 0))),
    "shared shifts": RegressionPrior(T, SHIFT, BETWEEN),
    "own parts": RegressionPrior(T, SHIFT, BETWEEN, OWN),
}


@pytest.fixture(params=PRIORS)
def prior(request: pytest.FixtureRequest) -> RegressionPrior:
    return PRIORS[request.param]


def _sums() -> RegressionSums:
    arms, sites = np.eye(2)[ARM], np.eye(SITES)[SITE]
    design = arms[:, :, None] * PHI[:, None, :]
    return RegressionSums(
        gram=np.einsum("naf,nk,kbg->abfg", design, WEIGHT, design),
        moment=np.einsum("naf,nk,k->af", design, WEIGHT, Y),
        square=np.asarray(Y @ WEIGHT @ Y),
        log_determinant=np.asarray(np.linalg.slogdet(NOISE)[1]),
        site_gram=np.einsum("ns,na,nk,kbf->sabf", sites, arms, WEIGHT, design),
        site_moment=np.einsum("ns,na,nk,k->sa", sites, arms, WEIGHT, Y),
    )


def _design(prior: RegressionPrior) -> np.ndarray:
    """Rows × (ξ, ζ, ε), by hand."""
    parts = [np.einsum("nf,fnk->nkf", PHI, prior.feature[:, ARM, :]).reshape(ROWS, -1)]
    if prior.shift is not None:
        shift = prior.shift[ARM]
        parts.append(np.einsum("nk,nt->nkt", shift, prior.site[SITE]).reshape(ROWS, -1))
        if prior.own is not None:
            own = prior.own[SITE, None] * np.eye(SITES)[SITE]
            parts.append(np.einsum("nk,ns->nsk", shift, own).reshape(ROWS, -1))
    return np.hstack(parts)


def _fitted(beta: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Everybody's predictor under each draw, [draw, n]."""
    return np.einsum("nf,jnf->jn", PHI, beta[:, ARM]) + shift[:, ARM, SITE]


def test_the_shift_of_an_arm_that_a_site_lacks_keeps_its_prior_spread() -> None:
    """Given everything else its variance is as before the data, Ψ₁₁ − Ψ₁₀²/Ψ₀₀; every site has one arm."""
    arm = SITE % 2
    design, sites = np.eye(2)[arm][:, :, None] * PHI[:, None, :], np.eye(SITES)[SITE]
    sums = RegressionSums(
        gram=np.einsum("naf,nbg->abfg", design, design),
        moment=np.einsum("naf,n->af", design, Y),
        square=np.asarray(Y @ Y),
        log_determinant=np.zeros(()),
        site_gram=np.einsum("ns,na,nbf->sabf", sites, np.eye(2)[arm], design),
        site_moment=np.einsum("ns,na,n->sa", sites, np.eye(2)[arm], Y),
    )
    prior = RegressionPrior(T, SHIFT, np.eye(SITES))
    found = posterior(sums, prior)
    noise = np.vstack([np.zeros(noise_size(prior)), np.eye(noise_size(prior))])
    every = np.concatenate([part.reshape(len(noise), -1) for part in coefficients(found, noise)], axis=1)
    root = every[1:] - every[0]
    precision = np.linalg.inv(root.T @ root)
    covariance = SHIFT @ SHIFT.T
    for site in range(SITES):
        lacking = 1 - site % 2
        place = 2 * FEATURES + lacking * SITES + site
        alone = covariance[lacking, lacking] - covariance[0, 1] ** 2 / covariance[1 - lacking, 1 - lacking]
        assert 1.0 / precision[place, place] == pytest.approx(alone, rel=1e-8)


def test_evidence_and_mean_are_those_of_the_rows(prior: RegressionPrior) -> None:
    found, design = posterior(_sums(), prior), _design(prior)
    covariance = design @ design.T + NOISE
    evidence = -0.5 * (Y @ np.linalg.solve(covariance, Y) + np.linalg.slogdet(covariance)[1])
    np.testing.assert_allclose(found.log_evidence, evidence, rtol=1e-10)
    mean = design @ (design.T @ np.linalg.solve(covariance, Y))
    np.testing.assert_allclose(_fitted(*coefficients(found))[0], mean, rtol=1e-8, atol=1e-10)


def test_draws_spread_as_the_rows_say(prior: RegressionPrior) -> None:
    found, design = posterior(_sums(), prior), _design(prior)
    size = noise_size(prior)
    # A draw is an affine function of independent noise, so unit steps give its covariance exactly.
    each = _fitted(*coefficients(found, np.concatenate([np.zeros((1, size)), np.eye(size)])))
    slopes = each[1:] - each[0]
    precision = np.eye(design.shape[1]) + design.T @ WEIGHT @ design
    np.testing.assert_allclose(slopes.T @ slopes, design @ np.linalg.solve(precision, design.T), rtol=1e-8)


def _dense_evidence(sums: RegressionSums, prior: RegressionPrior) -> Any:
    """The log evidence as a function of sums and prior that JAX can differentiate, with dense matrices."""
    features = jnp.einsum("fak,fbk,fg->afbg", prior.feature, prior.feature, jnp.eye(FEATURES))
    covariance = features.reshape(2 * FEATURES, 2 * FEATURES)
    gram = sums.gram.transpose(0, 2, 1, 3).reshape(2 * FEATURES, 2 * FEATURES)
    moment = sums.moment.reshape(-1)
    if prior.shift is not None:
        sites = prior.site @ prior.site.T
        sites = sites if prior.own is None else sites + jnp.diag(prior.own**2)
        shifts = jnp.kron(prior.shift @ prior.shift.T, sites)
        empty = jnp.zeros((2 * FEATURES, 2 * SITES))
        covariance = jnp.block([[covariance, empty], [empty.T, shifts]])
        cross = sums.site_gram.transpose(1, 0, 2, 3).reshape(2 * SITES, 2 * FEATURES)
        own = jnp.einsum("sab,st->asbt", sums.site_gram[..., 0], jnp.eye(SITES))
        gram = jnp.block([[gram, cross.T], [cross, own.reshape(2 * SITES, 2 * SITES)]])
        moment = jnp.concatenate([moment, sums.site_moment.T.reshape(-1)])
    inner = jnp.eye(len(moment)) + covariance @ gram
    explained = moment @ jnp.linalg.solve(inner, covariance @ moment) - jnp.linalg.slogdet(inner)[1]
    return 0.5 * (explained - sums.square - sums.log_determinant)


def test_slopes_are_the_derivatives_of_the_evidence(prior: RegressionPrior) -> None:
    sums = _sums()
    expected = jax.grad(_dense_evidence, argnums=(0, 1))(*jax.tree.map(jnp.asarray, (sums, prior)))
    found = evidence_slopes(posterior(sums, prior))
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


def test_a_further_feature_that_combines_the_others_changes_slopes_as_the_chain_rule_says() -> None:
    combination, prior = np.array([0.0, 0.6, -0.8]), PRIORS["own parts"]
    longer = RegressionPrior(np.concatenate([T, RNG.normal(size=(1, 2, 2))]), prior.shift, prior.site, OWN)
    slopes, _ = evidence_slopes(posterior(with_combination(_sums(), combination), longer))
    found, step = without_combination(slopes, combination), 1e-5

    def evidence(change: float) -> float:
        moved = jax.tree.map(lambda leaf, way: leaf + change * way, _sums(), direction)
        return posterior(with_combination(moved, combination), longer).log_evidence

    direction = jax.tree.map(lambda leaf: 0.01 * RNG.normal(size=leaf.shape), _sums())
    # Gram matrices stay symmetric, and a site's information about its shift too.
    direction.gram[:] = direction.gram + direction.gram.transpose(1, 0, 3, 2)
    direction.site_gram[..., 0] += np.swapaxes(direction.site_gram[..., 0], 1, 2)
    along = sum(np.sum(a * b) for a, b in zip(*map(jax.tree.leaves, (found, direction)), strict=True))
    np.testing.assert_allclose(along, (evidence(step) - evidence(-step)) / (2.0 * step), rtol=1e-6)


def test_a_variance_that_goes_to_zero_does_not_break_the_posterior() -> None:
    found = posterior(_sums(), RegressionPrior(0.0 * T, 0.0 * SHIFT, BETWEEN, OWN))
    expected = -0.5 * (Y @ WEIGHT @ Y + np.linalg.slogdet(NOISE)[1])
    np.testing.assert_allclose(found.log_evidence, expected)


def test_sums_of_no_rows_give_nan_and_no_error() -> None:
    sums = _sums()
    found = posterior(RegressionSums(-5.0 * sums.gram, *jax.tree.leaves(sums)[1:]), PRIORS["shared shifts"])
    assert np.isnan(found.log_evidence)
    assert all(np.isnan(leaf).all() for leaf in coefficients(found))
