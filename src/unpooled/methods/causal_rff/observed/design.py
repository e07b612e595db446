"""The features in which outcomes are regressed: an intercept, a linear part, and random Fourier features."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.maths.fourier import fourier_features
from unpooled.methods.causal_rff.settings import CausalRFFContext


class Design(eqx.Module):
    """φ(x) = [1, x, Fourier features of some columns]; the seed makes its frequencies everywhere alike."""

    frequencies: Float[Array, "b c"]
    columns: Int[Array, " c"]
    linear: int = eqx.field(static=True)

    def features(self, covariates: Float[Array, "n d"], length: Array) -> Float[Array, "n f"]:
        parts = [jnp.ones((covariates.shape[0], 1)), covariates]
        if self.frequencies.size:
            parts.append(fourier_features(self.frequencies, covariates[:, self.columns], length))
        return jnp.concatenate(parts, axis=1)

    @property
    def width(self) -> int:
        return 1 + self.linear + 2 * self.frequencies.shape[0]

    @property
    def lengths(self) -> np.ndarray:
        """Length-scales tried, all in one message: from half to four times the width of the data."""
        if not self.frequencies.size:
            return np.ones(1)
        return np.array([0.5, 1.0, 2.0, 4.0]) * np.sqrt(self.frequencies.shape[1])

    @property
    def part(self) -> np.ndarray:
        """Of each feature: 0 the intercept, 1 linear, 2 Fourier."""
        return np.repeat([0, 1, 2], [1, self.linear, 2 * self.frequencies.shape[0]])


def make_design(context: CausalRFFContext) -> Design:
    return Design(
        jnp.asarray(context.frequencies),
        jnp.asarray(context.fourier_columns),
        context.covariates,
    )
