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
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.methods.fedci import METHOD
from unpooled.methods.fedci.bounds import MARGIN, limits_of, outside
from unpooled.methods.fedci.fit import draw_about
from unpooled.methods.fedci.subsample import Subsampled
from unpooled.methods.method import with_settings
from unpooled.protocol.messages import Ask, Together, Vjp
from unpooled.protocol.records import Parameters

RNG = np.random.default_rng(0)
SCALING = scaling_of(
    correlation=np.eye(3),
    site_moments=RNG.normal(size=(2, 6)),
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


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("shifts", [True, False])
def test_every_hyperparameter_is_bounded_and_starts_within(structure: str, shifts: bool) -> None:
    evidence = _stages(structure, inter_dependency=shifts)[structure]
    bounds, start = evidence.structure.bounds(), _start(evidence)
    assert set(bounds) == set(start)
    assert outside(start, bounds) == []
    batch = {name: np.stack([value] * 5) for name, value in start.items()}
    assert outside(batch, bounds) == []
    low, high = limits_of(bounds, start)
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(start)])
    assert np.all(low < flat) and np.all(flat < high)
    for name, (lowest, highest) in bounds.items():
        for beyond in (np.min(lowest) - 0.1, np.max(highest) + 0.1, np.nan):
            moved = np.array(start[name], dtype=float)
            moved.flat[0] = beyond
            assert outside(start | {name: moved}, bounds) == [name]
    assert outside(start | {"more": np.zeros(2)}, bounds) == ["more"]


def test_every_stage_tells_the_hyperparameters_in_its_question() -> None:
    stages = _stages("auto")
    one, other = (stages[name] for name in ("projection", "isotropic"))
    question = Parameters(_start(one))
    for stage in (one, stages["effect/projection"], Subsampled(one)):
        assert stage.bounded(question) == [(question.free, one.structure.bounds())]
    fitted = tuple({"free": _start(each), "beta": 0, "shift": 0} for each in (one, other))
    found = stages["held_out"].bounded(Parameters(fixed={"fitted": fitted}))
    assert [free is each["free"] for (free, _), each in zip(found, fitted, strict=True)] == [True, True]
    assert [outside(*pair) for pair in found] == [[], []]


def test_draws_are_clipped_to_the_bounds() -> None:
    evidence = _stages("projection")["projection"]
    mode, bounds = _start(evidence), evidence.structure.bounds()
    size = sum(np.size(value) for value in mode.values())
    draws = draw_about(mode, 0.01 * np.eye(size), 50, 1, bounds)
    assert outside(draws, bounds) == []
    assert np.isclose(draws["noise"].max(), 2.0 - MARGIN)
    assert outside(draw_about(mode, 0.01 * np.eye(size), 50, 1), bounds)


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
    asked = [(question, getattr(stages[question.stage], "bounded", None)) for question in engine.heard]
    checked = [outside(*pair) for question, told in asked if told for pair in told(question.parameters)]
    assert len(checked) > 20
    assert not any(checked)
