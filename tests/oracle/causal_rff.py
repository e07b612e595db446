"""CausalRFF's regression in plain NumPy, and the sums that its sites would send."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from unpooled.maths.fourier import frequencies
from unpooled.maths.streams import stream
from unpooled.methods.causal_rff.observed.regression import Design, Regression, RegressionStatistics
from unpooled.methods.causal_rff.observed.regression import sums_of as one_of
from unpooled.models.outcome_family import Gaussian
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import make_rows

DESIGN = Design(jnp.asarray(frequencies("gaussian", 2, 3, stream(1, "frequencies"))), jnp.asarray([0, 2]), 3)
LENGTH = 1.3
Table = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Covariates, arm, outcome of a site's people."""


def make_tables(seed: int, sizes: tuple[int, ...] = (31, 44, 38)) -> list[Table]:
    """Sites of unlike sizes and people, whose outcomes differ by an offset."""
    rng = np.random.default_rng(seed)
    tables = []
    for number, rows in enumerate(sizes):
        x = rng.normal(0.3 * number, 1.0, size=(rows, 3))
        w = rng.permutation(np.arange(rows) % 2)
        y = np.sin(x[:, 0]) + 0.4 * x[:, 1] + w * (0.5 + 0.3 * x[:, 2]) + 0.3 * number
        tables.append((x, w, y + 0.4 * rng.normal(size=rows)))
    return tables


def stack(tables: list[Table]) -> Table:
    x, w, y = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    return x, w, y


def sums_of(tables: list[Table], width: int) -> RegressionStatistics:
    """What the coordinator has after its one round."""
    stage = Regression(DESIGN, Gaussian(), width, differ=True)
    replies = []
    for site, (x, w, y) in enumerate(tables):
        rows = make_rows(x, w.astype(float), y, fold=np.zeros(len(y)), site=site)
        replies.append(stage.statistics(Parameters(fixed={"length": LENGTH, "fold": -1}), rows))
    total = {name: [sum(reply.summed[name] for reply in replies)] for name in replies[0].summed}
    each = {name: [jnp.stack([reply.per_site[name] for reply in replies])] for name in replies[0].per_site}
    return one_of(Statistics(total, each), 0, len(tables))


def design_of(table: Table) -> np.ndarray:
    """[φ, c φ] with c = ∓½."""
    x, w, _ = table
    angles = x[:, [0, 2]] / LENGTH @ np.asarray(DESIGN.frequencies).T
    phi = np.column_stack([np.ones(len(x)), x, np.cos(angles) / np.sqrt(3.0), np.sin(angles) / np.sqrt(3.0)])
    return np.hstack([phi, (w - 0.5)[:, None] * phi])


def fitted(table: Table, prior: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """A plain Bayesian regression: the coefficients' posterior mean, given their variances."""
    rows, precision = design_of(table), 1.0 / noise[table[1]]
    gain = rows.T * precision
    return np.linalg.solve(gain @ rows + np.diag(1.0 / prior), gain @ table[2])
