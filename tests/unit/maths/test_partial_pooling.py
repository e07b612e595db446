"""The solve that leaves the sites out one by one is the dense Gaussian of everything."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracle.partly_shared import People, joint, make_people, sums_of
from unpooled.maths.partial_pooling import (
    PoolingPrior,
    PoolingSums,
    coefficients,
    expectation_step,
    posterior,
    variances,
)

PEOPLE = make_people(3)
P, Q = PEOPLE.design.shape[1], PEOPLE.own.shape[1]
RNG = np.random.default_rng(5)
PRIORS = {
    "full": PoolingPrior(RNG.normal(size=(P, P + 1)), RNG.normal(size=(Q, Q))),
    "one coefficient known": PoolingPrior(np.diag([1.0, 0.7, 0.0, 2.0]), np.diag([0.5, 0.0])),
    "sites alike": PoolingPrior(np.eye(P), np.zeros((Q, Q))),
    "nothing free": PoolingPrior(np.zeros((P, 1)), np.zeros((Q, 1))),
}


@pytest.fixture(params=PRIORS, scope="module")
def prior(request: pytest.FixtureRequest) -> PoolingPrior:
    return jax.tree.map(jnp.asarray, PRIORS[request.param])


def _brute(prior: PoolingPrior):
    return joint(PEOPLE, prior.common @ prior.common.T, prior.site @ prior.site.T)


def test_evidence_and_means_are_the_dense_ones(prior: PoolingPrior) -> None:
    exact = _brute(prior)
    fitted = posterior(sums_of(PEOPLE), prior)
    found = coefficients(fitted, prior)
    np.testing.assert_allclose(fitted.log_evidence, exact.log_evidence, rtol=1e-12, atol=1e-12)
    stacked = np.concatenate([found.common, np.ravel(found.site)])
    np.testing.assert_allclose(stacked, exact.mean, rtol=1e-12, atol=1e-12)


def test_variances_at_a_site_are_the_dense_ones(prior: PoolingPrior) -> None:
    exact = _brute(prior)
    rng = np.random.default_rng(6)
    rows, own = rng.normal(size=(5, P)), rng.normal(size=(5, Q))
    found = variances(posterior(sums_of(PEOPLE), prior), prior, rows, own)
    for site in range(PEOPLE.sites):
        apart = np.zeros((5, PEOPLE.sites, Q))
        apart[:, site] = own
        combination = np.hstack([rows, apart.reshape(5, -1)])
        expected = np.einsum("cp,pr,cr->c", combination, exact.covariance, combination)
        np.testing.assert_allclose(found[site], expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["full", "one coefficient known"])
def test_draws_have_the_posteriors_mean_and_covariance(name: str) -> None:
    prior = jax.tree.map(jnp.asarray, PRIORS[name])
    exact, fitted = _brute(prior), posterior(sums_of(PEOPLE), prior)
    keys = jax.random.split(jax.random.key(7), 4000)
    drawn = jax.vmap(lambda key: coefficients(fitted, prior, key))(keys)
    stacked = np.concatenate([drawn.common, np.reshape(drawn.site, (4000, -1))], axis=1)
    variance = np.diagonal(exact.covariance)
    error = np.sqrt(variance / len(keys))
    assert np.all(np.abs(stacked.mean(axis=0) - exact.mean) <= 5.0 * error + 1e-12)
    # The s.e. of a sample covariance: √((c_ii c_jj + c_ij²)/n).
    spread = np.sqrt((np.outer(variance, variance) + exact.covariance**2) / len(keys))
    assert np.all(np.abs(np.cov(stacked.T) - exact.covariance) <= 5.0 * spread + 1e-12)


def _evidence(values: jnp.ndarray) -> jnp.ndarray:
    """Variances of θ, of the sites' first and second term, and of a noise that all rows share."""
    root = jnp.sqrt(values)
    prior = PoolingPrior(root[0] * jnp.eye(P), jnp.diag(root[1:3]))
    sums = jax.tree.map(lambda leaf: leaf / values[3], sums_of(_with_noise(1.0)))
    noise = len(PEOPLE.outcome) * jnp.log(values[3]) + np.sum(PEOPLE.outcome**2) / values[3]
    return posterior(sums, prior).log_evidence - 0.5 * noise


def _with_noise(variance: float) -> People:
    return replace(PEOPLE, noise=np.full(len(PEOPLE.noise), variance))


LEVELS = np.array([P, PEOPLE.sites, PEOPLE.sites, len(PEOPLE.outcome)], float)


def _textbook(values: np.ndarray) -> np.ndarray:
    """Each variance becomes the mean of its terms' expected squares."""
    people = _with_noise(values[3])
    found = joint(people, values[0] * np.eye(P), np.diag(values[1:3]))
    square = found.mean**2 + np.diagonal(found.covariance)
    own = square[P:].reshape(-1, Q)
    left = people.outcome - people.stacked @ found.mean
    spread = np.einsum("np,pr,nr->n", people.stacked, found.covariance, people.stacked)
    return np.array([square[:P].mean(), own[:, 0].mean(), own[:, 1].mean(), np.mean(left**2 + spread)])


@pytest.mark.slow
@pytest.mark.thorough
def test_a_step_of_the_variances_is_the_textbooks_expectation_maximisation() -> None:
    values = np.array([0.8, 0.3, 1.5, 0.9])
    step = expectation_step(_evidence, jnp.asarray(values), LEVELS)
    np.testing.assert_allclose(step, _textbook(values), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.thorough
def test_the_evidence_never_falls_from_step_to_step() -> None:
    values = jnp.asarray([3.0, 0.01, 2.0, 4.0])
    step = jax.jit(lambda now: expectation_step(_evidence, now, LEVELS))
    told = [float(_evidence(values))]
    for _ in range(30):
        values = step(values)
        told.append(float(_evidence(values)))
    assert np.all(values > 0.0)
    assert np.all(np.diff(told) >= -1e-12)
    assert told[-1] > told[0] + 1.0


def _work(sites: int) -> tuple[int, set[tuple[int, ...]]]:
    """Numbers written down on the way, and the sizes of the matrices that are factorised."""
    p, q = 5, 3
    sums = PoolingSums(
        *(np.zeros(shape) for shape in ((p, p), (p,), (sites, q, q), (sites, q, p), (sites, q)))
    )
    written, factorised = 0, set()

    def walk(jaxpr) -> None:
        nonlocal written
        for equation in jaxpr.eqns:
            written += sum(np.prod(out.aval.shape, dtype=int) for out in equation.outvars)
            if equation.primitive.name == "cholesky":
                factorised.add(equation.invars[0].aval.shape[-2:])
            for inner in equation.params.values():
                if hasattr(inner, "jaxpr"):
                    walk(inner.jaxpr)

    walk(jax.make_jaxpr(lambda s: posterior(s, PoolingPrior(jnp.eye(p), jnp.eye(q))))(sums).jaxpr)
    return written, factorised


def test_work_grows_linearly_with_the_sites() -> None:
    few, some, many = (_work(sites) for sites in (20, 110, 200))
    assert some[0] - few[0] == many[0] - some[0] > 0
    assert few[1] == many[1] == {(3, 3), (5, 5)}
