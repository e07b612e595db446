"""The borrowed share is what becomes of a change of one site's outcomes in another's fit."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from oracle.partly_shared import People, make_people, sums_of
from unpooled.maths.partial_pooling import (
    PoolingPrior,
    borrowed_shares,
    coefficients,
    orthonormal,
    posterior,
)

PEOPLE = make_people(8, rows=60, sites=4)
P, Q = PEOPLE.design.shape[1], PEOPLE.own.shape[1]
RNG = np.random.default_rng(9)
PRIOR = PoolingPrior(jnp.asarray(RNG.normal(size=(P, P))), jnp.asarray(0.4 * RNG.normal(size=(Q, Q))))


def _fit(people: People, prior: PoolingPrior) -> np.ndarray:
    """Fitted outcomes at everybody's rows."""
    found = coefficients(posterior(sums_of(people), prior), prior)
    own = np.asarray(found.site)[people.site]
    return people.design @ np.asarray(found.common) + np.sum(people.own * own, axis=1)


def _by_changing_outcomes(people: People, prior: PoolingPrior) -> np.ndarray:
    """Raise a site's outcomes by orthonormal functions, one after the other: how much is seen in each fit?"""
    weighted = people.own / people.noise[:, None]
    functions = people.own @ np.linalg.inv(np.linalg.cholesky(people.own.T @ weighted)).T
    before, together = _fit(people, prior), np.zeros((people.sites, people.sites))
    for function in functions.T:
        for v in range(people.sites):
            changed = people.outcome + np.where(people.site == v, function, 0.0)
            rise = _fit(replace(people, outcome=changed), prior) - before
            for s in range(people.sites):
                here = people.site == s
                together[s, v] += np.sum((function * rise / people.noise)[here])
    return together / together.sum(axis=1, keepdims=True)


@pytest.mark.slow
def test_shares_are_what_changed_outcomes_do_to_the_fits() -> None:
    found = borrowed_shares(sums_of(PEOPLE), PRIOR)
    np.testing.assert_allclose(found, _by_changing_outcomes(PEOPLE, PRIOR), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)


def test_shares_do_not_depend_on_how_the_columns_are_written() -> None:
    mix = np.random.default_rng(4).normal(size=(Q, Q))
    mixed = replace(PEOPLE, own=PEOPLE.own @ mix)
    unmixed = PoolingPrior(PRIOR.common, jnp.asarray(np.linalg.solve(mix, PRIOR.site)))
    np.testing.assert_allclose(
        borrowed_shares(sums_of(mixed), unmixed), borrowed_shares(sums_of(PEOPLE), PRIOR), rtol=1e-9
    )


def test_sites_that_share_nothing_borrow_nothing() -> None:
    alone = PoolingPrior(jnp.zeros((P, 1)), jnp.eye(Q))
    np.testing.assert_allclose(borrowed_shares(sums_of(PEOPLE), alone), np.eye(PEOPLE.sites), atol=1e-14)


def test_a_mean_that_all_share_is_borrowed_by_head_count() -> None:
    ones = np.ones((60, 1))
    people = replace(PEOPLE, design=ones, own=ones, noise=np.ones(60))
    found = borrowed_shares(sums_of(people), PoolingPrior(jnp.eye(1), jnp.zeros((1, 1))))
    count = np.bincount(people.site) / 60
    np.testing.assert_allclose(found, np.tile(count, (people.sites, 1)), rtol=1e-12)


def test_a_small_site_borrows_more_than_a_large_one() -> None:
    site = np.repeat([0, 1, 2], [6, 27, 27])
    found = borrowed_shares(sums_of(replace(PEOPLE, site=site)), PRIOR)
    own = np.diagonal(found)
    assert own[0] < own[1] and own[0] < own[2]


@pytest.mark.parametrize("unseen", [0.0, 1e-13])
def test_a_column_that_nobody_sees_counts_for_nothing(unseen: float) -> None:
    padded = replace(PEOPLE, own=np.column_stack([PEOPLE.own, unseen * PEOPLE.design[:, 1]]))
    wider = PoolingPrior(PRIOR.common, jnp.pad(PRIOR.site, ((0, 1), (0, 1))))
    found = borrowed_shares(sums_of(padded), wider)
    np.testing.assert_allclose(found, borrowed_shares(sums_of(PEOPLE), PRIOR), rtol=1e-9)
    assert np.all(np.isfinite(orthonormal(jnp.asarray(sums_of(padded).site_gram.sum(axis=0)))))
