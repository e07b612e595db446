"""Draws of z, effects and held-out densities of the GaussianCandidate latent model, against grids over z."""

from __future__ import annotations

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy import stats

from oracle import gaussian_latent as slow
from unpooled.methods.causal_rff.paper import posterior
from unpooled.methods.causal_rff.paper.effects import GaussianModel
from unpooled.methods.causal_rff.paper.functions import StructuralFunctions
from unpooled.methods.causal_rff.paper.posterior import LatentSampler
from unpooled.models.outcome_family import family_of
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows, make_rows

pytestmark = pytest.mark.slow

SITE, COPIES = 1, 1000
GRID = np.linspace(-5, 5, 161)
X, W, Y = np.array([0.4, 1.3, -0.2]), 1.0, 0.9


@cache
def world(binary: bool = False) -> tuple[StructuralFunctions, Any]:
    """One latent dimension, and a q that is too wide and knows nothing: the chains have something to do."""
    made = slow.functions(dimension=1, binary=binary)
    free = slow.scattered(made)
    return made, {**free, "encoder": np.zeros_like(free["encoder"]), "spread": np.full(1, 0.1)}


def copies(count: int = COPIES) -> Rows:
    """The same person many times over: each copy has a chain of its own."""
    x, w, y = np.tile(X, (count, 1)), np.full(count, W), np.full(count, Y)
    return make_rows(x, w, y, fold=np.zeros(count), site=SITE)


@cache
def grid(binary: bool) -> tuple[list[Any], np.ndarray]:
    """What each z of the grid says, and log p(z) + log p(x, w | z) [z, w]."""
    made, free = world(binary)
    said = [slow.said_of(made, free, np.array([z]), SITE) for z in GRID]
    logs = [
        [slow.log_rest(made, free, np.array([z]), X, w, SITE) + stats.norm.logpdf(z) for w in (0, 1)]
        for z in GRID
    ]
    return said, np.array(logs)


def on_grid(binary: bool, *, w: float, y: float | None) -> tuple[np.ndarray, list[Any]]:
    """p(z | x, w) or p(z | x, w, y) on the grid, and what each z says."""
    said, every = grid(binary)
    logs = every[:, int(w)].copy()
    if y is not None:
        logs += [slow.log_p(each["y"][int(w)], y) for each in said]
    weight = np.exp(logs - logs.max())
    return weight / weight.sum(), said


def bundle(made: StructuralFunctions, free: Any, draws: int = 2) -> Any:
    """As if the decoders were known: every draw is the point's own."""
    own = slow.own(made, free, "decoder", SITE)[:, :2]
    coefficients = np.tile(own, (draws, 1, 1))
    key = jax.random.key_data(jax.random.key(6))
    return jax.tree.map(jnp.asarray, {"point": free, "coefficients": coefficients, "key": key})


def modelled(made: StructuralFunctions) -> GaussianModel:
    scale = family_of("binary" if made.binary else "continuous", 0.5, 1.0, link="logit")
    return GaussianModel(LatentSampler(made, metropolis=True), scale)


def seen(made: StructuralFunctions) -> float:
    return float(Y > 0) if made.binary else Y


