"""Coefficients that sites share in part, in plain NumPy: one dense Gaussian over all rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unpooled.maths.partial_pooling import PoolingSums


@dataclass(frozen=True)
class People:
    """Rows of all sites: design H [n, p], the columns Z [n, q] in which sites differ, noise variances."""

    design: np.ndarray
    own: np.ndarray
    site: np.ndarray
    outcome: np.ndarray
    noise: np.ndarray

    @property
    def sites(self) -> int:
        return int(self.site.max()) + 1

    @property
    def stacked(self) -> np.ndarray:
        """Every row's design in (θ, b_1, …, b_m)."""
        apart = np.eye(self.sites)[self.site]
        return np.hstack([self.design, np.einsum("ns,nq->nsq", apart, self.own).reshape(len(apart), -1)])


@dataclass(frozen=True)
class Joint:
    """Posterior of (θ, b_1, …, b_m) stacked, and log p(y) without what depends on noise and y alone."""

    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: float


def make_people(seed: int, *, rows: int = 40, size: int = 4, own: int = 2, sites: int = 3) -> People:
    rng = np.random.default_rng(seed)
    design = np.column_stack([np.ones(rows), rng.normal(size=(rows, size - 1))])
    site = np.concatenate([np.arange(sites), rng.integers(sites, size=rows - sites)])
    # Z = HB with a B that is no selection of columns.
    between = np.eye(size)[:, :own] + 0.3 * rng.normal(size=(size, own))
    return People(design, design @ between, site, rng.normal(size=rows), rng.uniform(0.3, 1.2, rows))


def sums_of(people: People) -> PoolingSums:
    """What the sites would send."""
    h, z, y = people.design, people.own, people.outcome
    weight = np.eye(people.sites)[people.site] / people.noise[:, None]
    return PoolingSums(
        gram=h.T @ (h / people.noise[:, None]),
        score=h.T @ (y / people.noise),
        site_gram=np.einsum("ns,nq,nr->sqr", weight, z, z),
        site_cross=np.einsum("ns,nq,np->sqp", weight, z, h),
        site_score=np.einsum("ns,nq,n->sq", weight, z, y),
    )


def joint(people: People, common: np.ndarray, site: np.ndarray) -> Joint:
    """Given the covariances V of θ and S of every b_s, which may be singular."""
    prior = np.kron(np.eye(people.sites), site)
    prior = np.block(
        [[common, np.zeros((len(common), len(prior)))], [np.zeros((len(prior), len(common))), prior]]
    )
    rows, noise = people.stacked, np.diag(people.noise)
    seen = rows @ prior @ rows.T + noise
    gain = prior @ rows.T @ np.linalg.inv(seen)
    y = people.outcome
    whole = -0.5 * (y @ np.linalg.solve(seen, y) + np.linalg.slogdet(seen)[1])
    alone = -0.5 * (np.sum(y**2 / people.noise) + np.sum(np.log(people.noise)))
    return Joint(gain @ y, prior - gain @ rows @ prior, float(whole - alone))
