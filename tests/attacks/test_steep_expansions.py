"""A coordinator expands the likelihood of a 0/1 outcome where a single person is on the slope of the curve.

The others' weights are then next to nothing, so that sums of products of the columns would be that person's.
The expansion is about a normal distribution: the curve is steep in its mean, or its variance is large for all
people but one.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unpooled.disclosure.bounds import check_parameters
from unpooled.errors import UnpooledError
from unpooled.maths.linear_algebra import unpack
from unpooled.methods.fedci.effects import GaussianProcessAverage
from unpooled.methods.fedci.model import Projection
from unpooled.methods.fedci.stages import FeatureEvidence
from unpooled.methods.fedci.working_response import nothing_known
from unpooled.models.link import link_of
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows, make_rows

PEOPLE, LEAST = 120, 5.0
ALONE = 17
"""The person on the slope: everybody else's first covariate is 1 or more away from 0."""


def evidence() -> FeatureEvidence:
    structure = Projection(
        site_distances=jnp.zeros((1, 1)), family="matern52", shifts=False, coupled=True, noisy=False,
        correlation=jnp.eye(2), components=2,
    )  # fmt: skip
    return FeatureEvidence(structure, link_of("binary", 0.5, 0.5))


def rows(least: float, second: float) -> Rows:
    rng = np.random.default_rng(3)
    first = rng.choice([-1.0, 1.0], PEOPLE) * rng.uniform(1.0, 2.0, PEOPLE)
    covariates = np.column_stack([first, rng.normal(size=PEOPLE)])
    covariates[ALONE] = 0.0, second
    treatment, outcome = np.arange(PEOPLE) % 2, rng.choice([-1.0, 1.0], PEOPLE)
    return make_rows(covariates, treatment, outcome, fold=np.zeros(PEOPLE), site=0, least=least)


def question(asked: FeatureEvidence, slope: float, of: str = "beta") -> Parameters:
    free = asked.structure.start(np.array([[1.0, 0.3], [0.2, 1.0]]), np.ones(2))
    batch = nothing_known({name: leaf[None] for name, leaf in free.items()}, asked.structure.width)
    about: Arrays = jax.tree.map(lambda leaf: leaf[0], batch)
    about[of][..., 1], about["known"] = slope, np.ones(())
    fixed = {"fold": np.array(-1), "noise": np.zeros(2), "propensity": np.zeros(2)}
    return Parameters(free, {**fixed, "rows": np.ones(2), "direction": np.ones((2, 2)), "about": about})


def told(least: float, of: str) -> np.ndarray:
    """By how much the products of the columns tell apart two values of the person's second covariate."""
    asked = evidence()
    steep = question(asked, asked.link.largest, of)  # type: ignore[union-attr]
    first, second = (
        np.asarray(unpack(asked.statistics(steep, rows(least, value)).summed["gram"]))[ALONE % 2]
        for value in (-2.0, 2.0)
    )
    # The mean of the second covariate among the people of the person's arm, as they count.
    return np.array([one[0, 2] / one[0, 0] if one[0, 0] > 0.0 else 0.0 for one in (first, second)])


@pytest.mark.parametrize(("of", "share"), [("beta", 0.75), ("deviations", 0.25)])
def test_one_person_on_the_slope_is_hidden_by_the_limits(of: str, share: float) -> None:
    """A large variance flattens the curve less than a steep mean, so that the others still count."""
    open_site, guarded = told(0.0, of), told(LEAST, of)
    assert np.ptp(open_site) > 4.0 * share  # of the person's own values, −2 and 2
    assert np.ptp(guarded) < 0.25 * np.ptp(open_site)


@pytest.mark.parametrize("of", ["beta", "deviations"])
def test_a_steeper_expansion_is_refused(of: str) -> None:
    asked = evidence()
    assert asked.link is not None
    batch = jax.tree.map(lambda leaf: np.asarray(leaf)[None], question(asked, asked.link.largest, of))
    check_parameters(asked, batch)
    batch = jax.tree.map(lambda leaf: np.asarray(leaf)[None], question(asked, 1.1 * asked.link.largest, of))
    with pytest.raises(UnpooledError):
        check_parameters(asked, batch)
    draws = {"beta": np.full((1, 3, 2, asked.structure.width), 1.1 * asked.link.largest)}
    with pytest.raises(UnpooledError):
        check_parameters(GaussianProcessAverage(asked), Parameters(fixed=draws))
