"""Draws of effects beside the rows, structures mixed by their weights."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unpooled.methods.fedci.collapsed import Evidence
from unpooled.methods.fedci.effects import Draws, conditional_effect, individual_effect
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows


def mix(by_structure: dict[str, np.ndarray], weights: dict[str, float], count: int) -> np.ndarray:
    """`count` draws [count, …]: each structure gives its weight's share, evenly over its θ draws.

    The mean is then the stacked estimate, and the spread includes that between the structures.
    """
    flat = {name: _merge(effects) for name, effects in by_structure.items()}
    shares = _shares(weights, count)
    parts = [flat[name][np.linspace(0, len(flat[name]) - 1, share).round().astype(int)] for name, share in shares.items()]
    return np.concatenate(parts)


def _merge(effects: np.ndarray) -> np.ndarray:
    """[θ, j, …] into one axis of draws."""
    return effects.reshape(-1, *effects.shape[2:])


def _shares(weights: dict[str, float], count: int) -> dict[str, int]:
    shares = {name: int(weight * count) for name, weight in weights.items()}
    heaviest = max(weights, key=lambda name: weights[name])
    shares[heaviest] += count - sum(shares.values())
    return shares


def conditional_effects(
    evidences: dict[str, Evidence], draws: Tree, rows: Rows, people: Rows, count: int
) -> np.ndarray:
    """CATE draws [count, people]."""

    def effect(evidence: Evidence, one: Draws) -> tuple[Array, Array]:
        return conditional_effect(evidence, one, rows, people.covariates)[:2]

    return _mixed(evidences, draws, rows, count, effect)


def individual_effects(
    evidences: dict[str, Evidence], draws: Tree, rows: Rows, people: Rows, count: int, noise_correlation: float
) -> np.ndarray:
    """ITE draws [count, people] of people whose outcomes are known."""

    def effect(evidence: Evidence, one: Draws) -> tuple[Array, Array]:
        return individual_effect(evidence, one, rows, people, noise_correlation)

    return _mixed(evidences, draws, rows, count, effect)


def _mixed(
    evidences: dict[str, Evidence],
    draws: Tree,
    rows: Rows,
    count: int,
    effect: Callable[[Evidence, Draws], tuple[Array, Array]],
) -> np.ndarray:
    by_structure = {
        name: np.asarray(_each_theta(evidences[name], part, rows, effect))
        for name, part in draws["structures"].items()
    }
    return mix(by_structure, draws["weights"], count)


@eqx.filter_jit
def _each_theta(evidence: Evidence, part: Tree, rows: Rows, effect: Callable) -> Array:
    """One θ after another, so that memory does not grow with their number."""

    def one(leaves: Tree) -> Array:
        drawn = Draws(leaves["free"], leaves["beta"], leaves["shift"][:, :, rows.site])
        mean, variance = effect(evidence, drawn)
        noise = jax.random.normal(jax.random.wrap_key_data(leaves["key"]), mean.shape)
        return mean + jnp.sqrt(variance) * noise

    return jax.lax.map(one, part)
