"""What treatment is explained by when a study is looked at: values, and whether they are missing."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from unpooled.protocol.records import Scaling
from unpooled.protocol.rows import Rows


class Regressors(NamedTuple):
    """Covariates, then incomplete columns (their mean where missing), then whether each is missing."""

    names: tuple[str, ...]
    flag: np.ndarray
    """Which of them are 0/1."""
    mean: np.ndarray
    sd: np.ndarray
    """What a value was moved and divided by."""
    incomplete: int
    """How many features may be missing."""

    @property
    def width(self) -> int:
        return len(self.flag)

    @property
    def balanced(self) -> int:
        """How many have a mean of their own among people who have a value: all but the last ones."""
        return self.width - self.incomplete


def regressors(scaling: Scaling, names: tuple[str, ...] = ()) -> Regressors:
    """From the numbers that all sites agreed on; names are those of the schema's features, where known."""
    kinds = [column.kind for column in scaling.incomplete_columns for _ in range(column.width)]
    flag = np.array([kind in ("binary", "categorical") for kind in kinds], dtype=bool)
    width = len(kinds)
    flags = np.concatenate([~np.isnan(np.asarray(scaling.binary_rate, float)), flag, np.ones(width, bool)])
    mean = np.concatenate([scaling.mean, scaling.incomplete_mean, np.zeros(width)])
    sd = np.concatenate([scaling.sd, scaling.incomplete_sd, np.ones(width)])
    named = (*names, *(f"{name} missing" for name in names[len(names) - width :])) if width else names
    return Regressors(tuple(named), flags, mean, sd, width)


def beside(rows: Rows, fold: np.ndarray) -> Rows:
    """The same people with these regressors for covariates, and folds of their own."""
    missing = rows.present[:, None] * (1.0 - rows.seen)
    extra = len(rows.present) - len(fold)
    return Rows(
        covariates=jnp.concatenate([rows.covariates, rows.incomplete * rows.seen, missing], axis=1),
        treatment=rows.treatment,
        outcome=rows.outcome,
        present=rows.present,
        fold=jnp.asarray(np.pad(fold.astype(np.int32), (0, extra), constant_values=-1)),
        site=rows.site,
        incomplete=rows.incomplete[:, :0],
        seen=rows.seen,
    )
