"""The paper's variational bound with q(Ψ) q(Σ) q(g); each site returns S_s = −E_q log p(y_obs | ·).

| on paper   | here                                                                                 |
|------------|--------------------------------------------------------------------------------------|
| q(Ψ), q(Σ) | Wishart with ν_i = √E[Ψ_ii]/√d, ρ through a sigmoid, d above 2                       |
| μ₀, μ₁     | linear, or a small network: point estimates with a Gaussian prior in F               |
| r_j        | zero: the intercepts of μ_j already are the constants common to f and g              |
| h_j        | free values, one per site, as general as any function of the moments at m sites      |
| U, M       | kernels over the sites' moments, each with an output scale, so that Var g can shrink |
| KL terms   | in F, counted once whatever the number of sites                                      |
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths import networks
from unpooled.maths.covariance import Wishart, divergence, draw_factors, two_arm_wishart
from unpooled.methods.fedci.conditionals import WeightDraws, shared_arms
from unpooled.methods.fedci.model import Kernel
from unpooled.methods.fedci.settings import FedCIContext, FedCISettings
from unpooled.methods.fedci.stages import KernelEvidence, arm_indicators
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import ANY, LINEAR, LOG, Bounds, Objective

HIDDEN = {"linear": ((), ()), "network": ((16, 16), (16,))}
"""Widths of the layers shared by both arms, and of each arm's own (the paper: 3 and 2 layers of 200)."""
START_DEGREES = 50.0
"""Initial degrees of freedom of q(Ψ) and q(Σ)."""
SITE_SD = 0.3
"""Expected size of the site shifts, in units of Ψ^½."""


class Functions(Kernel):
    """f_j ~ GP(μ_j, k) at each site: features μ₀(x), μ₁(x) with weights Ψ^½, and the whole kernel as
    remainder."""

    def features(self, free: Arrays, covariates: Array, basis: Array | None = None) -> Float[Array, "n 2"]:
        return networks.apply_branched(free["mean"], covariates)


class Sample(NamedTuple):
    """K draws from q: Ψ^½, the logs of √σ₁₁ and √σ₂₂, and g."""

    factor: Float[Array, "k 2 2"]
    noise: Float[Array, "k 2"]
    shift: Float[Array, "k 2 m"]


BOUNDS: Bounds = {
    **{name: LINEAR for name in ("weight", "bias", "mean", "shift", "correlation")},
    **{name: LOG for name in ("sd", "degrees", "length", "closeness", "noise")},
    "factor": (-100.0, 100.0),
    "key": ANY,
}
"""Bounds of the parameters of the bound, and of draws from q."""


class VariationalBound(Objective):
    """The negative ELBO of Eq. (loss), the objective of Algorithm 1."""

    evidence: KernelEvidence
    prior: Wishart
    monte_carlo: int = eqx.field(static=True)
    one_exchange: ClassVar[bool] = True
    reveals: ClassVar[str] = "the expected log likelihood of the site's outcomes, and its gradient"

    def bounds(self) -> Bounds:
        return BOUNDS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        key = jax.random.wrap_key_data(parameters.fixed["key"])
        drawn = sample(self.evidence, parameters.free, key, self.monte_carlo)
        # lax.map rather than vmap keeps one n × n matrix in memory at a time.
        logs = jax.lax.map(lambda one: log_likelihood(self.evidence, parameters.free, one, rows), drawn)
        return Statistics(-jnp.mean(logs))

    def value(self, parameters: Parameters, statistics: Statistics) -> Array:
        free = parameters.free
        wisharts = sum(divergence(posterior(free[name]), self.prior) for name in ("arms", "noise"))
        priors = networks.log_prior(free["mean"]) - 0.5 * jnp.sum(free["length"] ** 2)
        shifts = shift_divergence(self.evidence, free) if self.evidence.structure.shifts else 0.0
        return statistics.summed + wisharts + shifts - priors


def make_bound(settings: FedCISettings, context: FedCIContext) -> VariationalBound:
    """The bound of a study, identical at the coordinator and at the sites."""
    functions = Functions(
        site_distances=jnp.asarray(context.site_distances),
        family=settings.kernel,
        shifts=settings.inter_dependency,
        coupled=settings.arms_coupled,
        noisy=True,
        inducing=jnp.zeros((0, context.correlation.shape[0])),
        ard=False,
        tied=True,
    )
    sd = jnp.full(2, jnp.sqrt(settings.wishart_mean))
    correlation, degrees = jnp.asarray(settings.wishart_correlation), jnp.asarray(settings.wishart_degrees)
    evidence = KernelEvidence(functions, link=None, diagonal=False)
    return VariationalBound(evidence, two_arm_wishart(sd, correlation, degrees), settings.monte_carlo)


