"""What every simulation does alike: sizes that make sense, a stream per site, a table beside its truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from unpooled.errors import StudyError

Tables = tuple[pd.DataFrame, pd.DataFrame]
"""What the site holds, and the truth about the same people."""


def site_tables(
    people: Callable[[int, int, np.random.Generator], Tables], *, sites: int, rows: int, seed: int, part: int
) -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """Every site has its own stream: more sites, or more rows for testing, leave the others unchanged.

    `people(number, rows, stream)` draws those of a site, numbered from 1. Without rows there are no tables.
    """
    frames, truths = {}, []
    for number in range(1, sites + 1 if rows else 1):
        site = f"site{number}"
        frames[site], truth = people(number, rows, np.random.default_rng([seed, number, part]))
        truth.insert(0, "site", site)
        truths.append(truth)
    empty = pd.DataFrame(columns=["site", "row", "y0", "y1", "mu0", "mu1"])
    return frames, pd.concat(truths, ignore_index=True) if truths else empty


def observed(
    covariates: Iterable[np.ndarray],
    w: np.ndarray,
    outcomes: tuple[np.ndarray, ...],
    means: tuple[np.ndarray, ...],
) -> Tables:
    """The covariates, the treatment and its outcome are seen; the other outcome and both means are not."""
    (y0, y1), (mu0, mu1) = outcomes, means
    frame = pd.DataFrame({f"x{j}": column for j, column in enumerate(covariates, 1)}).assign(
        w=w, y=np.where(w == 1, y1, y0)
    )
    return frame, pd.DataFrame({"row": np.arange(len(w)), "y0": y0, "y1": y1, "mu0": mu0, "mu1": mu1})


def sigmoid(value: np.ndarray) -> np.ndarray:
    """φ, without overflow at either end."""
    return np.exp(-np.logaddexp(0.0, -value))


def require_at_least(limits: dict[str, tuple[float, float]]) -> None:
    """Each word's value must reach its limit."""
    for word, (value, limit) in limits.items():
        if not value >= limit:
            raise StudyError(
                f"'{word}' must be at least {limit}", found=str(value), remedy=f"give a larger '{word}'"
            )
