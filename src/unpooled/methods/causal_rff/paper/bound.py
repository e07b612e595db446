"""The bound with a Gaussian latent confounder: the paper's loss J, the objective of Algorithm 1.

It is the −ELBO of p(x, w, y) plus −log p(w | x) − log p(y | x, w) of the auxiliary distributions. The three
parts share no parameters, so minimising their sum equals the paper's three minimisations in a third of the
rounds. The regulariser is added once at the coordinator, whatever the number of sites.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.streams import stream
from unpooled.methods.causal_rff.paper.functions import BOUNDS, MODELS, StructuralFunctions
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Objective

START_SPREAD = 0.5
"""Initial σ_q, between the prior sd of z (1) and certainty (0)."""
START_TRANSFER = 0.5
"""Initial λ, if it is learned."""


class LatentBound(Objective):
    """The negative bound of all sites, from M draws of everybody's z, plus ζ‖θ‖² in F."""

    functions: StructuralFunctions
    regulariser: Float[Array, ""]
    monte_carlo: int = eqx.field(static=True)
    one_exchange: ClassVar[bool] = True
    reveals: ClassVar[str] = "a bound on the log likelihood of the site's rows, and its gradient"

    def bounds(self) -> Bounds:
        return BOUNDS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        free, fixed = parameters.free, parameters.fixed
        use = rows.present * (rows.fold != fixed["fold"])
        key = rows.own_key(jax.random.wrap_key_data(fixed["key"]))
        noise = jax.random.normal(key, (self.monte_carlo, len(use), self.functions.dimension))
        return Statistics(-(use @ gain(self.functions, free, rows, noise)))

    def value(self, parameters: Parameters, statistics: Statistics) -> Array:
        free = parameters.free
        # Weak standard normal priors on log scales and on the logits of λ.
        known = ("length", "noise", *(("transfer",) if "transfer" in free else ()))
        weak = sum(jnp.sum(leaf**2) for name in known for leaf in jax.tree.leaves(free[name]))
        return statistics.summed + self.regulariser * self.functions.squares(free) + 0.5 * weak


def gain(
    functions: StructuralFunctions, free: Arrays, rows: Rows, noise: Float[Array, "k n z"]
) -> Float[Array, " n"]:
    """Each person's contribution to the bound, with z = f_q + σ_q ε for given ε."""
    y, w = functions.outcome_of(rows), rows.treatment
    mean, log_sd = functions.encode(free, rows, y, w), free["spread"]

    def once(epsilon: Array) -> Array:
        decoded = functions.decode(free, mean + jnp.exp(log_sd) * epsilon, rows.site)
        return functions.log_outcome(free, decoded, y, w) + functions.log_rest(free, decoded, rows, w)

    expected = jnp.mean(jax.vmap(once)(noise), axis=0)
    return expected - divergence(mean, log_sd) + functions.log_auxiliary(free, rows)


def divergence(mean: Float[Array, "n z"], log_sd: Float[Array, " z"]) -> Float[Array, " n"]:
    """KL[N(mean, σ²) ‖ N(0, I)]."""
    return 0.5 * jnp.sum(jnp.exp(2.0 * log_sd) + mean**2 - 1.0 - 2.0 * log_sd, axis=1)


def start(functions: StructuralFunctions, sites: int, seed: int) -> Arrays:
    """Starting values: q is a random projection of (y, x), decoded by small random linear functions.

    They are the same at every site. Otherwise the axes of z would have different meanings at different
    sites, and θ^v of one site would not help another.
    """
    rng = stream(seed, "latent start")
    size, inputs, numbers = (
        functions.dimension,
        functions.observed.shape[1],
        len(functions.columns.continuous),
    )
    count = {"decoder": 2 + inputs, "encoder": 2 * size, "treatment": 1, "outcome": 2}
    given = functions.transfer
    share = 1.0 + (sites - 1) * (START_TRANSFER if given is None else given)

    def lines(frequencies: Array, outputs: int, line: np.ndarray | float) -> np.ndarray:
        theta = np.zeros((1 + frequencies.shape[1] + 2 * frequencies.shape[0], outputs))
        theta[1 : 1 + frequencies.shape[1]] = line
        return np.repeat(theta[None] / share, sites, axis=0)

    projection = np.tile(rng.normal(0.0, 1.0, (inputs, size)), 2)
    decoded = rng.normal(0.0, 0.3 * np.sqrt(size), (size, count["decoder"]))
    free: Arrays = {
        "decoder": lines(functions.latent, count["decoder"], decoded),
        "encoder": lines(functions.observed, count["encoder"], projection),
        "treatment": lines(functions.observed, count["treatment"], 0.0),
        "outcome": lines(functions.observed, count["outcome"], 0.0),
        "length": {name: np.zeros(()) for name in ("latent", "encoder", "auxiliary")},
        "noise": {"outcome": np.zeros(2), "auxiliary": np.zeros(2), "covariates": np.zeros(numbers)},
        "spread": np.full(size, np.log(START_SPREAD)),
    }
    if given is None:
        free["transfer"] = {model: np.zeros((sites, sites)) for model in dict.fromkeys(MODELS.values())}
    return free