@pytest.mark.parametrize("binary", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_metropolis_draws_a_persons_posterior_and_the_proposal_does_not(binary: bool) -> None:
    made, free = world(binary)
    rows = copies()
    weight, _ = on_grid(made.binary, w=W, y=seen(made))
    cumulative = np.cumsum(weight) - 0.5 * weight
    levels = {}
    for metropolis in (True, False):
        sampler = LatentSampler(made, metropolis=metropolis)
        drawn = sampler.given_all(free, rows, made.outcome_of(rows), rows.treatment, jax.random.key(1))
        z = np.asarray(drawn.z)[:COPIES, 0]
        levels[metropolis] = stats.kstest(z, lambda at: np.interp(at, GRID, cumulative)).pvalue
        accepted = float(drawn.acceptance[:COPIES].mean())
        assert (0.1 < accepted < 0.95) if metropolis else accepted == 1.0
    assert levels[True] > 0.01
    assert levels[False] < 1e-6


@pytest.mark.parametrize("binary", [False, True])
def test_effects_follow_the_papers_five_steps(binary: bool) -> None:
    made, free = world(binary)
    model = modelled(made)
    both = np.asarray(eqx.filter_jit(model.outcomes)(bundle(made, free), copies(64)))[:, :64]
    found = both[..., 1] - both[..., 0]
    of_w, of_y = slow.auxiliary(made, free, X, SITE)
    nodes, weights = hermegauss(9)
    expected = 0.0
    for w in (0, 1):
        if binary:
            outcomes = [(y, of_y[w].pmf(y)) for y in (0.0, 1.0)]
        else:
            outcomes = [
                (of_y[w].mean() + of_y[w].std() * node, weight / weights.sum())
                for node, weight in zip(nodes, weights, strict=True)
            ]
        for y, chance in outcomes:
            share, said = on_grid(made.binary, w=w, y=y)
            effect = [each["mean"][1] - each["mean"][0] for each in said]
            expected += of_w.pmf(w) * chance * float(share @ np.array(effect))
    error = found[0].std(ddof=1) / np.sqrt(64)
    assert abs(found[0].mean() - expected) < 4 * error < 0.1
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


@pytest.mark.parametrize("binary", [False, True])
def test_held_out_density_is_the_integral_over_z(binary: bool) -> None:
    made, free = world(binary)
    model = modelled(made)
    found = np.asarray(eqx.filter_jit(model.log_density)(bundle(made, free), copies(64)))[:64]
    share, said = on_grid(made.binary, w=W, y=None)
    density = share @ np.exp([slow.log_p(each["y"][int(W)], seen(made)) for each in said])
    assert abs(np.exp(found).mean() - density) < 0.02 * density


def test_individual_effects_leave_the_outcome_that_was_seen() -> None:
    made, free = world()
    model = modelled(made)
    individual = eqx.filter_jit(model.individual)
    found = np.asarray(individual(bundle(made, free, 40), copies(64), jax.random.key(2), jnp.asarray(0.0)))
    share, said = on_grid(made.binary, w=W, y=Y)
    missing = float(share @ np.array([each["mean"][0] for each in said]))
    assert abs(found.mean() - (Y - missing)) < 4 * found.std() / np.sqrt(found.size)


def test_decoders_are_drawn_from_the_posterior_of_the_stacked_regression() -> None:
    made = slow.functions(dimension=1)
    free = slow.scattered(made)
    rng, zeta = np.random.default_rng(1), 0.8
    size, sites = made.width, slow.SITES
    sharing = np.asarray(made.sharing(free, "latent", sites))
    phis, ys = rng.normal(size=(sites, 20, size)), rng.normal(size=(sites, 20))
    each = {
        "gram": np.stack([np.stack([p.T @ p] * 2) for p in phis]),
        "score": np.stack([np.stack([p.T @ y, -p.T @ y]) for p, y in zip(phis, ys, strict=True)]),
    }
    drawn = posterior.draw(made, free, each, regulariser=zeta, count=20_000, rng=rng)
    # One design for all sites' θ: a row of site s sees θ^v with weight λ^{s,v}.
    design = np.concatenate([np.kron(sharing[s], phis[s]) for s in range(sites)])
    covariance = np.linalg.inv(design.T @ design + 2 * zeta * np.eye(sites * size))
    mean = covariance @ design.T @ ys.ravel()
    mixing = np.kron(sharing, np.eye(size))
    control, treated = (drawn[..., arm].reshape(len(drawn), -1) for arm in (0, 1))
    scale = np.sqrt(np.diagonal(mixing @ covariance @ mixing.T))
    np.testing.assert_allclose((control.mean(axis=0) - mixing @ mean) / scale, 0.0, atol=0.04)
    np.testing.assert_allclose((treated.mean(axis=0) + mixing @ mean) / scale, 0.0, atol=0.04)
    np.testing.assert_allclose(control.std(axis=0) / scale, 1.0, atol=0.03)


@pytest.mark.parametrize("binary", [False, True])
def test_moments_are_those_of_the_regression_or_of_a_newton_step(binary: bool) -> None:
    made = slow.functions(dimension=1, binary=binary)
    free = slow.scattered(made)
    rows, people = slow.people(site=SITE)
    sampler = LatentSampler(made, metropolis=False)
    key = jax.random.key(4)
    fixed = {"point": free, "fold": jnp.asarray(-1), "key": jax.random.key_data(key)}
    each = posterior.LatentMoments(sampler).statistics(Parameters(fixed=fixed), rows).per_site
    inner = jax.random.fold_in(key, SITE)
    z = sampler.given_all(free, rows, made.outcome_of(rows), rows.treatment, inner).z
    own = slow.own(made, free, "decoder", SITE)[:, :2]
    for arm in (0, 1):
        gram, score = np.zeros((made.width, made.width)), np.zeros(made.width)
        for i in np.flatnonzero(people["w"] == arm):
            phi = slow.features(np.asarray(made.latent), np.asarray(z[i]), float(free["length"]["latent"]))
            if binary:
                f = phi @ own[:, arm]
                p = 1 / (1 + np.exp(-f))
                gram += p * (1 - p) * np.outer(phi, phi)
                score += phi * (p * (1 - p) * f + float(people["y"][i] > 0) - p)
            else:
                gram += np.outer(phi, phi) / np.exp(2 * free["noise"]["outcome"][arm])
                score += phi * people["y"][i] / np.exp(2 * free["noise"]["outcome"][arm])
        np.testing.assert_allclose(each["gram"][arm], gram, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(each["score"][arm], score, rtol=1e-9, atol=1e-12)
