"""The posterior given what is observed, beside a slow oracle that integrates over every missing value."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.stats import invgamma, invwishart, multivariate_normal, norm

from unpooled.methods.causal_fi.chain import (
    INTERCEPT_PRECISION,
    LEAST_SPREAD,
    NOISE,
    OFFSET,
    Sizes,
    begin,
    expected_common,
    expected_spread,
)
from unpooled.methods.causal_fi.columns import make_layout
from unpooled.methods.causal_fi.model import ImputationModel
from unpooled.methods.causal_fi.observed_posterior import Coordinates
from unpooled.methods.causal_fi.stages import WITHHELD, ObservedLikelihood
from unpooled.methods.causal_fi.structures import EXPECTED, SLOPES, STRUCTURES
from unpooled.models.outcome_family import Gaussian
from unpooled.protocol.records import IncompleteColumn, Parameters
from unpooled.protocol.rows import Rows, make_rows

SIZES = Sizes(covariates=1, incomplete=2, sites=3)
LAYOUT = make_layout(
    (IncompleteColumn("a", "numeric", 1), IncompleteColumn("b", "numeric", 1)), np.zeros(2), np.ones(2)
)
NODES, WEIGHTS = hermegauss(40)


def people(least: float = 0.0) -> Rows:
    rng, count = np.random.default_rng(1), 24
    x, w, y = rng.standard_normal((count, 1)), rng.integers(0, 2, count), rng.standard_normal(count)
    u = rng.standard_normal((count, 2))
    u[:18:3, 0], u[:18:2, 1] = np.nan, np.nan
    fold = np.zeros(count, dtype=int)
    return make_rows(x, w.astype(float), y, fold=fold, site=1, incomplete=u, least=least)


def states(count: int) -> Any:
    """Chains whose parameters all differ."""
    rng = np.random.default_rng(2)
    one = begin(SIZES, LAYOUT, Gaussian())
    tiled = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], count, axis=0), one)
    moved = jax.tree.map(lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape), tiled)
    root = 0.4 * rng.standard_normal((count, 2, 2)) + np.eye(2)
    positive = {
        name: np.exp(0.4 * rng.standard_normal(getattr(moved, name).shape))
        for name in ("spreads", "noise", "variances", "common", "site")
    }
    covariance = root @ np.swapaxes(root, 1, 2)
    return moved._replace(**positive, confounders={**moved.confounders, "covariance": covariance})


def oracle(chain: Any, rows: Rows, person: int) -> float:
    """The log likelihood of one person, with missing numbers integrated out by quadrature."""
    x, w, y = (np.asarray(part)[person] for part in (rows.covariates, rows.treatment, rows.outcome))
    seen, values = np.asarray(rows.seen)[person] > 0, np.asarray(rows.incomplete)[person]
    arm = int(w)
    mean = chain.confounders["intercept"][0] + x @ chain.confounders["slopes"][0]
    covariance = chain.confounders["covariance"][0]
    root = np.linalg.cholesky(covariance)
    total = 0.0
    if seen.all():
        places, weights = [values], [multivariate_normal.pdf(values, mean, covariance)]
    elif seen.any():
        known, other = int(np.flatnonzero(seen)[0]), int(np.flatnonzero(~seen)[0])
        slope = covariance[known, other] / covariance[known, known]
        centre = mean[other] + slope * (values[known] - mean[known])
        spread = np.sqrt(covariance[other, other] - slope * covariance[known, other])
        density = norm.pdf(values[known], mean[known], np.sqrt(covariance[known, known]))
        places = []
        for node in NODES:
            place = values.copy()
            place[other] = centre + spread * node
            places.append(place)
        weights = density * WEIGHTS / WEIGHTS.sum()
    else:
        pairs = [(i, j) for i in range(len(NODES)) for j in range(len(NODES))]
        places = [mean + root @ NODES[[i, j]] for i, j in pairs]
        weights = [WEIGHTS[i] * WEIGHTS[j] / WEIGHTS.sum() ** 2 for i, j in pairs]
    for place, weight in zip(places, weights, strict=True):
        g = np.concatenate([[1.0], x, place])
        treated = norm.cdf((2 * w - 1) * (chain.treatment[0] @ g))
        expected = chain.outcome[0, arm] @ g + chain.offset[0, 1, arm]
        total += weight * treated * norm.pdf(y, expected, np.sqrt(chain.noise[0, arm]))
    return float(np.log(total))


def linear_model() -> ImputationModel:
    return ImputationModel(STRUCTURES["linear"], LAYOUT, Gaussian())


def draw_of(chain: Any) -> dict[str, Any]:
    """The first chain as site 1 receives it."""
    parts = {name: jnp.asarray(getattr(chain, name)[0]) for name in ("treatment", "outcome", "noise")}
    confounders = {name: jnp.asarray(value[0]) for name, value in chain.confounders.items()}
    return {**parts, "confounders": confounders, "offset": jnp.asarray(chain.offset[0, 1])}


def test_the_likelihood_is_that_of_everything_integrated_by_quadrature() -> None:
    rows, chain = people(), states(1)
    found = linear_model().log_likelihood({**draw_of(chain), "bend": jnp.ones(2)}, rows)
    expected = np.array([oracle(chain, rows, person) for person in range(24)])
    patterns = np.asarray(rows.seen)[:24].sum(axis=1)
    assert set(patterns) == {0.0, 1.0, 2.0}
    # The constant of the normal densities is left out: one for the outcome, one for every observed number.
    constant = -0.5 * np.log(2.0 * np.pi) * (1.0 + patterns)
    np.testing.assert_allclose(np.asarray(found)[:24] + constant, expected, atol=2e-5)


def test_the_site_sends_one_sum_that_rests_on_enough_people() -> None:
    chain = states(1)
    draw = draw_of(chain)
    question = Parameters(
        fixed={name: draw[name] for name in ("confounders", "treatment", "outcome", "noise")},
        per_site={"offset": draw["offset"]},
    )
    stage = ObservedLikelihood(linear_model())
    free, some, many = (stage.statistics(question, people(least)) for least in (0.0, 2.0, 20.0))
    logs = linear_model().log_likelihood({**draw, "bend": jnp.ones(2)}, people())
    expected = np.sum(np.asarray(logs)[:24])
    assert free.summed["log_likelihood"] == pytest.approx(expected)
    assert set(free.summed) == {"log_likelihood"} and not free.per_site
    assert some.summed["log_likelihood"] == pytest.approx(expected)
    assert many.summed["log_likelihood"] == WITHHELD


def test_vectors_and_chains_are_each_others_inverse() -> None:
    coordinates, chains = Coordinates(SIZES), states(5)
    vectors = coordinates.vectors(chains)
    assert vectors.shape == (5, coordinates.size)
    found = coordinates.chains(vectors, chains)
    np.testing.assert_allclose(coordinates.vectors(found), vectors, atol=1e-12)
    for name in ("treatment", "outcome", "noise", "offset", "common", "site", "spreads"):
        np.testing.assert_allclose(getattr(found, name), getattr(chains, name), rtol=1e-10)
    for name in ("intercept", "slopes", "covariance"):
        np.testing.assert_allclose(found.confounders[name], chains.confounders[name], rtol=1e-10)
    np.testing.assert_allclose(found.variances[:, :, SLOPES], chains.variances[:, :, SLOPES])
    np.testing.assert_array_equal(found.mode, found.outcome)
    alone = Coordinates(Sizes(1, 2, 1))
    assert alone.size == coordinates.size - 8


def slow_prior(chain: Any, index: int) -> float:
    """The log prior density of one chain in the units of its parameters."""
    covariance = chain.confounders["covariance"][index]
    means = np.vstack([chain.confounders["intercept"][index], chain.confounders["slopes"][index]])
    found = float(invwishart.logpdf(covariance, 4, LEAST_SPREAD * 4 * np.eye(2)))
    found += sum(multivariate_normal.logpdf(row, np.zeros(2), covariance) for row in means)
    spread, common = chain.spreads[index, 0], chain.common[index]
    own, noise, site = chain.variances[index, :, SLOPES], chain.noise[index], chain.site[index]
    found += norm.logpdf(chain.treatment[index, 0], 0, INTERCEPT_PRECISION**-0.5)
    found += norm.logpdf(chain.treatment[index, 1:], 0, np.sqrt(spread)).sum()
    both = np.asarray(common + np.diag(own))
    for slopes in chain.outcome[index, :, 1:].T:
        found += multivariate_normal.logpdf(slopes, np.zeros(2), both)  # pyright: ignore[reportArgumentType]
    found += norm.logpdf(chain.outcome[index, :, 0], 0, np.sqrt(EXPECTED[0])).sum()
    found += norm.logpdf(chain.offset[index], 0, np.sqrt(site)).sum()
    for value, expected in (
        (spread, expected_spread(3)), (common, expected_common(3)), (own, EXPECTED[SLOPES]), (noise, NOISE),
        (site, OFFSET),
    ):  # fmt: skip
        found += np.sum(invgamma.logpdf(value, 2.0, scale=2.0 * float(expected)))
    return float(found)


def test_the_prior_is_that_of_the_chains_with_the_jacobian_of_the_coordinates() -> None:
    coordinates, chains = Coordinates(SIZES), states(4)
    vectors = coordinates.vectors(chains)
    expected = []
    for index, vector in enumerate(vectors):
        # The Jacobian of variances and covariances, by finite differences.
        step = 1e-6 * np.eye(len(vector))
        near = [coordinates.chains(vector + sign * step, chains) for sign in (1.0, -1.0)]
        parts = [
            np.concatenate(
                [
                    one.confounders["covariance"][:, [0, 1, 1], [0, 0, 1]],
                    one.noise, one.spreads, one.variances[:, :, SLOPES], one.common[:, None], one.site,
                ],
                axis=1,
            )
            for one in near
        ]  # fmt: skip
        change = (parts[0] - parts[1]) / 2e-6
        moving = np.abs(change).sum(axis=1) > 0.0
        jacobian = np.linalg.slogdet(change[moving])[1]
        expected.append(slow_prior(chains, index) + jacobian)
    found = coordinates.log_prior(chains)
    np.testing.assert_allclose(found - found[0], np.array(expected) - expected[0], atol=1e-5)
