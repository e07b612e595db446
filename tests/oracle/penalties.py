"""Ridge penalties by cross-validation, slow and plain: every regression is fitted to its people."""

from __future__ import annotations

import numpy as np

GRID = [0.3 * (1000.0 / 0.3) ** (step / 7.0) for step in range(8)]


def penalty(columns: int, width: int, ridge: float) -> np.ndarray:
    """Nothing on the intercept, `ridge` on the covariates, 1 on the flags of the sites that follow them."""
    return np.diag([0.0] + [ridge] * (width - 1) + [1.0] * (columns - width))


def linear(X: np.ndarray, y: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Least squares with a row for each penalty."""
    root = np.sqrt(P)
    return np.linalg.lstsq(np.vstack([X, root]), np.concatenate([y, np.zeros(len(root))]))[0]


def logistic(X: np.ndarray, w: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Newton's method with halved steps, until nothing moves."""
    beta = np.zeros(X.shape[1])

    def value(b: np.ndarray) -> float:
        return float(log_likelihood(X, w, b) - 0.5 * b @ P @ b)

    for _ in range(200):
        e = 1.0 / (1.0 + np.exp(-X @ beta))
        step = np.linalg.solve((X.T * (e * (1.0 - e))) @ X + P, X.T @ (w - e) - P @ beta)
        while value(beta + step) < value(beta) - 1e-9 * abs(value(beta)):
            step = 0.5 * step
        beta = beta + step
        if np.max(np.abs(step)) < 1e-13:
            break
    return beta


def log_likelihood(X: np.ndarray, w: np.ndarray, beta: np.ndarray) -> float:
    logit = X @ beta
    return float(np.sum(w * logit - np.logaddexp(0.0, logit)))


def outcome_errors(X: np.ndarray, y: np.ndarray, folds: np.ndarray, width: int) -> list[float]:
    """Held-out squared errors over all folds of all draws [draw, n], by penalty."""
    found = []
    for ridge in GRID:
        P, total = penalty(X.shape[1], width, ridge), 0.0
        for fold in folds:
            for number in np.unique(fold):
                held = fold == number
                total += np.sum((y[held] - X[held] @ linear(X[~held], y[~held], P)) ** 2)
        found.append(float(total))
    return found


def treatment_fits(X: np.ndarray, w: np.ndarray, folds: np.ndarray, width: int) -> list[float]:
    """Held-out log likelihoods over all folds of all draws, by penalty."""
    found = []
    for ridge in GRID:
        P, total = penalty(X.shape[1], width, ridge), 0.0
        for fold in folds:
            for number in np.unique(fold):
                held = fold == number
                total += log_likelihood(X[held], w[held], logistic(X[~held], w[~held], P))
        found.append(total)
    return found


def outcome_penalty(X: np.ndarray, y: np.ndarray, folds: np.ndarray, width: int) -> float:
    if folds.max() > 0:
        return GRID[int(np.argmin(outcome_errors(X, y, folds, width)))]
    found = []
    for ridge in GRID:  # generalised cross-validation
        P = penalty(X.shape[1], width, ridge)
        hat = X @ np.linalg.inv(X.T @ X + P) @ X.T
        found.append(len(y) * np.sum((y - hat @ y) ** 2) / (len(y) - np.trace(hat)) ** 2)
    return GRID[int(np.argmin(found))]


def treatment_penalty(X: np.ndarray, w: np.ndarray, folds: np.ndarray, width: int) -> float:
    if folds.max() > 0:
        return GRID[int(np.argmax(treatment_fits(X, w, folds, width)))]
    found = []
    for ridge in GRID:  # AIC
        P = penalty(X.shape[1], width, ridge)
        beta = logistic(X, w, P)
        e = 1.0 / (1.0 + np.exp(-X @ beta))
        H = (X.T * (e * (1.0 - e))) @ X
        found.append(np.trace(np.linalg.solve(H + P, H)) - log_likelihood(X, w, beta))
    return GRID[int(np.argmin(found))]
