"""Site terms in every coefficient, tied pair by pair: (θ_1, …, θ_m) ~ N(0, AAᵀ ⊗ diag(v)).

The paper's f_s = (θ^s + Σ_v λ^{s,v} θ^v)ᵀφ is A = I + λ, with λ from 0 to 1; a free covariance Λ between the
sites is A = Λ^½. Either is learned by its exact evidence, together with the variances.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.errors import StudyError
from unpooled.maths import site_covariance as solve
from unpooled.methods.causal_rff.observed.regression import (
    Outline,
    RegressionStatistics,
    assemble,
    beyond_solve,
    learned_variances,
)

MOST = 2000
"""Coefficients of all sites together: a dense system, factorised in every evaluation and for every draw."""


class Covariance(eqx.Module):
    """A symmetric A, free, about that of sites which are all alike to the same degree."""

    sites: int = eqx.field(static=True)
    name: ClassVar[str] = "covariance"
    ALIKE: ClassVar[float] = 0.8
    """Correlation of two sites' coefficients a priori."""
    SPREAD: ClassVar[float] = 0.5

    @property
    def size(self) -> int:
        return self.sites * (self.sites + 1) // 2

    def factor(self, free: Array) -> Float[Array, "m m"]:
        # (a I + b 11ᵀ)² = (1 − ρ) I + ρ 11ᵀ
        a = np.sqrt(1.0 - self.ALIKE)
        b = (np.sqrt(1.0 - self.ALIKE + self.sites * self.ALIKE) - a) / self.sites
        return a * np.eye(self.sites) + b + _symmetric(free, self.sites, diagonal=True)

    def shown(self, free: Array) -> Float[Array, "m m"]:
        factor = self.factor(free)
        return factor @ factor.T


class Transfer(eqx.Module):
    """A = I + λ: a logit for every ordered pair, or for every pair where `symmetric`, or one value given."""

    sites: int = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True)
    given: float | None = eqx.field(static=True)
    name: ClassVar[str] = "transfer"
    SPREAD: ClassVar[float] = 1.5
    """Prior sd of a logit: λ then is anywhere between 0 and 1, nearly alike."""

    @property
    def size(self) -> int:
        pairs = self.sites * (self.sites - 1)
        return 0 if self.given is not None else pairs // 2 if self.symmetric else pairs

    def factor(self, free: Array) -> Float[Array, "m m"]:
        return jnp.eye(self.sites) + self.shown(free)

    def shown(self, free: Array) -> Float[Array, "m m"]:
        """λ, zero on the diagonal."""
        apart = ~np.eye(self.sites, dtype=bool)
        if self.given is not None:
            return jnp.asarray(self.given * apart)
        chance = jax.nn.sigmoid(free)
        if self.symmetric:
            return _symmetric(chance, self.sites, diagonal=False)
        return jnp.zeros((self.sites, self.sites)).at[np.nonzero(apart)].set(chance)


class PairedSites(eqx.Module):
    """See `observed.modes.SiteTerms`. The point: log-variances, then the parameters of `between`."""

    outline: Outline = eqx.field(static=True)
    between: Covariance | Transfer = eqx.field(static=True)

    @property
    def binary(self) -> bool:
        return self.outline.binary

    @property
    def expected(self) -> np.ndarray:
        return np.concatenate([np.log(np.array(self.outline.expected)), np.zeros(self.between.size)])

    @property
    def variances(self) -> np.ndarray:
        return learned_variances(self.outline)

    @property
    def others(self) -> np.ndarray:
        return len(self.outline.expected) + np.arange(self.between.size)

    def log_evidence(self, point: Array, sums: RegressionStatistics) -> Array:
        logs, free = self._parted(point)
        found = solve.posterior(*self._solve(point, sums)).log_evidence
        return (
            found + beyond_solve(self.outline, logs, sums) - 0.5 * jnp.sum((free / self.between.SPREAD) ** 2)
        )

    def coefficients(self, point: Array, sums: RegressionStatistics, key: Array | None) -> dict[str, Array]:
        seen, prior = self._solve(point, sums)
        found = solve.coefficients(solve.posterior(seen, prior), prior, key)
        site = found.reshape(self.between.sites, 2, -1)
        return {
            "common": jnp.zeros_like(site[0]),
            "site": site,
            "noise": jnp.exp(self._parted(point)[0][-2:]),
        }

    def between_sites(self, point: Array, sums: RegressionStatistics) -> dict[str, Array]:
        shown = self.between.shown(self._parted(point)[1])
        return {"borrowed": solve.borrowed_shares(*self._solve(point, sums)), self.between.name: shown}

    def _parted(self, point: Array) -> tuple[Array, Array]:
        last = len(self.outline.expected)
        return point[:last], point[last:]

    def _solve(
        self, point: Array, sums: RegressionStatistics
    ) -> tuple[solve.SiteCovarianceSums, solve.SiteCovariancePrior]:
        logs, free = self._parted(point)
        variances = jnp.exp(logs)
        seen = assemble(sums, variances[-2:])
        prior = solve.SiteCovariancePrior(self.between.factor(free), variances[np.array(self.outline.common)])
        return solve.SiteCovarianceSums(seen.site_gram, seen.site_score), prior


def make_paired(outline: Outline, between: Covariance | Transfer) -> PairedSites:
    """Refuse a system that is too large to be solved again and again."""
    sites, each = between.sites, len(outline.common)
    if sites * each > MOST:
        raise StudyError(
            f"site_terms = '{between.name}' needs at most {MOST} coefficients over all sites",
            found=f"{sites} sites with {each} coefficients each",
            remedy="give fewer frequencies, or choose site_terms = 'deviations' or 'offsets'",
        )
    return PairedSites(outline, between)


def _symmetric(free: Array, sites: int, *, diagonal: bool) -> Float[Array, "m m"]:
    """A symmetric matrix of its lower triangle's entries."""
    rows, columns = np.tril_indices(sites, 0 if diagonal else -1)
    return jnp.zeros((sites, sites)).at[rows, columns].set(free).at[columns, rows].set(free)
