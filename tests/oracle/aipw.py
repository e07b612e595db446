"""AIPW, inverse propensity weights and a meta-analysis on one table, slow and plain: loops over people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from scipy import optimize

from oracle.penalties import linear, outcome_penalty, penalty, treatment_penalty


@dataclass(frozen=True)
class Table:
    """Everybody of every site, in standard units."""

    x: np.ndarray
    w: np.ndarray
    y: np.ndarray
    folds: np.ndarray
    """[draw, n]"""
    site: np.ndarray

    def at(self, site: int) -> Table:
        here = self.site == site
        return Table(self.x[here], self.w[here], self.y[here], self.folds[:, here], self.site[here])


def table_of(model: Any) -> Table:
    """The rows as a fitted model's sites hold them."""
    parts = []
    for site in model.sites_.values():
        rows = jax.tree.map(np.asarray, site.adopted.rows)
        here = rows.present > 0
        place = np.full(here.sum(), int(rows.site))
        folds = rows.fold[None] if rows.more_folds is None else np.vstack([rows.fold, rows.more_folds])
        parts.append(
            (rows.covariates[here], rows.treatment[here], rows.outcome[here], folds[:, here].T, place)
        )
    x, w, y, folds, site = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Table(x, w, y, folds.T, site)


def design_of(table: Table, *, offsets: bool) -> np.ndarray:
    """An intercept, the covariates and, with offsets, a flag for every site."""
    flags = (table.site[:, None] == np.unique(table.site)[None, :]).astype(float)
    parts = [np.ones((len(table.w), 1)), table.x, *([flags] if offsets else [])]
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Ridge:
    """Penalties of the regressions of the treatment and of the outcome in both arms."""

    treatment: float
    control: float
    treated: float


def chosen(table: Table, *, offsets: bool) -> Ridge:
    """The penalties by cross-validation over all draws of the folds."""
    X, width = design_of(table, offsets=offsets), 1 + table.x.shape[1]
    arms = [
        outcome_penalty(X[table.w == arm], table.y[table.w == arm], table.folds[:, table.w == arm], width)
        for arm in (0, 1)
    ]
    return Ridge(treatment_penalty(X, table.w, table.folds, width), *arms)


