"""A site's table as numeric arrays for the stages: standardised, padded and assigned to folds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

HALF = 2**31
"""A salt has two halves of this many values, each of which fits a word of a random key."""

FEWEST_GAPS = 16
"""Smallest size of `Rows.gaps`."""


class Rows(eqx.Module):
    """The rows of one site. Padding rows have `present` equal to 0 and do not contribute to any sum.

    Of people with sampling weights, `present` is the weight, so that every sum is weighted. Where people are
    counted, `people` is 1 for each of them.
    """

    covariates: Float[Array, "n d"]
    treatment: Float[Array, " n"]
    outcome: Float[Array, " n"]
    present: Float[Array, " n"]
    fold: Int[Array, " n"]
    site: Int[Array, ""]
    """Index of the site in the study, with which its own draws are looked up."""
    salt: Int[Array, ""]
    """What the site mixes into every random key: its index if all tables are here, else a secret."""
    incomplete: Float[Array, "n u"]
    """Incomplete confounders, 0 where a value is missing."""
    seen: Float[Array, "n u"]
    """1 where a value of `incomplete` is observed, 0 where it is missing."""
    gaps: Int[Array, " g"] | None = None
    """Places of the rows in which a value of `incomplete` is missing, if they are few, filled up with a place
    beyond all rows; None if any row may have a gap."""
    more_folds: Int[Array, "r n"] | None = None
    """Further draws of the folds, for methods that repeat their cross-fitting; `fold` is the first draw."""
    groups: Float[Array, "s n"] | None = None
    """1 for the people of each subgroup that the study names, else 0; None if it names none."""
    cluster: Int[Array, " n"] | None = None
    """The number of everybody's cluster, from 0; None if each person is a cluster of their own."""
    least: float = eqx.field(static=True, default=0.0)
    """Number of effective people that every sum must exceed; 0 without limits. It is known when a stage is
    compiled, so that programs of sites without limits do not contain what protects the others."""
    per_feature: float = eqx.field(static=True, default=0.0)
    """Fewest people per feature in a group whose products of features are sent; 0 without limits."""

    @property
    def people(self) -> Float[Array, " n"]:
        """1 for people, whatever their weight, and 0 for padding."""
        return (self.present > 0.0).astype(self.present.dtype)

    def with_gaps(self) -> Rows:
        """The rows in which a value is missing; all rows if any may have a gap."""
        if self.gaps is None:
            return self
        chosen = {name: value[self.gaps] for name, value in self.by_row().items()}
        chosen["present"] = self.present.at[self.gaps].get(mode="fill", fill_value=0.0)
        return self.having(chosen)

    def by_row(self) -> dict[str, Array]:
        """The arrays that have the rows as their first axis."""
        names = ("covariates", "treatment", "outcome", "present", "fold", "incomplete", "seen")
        return {name: getattr(self, name) for name in names}

    def having(self, by_row: dict[str, Array]) -> Rows:
        """Other rows of the same site, with these arrays, but no further draws of the folds, subgroups or
        clusters."""
        return replace(self, **by_row, gaps=None, more_folds=None, groups=None, cluster=None)

    def own_key(self, key: Array) -> Array:
        """A key of this site's own. All of the salt counts: from draws of known weights, who tries every salt
        of 31 bits could tell the right one, and then solve averages with these weights for people."""
        low, high = self.salt % HALF, self.salt // HALF
        mixed = jax.random.fold_in(key, low)
        return jax.lax.cond(high > 0, lambda: jax.random.fold_in(mixed, high), lambda: mixed)


def padded_size(rows: int) -> int:
    """Round up to one of 16, 24, 32, 48, 64, 96, …, so that sites of similar size share one compilation.

    >>> [padded_size(n) for n in (3, 17, 50, 100, 2000)]
    [16, 24, 64, 128, 2048]
    """
    size = 16
    while size < rows:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size


