"""WeightDraws of effects beside the rows, structures mixed by their weights."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unpooled.methods.fedci.collapsed import Evidence
from unpooled.methods.fedci.effects import WeightDraws, conditional_effect, individual_effect
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows


def mix(by_structure: dict[str, np.ndarray], weights: dict[str, float], count: int) -> np.ndarray:
    """`count` draws [count, …]: each structure gives its weight's share, evenly over its θ draws.

    The mean is then the stacked estimate, and the spread includes that between the structures.
    """
    flat = {name: _merge(effects) for name, effects in by_structure.items()}
    shares = _shares(weights, count)
    parts = [
        flat[name][np.linspace(0, len(flat[name]) - 1, share).round().astype(int)]
        for name, share in shares.items()
    ]
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
    evidences: dict[str, Evidence], draws: Arrays, rows: Rows, people: Rows, count: int
) -> np.ndarray:
    """CATE draws [count, people]."""
    parts = draws["structures"].items()
    return mix(
        {n: _each_theta(evidences[n], part, rows, people, None) for n, part in parts}, draws["weights"], count
    )


def individual_effects(
    evidences: dict[str, Evidence],
    draws: Arrays,
    rows: Rows,
    people: Rows | None,
    count: int,
    noise_correlation: float,
) -> np.ndarray:
    """ITE draws [count, people] of people whose outcomes are known."""
    rho, parts = np.asarray(noise_correlation), draws["structures"].items()
    return mix(
        {n: _each_theta(evidences[n], part, rows, people, rho) for n, part in parts}, draws["weights"], count
    )


def _each_theta(
    evidence: Evidence, part: Arrays, rows: Rows, people: Rows | None, noise_correlation: np.ndarray | None
) -> np.ndarray:
    return np.asarray(_compiled_each_theta(evidence, part, rows, people, noise_correlation))


@eqx.filter_jit
def _compiled_each_theta(
    evidence: Evidence, part: Arrays, rows: Rows, people: Rows | None, noise_correlation: np.ndarray | None
) -> Array:
    """One θ after another, so that memory does not grow with their number."""

    def one(leaves: Arrays) -> Array:
        drawn = WeightDraws(leaves["free"], leaves["beta"], leaves["shift"][:, :, rows.site])
        if noise_correlation is None:
            assert people is not None
            mean, variance = conditional_effect(evidence, drawn, rows, people.covariates)
        else:
            mean, variance = individual_effect(evidence, drawn, rows, people, jnp.asarray(noise_correlation))
        noise = jax.random.normal(jax.random.wrap_key_data(leaves["key"]), mean.shape)
        return mean + jnp.sqrt(variance) * noise

    return jax.lax.map(one, part)