def logistic(X: np.ndarray, w: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Gradient steps by an upper bound of the curvature: slow, and never too far."""
    bound = 0.25 * X.T @ X + P
    beta = np.zeros(X.shape[1])
    for _ in range(5000):
        e = 1.0 / (1.0 + np.exp(-X @ beta))
        step = np.linalg.solve(bound, X.T @ (w - e) - P @ beta)
        beta = beta + step
        if np.max(np.abs(step)) < 1e-14:
            break
    return beta


def propensities(
    table: Table, X: np.ndarray, ridge: Ridge, trim: float, folds: int, draw: int = 0
) -> np.ndarray:
    e, P = np.zeros(len(table.w)), penalty(X.shape[1], 1 + table.x.shape[1], ridge.treatment)
    for fold in range(folds):
        held = table.folds[draw] == fold
        used = ~held if folds > 1 else held
        beta = logistic(X[used], table.w[used], P)
        e[held] = 1.0 / (1.0 + np.exp(-X[held] @ beta))
    return np.clip(e, trim, 1.0 - trim)


def scores(
    table: Table, *, ridge: Ridge, trim: float, folds: int, offsets: bool, draw: int = 0
) -> np.ndarray:
    """ψ of everybody, by one draw of the folds."""
    X = design_of(table, offsets=offsets)
    e = propensities(table, X, ridge, trim, folds, draw)
    psi = np.zeros(len(table.w))
    P = [penalty(X.shape[1], 1 + table.x.shape[1], one) for one in (ridge.control, ridge.treated)]
    for fold in range(folds):
        held = table.folds[draw] == fold
        used = ~held if folds > 1 else held
        b = [linear(X[used & (table.w == a)], table.y[used & (table.w == a)], P[a]) for a in (0, 1)]
        for i in np.flatnonzero(held):
            mu0, mu1 = X[i] @ b[0], X[i] @ b[1]
            treated, control = (table.y[i] - mu1) / e[i], (table.y[i] - mu0) / (1.0 - e[i])
            psi[i] = mu1 - mu0 + (treated if table.w[i] == 1 else -control)
    return psi


def over_draws(estimates: list[float], errors: list[float]) -> tuple[float, float]:
    """The median over the draws of the folds, and the root of the median of error² + distance²."""
    middle = sorted(estimates)[len(estimates) // 2]  # of an odd number
    each = [error**2 + (one - middle) ** 2 for one, error in zip(estimates, errors, strict=True)]
    return middle, sorted(each)[len(each) // 2] ** 0.5


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
    mean = sum(a * b for a, b in zip(v, estimates, strict=True)) / sum(v)
    spread = sum(a * (b - mean) ** 2 for a, b in zip(v, estimates, strict=True))
    return {
        "fixed": fixed,
        "fixed_error": sum(w) ** -0.5,
        "q": q,
        "i_squared": max(0.0, (q - (len(w) - 1)) / q),
        "tau_squared": tau_squared,
        "random": mean,
        "random_error": sum(v) ** -0.5,
        "hartung_knapp": max(1.0, spread / max(len(w) - 1, 1)) ** 0.5 * sum(v) ** -0.5,
    }


# ------------------------------------------------------------------------ means by group


def doubly_robust_contributions(
    y: np.ndarray, w: np.ndarray, e: np.ndarray, mu: np.ndarray, named: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numerators and residuals [group, arm, n] and members [group, n], person by person; mu is [n, 2].

    Treated: the efficient score of the mean of y(0) among the treated is
    wμ0 + (1 − w) e/(1 − e) (y − μ0), over w. Overlap: that of Robinson's regression of residuals.
    """
    groups = 4 + len(named)
    s, r, d = np.zeros((groups, 2, len(y))), np.zeros((groups, 2, len(y))), np.zeros((groups, len(y)))
    for i in range(len(y)):
        odds, left = e[i] / (1.0 - e[i]), [y[i] - mu[i, 0], y[i] - mu[i, 1]]
        if w[i] == 1:
            residual = [(0.0, left[1] / e[i]), (0.0, left[1]), (0.0, left[1] / odds)]
            residual.append((0.0, (1.0 - e[i]) * left[1]))
        else:
            residual = [(left[0] / (1.0 - e[i]), 0.0), (left[0] * odds, 0.0), (left[0], 0.0)]
            residual.append((e[i] * left[0], 0.0))
        member = [1.0, w[i], 1.0 - w[i], (w[i] - e[i]) ** 2]
        for one in named:
            member.append(one[i])
            residual.append((one[i] * residual[0][0], one[i] * residual[0][1]))
        for g in range(groups):
            d[g, i] = member[g]
            for a in (0, 1):
                r[g, a, i] = residual[g][a]
                s[g, a, i] = member[g] * mu[i, a] + residual[g][a]
    return s, r, d


def doubly_robust_means(
    y: np.ndarray, w: np.ndarray, e: np.ndarray, mu: np.ndarray, named: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means [group, arm], and their covariances [group·arm, group·arm] in the population and the sample."""
    s, r, d = doubly_robust_contributions(y, w, e, mu, named)
    means, u, v = [], [], []
    for g in range(len(d)):
        total, people = d[g].sum(), np.sum(d[g] > 0)
        means.append([s[g, a].sum() / total for a in (0, 1)])
        for a in (0, 1):
            size = np.sqrt(people / (people - 1)) / total
            u.append(size * (s[g, a] - d[g] * means[g][a]))
            v.append(size * r[g, a])
    return np.array(means), np.array(u) @ np.array(u).T, np.array(v) @ np.array(v).T


def weighted_means(
    y: np.ndarray, w: np.ndarray, e: np.ndarray, named: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Hájek's means [group, arm] with the weights of textbooks, and their covariance."""
    nobody = np.zeros(len(y))
    average = [np.where(w == 0, 1.0 / (1.0 - e), nobody), np.where(w == 1, 1.0 / e, nobody)]
    weights = [
        average,
        [np.where(w == 0, e / (1.0 - e), nobody), np.where(w == 1, 1.0, nobody)],  # treated
        [np.where(w == 0, 1.0, nobody), np.where(w == 1, (1.0 - e) / e, nobody)],  # controls
        [np.where(w == 0, e, nobody), np.where(w == 1, 1.0 - e, nobody)],  # overlap
        *([one * weight for weight in average] for one in named),
    ]
    means, u = [], []
    for group in weights:
        for weight in group:
            people = np.sum(weight > 0)
            means.append(np.average(y, weights=weight))
            u.append(np.sqrt(people / (people - 1)) * weight * (y - means[-1]) / weight.sum())
    return np.array(means).reshape(-1, 2), np.array(u) @ np.array(u).T


def mean_regression(
    X: np.ndarray, y: np.ndarray, P: np.ndarray, family: str
) -> Callable[[np.ndarray], np.ndarray]:
    """The mean outcome as a function of features: linear, logistic or log-linear."""
    if family == "continuous":
        b = linear(X, y, P)
        return lambda Z: Z @ b
    if family == "binary":
        b = logistic(X, y, P)
        return lambda Z: 1.0 / (1.0 + np.exp(-Z @ b))
    b = log_linear(X, y, P)
    return lambda Z: np.exp(Z @ b)


def log_linear(X: np.ndarray, y: np.ndarray, P: np.ndarray) -> np.ndarray:
    """The mode of Poisson's penalised likelihood, by a general optimiser."""

    def loss(b: np.ndarray) -> tuple[float, np.ndarray]:
        mean = np.exp(X @ b)
        return float(mean.sum() - y @ X @ b + 0.5 * b @ P @ b), X.T @ (mean - y) + P @ b

    start = np.append(np.log(y.mean()), np.zeros(X.shape[1] - 1))
    found = optimize.minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-8})
    hessian = (X.T * np.exp(X @ found.x)) @ X + P
    return found.x - np.linalg.solve(hessian, loss(found.x)[1])


def cross_fitted(
    table: Table,
    *,
    ridge: Ridge,
    trim: float,
    folds: int,
    offsets: bool,
    draw: int = 0,
    family: str = "continuous",
) -> tuple[np.ndarray, np.ndarray]:
    """Propensities and mean outcomes [n, 2] of everybody, from fits without their fold; outcomes in the units
    of the family."""
    X = design_of(table, offsets=offsets)
    e, mu = propensities(table, X, ridge, trim, folds, draw), np.zeros((len(table.w), 2))
    P = [penalty(X.shape[1], 1 + table.x.shape[1], one) for one in (ridge.control, ridge.treated)]
    for fold in range(folds):
        held = table.folds[draw] == fold
        used = ~held if folds > 1 else held
        for a in (0, 1):
            here = used & (table.w == a)
            mu[held, a] = mean_regression(X[here], table.y[here], P[a], family)(X[held])
    return e, mu
