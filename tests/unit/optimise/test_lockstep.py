"""Stochastic descents of several problems in the same messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unpooled.optimise.stochastic import stochastic

pytestmark = pytest.mark.slow

START = {"at": np.array([0.4, -0.3]), "none": np.zeros(0)}
WEIGHTS = np.array([1.0, 5.0, 0.2])


def run(drive: Any, stages: Any, weights: np.ndarray) -> Any:
    fixed = {"weight": weights}
    return drive(
        stochastic("pull", stages["pull"], START, 1, rounds=30, rate=0.05, plateau=None, fixed=fixed)
    )


def test_problems_in_lockstep_go_where_each_goes_alone(drive: Any, stages: Any) -> None:
    together, rounds = run(drive, stages, WEIGHTS)
    assert together.values.shape == (3,)
    for index, weight in enumerate(WEIGHTS):
        alone, as_many = run(drive, stages, np.array([weight]))
        np.testing.assert_allclose(together.free["at"][index], alone.free["at"][0], rtol=1e-12)
        np.testing.assert_allclose(together.values[index], alone.values[0], rtol=1e-12)
        assert len(as_many) == len(rounds)


def test_what_is_watched_is_the_mean_over_the_problems(drive: Any, stages: Any) -> None:
    together, _ = run(drive, stages, WEIGHTS)
    alone = [run(drive, stages, np.array([weight]))[0].history for weight in WEIGHTS]
    np.testing.assert_allclose(together.history, np.mean(alone, axis=0), rtol=1e-12)
