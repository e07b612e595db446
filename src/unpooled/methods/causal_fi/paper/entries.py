"""How the incomplete columns are distributed, given what a network says of them.

A number is Gaussian. Columns with levels are p(u) ∝ exp(λᵀu)/u!, over their levels: with one 0/1 feature that
is Bernoulli, with several a softmax, and with counts a Poisson that ends where counts end.
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
"""The log sd of a number is between plus and minus this."""
LEAST = 0.01
"""No level is taken to be rarer at the start."""


class Entries(eqx.Module):
    """All incomplete columns; a network says a number per feature, and one more per column of numbers."""

    layout: Layout
    centre: Float[Array, " u"]
    """What is said of a feature where the network says 0."""

    @property
    def outputs(self) -> int:
        return len(self.centre) + len(self.layout.numbers)

    def by_column(self, features: Float[Array, "n u"]) -> Float[Array, "n c"]:
        """Of something that is the same for all features of a column."""
        return features[:, np.array([column.first for column in self.layout.columns], dtype=int)]

    def by_feature(self, columns: Float[Array, "n c"]) -> Float[Array, "n u"]:
        widths = np.array([column.width for column in self.layout.columns], dtype=int)
        return columns[:, np.repeat(np.arange(len(widths)), widths)]

    def log_density(self, said: Float[Array, "n o"], values: Float[Array, "n u"]) -> Float[Array, "n c"]:
        """PlacedColumn by column; where a value is missing, a finite number that means nothing."""
        natural, log_sd = self._parts(said)
        left = (values - natural)[:, self.layout.numbers] / jnp.exp(log_sd)
        gaussian = iter((-0.5 * (left**2 + jnp.log(2.0 * jnp.pi)) - log_sd).T)
        found = [
            next(gaussian) if column.kind == "numeric" else self._log_chance(column, natural, values)
            for column in self.layout.columns
        ]
        return jnp.stack(found, axis=1) if found else jnp.zeros((len(values), 0))

    def draw(self, said: Float[Array, "n o"], key: Array) -> Float[Array, "n u"]:
        natural, log_sd = self._parts(said)
        for_numbers, for_levels = jax.random.split(key)
        noise = jnp.exp(log_sd) * jax.random.normal(for_numbers, log_sd.shape)
        drawn = natural.at[:, self.layout.numbers].add(noise)
        weights = [self._log_weights(column, natural) for column in self.layout.discrete]
        sizes = [weight.shape[1] for weight in weights]
        gumbel = jax.random.gumbel(for_levels, (len(said), sum(sizes)))
        parts = jnp.split(gumbel, np.cumsum(sizes[:-1]), axis=1) if sizes else []
        for column, weight, part in zip(self.layout.discrete, weights, parts, strict=True):
            level = jnp.argmax(weight + part, axis=1)
            drawn = drawn.at[:, np.array(column.places)].set(self.layout.levels(column)[level])
        return drawn

    def fill(self, said: Array, values: Array, seen: Array, key: Array) -> Float[Array, "n u"]:
        """What is seen is kept, what is missing drawn."""
        return jnp.where(seen > 0.5, values, self.draw(said, key))

    def _parts(self, said: Float[Array, "n o"]) -> tuple[Float[Array, "n u"], Float[Array, "n v"]]:
        width = len(self.centre)
        return self.centre + said[:, :width], WIDEST * jnp.tanh(said[:, width:] / WIDEST)

    def _raw(self, column: PlacedColumn, values: Array) -> Array:
        """Features as they were before they were standardised."""
        places = np.array(column.places)
        return jnp.round(values * self.layout.sd[places] + self.layout.mean[places])

    def _log_weights(self, column: PlacedColumn, natural: Array) -> Float[Array, "n l"]:
        raw = self._raw(column, self.layout.levels(column))
        return natural[:, np.array(column.places)] @ raw.T - jnp.sum(gammaln(raw + 1.0), axis=1)

    def _log_chance(self, column: PlacedColumn, natural: Array, values: Array) -> Float[Array, " n"]:
        places = np.array(column.places)
        raw = self._raw(column, values[:, places])
        weight = jnp.sum(natural[:, places] * raw - gammaln(raw + 1.0), axis=1)
        return weight - jax.nn.logsumexp(self._log_weights(column, natural), axis=1)


def make_entries(layout: Layout) -> Entries:
    """Centred where the columns' own means are."""
    mean, centre = np.asarray(layout.mean), np.zeros(len(layout.mean))
    for column in layout.discrete:
        places = np.array(column.places)
        share = np.maximum(mean[places], LEAST)
        rest = 1.0 if column.kind == "count" else max(1.0 - mean[places].sum(), LEAST)
        centre[places] = np.log(share / rest)
    return Entries(layout, jnp.asarray(centre))
