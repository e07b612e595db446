"""What may be done to a study without changing its answer, or with a change that is known.

Draws follow the order of weights, shifts and arms, so where that order changes only their distribution is
the same. There the exact posterior is compared, at given hyperparameters.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.world import SIZES, STUDY, World, build, frames, posterior_of
from unpooled import FedCI
from unpooled.methods.fedci.conditionals import WeightDraws, conditional_effect
from unpooled.optimise.procedure import ask

pytestmark = pytest.mark.slow

TABLES = frames()
QUICK: dict[str, Any] = {"seed": 3, "structure": "projection", "draws": 40, "evaluations": 8}


def exact(world: World) -> tuple[float, dict[str, float]]:
    """Log evidence, and the posterior mean of every site's average effect."""
    parameters = world.parameters()
    batch = jax.tree.map(lambda leaf: np.asarray(leaf)[None], parameters)
    statistics = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), world.run(ask(world.name, batch)))
    posterior = posterior_of(world.evidence, parameters, statistics)
    beta, shift = posterior.weights()
    effects = {}
    for name in world.sites:
        rows = world.rows(name)
        draws = WeightDraws(world.free, beta, shift[:, :, int(rows.site)])
        mean, _ = conditional_effect(world.evidence, draws, rows, rows.covariates)
        effects[name] = float(mean[0] @ rows.present / rows.present.sum())
    return posterior.regression.log_evidence, effects


def fit(tables: dict[str, pd.DataFrame], **changed: Any) -> FedCI:
    # Averages over a population depend on weights that each site draws by its index.
    study = STUDY.with_changes(target="sample")
    return FedCI(**{**QUICK, "inter_dependency": False, **changed}).fit(study, tables)


@pytest.fixture(scope="module")
def whole() -> FedCI:
    return fit(TABLES)


CASES = [("projection", True), ("projection", False), ("isotropic", True)]


@pytest.fixture(scope="module", params=CASES, ids=str)
def known(request: pytest.FixtureRequest) -> tuple[str, bool, tuple[float, dict[str, float]]]:
    structure, shifts = request.param
    return structure, shifts, exact(build(structure, TABLES, inter_dependency=shifts))


@given(order=st.permutations(list(SIZES)))
@settings(max_examples=3)
def test_the_order_of_sites_does_not_matter_to_the_posterior(known: Any, order: list[str]) -> None:
    structure, shifts, (evidence, effects) = known
    tables = {name: TABLES[name] for name in order}
    found, others = exact(build(structure, tables, inter_dependency=shifts))
    np.testing.assert_allclose(found, evidence, rtol=1e-8)
    for name in SIZES:
        np.testing.assert_allclose(others[name], effects[name], rtol=1e-8)


@given(order=st.permutations(list(SIZES)))
@settings(max_examples=3)
def test_the_order_of_sites_does_not_matter_to_a_fit(whole: FedCI, order: list[str]) -> None:
    found = fit({name: TABLES[name] for name in order})
    np.testing.assert_allclose(found.ate(), whole.ate(), rtol=1e-6)
    np.testing.assert_allclose(found.ate_draws("east"), whole.ate_draws("east"), rtol=1e-5)


@given(shift=st.floats(-100.0, 100.0), scale=st.floats(0.01, 100.0))
@settings(max_examples=3)
def test_shifting_the_outcome_leaves_effects_and_scaling_scales_them(
    whole: FedCI, shift: float, scale: float
) -> None:
    tables = {name: table.assign(y=shift + scale * table["y"]) for name, table in TABLES.items()}
    found = fit(tables)
    np.testing.assert_allclose(found.ate_draws(), scale * whole.ate_draws(), rtol=1e-5)


@given(shift=st.floats(-50.0, 50.0), scale=st.floats(0.1, 50.0))
@settings(max_examples=2)
def test_the_units_of_a_covariate_do_not_matter(whole: FedCI, shift: float, scale: float) -> None:
    tables = {name: table.assign(a=shift + scale * table["a"]) for name, table in TABLES.items()}
    np.testing.assert_allclose(fit(tables).ate_draws(), whole.ate_draws(), rtol=1e-5)


def swapped_arms(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {name: table.assign(w=1 - table["w"]) for name, table in tables.items()}


def swapped(parameters: np.ndarray) -> np.ndarray:
    """The parameters of Ψ with its two arms exchanged: the effect changes its sign."""
    return parameters * np.array([1.0, -1.0, 1.0])


def test_swapping_the_arms_flips_the_effect_under_swapped_hyperparameters() -> None:
    world, other = build("isotropic", TABLES), build("isotropic", swapped_arms(TABLES))
    exchanged = {name: swapped(world.free[name]) for name in ("arms", "linear", "shift")}
    other.free = {**world.free, **exchanged, "noise": world.free["noise"][::-1]}
    (evidence, effects), (evidence_too, effects_too) = exact(world), exact(other)
    np.testing.assert_allclose(evidence_too, evidence, rtol=1e-8)
    for name in SIZES:
        np.testing.assert_allclose(effects_too[name], -effects[name], rtol=1e-7)


def test_swapping_the_arms_flips_the_effect_of_a_fit(whole: FedCI) -> None:
    found = fit(swapped_arms(TABLES))
    # Not exact: the draws are others.
    # 40 draws know the mean to 0.16 sd; the effect itself is many sds from zero.
    sd = whole.ate_draws().std()
    assert abs(whole.ate()) > 5 * sd
    assert abs(found.ate() + whole.ate()) < sd
