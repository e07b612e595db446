"""Descents over an engine find minima that are known."""

from __future__ import annotations

import threading
from typing import Any

import jax
import numpy as np
import pytest

from unpooled.errors import FitError
from unpooled.optimise.lbfgs import Stopping, lbfgs
from unpooled.optimise.minimise import STRETCH, curved_axes, minimise
from unpooled.optimise.objective import curvature, evaluate
from unpooled.optimise.stochastic import stochastic

pytestmark = pytest.mark.slow

MINIMUM = np.array([4.0, 2.0]) / 3.0
"""Of |θ − (1, −2)|² + |θ − (3, 4)|² + |θ|²."""
STARTS = {"at": np.array([[0.0, 0.0], [5.0, -5.0], [1.0, 1.0]])}
ONES = np.stack([np.eye(2)] * 3)
WEIGHTS = {"weight": np.array([1.0, 2.0, 0.5])}


def test_value_and_gradient_come_from_one_pair_of_exchanges(drive: Any, stages: Any) -> None:
    (values, gradient, statistics), rounds = drive(evaluate("pull", stages["pull"], STARTS, WEIGHTS))
    gaps = [((at - [1, -2]) ** 2).sum() + ((at - [3, 4]) ** 2).sum() for at in STARTS["at"]]
    expected = WEIGHTS["weight"] * (np.array(gaps) + (STARTS["at"] ** 2).sum(axis=1))
    np.testing.assert_allclose(values, expected)
    np.testing.assert_allclose(gradient["at"], WEIGHTS["weight"][:, None] * 6 * (STARTS["at"] - MINIMUM))
    assert len(rounds) == 2
    assert statistics.per_site["gap"].shape == (3, 2, 2)  # batch, site, direction


def test_algorithm_1_needs_one_exchange(drive: Any, stages: Any) -> None:
    fixed = {"key": np.zeros(3)}
    (values, gradient, _), rounds = drive(evaluate("bound", stages["bound"], STARTS, fixed))
    assert len(rounds) == 1
    np.testing.assert_allclose(gradient["at"], 6 * (STARTS["at"] - MINIMUM))
    np.testing.assert_allclose(values[0], 5 + 25)


def test_a_batch_of_descents_finds_every_minimum_in_lockstep(drive: Any, stages: Any) -> None:
    stopping = Stopping(evaluations=30, tolerance=1e-9)
    found, rounds = drive(lbfgs("pull", stages["pull"], STARTS, ONES, WEIGHTS, stopping))
    np.testing.assert_allclose(found.free["at"], np.tile(MINIMUM, (3, 1)), atol=1e-4)
    lowest = WEIGHTS["weight"] * (30 - 3 * MINIMUM @ MINIMUM)
    np.testing.assert_allclose(found.values, lowest, rtol=1e-6)
    assert len(rounds) == 2 * found.evaluations
    assert found.evaluations < 30
    assert list(found.history) == sorted(found.history, reverse=True)
    gap = found.free["at"][:, None] - np.array([[1.0, -2.0], [3.0, 4.0]])
    np.testing.assert_allclose(found.statistics.per_site["gap"], gap, atol=1e-12)


def test_no_point_outside_the_box_is_evaluated(drive: Any, stages: Any, monkeypatch: Any) -> None:
    box = (np.array([-1.0, -6.0]), np.array([5.0, 0.5]))
    asked = []

    def listening(name: str, objective: Any, free: Any, fixed: Any) -> Any:
        asked.extend(free["at"])
        return evaluate(name, objective, free, fixed)

    monkeypatch.setattr("unpooled.optimise.lbfgs.evaluate", listening)
    found, _ = drive(lbfgs("pull", stages["pull"], STARTS, 5.0 * ONES, WEIGHTS, Stopping(40, 1e-9), box))
    assert np.all((box[0] <= asked) & (asked <= box[1]))
    np.testing.assert_allclose(found.free["at"], np.tile([MINIMUM[0], 0.5], (3, 1)), atol=1e-3)


