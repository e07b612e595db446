"""The shape of the tail of importance ratios."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled.maths.pareto import pareto_shape


@pytest.mark.parametrize("shape", [0.2, 0.7, 1.5])
def test_the_shape_of_pareto_ratios_is_found(shape: float) -> None:
    uniform = np.random.default_rng(0).random(40_000)
    assert abs(pareto_shape(-shape * np.log(uniform)) - shape) < 0.15


def test_a_narrow_proposal_has_a_heavy_tail_and_a_wide_one_has_not() -> None:
    rng = np.random.default_rng(1)
    narrow, wide = 0.5 * rng.standard_normal((4000, 3)), 1.5 * rng.standard_normal((4000, 3))

    def log_ratio(draws: np.ndarray, sd: float) -> np.ndarray:
        return 0.5 * np.sum(draws**2, axis=1) * (1.0 / sd**2 - 1.0)

    assert pareto_shape(log_ratio(narrow, 0.5)) > 0.7
    assert pareto_shape(log_ratio(wide, 1.5)) < 0.2


def test_few_ratios_tell_nothing() -> None:
    assert np.isnan(pareto_shape(np.zeros(10)))
