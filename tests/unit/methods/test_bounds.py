"""Honest questions stay within the bounds of the hyperparameters."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import unpooled as up
from oracle.world import scaling_of
from unpooled.coordinator.run import run_study
from unpooled.disclosure.bounds import check_parameters, extent
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import MessageError
from unpooled.methods.fedci import METHOD
from unpooled.methods.fedci.bounds import ARMS, FIXED, MARGIN, WEIGHTS, limits_of
from unpooled.methods.fedci.laplace import PosteriorMode, about
from unpooled.methods.fedci.subsample import Subsampled
from unpooled.methods.method import with_settings
from unpooled.protocol.messages import Ask, Together, Vjp
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.stage import Stage

RNG = np.random.default_rng(0)
SCALING = scaling_of(
    correlation=np.eye(3),
    site_distances=np.array([[0.0, 0.7], [0.7, 0.0]]),
    binary_rate=np.full(3, np.nan),
    sd=np.ones(3),
    counts=(30, 40),
)
STRUCTURES = ["projection", "isotropic", "ard", "paper"]


def _stages(structure: str, **settings: Any) -> dict[str, Any]:
    chosen = METHOD.Settings(**{"structure": structure, **settings})
    return dict(METHOD.stages(chosen, METHOD.context(chosen, SCALING, 0)))


def _start(evidence: Any) -> dict[str, np.ndarray]:
    return evidence.structure.start(RNG.normal(size=(2, 3)), np.array([0.02, 1.5]))


def _refused(stage: Stage, free: Arrays, words: str) -> None:
    with pytest.raises(MessageError, match=words):
        check_parameters(stage, Parameters(free))


def _one(free: Arrays) -> Arrays:
    """A batch of one θ."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], free)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("shifts", [True, False])
def test_every_hyperparameter_is_bounded_and_starts_within(structure: str, shifts: bool) -> None:
    evidence = _stages(structure, inter_dependency=shifts)[structure]
    bounds, start = evidence.structure.bounds(), _start(evidence)
    assert set(bounds) == set(start)
    assert evidence.bounds() == {**FIXED, **bounds}
    check_parameters(evidence, Parameters(_one(start)))
    check_parameters(evidence, Parameters({name: np.stack([value] * 5) for name, value in start.items()}))
    low, high = limits_of(bounds, start)
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(start)])
    assert np.all(low < flat) and np.all(flat < high)
    for name, (lowest, highest) in bounds.items():
        for beyond, words in (
            (np.min(lowest) - 0.1, f"'{name}' out of bounds"),
            (np.max(highest) + 0.1, f"'{name}' out of bounds"),
            (np.nan, "not finite"),
            (np.inf, "not finite"),
        ):
            moved = np.array(start[name], dtype=float)
            moved.flat[0] = beyond
            _refused(evidence, _one(start | {name: moved}), words)
            _refused(evidence, {name: np.stack([start[name], moved])}, words)
    _refused(evidence, _one(start | {"more": np.zeros(2)}), "a parameter that the stage does not have")


def test_every_stage_bounds_the_hyperparameters_in_its_question() -> None:
    stages = _stages("auto")
    one, other = (stages[name] for name in ("projection", "isotropic"))
    start = _start(one)
    far = start | {"length": np.full_like(start["length"], -9.0)}
    for stage in (one, stages["effect/projection"], Subsampled(one, 1)):
        check_parameters(stage, Parameters(_one(start)))
        _refused(stage, _one(far), "'length' out of bounds")
    held_out = stages["held_out"]
    assert set(held_out.bounds()) >= {*one.structure.bounds(), *other.structure.bounds(), *WEIGHTS}
    fitted = [{"free": _one(_start(each)), "beta": np.zeros((1, 2, 4))} for each in (one, other)]
    check_parameters(held_out, Parameters(fixed={"fitted": tuple(fitted)}))
    for changed in ({"free": _one(far)}, {"beta": np.full((1, 2, 4), 1e7)}, {"site": np.zeros((1, 2))}):
        with pytest.raises(MessageError):
            check_parameters(held_out, Parameters(fixed={"fitted": (fitted[1], fitted[0] | changed)}))


def test_values_that_are_addressed_to_one_site_are_bounded_too() -> None:
    average = _stages("projection")["effect/projection"]
    check_parameters(average, Parameters(per_site={"site_shift": np.full((3, 2), 99.0)}))
    for value in (2e6, np.nan):
        with pytest.raises(MessageError):
            check_parameters(average, Parameters(per_site={"site_shift": np.array([0.0, value])}))


def test_weights_as_large_as_the_prior_allows_are_answered() -> None:
    """With the largest scales of the arms, ten prior sds are still within the bounds."""
    largest = 10.0 * (np.exp(ARMS[1][[0, 2]]).max() + ARMS[1][1])
    average = _stages("projection")["effect/projection"]
    check_parameters(average, Parameters(fixed={"beta": np.full((1, 4, 2, 38), largest)}))


def test_the_extent_of_a_question_is_told_by_parameter() -> None:
    parameters = Parameters(
        {"a": np.array([1.0, -3.0])},
        {"deep": ({"b": np.array(4.0)}, {"a": np.array([7.0])})},
        {"c": np.zeros(0)},
    )
    assert extent(parameters) == {"a": (-3.0, 7.0), "b": (4.0, 4.0)}


def test_draws_are_clipped_to_the_bounds() -> None:
    evidence = _stages("projection")["projection"]
    mode, bounds = _start(evidence), evidence.structure.bounds()
    size = sum(np.size(value) for value in mode.values())
    normal = np.random.default_rng(1).standard_normal((50, size))
    wide = PosteriorMode(mode, 0.0, 0.01 * np.eye(size))
    draws = about(wide, normal, bounds)
    check_parameters(evidence, Parameters(draws))
    assert np.isclose(draws["noise"].max(), 2.0 - MARGIN)
    everywhere = {name: (-1e9, 1e9) for name in bounds}
    _refused(evidence, about(wide, normal, everywhere), "out of bounds")


class Listening(InProcess):
    """An engine that keeps the questions."""

    def __init__(self, sites: Any) -> None:
        super().__init__(sites)
        self.heard: list[Any] = []

    def exchange(self, question: Any) -> Any:
        parts = question.questions if isinstance(question, Together) else (question,)
        self.heard += [part for part in parts if isinstance(part, (Ask, Vjp))]
        return super().exchange(question)


@pytest.mark.slow
@pytest.mark.parametrize("signal", [0.0, 3.0])
def test_no_question_of_an_honest_fit_leaves_the_bounds(signal: float) -> None:
    rng = np.random.default_rng(8)
    tables = {}
    for site in ("north", "south"):
        x = rng.normal(size=(30, 3))
        w = np.arange(30) % 2
        y = signal * np.sin(2 * x[:, 0]) * (1 + w) + 0.1 * rng.normal(size=30)
        tables[site] = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "w": w, "y": y})
    study = up.Study(treatment="w", outcome="y", covariates=["a", "b", "c"])
    sites = open_sites(study, tables, NONE)
    engine = Listening(sites)
    run_study(with_settings(study, "fedci", {"basis": 8, "draws": 40}, seed=1), engine)
    stages = sites["north"].adopted.stages  # type: ignore[union-attr]
    assert len(engine.heard) > 20
    for question in engine.heard:
        check_parameters(stages[question.stage], question.parameters)
