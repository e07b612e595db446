"""Effects of people are those of dense conditioning on everybody's outcomes, given the hyperparameters.

The package gives effects for draws of the weights and shifts ξ ~ N(ξ̂, A⁻¹). An effect's mean is affine
in ξ, so its exact moments follow from the means at ξ̂ and at ξ̂ + each unit vector, and from A⁻¹.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracle import fedci as oracle
from oracle.world import World, build, posterior_of
from unpooled.maths.regression import noise_size
from unpooled.methods.fedci.conditionals import WeightDraws, conditional_effect, individual_effect, outcomes
from unpooled.optimise.procedure import ask
from unpooled.protocol.rows import make_rows

pytestmark = pytest.mark.slow

CASES = [
    ("projection", {}),
    ("isotropic", {}),
    ("isotropic", {"exact": False}),
    ("ard", {"inter_dependency": False}),
    ("paper", {}),
]
RHO = 0.4


@pytest.fixture(scope="module", params=CASES, ids=str)
def fitted(request: pytest.FixtureRequest) -> Fitted:
    structure, settings = request.param
    return Fitted(build(structure, **settings))


class Fitted:
    """A world, and the exact posterior of its weights and shifts."""

    def __init__(self, world: World) -> None:
        self.world = world
        batch = jax.tree.map(lambda leaf: np.asarray(leaf)[None], world.parameters())
        reply = world.run(ask(world.name, batch))
        statistics = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), reply)
        posterior = posterior_of(world.evidence, world.parameters(), statistics)
        size = noise_size(posterior.regression.prior)
        self.beta, self.shift = posterior.weights(np.concatenate([np.zeros((1, size)), np.eye(size)]))

    def draws(self, site: str) -> WeightDraws:
        return WeightDraws(self.world.free, self.beta, self.shift[:, :, int(self.world.rows(site).site)])

    def exact(self, means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean, and the covariance that weights and shifts contribute, of an affine function of them."""
        means = np.asarray(means)
        slopes = means[1:] - means[0]
        return means[0], slopes.T @ slopes


def _new(world: World, site: str, count: int = 5) -> Any:
    rng = np.random.default_rng(8)
    treatment = np.array([0.0, 1.0, 1.0, 0.0, 1.0])[:count]
    return make_rows(
        rng.normal(size=(count, 3)),
        treatment,
        rng.normal(size=count),
        fold=np.zeros(count),
        site=int(world.rows(site).site),
    )


def _as_people(rows: Any, first: int, *, keep: int) -> oracle.People:
    treatment = np.asarray(rows.treatment)[:keep].astype(int)
    site = np.full(keep, int(rows.site))
    return oracle.People(np.asarray(rows.covariates)[:keep], treatment, site, first + np.arange(keep))


