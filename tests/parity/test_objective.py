"""The federated objective and its gradient are those of one dense Gaussian over everybody's outcomes."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest

from oracle.world import World, build
from unpooled.optimise.objective import evaluate

pytestmark = pytest.mark.slow

CASES = [
    ("projection", True, {}),
    ("projection", False, {}),
    ("isotropic", True, {}),
    ("isotropic", False, {"kernel": "squared_exponential", "arms_coupled": False}),
    ("ard", True, {"kernel": "matern32"}),
    ("ard", False, {}),
    ("paper", True, {}),
    ("paper", False, {}),
    ("isotropic", True, {"exact": False}),
    ("isotropic", True, {"basis": 0}),
]


@pytest.fixture(scope="module", params=CASES, ids=str)
def world(request: pytest.FixtureRequest) -> World:
    structure, shifts, settings = request.param
    return build(structure, inter_dependency=shifts, **settings)


def test_the_federated_objective_and_gradient_are_the_dense_ones(world: World) -> None:
    value, gradient, _ = world.run(_evaluate(world, -1))
    np.testing.assert_allclose(value[0], world.objective(world.free), rtol=1e-8)
    slopes = central_differences(world.objective, world.free)
    largest = max(np.max(np.abs(slope)) for slope in slopes.values())
    for name, slope in slopes.items():
        np.testing.assert_allclose(gradient[name][0], slope, rtol=1e-6, atol=1e-6 * largest, err_msg=name)
    held, _, _ = world.run(_evaluate(world, 1))
    np.testing.assert_allclose(held[0], world.objective(world.free, fold=1), rtol=1e-8)
    assert abs(held[0] - value[0]) > 1e-3


def _evaluate(world: World, fold: int):
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], (world.free, world.fixed(fold)))
    return evaluate(world.name, world.evidence, *one)


def central_differences(
    objective: Callable[[dict[str, np.ndarray]], float], free: dict[str, np.ndarray], step: float = 3e-4
) -> dict[str, np.ndarray]:
    """Slopes by five points each: the error is of order step⁴."""
    slopes = {}
    for name, value in free.items():
        slope = np.zeros(np.shape(value))
        for position in np.ndindex(slope.shape):

            def at(
                move: float, name: str = name, value: np.ndarray = value, position: tuple = position
            ) -> float:
                moved = np.array(value, dtype=float)
                moved[position] += move
                return objective({**free, name: moved})

            slope[position] = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)
        slopes[name] = slope
    return slopes
