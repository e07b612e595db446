"""With limits, every sum of a basis function rests on enough people; without, nothing changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracle import fedci as oracle
from oracle.world import scaling_of
from unpooled.maths.kernels import JITTER, line_features
from unpooled.maths.linear_algebra import unpack
from unpooled.methods.fedci import METHOD
from unpooled.methods.fedci.conditionals import WeightDraws, as_sent
from unpooled.methods.fedci.effects import GaussianProcessAverage
from unpooled.methods.fedci.held_out import HeldOutErrors
from unpooled.methods.fedci.model import GRID
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import make_rows

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(3)
N, D, LEAST = 47, 3, 5.0
X, W, Y = RNG.normal(size=(N, D)), (np.arange(N) % 2).astype(float), RNG.normal(size=N)
SCALING = scaling_of(
    correlation=np.array([[1.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    site_distances=np.array([[0.0, 0.7], [0.7, 0.0]]),
    binary_rate=np.full(D, np.nan),
    sd=np.ones(D),
    counts=(N, N),
)
CASES = [("projection", True), ("isotropic", True), ("isotropic", False), ("ard", True)]


def _rows(least: float) -> Any:
    return make_rows(X, W, Y, fold=np.arange(N) // 2 % 4, site=0, least=least)


def _evidence(structure: str, exact: bool) -> Any:
    basis = {} if structure == "projection" else {"basis": 12}
    settings = METHOD.Settings(**{"structure": structure, **basis})
    return METHOD.stages(settings, replace(METHOD.context(settings, SCALING, 0), exact=exact))[structure]


def _points(evidence: Any) -> list[dict[str, Any]]:
    """Honest hyperparameters and silly ones."""
    start = evidence.structure.start(RNG.normal(size=(2, D)), np.array([0.4, 0.6]))
    near = [{n: v + s * RNG.normal(size=np.shape(v)) for n, v in start.items()} for s in (0.0, 0.2, 0.5)]
    lengths = [start | {"length": np.full_like(start["length"], value)} for value in (-9.2, -2.0, 6.0)]
    silly = [point | {"noise": np.array([-6.0, 2.0])} for point in lengths]
    if "direction" in start:
        person = X[np.argmax(np.abs(X).sum(axis=1))]
        silly.append(start | {"direction": np.stack([person, np.eye(D)[0]]), "length": np.full(2, -1.5)})
    return [jax.tree.map(jnp.asarray, point) for point in (*near, *silly)]


def _parameters(free: dict[str, Any], fold: int = -1) -> Parameters:
    return Parameters(free, {"fold": jnp.asarray(fold)})


def _gram(statistics: Any) -> np.ndarray:
    return np.asarray(unpack(jnp.asarray(statistics.summed["gram"])))


@pytest.mark.parametrize(("structure", "exact"), CASES)
def test_nothing_changes_without_limits(structure: str, exact: bool) -> None:
    evidence, rows = _evidence(structure, exact), _rows(0.0)
    for free in _points(evidence):
        weights = np.asarray(rows.present)
        np.testing.assert_array_equal(evidence.kept(free, rows, weights), 1.0)
        sums = evidence.statistics(_parameters(free), rows).summed
        if structure == "projection":
            features = evidence.structure.features(free, rows.covariates)
            arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) * weights
            moment = jnp.einsum("an,nf,n->af", arms, features, rows.outcome)
            gram = jnp.einsum("an,nf,ng->afg", arms, features, features)
        else:
            design = evidence.design(free, rows.covariates, rows.treatment) * weights[:, None]
            columns = jnp.column_stack([design, rows.outcome * weights])
            whitened = evidence.whiten(free, rows, rows.present, columns)[0]
            products = whitened.T @ whitened
            gram, moment = products[:-1, :-1], products[:-1, -1]
        # The stage adds up in another order.
        for found, known in ((unpack(jnp.asarray(sums["gram"])), gram), (sums["moment"], moment)):
            np.testing.assert_allclose(found, known, rtol=0, atol=1e-13 * np.abs(known).max())


def test_features_are_the_oracles_waves() -> None:
    z = RNG.normal(size=11)
    expected = oracle.wave_features("matern52", z[:, None], GRID[:, None], 1.3, JITTER)
    found = line_features("matern52", jnp.asarray(z), jnp.asarray(GRID), jnp.asarray(1.3))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("fold", [-1, 2])
def test_sums_over_people_who_count_and_features_that_are_kept(fold: int) -> None:
    evidence, rows = _evidence("projection", True), _rows(LEAST)
    used = np.asarray(rows.fold)[:N] != fold
    for free in _points(evidence):
        features = np.asarray(evidence.structure.features(free, rows.covariates))[:N]
        sums = evidence.statistics(_parameters(free, fold), rows).summed
        gram = np.asarray(unpack(jnp.asarray(sums["gram"])))
        for arm in (0, 1):
            people = used & (arm == W)
            counted = oracle.counts(features[people, 1 + D :], LEAST)
            contributions = counted[:, None] * features[people] ** 2
            factors = [1.0] * (1 + D) + [oracle.factor(v, LEAST) for v in contributions.T[1 + D :]]
            scaled = np.sqrt(counted)[:, None] * features[people] * factors
            np.testing.assert_allclose(gram[arm], scaled.T @ scaled, rtol=1e-8, atol=1e-9)
            moment = (scaled * np.sqrt(counted)[:, None]).T @ Y[people]
            np.testing.assert_allclose(sums["moment"][arm], moment, rtol=1e-7, atol=1e-9)
            for value, v in zip(np.diag(gram[arm])[1 + D :], contributions.T[1 + D :], strict=True):
                assert value == 0.0 or oracle.rests_on(v) > LEAST


@pytest.mark.parametrize(("structure", "exact"), CASES[1:])
def test_kernel_features_rest_on_enough_people_even_when_whitened(structure: str, exact: bool) -> None:
    evidence, rows = _evidence(structure, exact), _rows(LEAST)
    some = 0
    for free in _points(evidence):
        gram = _gram(evidence.statistics(_parameters(free), rows))
        design = evidence.design(free, rows.covariates, rows.treatment) * rows.present[:, None]
        whitened = np.asarray(evidence.whiten(free, rows, rows.present, design)[0])
        sides = [np.asarray(design) ** 2, whitened**2]
        for column in range(gram.shape[0]):
            plain = column % (gram.shape[0] // 2) <= D  # the columns themselves are protected before
            checked = sides[1:] if plain else sides
            factor = min(oracle.factor(side[:, column], LEAST) for side in checked)
            np.testing.assert_allclose(
                gram[column, column], factor**2 * sides[1][:, column].sum(), rtol=1e-7, atol=1e-12
            )
            some += factor > 0
            assert gram[column, column] == 0.0 or min(oracle.rests_on(s[:, column]) for s in checked) > LEAST
    assert some


@pytest.mark.parametrize(("structure", "exact"), CASES)
def test_masks_have_no_gradient(structure: str, exact: bool) -> None:
    """The derivative of a factor would be that of one person, whose contribution is the largest."""
    evidence, rows = _evidence(structure, exact), _rows(LEAST)
    free = _points(evidence)[1]
    slopes = jax.jit(jax.grad(lambda free: jnp.sum(evidence.kept(free, rows, rows.present))))(free)
    assert all(np.all(np.asarray(leaf) == 0.0) for leaf in jax.tree.leaves(slopes))

    def moments(free: dict[str, Any]) -> Any:
        return jnp.sum(evidence.statistics(_parameters(free), rows).summed["moment"])

    found = jax.jit(jax.grad(moments))(free)
    assert any(np.any(np.asarray(leaf) != 0.0) for leaf in jax.tree.leaves(found))


def test_predictions_use_the_factors_of_the_sums() -> None:
    evidence, rows = _evidence("projection", True), _rows(LEAST)
    free = _points(evidence)[3]
    draws = WeightDraws(free, jnp.ones((1, 2, 1 + D + 2 * len(GRID))), jnp.zeros((1, 2)))
    weights = rows.present * (rows.fold != 1)
    np.testing.assert_array_equal(
        as_sent(evidence, draws, rows, weights).beta[0], evidence.kept(free, rows, weights)
    )


def _singling_out(features: np.ndarray, person: int) -> np.ndarray:
    """The weights under which this person has the largest share of a sum of squares, made large."""
    gram = features.T @ features + 1e-6 * np.eye(features.shape[1])
    weights = np.linalg.solve(gram, features[person])
    return 1e4 * weights / np.abs(weights).max()


def test_no_weights_of_the_features_make_an_average_rest_on_few_people() -> None:
    evidence = _evidence("projection", True)
    stage, free = GaussianProcessAverage(evidence), _points(evidence)[0]
    features = np.asarray(evidence.structure.features(free, jnp.asarray(X)))
    fixed, few = {"key": jax.random.key_data(jax.random.key(0))}, 0
    statistics = eqx.filter_jit(stage.statistics)
    for person in range(N):
        weights = _singling_out(features, person)
        beta = jnp.zeros((1, 2, len(weights))).at[0, 1].set(weights)
        asked = Parameters(free, {**fixed, "beta": beta}, {"site_shift": jnp.zeros((1, 2))})
        found = statistics(asked, _rows(LEAST)).per_site["sample"][0, 0] @ jnp.array([-1.0, 1.0])
        effect = features @ weights
        deviation = effect - np.median(effect)
        capped = np.sign(deviation) * oracle.capped(np.abs(deviation), LEAST)
        few += not np.array_equal(capped, deviation)
        assert oracle.rests_on(np.abs(capped)) > LEAST or not capped.any()
        np.testing.assert_allclose(found, np.median(effect) + capped.mean(), rtol=1e-6)
        plain = statistics(asked, _rows(0.0)).per_site["sample"][0, 0] @ jnp.array([-1.0, 1.0])
        np.testing.assert_allclose(plain, effect.mean(), rtol=1e-6)
    assert few


def test_no_weights_of_the_features_make_held_out_errors_rest_on_few_people() -> None:
    evidence = _evidence("projection", True)
    stage, free, rows = HeldOutErrors((evidence,)), _points(evidence)[0], _rows(LEAST)
    features = np.asarray(evidence.structure.features(free, rows.covariates))
    statistics, few = eqx.filter_jit(stage.statistics), 0
    fold = np.asarray(rows.fold)[:N]
    for person in range(0, N, 3):
        weights = _singling_out(features[:N], person)
        beta = jnp.asarray(np.broadcast_to(weights, (4, 1, 2, len(weights))))
        each = jax.tree.map(lambda leaf: jnp.stack([leaf] * 4), free)
        asked = Parameters(
            fixed={"fitted": ({"free": each, "beta": beta},)},
            per_site={"site_shift": (jnp.zeros((4, 1, 2)),)},
        )
        found = np.asarray(statistics(asked, rows).summed["products"])[:, 0, 0]
        factors = [np.asarray(evidence.kept(free, rows, rows.present * (rows.fold != f))) for f in range(4)]
        own = np.stack([factors[f][int(w)] for f, w in zip(fold, W, strict=True)])
        error = Y - np.sum(features[:N] * own * weights, axis=1)
        for arm in (0, 1):
            mine = error[arm == W]
            centre = np.median(mine)
            capped = oracle.capped(np.abs(mine - centre), LEAST)
            few += oracle.rests_on((mine - centre) ** 2) <= LEAST
            assert oracle.rests_on(capped**2) > LEAST * (1.0 - 1e-6)
            sent = centre + np.sign(mine - centre) * capped
            np.testing.assert_allclose(found[arm], np.sum(sent**2), rtol=1e-5)
    assert few