def test_effects_of_new_people_are_those_of_dense_conditioning(fitted: Fitted) -> None:
    world = fitted.world
    new = _new(world, "south")
    draws = fitted.draws("south")
    mean, variance = conditional_effect(world.evidence, draws, world.rows("south"), new.covariates)
    people, outcome = world.people()
    expected, covariance = oracle.effects(world.model(), people, outcome, _as_people(new, 1000, keep=5))
    centre, spread = fitted.exact(np.asarray(mean)[:, :5])
    np.testing.assert_allclose(centre, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(np.diag(spread) + np.asarray(variance)[:5], np.diag(covariance), rtol=1e-6)


def test_average_effects_and_their_variance_are_those_of_dense_conditioning(fitted: Fitted) -> None:
    world, draws = fitted.world, fitted.draws("north")
    rows = world.rows("north")
    # People who count alike, as in a sample, and not, as in a draw of their population.
    weights = np.stack(
        [rows.present, rows.present * np.random.default_rng(1).exponential(size=len(rows.fold))]
    )
    weights /= weights.sum(axis=1, keepdims=True)
    both, covariances = outcomes(world.evidence, draws, rows, weights[:, None])
    mean, contrast = both[..., 1] - both[..., 0], np.array([-1.0, 1.0])
    variances = contrast @ np.asarray(covariances) @ contrast
    people, outcome = world.people()
    # People of a large study (diagonal) are averaged over as new people are: ids of their own.
    own = _as_people(rows, 1000, keep=9)
    expected, covariance = oracle.effects(world.model(), people, outcome, own)
    for share, variance in zip(weights, variances, strict=True):
        centre, spread = fitted.exact((np.asarray(mean) @ share)[:, None])
        np.testing.assert_allclose(centre[0], share[:9] @ expected, rtol=1e-6)
        total = share[:9] @ covariance @ share[:9]
        np.testing.assert_allclose(spread[0, 0] + float(variance), total, rtol=1e-6)


def test_individual_effects_of_a_sites_own_people_are_lemma_2s(fitted: Fitted) -> None:
    world, draws = fitted.world, fitted.draws("south")
    rows = world.rows("south")
    mean, variance = individual_effect(world.evidence, draws, rows, None, jnp.asarray(RHO))
    people, outcome = world.people()
    here = np.flatnonzero(people.site == int(rows.site))
    own = oracle.People(people.covariates[here], people.arm[here], people.site[here], people.person[here])
    _compare(fitted, mean, variance, people, outcome, own, outcome[here], world.model(noise_correlation=RHO))


@pytest.mark.thorough
def test_outcomes_of_further_people_join_what_is_conditioned_on(fitted: Fitted) -> None:
    world = fitted.world
    rows, new = world.rows("east"), _new(world, "east")
    given_weights = WeightDraws(world.free, fitted.beta[:1], fitted.shift[:1, :, int(rows.site)])
    mean, variance = individual_effect(world.evidence, given_weights, rows, new, jnp.asarray(RHO))
    # Given β and g only the site's own remainder is left to condition on, with what they explain taken off.
    remainder = _remainder(world)
    shared = _shared(world, given_weights)
    mine, outcome = _site_alone(world, "east")
    others, theirs = _as_people(new, 1000, keep=5), np.asarray(new.outcome)[:5]
    known = oracle.People(*(np.concatenate([getattr(mine, f), getattr(others, f)]) for f in vars(mine)))
    residual = np.concatenate([outcome, theirs]) - shared(known)
    missing = others.in_arm(1 - others.arm)
    expected, covariance = oracle.missing_outcomes(remainder, known, residual, missing)
    effect = (2 * others.arm - 1) * (theirs - expected - shared(missing))
    np.testing.assert_allclose(np.asarray(mean)[0, :5], effect, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(np.asarray(variance)[:5], np.diag(covariance), rtol=1e-6)


def test_a_noise_correlation_moves_individual_effects_but_not_conditional_ones(fitted: Fitted) -> None:
    world, draws = fitted.world, fitted.draws("north")
    rows = world.rows("north")
    variances = [
        np.asarray(individual_effect(world.evidence, draws, rows, None, jnp.asarray(rho))[1])[:9]
        for rho in (0.0, RHO)
    ]
    assert np.all(variances[1] < variances[0])


def _compare(
    fitted: Fitted,
    mean: Any,
    variance: Any,
    people: oracle.People,
    outcome: np.ndarray,
    own: oracle.People,
    seen: np.ndarray,
    model: oracle.Model,
) -> None:
    count = len(seen)
    expected, covariance = oracle.missing_outcomes(model, people, outcome, own.in_arm(1 - own.arm))
    sign = 2 * own.arm - 1
    centre, spread = fitted.exact(np.asarray(mean)[:, :count])
    np.testing.assert_allclose(centre, sign * (seen - expected), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(np.diag(spread) + np.asarray(variance)[:count], np.diag(covariance), rtol=1e-6)


def _remainder(world: World) -> oracle.Model:
    whole = world.model(noise_correlation=RHO)
    return oracle.Model(tuple(p for p in whole.processes if p.reach != "everybody"), whole.noise)


def _site_alone(world: World, site: str) -> tuple[oracle.People, np.ndarray]:
    people, outcome = world.people()
    here = people.site == int(world.rows(site).site)
    return oracle.People(*(getattr(people, f)[here] for f in vars(people))), outcome[here]


def _shared(world: World, draws: WeightDraws) -> Callable[[oracle.People], np.ndarray]:
    def at(people: oracle.People) -> np.ndarray:
        features = np.asarray(world.evidence.structure.features(world.free, jnp.asarray(people.covariates)))
        weights = draws.beta[0][people.arm.astype(int)]
        return np.sum(features * weights, axis=1) + draws.shift[0][people.arm.astype(int)]

    return at
