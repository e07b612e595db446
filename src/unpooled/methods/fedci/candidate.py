"""FedCI as a candidate of the super learner: effects of held-out people by the fits without their fold."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.methods.fedci.conditionals import WeightDraws, as_sent, conditional_effect, shared_arms
from unpooled.methods.fedci.stages import Evidence, in_use
from unpooled.models.held_out_effects import HeldOutEffects, Predicted
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, union


class FedCIEffects(HeldOutEffects):
    """The stacked structures: the mean of their effects, and a variance that includes their differences."""

    evidences: tuple[Evidence, ...]

    def predicted(self, parameters: Parameters, rows: Rows) -> Predicted:
        fixed = parameters.fixed
        asked = zip(self.evidences, fixed["fitted"], parameters.per_site["site_shift"], strict=True)
        each = jnp.stack([_held_out(evidence, fitted, shift, rows) for evidence, fitted, shift in asked])
        effect = fixed["share"] @ each[:, 0]
        return Predicted(effect, fixed["share"] @ (each[:, 1] + (each[:, 0] - effect) ** 2))

    def bounds(self) -> Bounds:
        every = (bounds for one in self.evidences for bounds in (one.bounds(), one.weight_bounds()))
        return {**union(*every), "share": (0.0, 1.0)}


def _held_out(evidence: Evidence, fitted: Arrays, shift: Array, rows: Rows) -> Float[Array, "2 n"]:
    def without(leaves: tuple[Array, Arrays, Array]) -> Float[Array, "2 n"]:
        fold, found, own = leaves
        weights = in_use(rows, {"fold": fold})
        drawn = WeightDraws(found["free"], found["beta"], own, found.get("about"))
        draws = as_sent(evidence, drawn, rows, weights)
        if evidence.link is not None:
            means = evidence.link.mean(shared_arms(evidence, draws, rows.covariates))
            effects = means[..., 1] - means[..., 0]
            return jnp.stack([effects.mean(axis=0), effects.var(axis=0)])
        others = eqx.tree_at(lambda one: one.present, rows, weights)
        effects, remainder = conditional_effect(evidence, draws, others, rows.covariates)
        return jnp.stack([effects.mean(axis=0), effects.var(axis=0) + remainder])

    folds = jnp.arange(fitted["beta"].shape[0])
    found = jax.lax.map(without, (folds, fitted, shift))
    return jnp.take_along_axis(found, jnp.maximum(rows.fold, 0)[None, None, :], axis=0)[0]


def held_out_question(asked: Parameters, weights: dict[str, float], names: list[str]) -> Parameters:
    """What the site needs for it: draws of the weights of all structures, fitted without each fold."""
    share = np.array([[weights.get(name, 0.0) for name in names]])
    return Parameters(fixed={**asked.fixed, "share": share}, per_site=asked.per_site)