def test_problems_after_the_first_may_stop_farther_from_their_minimum(drive: Any, stages: Any) -> None:
    starts = {"at": np.array([[5.0, -5.0]] * 2)}
    axes, same = np.stack([np.diag([0.02, 1.0])] * 2), {"weight": np.ones(2)}

    def gaps(coarser: float) -> np.ndarray:
        stopping = Stopping(evaluations=60, tolerance=1e-6, coarser=coarser)
        found, _ = drive(lbfgs("pull", stages["pull"], starts, axes, same, stopping))
        return np.abs(found.free["at"] - MINIMUM).max(axis=1)

    alike, apart = gaps(1.0), gaps(1e6)
    assert alike[0] == alike[1] == apart[0]
    assert apart[1] > 5.0 * alike[1]


def test_axes_change_the_path_but_not_the_minimum(drive: Any, stages: Any) -> None:
    stopping = Stopping(evaluations=60, tolerance=1e-10)
    unlike = np.stack([np.array([[0.05, 0.0], [3.0, 7.0]])] * 3)
    found, _ = drive(lbfgs("pull", stages["pull"], STARTS, unlike, WEIGHTS, stopping))
    np.testing.assert_allclose(found.free["at"], np.tile(MINIMUM, (3, 1)), atol=1e-3)


def test_a_step_of_one_is_a_step_of_one_axis(drive: Any, stages: Any) -> None:
    # SciPy's first step has length one: here 0.05 along the only direction that slopes.
    start = {"at": MINIMUM[None] + [[0.5, 0.0]]}
    scales = np.array([[[0.05, 0.0], [0.0, 7.0]]])
    asked = []
    procedure = lbfgs("pull", stages["pull"], start, scales, {"weight": np.ones(1)}, Stopping())

    def watched() -> Any:
        reply = None
        while True:
            try:
                question = procedure.send(reply)
            except StopIteration as done:
                return done.value
            asked.append(question.question.parameters.free["at"][0])
            reply = yield question

    drive(watched())
    steps = np.diff(asked[::2], axis=0)  # every point is asked twice: statistics, then gradient
    np.testing.assert_allclose(steps[0], [-0.05, 0.0], atol=1e-9)


def test_a_descent_stops_when_the_line_search_under_way_has_used_up_its_allowance(
    drive: Any, stages: Any
) -> None:
    far = {"at": np.full((3, 2), 500.0)}
    found, _ = drive(lbfgs("pull", stages["pull"], far, ONES, WEIGHTS, Stopping(1, 1e-12)))
    assert found.evaluations <= 1 + 20  # SciPy's line search takes at most twenty
    assert found.values[0] > 30 - 3 * MINIMUM @ MINIMUM + 1.0


def test_threads_end_when_the_procedure_is_closed(stages: Any) -> None:
    def minimisers() -> int:
        return sum("_run" in thread.name for thread in threading.enumerate())

    before = minimisers()
    procedure = lbfgs("pull", stages["pull"], STARTS, ONES, WEIGHTS, Stopping())
    next(procedure)
    assert minimisers() == before + 3
    procedure.close()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.daemon and "_run" in thread.name:
            thread.join(timeout=10)
    assert minimisers() <= before


def test_a_descent_turns_back_where_the_objective_is_not_a_number(drive: Any, stages: Any) -> None:
    start = {"at": np.array([[2.0]])}
    found, _ = drive(lbfgs("cliff", stages["cliff"], start, np.full((1, 1, 1), 9.0), {}, Stopping(40, 1e-9)))
    np.testing.assert_allclose(found.free["at"], 0.0, atol=1e-3)


def test_a_descent_that_never_sees_a_number_says_so(drive: Any, stages: Any) -> None:
    start = {"at": np.array([[-5.0]])}
    with pytest.raises(FitError, match="cliff"):
        drive(lbfgs("cliff", stages["cliff"], start, np.ones((1, 1, 1)), {}, Stopping(5, 1e-9)))


