"""Little's test row by row in plain NumPy, straight from the textbook: the table, never its sums."""

from __future__ import annotations

import numpy as np


def expectation_maximisation(
    table: np.ndarray, *, steps: int = 5000, tolerance: float = 1e-14
) -> tuple[np.ndarray, np.ndarray]:
    """μ̂ and Σ̂ of a Gaussian (Little and Rubin, section 11.2), in the columns' own units."""
    table = table[~np.isnan(table).all(axis=1)]
    centre, scale = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
    z = (table - centre) / scale
    n, d = z.shape
    mu, sigma = np.zeros(d), np.eye(d)
    for _ in range(steps):
        first, second = np.zeros(d), np.zeros((d, d))
        for row in z:
            o, m = ~np.isnan(row), np.isnan(row)
            slope = sigma[np.ix_(m, o)] @ np.linalg.inv(sigma[np.ix_(o, o)])
            filled, unknown = row.copy(), np.zeros((d, d))
            filled[m] = mu[m] + slope @ (row[o] - mu[o])
            unknown[np.ix_(m, m)] = sigma[np.ix_(m, m)] - slope @ sigma[np.ix_(o, m)]
            first, second = first + filled, second + np.outer(filled, filled) + unknown
        old = mu, sigma
        mu = first / n
        sigma = second / n - np.outer(mu, mu)
        if max(np.abs(mu - old[0]).max(), np.abs(sigma - old[1]).max()) < tolerance:
            break
    return centre + scale * mu, sigma * np.outer(scale, scale)


def log_likelihood(table: np.ndarray, mu: np.ndarray, sigma: np.ndarray) -> float:
    """Σ_rows log N(y_o; μ_o, Σ_oo), without its −½ log 2π for every value."""
    total = 0.0
    for row in table[~np.isnan(table).all(axis=1)]:
        o = ~np.isnan(row)
        away, own = row[o] - mu[o], sigma[np.ix_(o, o)]
        total -= 0.5 * (np.linalg.slogdet(own)[1] + away @ np.linalg.inv(own) @ away)
    return float(total)


def d_square(table: np.ndarray, mu: np.ndarray, sigma: np.ndarray) -> tuple[float, int]:
    """d² and its degrees of freedom."""
    table = table[~np.isnan(table).all(axis=1)]
    groups: dict[tuple[bool, ...], list[np.ndarray]] = {}
    for row in table:
        groups.setdefault(tuple(~np.isnan(row)), []).append(row)
    total, columns = 0.0, 0
    for key, rows in groups.items():
        o = np.array(key)
        away = np.mean(rows, axis=0)[o] - mu[o]
        total += len(rows) * away @ np.linalg.inv(sigma[np.ix_(o, o)]) @ away
        columns += int(o.sum())
    return float(total), columns - table.shape[1]
