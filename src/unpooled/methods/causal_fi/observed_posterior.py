"""The posterior of CausalFI's parameters given what is observed, without imputed values or latents.

If all incomplete columns are numbers and both arms are linear and Gaussian, the likelihood of what is
observed of a person has a closed form. Parameters can then be proposed independently of where a chain is, by
adaptive importance sampling, which does not slow down as more is missing. A chain's state is mapped to a
vector without constraints: logarithms of variances, and the Cholesky factor of the numbers' covariance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from unpooled.maths.mcmc import PRIOR_TERMS
from unpooled.methods.causal_fi.chain import (
    INTERCEPT_PRECISION,
    LEAST_SPREAD,
    NOISE,
    OFFSET,
    Chain,
    Sizes,
    expected_common,
    expected_spread,
)
from unpooled.methods.causal_fi.structures import EXPECTED, INTERCEPT, SLOPES

MOST_DIMENSIONS = 60
"""Largest number of parameters for which importance sampling is tried; its efficiency falls with it."""


class Coordinates(NamedTuple):
    """Chains of linear arms as vectors, and their log prior density in these coordinates."""

    sizes: Sizes

    @property
    def size(self) -> int:
        """Number of coordinates.

        >>> Coordinates(Sizes(covariates=1, incomplete=1, sites=3)).size
        26
        """
        numbers, size = self.sizes.incomplete, self.sizes.all
        confounders = (1 + self.sizes.covariates) * numbers + numbers * (numbers + 1) // 2
        offsets = 2 * self.sizes.sites + 2 if self.sizes.sites > 1 else 0
        return confounders + size + 2 * size + 2 + 4 + offsets

    def vectors(self, chains: Chain) -> Float[np.ndarray, "n d"]:
        """Chains, with a leading axis, as vectors."""
        root = np.linalg.cholesky(chains.confounders["covariance"])
        below = np.tril_indices(self.sizes.incomplete)
        diagonal = below[0] == below[1]
        entries = root[:, below[0], below[1]]
        parts = [
            chains.confounders["intercept"],
            chains.confounders["slopes"],
            np.where(diagonal, np.log(np.where(diagonal, entries, 1.0)), entries),
            chains.treatment,
            chains.outcome,
            np.log(chains.noise),
            np.log(chains.spreads),
            np.log(chains.variances[:, :, SLOPES]),
            np.log(chains.common),
        ]
        if self.sizes.sites > 1:
            parts += [chains.offset, np.log(chains.site)]
        count = len(chains.noise)
        return np.concatenate([np.asarray(part, dtype=float).reshape(count, -1) for part in parts], axis=1)

    def chains(self, vectors: Float[np.ndarray, "n d"], like: Chain) -> Chain:
        """Vectors as chains; what has no coordinate is that of `like`'s first chain."""
        count, numbers, size = len(vectors), self.sizes.incomplete, self.sizes.all
        shapes = [
            (numbers,), (self.sizes.covariates, numbers), (numbers * (numbers + 1) // 2,), (size,), (2, size),
            (2,), (1,), (2,), (),
        ]  # fmt: skip
        if self.sizes.sites > 1:
            shapes += [(self.sizes.sites, 2), (2,)]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        split = np.split(vectors, ends[:-1], axis=1)
        parts = [part.reshape(count, *shape) for part, shape in zip(split, shapes, strict=True)]
        root = np.zeros((count, numbers, numbers))
        below = np.tril_indices(numbers)
        diagonal = below[0] == below[1]
        root[:, below[0], below[1]] = np.where(diagonal, np.exp(np.where(diagonal, parts[2], 0.0)), parts[2])
        first: Any = {
            name: np.repeat(np.asarray(getattr(like, name))[:1], count, axis=0)
            for name in Chain._fields
            if name != "confounders"
        }
        first["variances"][:, :, SLOPES] = np.exp(parts[7])
        if self.sizes.sites > 1:
            first |= {"offset": parts[9], "mode_offset": parts[9], "site": np.exp(parts[10])}
        confounders = {
            "steps": np.repeat(np.asarray(like.confounders["steps"])[:1], count, axis=0),
            "intercept": parts[0],
            "slopes": parts[1],
            "covariance": root @ np.swapaxes(root, 1, 2),
        }
        first |= {
            "confounders": confounders,
            "treatment": parts[3],
            "outcome": parts[4],
            "mode": parts[4],
            "noise": np.exp(parts[5]),
            "spreads": np.exp(parts[6]),
            "common": np.exp(parts[8]),
        }
        return Chain(**first)

    def log_prior(self, chains: Chain) -> Float[np.ndarray, " n"]:
        """Log prior density in these coordinates, up to a constant; the prior is that of `chain`."""
        slopes = self.sizes.all - 1
        treatment, outcome, noise = (
            np.asarray(one) for one in (chains.treatment, chains.outcome, chains.noise)
        )
        spread, common, site = (np.asarray(one) for one in (chains.spreads[:, 0], chains.common, chains.site))
        own = np.asarray(chains.variances[:, :, SLOPES])
        found = self._confounders(chains.confounders)
        found = found - 0.5 * INTERCEPT_PRECISION * treatment[:, 0] ** 2
        found = (
            found + _normal(treatment[:, 1:], spread) + _log_variance(spread, float(expected_spread(slopes)))
        )
        found = found - 0.5 * np.sum(outcome[:, :, 0] ** 2, axis=1) / EXPECTED[INTERCEPT]
        # The slopes of the arms are normal with variances common + own and the covariance common.
        both = own[:, 0] * own[:, 1] + common * own.sum(axis=1)
        control, treated = outcome[:, 0, 1:], outcome[:, 1, 1:]
        squares = (common + own[:, 1])[:, None] * control**2 + (common + own[:, 0])[:, None] * treated**2
        squares = squares - 2.0 * common[:, None] * control * treated
        found = found - 0.5 * np.sum(squares, axis=1) / both - 0.5 * slopes * np.log(both)
        found = found + np.sum(_log_variance(own, EXPECTED[SLOPES]), axis=1)
        found = found + _log_variance(common, expected_common(slopes))
        found = found + np.sum(_log_variance(noise, NOISE), axis=1)
        if self.sizes.sites > 1:
            found = found + np.sum(_normal(np.swapaxes(np.asarray(chains.offset), 1, 2), site), axis=1)
            found = found + np.sum(_log_variance(site, OFFSET), axis=1)
        return found

    def _confounders(self, confounders: dict[str, np.ndarray]) -> np.ndarray:
        """The matrix-normal inverse-Wishart prior of the numbers, with the Jacobian of its coordinates."""
        numbers = self.sizes.incomplete
        means = np.concatenate([confounders["intercept"][:, None], confounders["slopes"]], axis=1)
        root = np.linalg.cholesky(confounders["covariance"])
        logs = np.log(np.diagonal(root, axis1=1, axis2=2))
        squares = np.swapaxes(means, 1, 2) @ means + LEAST_SPREAD * (numbers + 2) * np.eye(numbers)
        inside = np.trace(np.linalg.solve(confounders["covariance"], squares), axis1=1, axis2=2)
        power = 2 * numbers + 3 + means.shape[1]
        jacobian = logs @ (numbers + 1.0 - np.arange(numbers))
        return -power * logs.sum(axis=1) - 0.5 * inside + jacobian


def _normal(values: Float[np.ndarray, "... k"], variance: Float[np.ndarray, ...]) -> np.ndarray:
    """Log density of independent normals with a common variance."""
    return -0.5 * np.sum(values**2, axis=-1) / variance - 0.5 * values.shape[-1] * np.log(variance)


def _log_variance(variance: np.ndarray, expected: float) -> np.ndarray:
    """Log density of the logarithm of a variance whose prior is that of `draw_variances`."""
    return -0.5 * PRIOR_TERMS * (np.log(variance) + expected / variance)
