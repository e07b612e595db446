"""Draws of a person's z: given all that is known of them, or, by the paper's five steps, given x alone."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.maths.mcmc import independence
from unpooled.methods.causal_rff.gaussian.functions import Functions, log_normal
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows

STEPS = 10
"""Metropolis steps from q: where half the proposals are taken, one chain in a thousand never moves."""


class Latent(NamedTuple):
    """One z for everybody, and the share of proposals that was taken (one, where q itself is used)."""

    z: Float[Array, "n z"]
    acceptance: Float[Array, " n"]


class Sampler(eqx.Module):
    """p(z | x, y, w) by Metropolis with proposal q, or q itself in its place."""

    functions: Functions
    metropolis: bool = eqx.field(static=True)

    def given_all(self, free: Tree, rows: Rows, y: Array, w: Array, key: Array) -> Latent:
        mean, log_sd = self.functions.encode(free, rows, y, w), free["spread"]
        first, second = jax.random.split(key)
        steps = STEPS if self.metropolis else 0
        proposals = mean + jnp.exp(log_sd) * jax.random.normal(first, (steps + 1, *mean.shape))
        if not self.metropolis:
            return Latent(proposals[0], jnp.ones(len(y)))
        found = independence(
            lambda z: self._log_joint(free, rows, y, w, z),
            lambda z: jnp.sum(log_normal(mean, log_sd, z), axis=1),
            proposals,
            second,
        )
        return Latent(found.last, found.acceptance)

    def given_covariates(self, free: Tree, rows: Rows, key: Array) -> Latent:
        """w ~ p(w | x), y ~ p(y | x, w), then z ~ p(z | x, y, w)."""
        for_w, for_y, for_z = jax.random.split(key, 3)
        logit, arms = self.functions.auxiliary(free, rows)
        w = jax.random.bernoulli(for_w, jax.nn.sigmoid(logit)).astype(float)
        mean = (1.0 - w) * arms[:, 0] + w * arms[:, 1]
        if self.functions.binary:
            y = jax.random.bernoulli(for_y, jax.nn.sigmoid(mean)).astype(float)
        else:
            log_sd = free["noise"]["auxiliary"][w.astype(int)]
            y = mean + jnp.exp(log_sd) * jax.random.normal(for_y, mean.shape)
        return self.given_all(free, rows, y, w, for_z)

    def _log_joint(self, free: Tree, rows: Rows, y: Array, w: Array, z: Array) -> Array:
        """log p(y | z, w) + log p(w | z) + log p(x | z) + log p(z), up to a constant."""
        decoded = self.functions.decode(free, z, rows.site)
        said = self.functions.log_outcome(free, decoded, y, w)
        said = said + self.functions.log_rest(free, decoded, rows, w)
        return said - 0.5 * jnp.sum(z**2, axis=1)
