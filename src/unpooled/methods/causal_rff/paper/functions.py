"""The paper's structural equations with a continuous latent confounder, as computed by all parties.

| on paper              | here                                                                           |
|-----------------------|--------------------------------------------------------------------------------|
| φ(u)                  | [1, u/√d, Fourier features]; the paper has no intercept and no linear part     |
| f_y0, f_y1, f_w, f_x  | columns of `decoder`, functions of z                                           |
| f_q0, f_q1            | `encoder`, functions of (y, x), one for each arm                               |
| p(w given x)          | `treatment`, with its own γ; features of (0, x), which give a kernel in x      |
| p(y given x, w)       | `outcome`, with its own η; the same features                                   |
| λ^{s,v}, γ, η         | `transfer`: sigmoids of free logits, one matrix per model, or one given value  |
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.fourier import fourier_features
from unpooled.methods.causal_rff.classes.log_likelihoods import ColumnKinds
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import ANY, FOLD, LINEAR, LOG, Bounds

MODELS = {"decoder": "latent", "encoder": "latent", "treatment": "treatment", "outcome": "outcome"}
"""The model whose transfer factors apply to each group of functions."""
Y0, Y1, W, X = 0, 1, 2, slice(3, None)
"""Columns of the decoder; among the covariates, 0/1 columns come before numeric ones."""
LOGIT_WEIGHT = 0.25
"""Factor on the regulariser of logits, which are about twice as large as standardised values."""
LOG_TWO_PI = float(np.log(2.0 * np.pi))


BOUNDS: Bounds = {
    **{name: LINEAR for name in ("decoder", "encoder", "treatment", "outcome", "covariates", "coefficients")},
    **{name: LOG for name in ("auxiliary", "latent", "spread", "noise", "length", "transfer", "sharing")},
    "key": ANY,
    "fold": FOLD,
}
"""Bounds of all parameters of the latent model."""


class StructuralFunctions(eqx.Module):
    """f_c(u) = (θ_c^s + Σ_{v≠s} λ^{s,v} θ_c^v)ᵀ φ(u); all parties use the same frequencies."""

    latent: Float[Array, "b z"]
    observed: Float[Array, "b d+1"]
    columns: ColumnKinds
    binary: bool = eqx.field(static=True)
    """Whether outcomes are 0/1."""
    symmetric: bool = eqx.field(static=True)
    transfer: float | None = eqx.field(static=True)

    @property
    def dimension(self) -> int:
        return self.latent.shape[1]

    @property
    def width(self) -> int:
        """Number of features of z."""
        return 1 + self.dimension + 2 * self.latent.shape[0]

    def latent_features(self, free: Arrays, z: Float[Array, "*k z"]) -> Float[Array, "*k f"]:
        return features(self.latent, z, free["length"]["latent"])

    def observed_features(self, free: Arrays, y: Array, x: Array, use: str) -> Float[Array, "n g"]:
        return features(self.observed, jnp.concatenate([y[:, None], x], axis=1), free["length"][use])

    def sharing(self, free: Arrays, model: str, sites: int) -> Float[Array, "m m"]:
        """Row s: the weights of all sites' θ in the function of site s; its own weight is 1."""
        own = jnp.eye(sites)
        if self.transfer is not None:
            return own + (1.0 - own) * self.transfer
        logits = free["transfer"][model]
        if self.symmetric:
            logits = 0.5 * (logits + logits.T)
        return own + (1.0 - own) * jax.nn.sigmoid(logits)

    def at_site(self, free: Arrays, group: str, site: Array) -> Float[Array, "f c"]:
        """θ^s + Σ_{v≠s} λ^{s,v} θ^v."""
        theta = free[group]
        return jnp.einsum("v,vfc->fc", self.sharing(free, MODELS[group], theta.shape[0])[site], theta)

    @property
    def outcome_weight(self) -> float:
        """Factor on the regulariser of the outcome's functions."""
        return LOGIT_WEIGHT if self.binary else 1.0

    def squares(self, free: Arrays) -> Float[Array, ""]:
        """‖θ‖² over all sites, with `LOGIT_WEIGHT` for logits."""
        ones = len(self.columns.binary)
        decoder = np.ones(free["decoder"].shape[2])
        decoder[:W], decoder[W : X.start + ones] = self.outcome_weight, LOGIT_WEIGHT
        auxiliary = LOGIT_WEIGHT * jnp.sum(free["treatment"] ** 2)
        auxiliary = auxiliary + self.outcome_weight * jnp.sum(free["outcome"] ** 2)
        return jnp.sum(decoder * free["decoder"] ** 2) + jnp.sum(free["encoder"] ** 2) + auxiliary

    # ------------------------------------------------------------------------ densities

    def outcome_of(self, rows: Rows) -> Float[Array, " n"]:
        """The outcome; 0/1 outcomes are converted back from their standardised values."""
        return (rows.outcome > 0.0).astype(float) if self.binary else rows.outcome

    def encode(self, free: Arrays, rows: Rows, y: Array, w: Array) -> Float[Array, "n z"]:
        """The mean of q(z | x, y, w): (1 − w) f_q0 + w f_q1."""
        phi = self.observed_features(free, y, rows.covariates, "encoder")
        arms = (phi @ self.at_site(free, "encoder", rows.site)).reshape(len(y), 2, self.dimension)
        return (1.0 - w)[:, None] * arms[:, 0] + w[:, None] * arms[:, 1]

    def decode(self, free: Arrays, z: Float[Array, "n z"], site: Array) -> Float[Array, "n c"]:
        return self.latent_features(free, z) @ self.at_site(free, "decoder", site)

    def log_outcome(self, free: Arrays, decoded: Array, y: Array, w: Array) -> Float[Array, " n"]:
        """log p(y | z, w)."""
        return self._log_outcome(decoded[:, Y0], decoded[:, Y1], free["noise"]["outcome"], y, w)

    def log_rest(self, free: Arrays, decoded: Array, rows: Rows, w: Array) -> Float[Array, " n"]:
        """log p(w | z) + log p(x | z)."""
        ones, numbers = self.columns.ones(rows), self.columns.numbers(rows)
        of_ones, of_numbers = jnp.split(decoded[:, X], [ones.shape[1]], axis=1)
        binary = log_chance(decoded[:, W], w) + jnp.sum(log_chance(of_ones, ones), axis=1)
        return binary + jnp.sum(log_normal(of_numbers, free["noise"]["covariates"], numbers), axis=1)

    def auxiliary(self, free: Arrays, rows: Rows) -> tuple[Float[Array, " n"], Float[Array, "n 2"]]:
        """The logit of p(w | x), and the mean (or logit) of p(y | x, w) in both arms."""
        phi = self.observed_features(free, jnp.zeros(len(rows.treatment)), rows.covariates, "auxiliary")
        logit = phi @ self.at_site(free, "treatment", rows.site)
        return logit[:, 0], phi @ self.at_site(free, "outcome", rows.site)

    def log_auxiliary(self, free: Arrays, rows: Rows) -> Float[Array, " n"]:
        """log p(w | x) + log p(y | x, w)."""
        logit, arms = self.auxiliary(free, rows)
        y, w = self.outcome_of(rows), rows.treatment
        outcome = self._log_outcome(arms[:, 0], arms[:, 1], free["noise"]["auxiliary"], y, w)
        return log_chance(logit, w) + outcome

    def _log_outcome(self, control: Array, treated: Array, log_sd: Array, y: Array, w: Array) -> Array:
        mean = (1.0 - w) * control + w * treated
        if self.binary:
            return log_chance(mean, y)
        return log_normal(mean, (1.0 - w) * log_sd[0] + w * log_sd[1], y)


def features(frequencies: Array, inputs: Float[Array, "*k d"], log_length: Array) -> Float[Array, "*k f"]:
    """φ(u) = [1, u/√d, Fourier features], with ℓ in units of √d.

    For standardised u the three parts have similar norms, so the effect of the regulariser does not depend
    on the number of columns.
    """
    flat = inputs.reshape(-1, inputs.shape[-1]) / np.sqrt(inputs.shape[-1])
    parts = [jnp.ones((len(flat), 1)), flat]
    if frequencies.shape[0]:
        parts.append(fourier_features(frequencies, flat, jnp.exp(log_length)))
    return jnp.concatenate(parts, axis=1).reshape(*inputs.shape[:-1], -1)


def log_chance(logit: Array, seen: Array) -> Array:
    """Log probability of a 0/1 value."""
    return seen * logit - jax.nn.softplus(logit)


def log_normal(mean: Array, log_sd: Array, seen: Array) -> Array:
    return -0.5 * (((seen - mean) / jnp.exp(log_sd)) ** 2 + LOG_TWO_PI) - log_sd
