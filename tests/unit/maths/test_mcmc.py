"""Independence Metropolis–Hastings, against posteriors that are known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy import stats

from unpooled.maths.mcmc import Chains, independence

# z ~ N(0, 1), y | z ~ N(z, ½²), y = 0.8: the posterior is N(0.64, 0.2).
SEEN, NOISE_VARIANCE = 0.8, 0.25
POSTERIOR = stats.norm(0.64, np.sqrt(0.2))


def log_target(z: Array) -> Array:
    return -0.5 * jnp.sum(z**2 + (SEEN - z) ** 2 / NOISE_VARIANCE, axis=-1)


def run(centre: float, sd: float, chains: int = 4000, steps: int = 60) -> Chains:
    first, second = jax.random.split(jax.random.key(3))
    proposals = centre + sd * jax.random.normal(first, (steps + 1, chains, 1))

    def log_proposal(z: Array) -> Array:
        return -0.5 * jnp.sum(((z - centre) / sd) ** 2, axis=-1)

    return independence(log_target, log_proposal, proposals, second)


@pytest.mark.parametrize(("centre", "sd"), [(0.0, 1.0), (0.2, 0.8), (1.0, 1.2)])
def test_last_states_are_draws_of_the_posterior_whatever_was_proposed(centre: float, sd: float) -> None:
    last = np.asarray(run(centre, sd).last)[:, 0]
    assert stats.kstest(last, POSTERIOR.cdf).pvalue > 0.01
    # And the proposals themselves are not, so the test can tell.
    assert stats.kstest(last, stats.norm(centre, sd).cdf).pvalue < 1e-6


def test_a_chain_in_time_visits_the_posterior_too() -> None:
    chain = np.asarray(run(0.0, 1.0, chains=1, steps=20_000).samples)[::20, 0, 0]
    assert stats.kstest(chain, POSTERIOR.cdf).pvalue > 0.01


def test_the_posterior_as_its_own_proposal_is_always_taken() -> None:
    found = run(0.64, float(np.sqrt(0.2)), chains=20)
    np.testing.assert_array_equal(found.acceptance, np.ones(20))


def test_acceptance_is_the_share_of_steps_that_moved() -> None:
    found = run(0.0, 1.0, chains=7, steps=40)
    samples = np.asarray(found.samples)[:, :, 0]
    moved = (np.diff(samples, axis=0) != 0).mean(axis=0)
    assert samples.shape == (40, 7)
    assert np.all((moved > 0) & (moved < 1))
    np.testing.assert_allclose(found.acceptance, moved, atol=1 / 40)
