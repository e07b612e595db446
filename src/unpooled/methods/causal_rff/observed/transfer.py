"""Site terms in every coefficient, related pair by pair: (θ_1, …, θ_m) ~ N(0, AAᵀ ⊗ diag(v)).

The paper's f_s = (θ^s + Σ_v λ^{s,v} θ^v)ᵀφ corresponds to A = I + λ with λ between 0 and 1; a free covariance
Λ between sites corresponds to A = Λ^½. Both are learned by maximising the exact evidence, together with the
variances.
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
"""Maximum number of coefficients over all sites; their dense system is factorised in every evaluation."""


class Covariance(eqx.Module):
    """A free symmetric A; its prior is centred at equal correlations between all sites."""

    sites: int = eqx.field(static=True)
    name: ClassVar[str] = "covariance"
    ALIKE: ClassVar[float] = 0.8
    """Prior correlation of the coefficients of two sites."""
    SPREAD: ClassVar[float] = 0.5
    """Prior sd of the entries of A about their centre."""

    @property
    def size(self) -> int:
        """Number of free parameters."""
        return self.sites * (self.sites + 1) // 2

    def factor(self, free: Array) -> Float[Array, "m m"]:
        """A."""
        # (a I + b 11ᵀ)² = (1 − ρ) I + ρ 11ᵀ
        a = np.sqrt(1.0 - self.ALIKE)
        b = (np.sqrt(1.0 - self.ALIKE + self.sites * self.ALIKE) - a) / self.sites
        return a * np.eye(self.sites) + b + _symmetric(free, self.sites, diagonal=True)

    def shown(self, free: Array) -> Float[Array, "m m"]:
        """Λ = AAᵀ, reported in the diagnostics."""
        factor = self.factor(free)
        return factor @ factor.T


class Transfer(eqx.Module):
    """A = I + λ: a logit for every ordered pair, for every unordered pair if `symmetric`, or one value."""

    sites: int = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True)
    given: float | None = eqx.field(static=True)
    name: ClassVar[str] = "transfer"
    SPREAD: ClassVar[float] = 1.5
    """Prior sd of a logit, for which λ is nearly uniform between 0 and 1."""

    @property
    def size(self) -> int:
        pairs = self.sites * (self.sites - 1)
        return 0 if self.given is not None else pairs // 2 if self.symmetric else pairs

    def factor(self, free: Array) -> Float[Array, "m m"]:
        return jnp.eye(self.sites) + self.shown(free)

    def shown(self, free: Array) -> Float[Array, "m m"]:
        """λ, with zeros on the diagonal; reported in the diagnostics."""
        off_diagonal = ~np.eye(self.sites, dtype=bool)
        if self.given is not None:
            return jnp.asarray(self.given * off_diagonal)
        shares = jax.nn.sigmoid(free)
        if self.symmetric:
            return _symmetric(shares, self.sites, diagonal=False)
        return jnp.zeros((self.sites, self.sites)).at[np.nonzero(off_diagonal)].set(shares)


class PairedSites(eqx.Module):
    """See `observed.modes.SiteTerms`. The point holds log-variances, then the parameters of `between`."""

    outline: Outline = eqx.field(static=True)
    between: Covariance | Transfer = eqx.field(static=True)

    @property
    def linked(self) -> bool:
        return self.outline.linked

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
        logs, free = self._split(point)
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
            "noise": jnp.exp(self._split(point)[0][-2:]),
        }

    def between_sites(self, point: Array, sums: RegressionStatistics) -> dict[str, Array]:
        shown = self.between.shown(self._split(point)[1])
        return {"borrowed": solve.borrowed_shares(*self._solve(point, sums)), self.between.name: shown}

    def _split(self, point: Array) -> tuple[Array, Array]:
        last = len(self.outline.expected)
        return point[:last], point[last:]

    def _solve(
        self, point: Array, sums: RegressionStatistics
    ) -> tuple[solve.SiteCovarianceSums, solve.SiteCovariancePrior]:
        logs, free = self._split(point)
        variances = jnp.exp(logs)
        seen = assemble(sums, variances[-2:])
        prior = solve.SiteCovariancePrior(self.between.factor(free), variances[np.array(self.outline.common)])
        return solve.SiteCovarianceSums(seen.site_gram, seen.site_score), prior


def make_paired(outline: Outline, between: Covariance | Transfer) -> PairedSites:
    """Paired site terms; refused if the system is too large to be factorised repeatedly."""
    sites, each = between.sites, len(outline.common)
    if sites * each > MOST:
        raise StudyError(
            f"site_terms = '{between.name}' needs at most {MOST} coefficients over all sites",
            found=f"{sites} sites with {each} coefficients each",
            remedy="use fewer frequencies, or set site_terms = 'deviations' or 'offsets'",
        )
    return PairedSites(outline, between)


def _symmetric(free: Array, sites: int, *, diagonal: bool) -> Float[Array, "m m"]:
    """The symmetric matrix with these entries in its lower triangle."""
    rows, columns = np.tril_indices(sites, 0 if diagonal else -1)
    return jnp.zeros((sites, sites)).at[rows, columns].set(free).at[columns, rows].set(free)
