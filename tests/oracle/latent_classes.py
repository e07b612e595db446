"""One round of variational EM for latent classes, over the stacked rows, slowly and by textbook formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma


def responsibilities(
    likelihoods: dict[str, np.ndarray], people: dict[str, np.ndarray], binary: bool
) -> np.ndarray:
    """r[i, k], person by person."""
    rows = []
    for x, numbers, w, y, site in zip(
        people["ones"], people["numbers"], people["w"], people["y"], people["site"], strict=True
    ):
        logs = []
        for k in range(likelihoods["classes"].shape[1]):
            value = likelihoods["classes"][site, k] + likelihoods["treatment"][site, w, k]
            value += sum(
                likelihoods["one"][k, j] if x[j] else likelihoods["zero"][k, j] for j in range(len(x))
            )
            squares = likelihoods["weight"][k] * (numbers - likelihoods["centre"][k]) ** 2
            value += likelihoods["level"][k] - 0.5 * squares.sum()
            if binary:
                value += likelihoods["chance"][site, int(y), w, k]
            else:
                noise = likelihoods["noise"][w]
                square = (y - likelihoods["outcome"][site, w, k]) ** 2 + likelihoods["variance"][site, w, k]
                value += -0.5 * (square / noise + np.log(2 * np.pi * noise))
            logs.append(value)
        chance = np.exp(np.array(logs) - max(logs))
        rows.append(chance / chance.sum())
    return np.array(rows)


def counted(r: np.ndarray, people: dict[str, np.ndarray], sites: int) -> dict[str, Any]:
    classes = r.shape[1]
    count, total = np.zeros((2, sites, 2, classes))
    for share, w, y, site in zip(r, people["w"], people["y"], people["site"], strict=True):
        count[site, w] += share
        total[site, w] += share * y
    return {
        "people": count,
        "outcome": total,
        "ones": r.T @ people["ones"],
        "numbers": r.T @ people["numbers"],
        "squares": r.T @ people["numbers"] ** 2,
        "square": np.array([np.sum(people["y"][people["w"] == a] ** 2) for a in (0, 1)]),
    }


def shares_step(shares: np.ndarray, count: np.ndarray, concentration: float) -> np.ndarray:
    """Minka's step for the mean of a Dirichlet-multinomial, one more person in every class."""
    new = np.zeros_like(shares)
    for k, share in enumerate(shares):
        alpha = concentration * share
        new[k] = sum(alpha * (digamma(n + alpha) - digamma(alpha)) for n in count[:, k]) + 1.0
    return new / new.sum()


class Terms:
    """Cells as one long vector of terms u ~ N(0, diag v): those of all sites first, then site by site."""

    def __init__(
        self, common: np.ndarray, site: np.ndarray, common_of: Any, site_of: Any, sites: int
    ) -> None:
        cells = len(common)
        self.design = np.zeros((sites * cells, common.shape[1] + sites * site.shape[1]))
        self.of = np.concatenate([np.array(common_of), *[np.array(site_of)] * sites])
        for s in range(sites):
            rows = slice(s * cells, (s + 1) * cells)
            self.design[rows, : common.shape[1]] = common
            start = common.shape[1] + s * site.shape[1]
            self.design[rows, start : start + site.shape[1]] = site

    def posterior(
        self, v: np.ndarray, weight: np.ndarray, score: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of all terms, densely."""
        precision = self.design.T @ (weight.reshape(-1, 1) * self.design) + np.diag(1.0 / v[self.of])
        covariance = np.linalg.inv(precision)
        return covariance @ self.design.T @ score.reshape(-1), covariance

    def cells(self, mean: np.ndarray, covariance: np.ndarray, shape: tuple) -> tuple[np.ndarray, np.ndarray]:
        spread = np.einsum("ij,jk,ik->i", self.design, covariance, self.design)
        return (self.design @ mean).reshape(shape), spread.reshape(shape)


def variance_step(
    terms: Terms, v: np.ndarray, expected: np.ndarray, learned: np.ndarray, prior: float,
    weight: np.ndarray, score: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """EM of the components' variances: the mean of E[u²] over the terms that share one, with its prior."""
    mean, covariance = terms.posterior(v, weight, score)
    second = mean**2 + np.diag(covariance)
    new = v.copy()
    for index in np.flatnonzero(learned):
        mine = terms.of == index
        if mine.any():
            new[index] = (second[mine].sum() + prior * expected[index]) / (mine.sum() + prior)
    return new


def slope(tight: np.ndarray) -> np.ndarray:
    return np.tanh(tight / 2) / (4 * tight)
