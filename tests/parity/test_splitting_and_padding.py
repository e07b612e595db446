"""Where rows lie, and how tables are padded, changes nothing."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from oracle.world import STUDY, World, build, frames, posterior_of
from unpooled import FedCI
from unpooled.methods.fedci.conditionals import WeightDraws, conditional_effect, individual_effect
from unpooled.methods.fedci.effects import GaussianProcessAverage
from unpooled.methods.fedci.posterior import weights_and_shifts
from unpooled.optimise.procedure import ask
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows

pytestmark = pytest.mark.slow

SAMPLE = STUDY.with_changes(target="sample")
POOLED = pd.concat(frames({"all": 40}).values(), ignore_index=True)


def cut(parts: int) -> dict[str, pd.DataFrame]:
    """The same people in so many sites of unlike sizes, each with both arms."""
    edges = np.linspace(0, len(POOLED), parts + 1).round().astype(int)
    edges[1:-1] += np.arange(parts - 1) % 2
    return {f"s{i}": POOLED.iloc[edges[i] : edges[i + 1]] for i in range(parts)}


def _posterior(world: World) -> tuple[float, np.ndarray, np.ndarray]:
    """Objective, three draws of the weights from their posterior, and the ATE under each."""
    batch = jax.tree.map(lambda leaf: np.asarray(leaf)[None], world.parameters())
    statistics = jax.tree.map(lambda leaf: leaf[0], world.run(ask(world.name, batch)))
    posterior = posterior_of(world.evidence, world.parameters(), statistics)
    beta, shift = weights_and_shifts(world.evidence, [posterior], np.random.default_rng(3), 3)
    fixed = {"beta": beta, "key": np.asarray(jax.random.key_data(jax.random.key(3)))[None]}
    own = {"site_shift": np.moveaxis(shift, -1, 1)}
    reply = world.run(ask(f"effect/{world.name}", Parameters(batch.free, fixed, own)))
    counts = np.array([site.adopted.count for site in world.sites.values()])
    means = np.asarray(reply.per_site["sample"])[0, :, :, 0]  # [site, draw, arm]
    effects = means[..., 1] - means[..., 0]
    return posterior.value, beta, effects.T @ counts / counts.sum()


def test_splitting_a_site_changes_nothing() -> None:
    whole, *pieces = (
        _posterior(build("projection", cut(parts), inter_dependency=False)) for parts in (1, 2, 5)
    )
    for piece in pieces:
        np.testing.assert_allclose(piece[0], whole[0], rtol=1e-8)
        np.testing.assert_allclose(piece[1], whole[1], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(piece[2], whole[2], rtol=1e-8)


@pytest.mark.thorough
def test_splitting_a_site_leaves_the_whole_fit_unchanged() -> None:
    settings: dict[str, Any] = {"structure": "projection", "draws": 40, "evaluations": 8}
    models = [FedCI(seed=2, inter_dependency=False, **settings).fit(SAMPLE, cut(parts)) for parts in (2, 5)]
    # The objective and its gradient agree to rounding; the differences behind the curvature amplify it.
    np.testing.assert_allclose(models[0].ate_draws(), models[1].ate_draws(), rtol=1e-6)


@pytest.mark.parametrize("structure", ["projection", "isotropic"])
def test_padding_changes_nothing(structure: str) -> None:
    world = build(structure)
    rows = world.rows("north")
    wider = _pad(rows, 7)
    parameters = world.parameters()
    for now, then in zip(
        *(_leaves(eqx.filter_jit(world.evidence.statistics)(parameters, r)) for r in (rows, wider)),
        strict=True,
    ):
        np.testing.assert_allclose(now, then, rtol=1e-10, atol=1e-12)
    width = world.evidence.structure.features(world.free, rows.covariates).shape[1]
    rng = np.random.default_rng(1)
    draws = WeightDraws(world.free, rng.normal(size=(2, 2, width)), rng.normal(size=(2, 2)))
    for effect in (
        lambda r: conditional_effect(world.evidence, draws, r, rows.covariates[:9]),
        lambda r: [
            part[..., :9] for part in individual_effect(world.evidence, draws, r, None, jnp.asarray(0.2))
        ],
        lambda r: _average(world, draws, r),
    ):
        compiled = eqx.filter_jit(effect)
        for now, then in zip(_leaves(compiled(rows)), _leaves(compiled(wider)), strict=True):
            np.testing.assert_allclose(now, then, rtol=1e-9, atol=1e-12)


def _average(world: World, draws: WeightDraws, rows: Rows) -> Any:
    fixed = {"beta": draws.beta, "key": jax.random.key_data(jax.random.key(1))}
    asked = Parameters(world.free, fixed, {"site_shift": draws.shift})
    return GaussianProcessAverage(world.evidence).statistics(asked, rows)


def _pad(rows: Rows, extra: int) -> Rows:
    """Further padding, with rubbish where it must not matter."""

    def longer(array: Any, value: float) -> Any:
        return jnp.pad(array, [(0, extra)] + [(0, 0)] * (array.ndim - 1), constant_values=value)

    return Rows(
        longer(rows.covariates, 0.5),
        longer(rows.treatment, 1.0),
        longer(rows.outcome, 9.0),
        longer(rows.present, 0.0),
        longer(rows.fold, -1),
        rows.site,
        rows.salt,
        rows.least,
        longer(rows.incomplete, 0.0),
        longer(rows.seen, 1.0),
    )


def _leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