def start(settings: FedCISettings, context: FedCIContext, seed: int) -> Arrays:
    """Starting values: constant mean functions, and q centred at the prior means."""
    shared, own = HIDDEN[settings.mean]
    rho = np.clip(settings.wishart_correlation, 0.02, 0.98)
    wishart = {
        "sd": np.full(2, 0.5 * np.log(settings.wishart_mean)),
        "correlation": np.log(rho / (1.0 - rho)),
        "degrees": np.log(START_DEGREES - 2.0),
    }
    mean = networks.make_branched(context.correlation.shape[0], shared, own, seed)
    free: Arrays = {"arms": wishart, "noise": dict(wishart), "length": np.zeros(1), "mean": mean}
    if settings.inter_dependency:
        sites = {"sd": np.log(np.asarray(SITE_SD)), "closeness": np.zeros(())}
        centre = {"mean": np.zeros((2, len(context.site_distances)))}
        free |= {"shift": {**sites, **centre}, "sites": sites}
    return free


def posterior(free: Arrays) -> Wishart:
    """q(Ψ) or q(Σ) from its unconstrained parameters."""
    degrees = 2.0 + jnp.exp(free["degrees"])
    return two_arm_wishart(jnp.exp(free["sd"]), jax.nn.sigmoid(free["correlation"]), degrees)


def sample(evidence: KernelEvidence, free: Arrays, key: Array, count: int) -> Sample:
    """Reparameterised draws Ψ = V^½ζV^½ᵀ, likewise Σ, and g_j = h_j + U^½ξ_j; identical at every site."""
    for_arms, for_noise, for_shift = jax.random.split(key, 3)
    factor = draw_factors(posterior(free["arms"]), for_arms, count)
    noise = jnp.sum(draw_factors(posterior(free["noise"]), for_noise, count) ** 2, axis=2)
    sites = evidence.structure.site_distances.shape[0]
    if not evidence.structure.shifts:
        return Sample(factor, 0.5 * jnp.log(noise), jnp.zeros((count, 2, sites)))
    xi = jax.random.normal(for_shift, (count, 2, sites))
    shift = free["shift"]["mean"] + xi @ _site_root(evidence, free["shift"]).T
    return Sample(factor, 0.5 * jnp.log(noise), shift)


def outcomes(evidence: KernelEvidence, free: Arrays, one: Sample) -> WeightDraws:
    """One draw in the form used by Lemma 2: m = Ψ^½(μ + g), with Ψ, Σ, k and μ in `free`."""
    factor = one.factor
    arms = jnp.stack([jnp.log(factor[0, 0]), factor[1, 0], jnp.log(factor[1, 1])])
    beta = evidence.structure.arm_factor(arms)
    inner = {"arms": arms, "noise": one.noise, "length": free["length"], "mean": free["mean"]}
    return WeightDraws(inner, beta[None], (beta @ one.shift)[None])


def log_likelihood(evidence: KernelEvidence, free: Arrays, one: Sample, rows: Rows) -> Float[Array, ""]:
    """log N(y_obs; μ_obs, K_obs) of Lemma 2; padding rows contribute nothing."""
    drawn = outcomes(evidence, free, one)
    here = drawn._replace(shift=drawn.shift[:, :, rows.site])
    mean = jnp.sum(shared_arms(evidence, here, rows.covariates)[0] * arm_indicators(rows.treatment), axis=1)
    residual = (rows.outcome - mean)[:, None]
    whitened, log_determinant = evidence.whiten(drawn.free, rows, rows.present, residual)
    return -0.5 * (jnp.sum(whitened**2) + log_determinant + jnp.sum(rows.present) * jnp.log(2.0 * jnp.pi))


def shift_divergence(evidence: KernelEvidence, free: Arrays) -> Float[Array, ""]:
    """Σ_j KL[N(h_j, U)‖N(0, M)], plus weak priors on the scale and the length-scale of M."""
    centre, size = free["shift"]["mean"], free["shift"]["mean"].shape[1]
    inner, outer = _site_root(evidence, free["shift"]), _site_root(evidence, free["sites"])
    ratio = jsl.solve_triangular(outer, jnp.concatenate([inner, centre.T], axis=1), lower=True)
    logs = 2.0 * jnp.sum(jnp.log(jnp.diagonal(outer)) - jnp.log(jnp.diagonal(inner)))
    both = 2.0 * (jnp.sum(ratio[:, :size] ** 2) - size + logs) + jnp.sum(ratio[:, size:] ** 2)
    weak = (free["sites"]["sd"] - jnp.log(SITE_SD)) ** 2 + (free["sites"]["closeness"] / 0.5) ** 2
    return 0.5 * (both + weak)


def _site_root(evidence: KernelEvidence, free: Arrays) -> Float[Array, "m m"]:
    """U^½ or M^½: the root of a kernel over the sites' moments with an output scale."""
    return jnp.exp(free["sd"]) * evidence.structure.site_root({"closeness": free["closeness"]})
