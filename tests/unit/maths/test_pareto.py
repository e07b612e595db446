"""The shape of the tail of importance ratios."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import genpareto

from unpooled.maths.pareto import generalised_pareto_shape, pareto_shape


@pytest.mark.parametrize("shape", [0.2, 0.7, 1.5])
def test_the_shape_of_pareto_ratios_is_found(shape: float) -> None:
    uniform = np.random.default_rng(0).random(40_000)
    assert abs(pareto_shape(-shape * np.log(uniform)) - shape) < 0.15


@pytest.mark.parametrize("shape", [-0.3, 0.2, 0.9])
def test_the_shape_is_near_that_of_maximum_likelihood(shape: float) -> None:
    sample = np.sort(genpareto(shape).rvs(400, random_state=np.random.default_rng(2)))
    likeliest, _, _ = genpareto.fit(sample, floc=0.0)
    assert abs(generalised_pareto_shape(sample) - likeliest) < 0.05


def test_a_narrow_proposal_has_a_heavy_tail_and_a_wide_one_has_not() -> None:
    rng = np.random.default_rng(1)
    narrow, wide = 0.5 * rng.standard_normal((4000, 3)), 1.5 * rng.standard_normal((4000, 3))

    def log_ratio(draws: np.ndarray, sd: float) -> np.ndarray:
        return 0.5 * np.sum(draws**2, axis=1) * (1.0 / sd**2 - 1.0)

    assert pareto_shape(log_ratio(narrow, 0.5)) > 0.7
    assert pareto_shape(log_ratio(wide, 1.5)) < 0.2


def test_few_ratios_tell_nothing() -> None:
    assert np.isnan(pareto_shape(np.zeros(10)))
