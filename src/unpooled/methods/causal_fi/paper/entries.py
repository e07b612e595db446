"""Distributions of the incomplete columns given the outputs of a network.

Numeric columns are Gaussian. Columns with levels have p(u) ∝ exp(λᵀu)/u! over their levels: Bernoulli for a
0/1 column, a softmax for a categorical column, and a truncated Poisson for a count.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from unpooled.methods.causal_fi.columns import Layout, PlacedColumn

WIDEST = 3.0
"""Bound on the absolute log sd of a numeric column."""
LEAST = 0.01
"""Lower bound on the rate of a level in the initial values."""


class Entries(eqx.Module):
    """All incomplete columns. A network has one output per feature, and a log sd per numeric column."""

    layout: Layout
    centre: Float[Array, " u"]
    """Natural parameter of each feature for a network output of 0."""

    @property
    def outputs(self) -> int:
        """Number of network outputs."""
        return len(self.centre) + len(self.layout.numbers)

    def by_column(self, features: Float[Array, "n u"]) -> Float[Array, "n c"]:
        """Reduce values that are equal for all features of a column to one per column."""
        return features[:, np.array([column.first for column in self.layout.columns], dtype=int)]

    def by_feature(self, columns: Float[Array, "n c"]) -> Float[Array, "n u"]:
        """Repeat the values of a column for all its features."""
        widths = np.array([column.width for column in self.layout.columns], dtype=int)
        return columns[:, np.repeat(np.arange(len(widths)), widths)]

    def log_density(self, outputs: Float[Array, "n o"], values: Float[Array, "n u"]) -> Float[Array, "n c"]:
        """Log density by column; for a missing value the result is finite but meaningless."""
        natural, log_sd = self._parts(outputs)
        residual = (values - natural)[:, self.layout.numbers] / jnp.exp(log_sd)
        gaussian = iter((-0.5 * (residual**2 + jnp.log(2.0 * jnp.pi)) - log_sd).T)
        found = [
            next(gaussian) if column.kind == "numeric" else self._log_probability(column, natural, values)
            for column in self.layout.columns
        ]
        return jnp.stack(found, axis=1) if found else jnp.zeros((len(values), 0))

    def draw(self, outputs: Float[Array, "n o"], key: Array) -> Float[Array, "n u"]:
        """Draw all features."""
        natural, log_sd = self._parts(outputs)
        for_numbers, for_levels = jax.random.split(key)
        noise = jnp.exp(log_sd) * jax.random.normal(for_numbers, log_sd.shape)
        drawn = natural.at[:, self.layout.numbers].add(noise)
        weights = [self._log_weights(column, natural) for column in self.layout.discrete]
        sizes = [weight.shape[1] for weight in weights]
        gumbel = jax.random.gumbel(for_levels, (len(outputs), sum(sizes)))
        parts = jnp.split(gumbel, np.cumsum(sizes[:-1]), axis=1) if sizes else []
        for column, weight, part in zip(self.layout.discrete, weights, parts, strict=True):
            level = jnp.argmax(weight + part, axis=1)
            drawn = drawn.at[:, np.array(column.places)].set(self.layout.levels(column)[level])
        return drawn

    def fill(self, outputs: Array, values: Array, seen: Array, key: Array) -> Float[Array, "n u"]:
        """Keep observed values and draw missing ones."""
        return jnp.where(seen > 0.5, values, self.draw(outputs, key))

    def _parts(self, outputs: Float[Array, "n o"]) -> tuple[Float[Array, "n u"], Float[Array, "n v"]]:
        """Natural parameters of the features, and log sds of the numeric columns."""
        width = len(self.centre)
        return self.centre + outputs[:, :width], WIDEST * jnp.tanh(outputs[:, width:] / WIDEST)

    def _raw(self, column: PlacedColumn, values: Array) -> Array:
        """Features before standardisation."""
        places = np.array(column.places)
        return jnp.round(values * self.layout.sd[places] + self.layout.mean[places])

    def _log_weights(self, column: PlacedColumn, natural: Array) -> Float[Array, "n l"]:
        raw = self._raw(column, self.layout.levels(column))
        return natural[:, np.array(column.places)] @ raw.T - jnp.sum(gammaln(raw + 1.0), axis=1)

    def _log_probability(self, column: PlacedColumn, natural: Array, values: Array) -> Float[Array, " n"]:
        places = np.array(column.places)
        raw = self._raw(column, values[:, places])
        weight = jnp.sum(natural[:, places] * raw - gammaln(raw + 1.0), axis=1)
        return weight - jax.nn.logsumexp(self._log_weights(column, natural), axis=1)


def make_entries(layout: Layout) -> Entries:
    """Entries centred at the columns' means."""
    mean, centre = np.asarray(layout.mean), np.zeros(len(layout.mean))
    for column in layout.discrete:
        places = np.array(column.places)
        share = np.maximum(mean[places], LEAST)
        rest = 1.0 if column.kind == "count" else max(1.0 - mean[places].sum(), LEAST)
        centre[places] = np.log(share / rest)
    return Entries(layout, jnp.asarray(centre))
