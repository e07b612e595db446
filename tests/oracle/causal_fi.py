"""Textbook formulas for CausalFI with a linear Gaussian truth, by dense matrices and inverses."""

from __future__ import annotations

import numpy as np


def given_all(
    mean: np.ndarray, covariance: np.ndarray, seen: np.ndarray, u: np.ndarray, slopes: np.ndarray,
    left: float, noise: float,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Mean and covariance of u_mis given u_seen and y, where y = left-over + slopesᵀu + e and y is known.

    `left` is y less all that does not depend on u.
    """
    joint_mean = np.append(mean, slopes @ mean)
    cross = covariance @ slopes
    joint = np.block([[covariance, cross[:, None]], [cross[None], np.array([[slopes @ cross + noise]])]])
    known = np.append(seen, True)
    values = np.append(np.where(seen, u, 0.0), left)
    gain = joint[np.ix_(~known, known)] @ np.linalg.inv(joint[np.ix_(known, known)])
    expected = joint_mean[~known] + gain @ (values[known] - joint_mean[known])
    return expected, joint[np.ix_(~known, ~known)] - gain @ joint[np.ix_(known, ~known)]


def regression(
    g: np.ndarray, y: np.ndarray, site: np.ndarray, *, noise: float, prior: np.ndarray, offset: float
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and covariance of (β, site offsets): β ~ N(0, diag prior), offsets ~ N(0, offset)."""
    flags = (site[:, None] == np.arange(site.max() + 1)).astype(float)
    design = np.concatenate([g, flags], axis=1)
    precision = design.T @ design / noise + np.diag(1.0 / np.append(prior, np.full(flags.shape[1], offset)))
    covariance = np.linalg.inv(precision)
    return covariance @ design.T @ y / noise, covariance