def _gaps(missing: np.ndarray) -> Array | None:
    """`Rows.gaps`; None if no column is incomplete, or if half of the rows or more would have to be listed.

    There are few sizes, so that sites with about as many gaps share one compilation.
    """
    places, size = np.flatnonzero(missing.any(axis=1)), FEWEST_GAPS
    while size < len(places):
        size *= 4
    padded = padded_size(len(missing))
    if not missing.shape[1] or 2 * size > padded:
        return None
    return jax.device_put(np.append(places, np.full(size - len(places), padded)).astype(np.int32))


def make_rows(
    covariates: np.ndarray, treatment: np.ndarray, outcome: np.ndarray, *, fold: np.ndarray, site: int,
    incomplete: np.ndarray | None = None, salt: int | None = None, least: float = 0.0,
    more_folds: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    per_feature: float = 0.0,
    size: int | None = None,
    weight: np.ndarray | None = None,
    cluster: np.ndarray | None = None,
) -> Rows:  # fmt: skip
    """Pad to a shared shape with zeros and fold −1; NaN in `incomplete` marks a missing value.

    Batches of a table are padded to the shape of `size` rows and have no `gaps`.
    """
    count = len(treatment)
    values = np.zeros((count, 0)) if incomplete is None else incomplete
    extra = padded_size(count if size is None else size) - count

    def pad(array: np.ndarray, value: float = 0.0) -> Array:
        width = [(0, extra)] + [(0, 0)] * (array.ndim - 1)
        # Unlike jnp.asarray, this takes no compilation.
        return jax.device_put(np.pad(array, width, constant_values=value))

    more = None if more_folds is None or len(more_folds) == 0 else pad(more_folds.T.astype(np.int32), -1).T
    return Rows(
        covariates=pad(covariates),
        treatment=pad(treatment),
        outcome=pad(outcome),
        present=pad(np.ones(count) if weight is None else weight),
        fold=pad(fold.astype(np.int32), -1),
        site=jax.device_put(np.asarray(site)),
        salt=jax.device_put(np.asarray(site if salt is None else salt)),
        incomplete=pad(np.nan_to_num(values)),
        seen=pad((~np.isnan(values)).astype(float), 1.0),
        gaps=_gaps(np.isnan(values)) if size is None else None,
        more_folds=more,
        groups=None if groups is None or len(groups) == 0 else pad(groups.T.astype(float)).T,
        cluster=None if cluster is None else pad(cluster.astype(np.int32)),
        least=float(least),
        per_feature=float(per_feature),
    )


def sums_by_cluster(values: Float[Array, "*k n"], rows: Rows) -> Float[Array, "*k n"]:
    """The sums of contributions of people over each cluster, at the place of its number; 0 elsewhere.

    Contributions have their weights already, and are 0 for padding. Without clusters they are returned as
    they are, so that Σ over places of squares is that by person or by cluster.
    """
    if rows.cluster is None:
        return values
    return jnp.zeros_like(values).at[..., rows.cluster].add(values)


def shapes_of_rows(
    count: int, covariates: int, incomplete: int = 0, *, fold_draws: int = 1, groups: int = 0,
    least: float = 0.0, per_feature: float = 0.0,
) -> Rows:  # fmt: skip
    """The shapes of a table of this size, to count what a stage takes without any rows."""

    def of(dtype: type, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype)

    n = padded_size(count)
    shapes: dict[str, Any] = {
        "covariates": of(float, n, covariates),
        **{name: of(float, n) for name in ("treatment", "outcome", "present")},
        "fold": of(np.int32, n),
        **{name: of(int) for name in ("site", "salt")},
        **{name: of(float, n, incomplete) for name in ("incomplete", "seen")},
        "more_folds": of(np.int32, fold_draws - 1, n) if fold_draws > 1 else None,
        "groups": of(float, groups, n) if groups else None,
    }
    return Rows(**shapes, least=least, per_feature=per_feature)
