"""AIPW, inverse propensity weights and a meta-analysis on one table, slow and plain: loops over people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True)
class Table:
    """Everybody of every site, in standard units."""

    x: np.ndarray
    w: np.ndarray
    y: np.ndarray
    fold: np.ndarray
    site: np.ndarray

    def at(self, site: int) -> Table:
        here = self.site == site
        return Table(*(part[here] for part in (self.x, self.w, self.y, self.fold, self.site)))


def table_of(model: Any) -> Table:
    """The rows as a fitted model's sites hold them."""
    parts = []
    for site in model.sites_.values():
        rows = jax.tree.map(np.asarray, site.adopted.rows)
        here = rows.present > 0
        place = np.full(here.sum(), int(rows.site))
        parts.append(
            (rows.covariates[here], rows.treatment[here], rows.outcome[here], rows.fold[here], place)
        )
    return Table(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def design_of(table: Table, *, offsets: bool) -> np.ndarray:
    """An intercept, the covariates and, with offsets, a flag for every site."""
    flags = (table.site[:, None] == np.unique(table.site)[None, :]).astype(float)
    parts = [np.ones((len(table.w), 1)), table.x, *([flags] if offsets else [])]
    return np.concatenate(parts, axis=1)


def penalty(design: np.ndarray, ridge: float) -> np.ndarray:
    P = ridge * np.eye(design.shape[1])
    P[0, 0] = 0.0
    return P


def logistic(X: np.ndarray, w: np.ndarray, ridge: float) -> np.ndarray:
    """Gradient steps by an upper bound of the curvature: slow, and never too far."""
    P = penalty(X, ridge)
    bound = 0.25 * X.T @ X + P
    beta = np.zeros(X.shape[1])
    for _ in range(5000):
        e = 1.0 / (1.0 + np.exp(-X @ beta))
        step = np.linalg.solve(bound, X.T @ (w - e) - P @ beta)
        beta = beta + step
        if np.max(np.abs(step)) < 1e-14:
            break
    return beta


def linear(X: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    """Least squares with a row for each penalty."""
    root = np.sqrt(penalty(X, ridge))
    return np.linalg.lstsq(np.vstack([X, root]), np.concatenate([y, np.zeros(len(root))]))[0]


def propensities(table: Table, X: np.ndarray, ridge: float, trim: float, folds: int) -> np.ndarray:
    e = np.zeros(len(table.w))
    for fold in range(folds):
        held = table.fold == fold
        used = ~held if folds > 1 else held
        beta = logistic(X[used], table.w[used], ridge)
        e[held] = 1.0 / (1.0 + np.exp(-X[held] @ beta))
    return np.clip(e, trim, 1.0 - trim)


def scores(table: Table, *, ridge: float, trim: float, folds: int, offsets: bool) -> np.ndarray:
    """ψ of everybody."""
    X = design_of(table, offsets=offsets)
    e = propensities(table, X, ridge, trim, folds)
    psi = np.zeros(len(table.w))
    for fold in range(folds):
        held = table.fold == fold
        used = ~held if folds > 1 else held
        b = [linear(X[used & (table.w == a)], table.y[used & (table.w == a)], ridge) for a in (0, 1)]
        for i in np.flatnonzero(held):
            mu0, mu1 = X[i] @ b[0], X[i] @ b[1]
            treated, control = (table.y[i] - mu1) / e[i], (table.y[i] - mu0) / (1.0 - e[i])
            psi[i] = mu1 - mu0 + (treated if table.w[i] == 1 else -control)
    return psi


def mean_and_error(psi: np.ndarray) -> tuple[float, float]:
    return float(psi.mean()), float(psi.std(ddof=1) / np.sqrt(len(psi)))


def weighted_difference(y: np.ndarray, w: np.ndarray, e: np.ndarray) -> tuple[float, float]:
    """Hájek's estimate; the variance of each arm's weighted mean from its influence function."""
    means, variance = [], 0.0
    for arm, chance in ((1, e), (0, 1.0 - e)):
        people = np.flatnonzero(w == arm)
        total = sum(1.0 / chance[i] for i in people)
        mean = sum(y[i] / chance[i] for i in people) / total
        influence = sum(((y[i] - mean) / chance[i] / total) ** 2 for i in people)
        variance += influence * len(people) / (len(people) - 1)
        means.append(mean)
    return means[0] - means[1], float(np.sqrt(variance))


def meta_analysis(estimates: list[float], errors: list[float]) -> dict[str, float]:
    """Fixed effect, DerSimonian and Laird's random effects, and what they rest on."""
    w = [1.0 / error**2 for error in errors]
    fixed = sum(a * b for a, b in zip(w, estimates, strict=True)) / sum(w)
    q = sum(a * (b - fixed) ** 2 for a, b in zip(w, estimates, strict=True))
    c = sum(w) - sum(a * a for a in w) / sum(w)
    tau_squared = max(0.0, (q - (len(w) - 1)) / c)
    v = [1.0 / (error**2 + tau_squared) for error in errors]
    return {
        "fixed": fixed,
        "fixed_error": sum(w) ** -0.5,
        "q": q,
        "i_squared": max(0.0, (q - (len(w) - 1)) / q),
        "tau_squared": tau_squared,
        "random": sum(a * b for a, b in zip(v, estimates, strict=True)) / sum(v),
        "random_error": sum(v) ** -0.5,
    }