BEND = {"at": np.array([[-1.2, 1.0], [2.0, -2.0]])}


def test_a_bent_valley_is_followed_to_its_end_in_units_of_its_curvature(drive: Any, stages: Any) -> None:
    stopping = Stopping(evaluations=100, tolerance=1e-9)
    scales = {"at": np.ones((2, 2))}
    found, rounds = drive(minimise("valley", stages["valley"], BEND, scales, {}, stopping))
    np.testing.assert_allclose(found.free["at"], np.ones((2, 2)), atol=1e-3)
    assert len(rounds) == 2 * found.evaluations <= 200
    # A Hessian, before every stretch but the first, is an evaluation without a step.
    assert found.evaluations - len(found.history) == -(-len(found.history) // STRETCH) - 1


def test_the_curvature_is_looked_at_only_where_evaluations_are_left(drive: Any, stages: Any) -> None:
    scales = {"at": np.ones((2, 2))}
    found, rounds = drive(minimise("valley", stages["valley"], BEND, scales, {}, Stopping(STRETCH, 1e-12)))
    assert len(found.history) == found.evaluations <= STRETCH
    spent, rounds = drive(
        minimise("valley", stages["valley"], BEND, scales, {}, Stopping(STRETCH + 5, 1e-12))
    )
    assert spent.evaluations <= STRETCH + 5
    assert len(rounds) == 2 * spent.evaluations
    assert np.all(spent.values <= found.values)


def test_in_curved_units_a_bowl_is_round_and_a_plain_is_not_run_across() -> None:
    rng = np.random.default_rng(4)
    turned, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    axes = curved_axes(turned @ np.diag([100.0, -9.0, 1e-6]) @ turned.T)
    np.testing.assert_allclose(sorted(np.linalg.norm(axes, axis=0)), [0.1, 1 / 3, 1.0], rtol=1e-9)


@pytest.mark.parametrize("two_sided", [False, True])
def test_the_curvature_of_a_quadratic_is_its_matrix(drive: Any, stages: Any, two_sided: bool) -> None:
    at, fixed = {"at": np.array([0.3, -0.8])}, {"weight": np.array(2.0)}
    hessian, rounds = drive(curvature("pull", stages["pull"], at, fixed, two_sided=two_sided))
    np.testing.assert_allclose(hessian, 12.0 * np.eye(2), rtol=1e-6, atol=1e-6)
    assert len(rounds) == 2


def test_two_sided_differences_allow_for_a_bend(drive: Any, stages: Any) -> None:
    x, y = 0.7, -0.4
    exact = 100.0 * np.array([[1200 * x**2 - 400 * y + 2, -400 * x], [-400 * x, 200]])
    error = {}
    for two_sided in (False, True):
        at = {"at": np.array([x, y])}
        hessian, _ = drive(curvature("valley", stages["valley"], at, {}, two_sided=two_sided))
        error[two_sided] = np.abs(hessian / exact - 1.0).max()
    assert error[True] < 1e-6 < 1e-4 < error[False]


@pytest.mark.parametrize("rule", ["adam", "adagrad"])
def test_a_stochastic_descent_nears_the_minimum_and_replays(drive: Any, stages: Any, rule: Any) -> None:
    def run() -> Any:
        start = {"at": np.zeros(2)}
        return drive(stochastic("bound", stages["bound"], start, 1, rounds=150, rate=0.1, rule=rule))

    found, rounds = run()
    np.testing.assert_allclose(found.free["at"][0], MINIMUM, atol=0.1)
    assert len(rounds) == found.evaluations <= 150
    again, _ = run()
    jax.tree.map(np.testing.assert_array_equal, again.free, found.free)


def test_a_stochastic_descent_that_leaves_the_numbers_says_so(drive: Any, stages: Any) -> None:
    start = {"at": np.array([np.nan, 0.0])}
    with pytest.raises(FitError, match="bound"):
        drive(stochastic("bound", stages["bound"], start, 1, rounds=3, rate=0.1))
