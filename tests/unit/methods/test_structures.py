"""What every structure keeps: shapes, symmetry, and what its settings mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracle.world import scaling_of
from unpooled.methods.fedci import METHOD
from unpooled.methods.fedci.method import EXACT_ROWS, pseudo_people
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import make_rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 3))
SCALING = scaling_of(
    correlation=np.array([[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    site_distances=np.array([[0.0, 1.7], [1.7, 0.0]]),
    binary_rate=np.array([np.nan, np.nan, 0.25]),
    sd=np.array([1.0, 1.0, np.sqrt(0.25 * 0.75)]),
    counts=(30, 40),
)
STRUCTURES = ["projection", "isotropic", "ard", "paper"]


def _basis(structure: str) -> dict[str, int]:
    return {"basis": 5} if structure in ("isotropic", "ard") else {}


def _evidence(structure: str, **settings: Any) -> Any:
    chosen = METHOD.Settings(**{"structure": structure, **_basis(structure), **settings})
    return METHOD.stages(chosen, METHOD.context(chosen, SCALING, 0))[structure]


def _prior_rests_on(directions: np.ndarray, noise: np.ndarray) -> dict:
    units = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    return {"noise": np.log(noise), "direction": units, "rows": np.array([20.0, 30.0])}


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("shifts", [True, False])
def test_starts_scales_and_priors_have_one_shape(structure: str, shifts: bool) -> None:
    shape = _evidence(structure, inter_dependency=shifts).structure
    directions, noise = RNG.normal(size=(2, 3)), np.array([0.4, 0.6])
    start, scales = shape.start(directions, noise), shape.scales(noise, 20.0)
    assert jax.tree.map(np.shape, start) == jax.tree.map(np.shape, scales)
    assert all(np.all(leaf > 0) for leaf in jax.tree.leaves(scales))
    assert ("shift" in start) == shifts
    assert np.isfinite(shape.log_prior(start, _prior_rests_on(directions, noise)))
    features, factors = shape.features(start, X), shape.feature_factors(start)
    assert features.shape[1] == factors.shape[0] == shape.width
    zero = jax.tree.map(lambda leaf: leaf[0].shape, shape.zero_slopes(2))
    assert zero == jax.tree.map(np.shape, shape.prior(start))
    np.testing.assert_array_equal(features[:, 0], 1.0)
    np.testing.assert_array_equal(features[:, 1:4], X)


def test_shifts_of_many_sites_are_correlated_through_the_reference_sites() -> None:
    moments = np.random.default_rng(3).normal(size=(40, 2))
    distances = np.mean((moments[:, None] - moments) ** 2, axis=2)
    references = np.array([5, 17, *range(30)])
    known = scaling_of(**{**vars(SCALING), "by_site": None, "site_distances": distances[:, references]})
    chosen = METHOD.Settings(structure="isotropic", basis=5)
    shape = METHOD.stages(chosen, METHOD.context(chosen, known, 0))["isotropic"].structure
    free = shape.start(np.ones((2, 3)), np.ones(2))
    prior = shape.prior(free)
    assert jax.tree.map(lambda leaf: leaf[0].shape, shape.zero_slopes(2)) == jax.tree.map(np.shape, prior)
    found = np.asarray(prior.site @ prior.site.T + np.diag(prior.own**2))
    exact = np.exp(-0.5 * distances)
    np.testing.assert_allclose(np.diagonal(found), 1.0, atol=1e-5)
    between = np.ix_(references, references)
    np.testing.assert_allclose(found[between], exact[between], atol=1e-4)
    # What is left out is small: the other sites are close to some of the references.
    assert np.abs(found - exact).max() < 0.2
    root = np.asarray(shape.site_root(free))
    np.testing.assert_allclose(root @ root.T, found, atol=1e-12)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_arms_that_are_not_coupled_have_no_covariance(structure: str) -> None:
    shape = _evidence(structure, arms_coupled=False).structure
    free = shape.start(np.ones((2, 3)), np.array([0.4, 0.6]))
    free = {name: np.asarray(value) + 0.5 for name, value in free.items()}
    factors = np.asarray(shape.feature_factors(free))
    np.testing.assert_array_equal(factors[:, 0, 1], 0.0)
    np.testing.assert_array_equal(factors[:, 1, 0], 0.0)


def test_a_direction_is_expected_near_its_arms_ridge_and_of_length_one() -> None:
    shape = _evidence("projection").structure
    directions, noise = RNG.normal(size=(2, 3)), np.array([0.4, 0.6])
    fixed, free = _prior_rests_on(directions, noise), shape.start(directions, noise)
    best = shape.log_prior(free, fixed)
    slope = jax.grad(shape.log_prior)(free, fixed)["direction"]
    np.testing.assert_allclose(slope, 0.0, atol=1e-9)
    for step in RNG.normal(size=(5, 2, 3)):
        assert shape.log_prior(free | {"direction": free["direction"] + step}, fixed) < best
    behind = shape.log_prior(free | {"direction": -free["direction"]}, fixed)
    np.testing.assert_allclose(best - behind, 2 * 2 * 3, rtol=1e-9)  # 2κ for each of two, κ = d


def test_a_direction_costs_what_integrating_it_would() -> None:
    # A line y = a·pᵀx + e: p's posterior precision is κ + n·a²/σ², and the price its Occam factor.
    shape = _evidence("projection", kernel="squared_exponential").structure
    noise = np.array([0.4, 0.6])
    fixed, free = _prior_rests_on(np.eye(2, 3), noise), shape.start(np.eye(2, 3), noise)
    free = free | {"length": np.full(2, 0.3)}
    arms = np.array([[0.5, 0.0, -40.0], [-40.0, 0.0, -0.2]])  # each component in one arm only
    variance = np.exp(2 * np.array([0.5, -0.2]))
    information = np.array([20.0, 30.0]) * variance / np.exp(0.6) / noise**2
    price = 0.5 * 2 * np.log((3 + information) / 3)

    def directions_alone(arms: np.ndarray) -> Any:
        return shape._direction_prior(free | {"arms": arms}, fixed)

    nothing = np.tile([-40.0, 0.0, -40.0], (2, 1))
    np.testing.assert_allclose(directions_alone(nothing) - directions_alone(arms), price.sum(), rtol=1e-9)


def test_the_length_of_a_direction_does_not_matter() -> None:
    shape = _evidence("projection").structure
    direction = np.array([0.3, -1.0, 0.4])
    np.testing.assert_allclose(shape.index(7.0 * direction, X), shape.index(direction, X), rtol=1e-9)


def test_the_basis_and_the_remainder_make_the_whole_kernel() -> None:
    shape = _evidence("isotropic").structure
    free = shape.start(np.ones((2, 3)), np.array([0.4, 0.6]))
    shared = np.asarray(shape.features(free, X))[:, 4:]
    rest = np.asarray(shape.remainder(free, X, X))
    np.testing.assert_allclose(np.diag(shared @ shared.T + rest), 1.0, rtol=1e-10)
    np.testing.assert_allclose(shape.remainder_diagonal(free, X), np.diag(rest), rtol=1e-7, atol=1e-9)
    assert np.linalg.eigvalsh(rest).min() > -1e-8


def test_large_sites_keep_only_the_diagonal_of_their_remainder() -> None:
    settings = METHOD.Settings()
    exact = [
        METHOD.context(settings, replace(SCALING, largest_site=count), 0).exact
        for count in (EXACT_ROWS, EXACT_ROWS + 1)
    ]
    assert exact == [True, False]


def test_pseudo_people_have_the_correlations_and_the_rates_of_the_covariates() -> None:
    people = pseudo_people(SCALING, 4000, seed=1)
    np.testing.assert_allclose(np.corrcoef(people.T), SCALING.correlation, atol=0.06)
    values, counts = np.unique(people[:, 2], return_counts=True)
    assert len(values) == 2
    np.testing.assert_allclose(counts[1] / 4000, 0.25)
    np.testing.assert_allclose(people[:, 2].std(), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(pseudo_people(SCALING, 4000, seed=1), people)


def _parameters(stage: str, structure: str, evidence: Any) -> Any:
    free = jax.tree.map(jnp.asarray, evidence.structure.start(np.ones((2, 3)), np.array([0.4, 0.6])))
    width = evidence.structure.feature_factors(free).shape[0]
    if stage == "ridge":
        return Parameters(fixed={"fold": jnp.asarray(-1)})
    if stage.startswith("effect/"):
        key = jax.random.key_data(jax.random.key(0))
        return Parameters(
            free, {"beta": jnp.zeros((2, 2, width)), "key": key}, {"site_shift": jnp.zeros((2, 2))}
        )
    return Parameters(free, {"fold": jnp.asarray(-1), "noise": jnp.zeros(2)})


@pytest.mark.parametrize("structure", STRUCTURES)
def test_what_a_stage_reveals_does_not_grow_with_rows(structure: str) -> None:
    settings = METHOD.Settings(**{"structure": structure, **_basis(structure)})
    stages = METHOD.stages(settings, METHOD.context(settings, SCALING, 0))
    assert set(stages) == {"ridge", structure, f"effect/{structure}"}
    for name, stage in stages.items():
        assert stage.reveals
        parameters = _parameters(name, structure, stages[structure])
        shapes = []
        for count in (20, 300):
            nothing = np.zeros(count)
            rows = make_rows(np.zeros((count, 3)), nothing, nothing, fold=nothing, site=0)
            shapes.append(jax.eval_shape(stage.statistics, parameters, rows))
        assert jax.tree.map(lambda leaf: leaf.shape, shapes[0]) == jax.tree.map(
            lambda leaf: leaf.shape, shapes[1]
        )
