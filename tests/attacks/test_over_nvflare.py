"""Attacks A to D live: three site processes with mutual TLS, and a coordinator who means ill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from engines.stage import approve, on_stage, study
from unpooled.coordinator.agreement import Agreement, reach_agreement
from unpooled.coordinator.rounds import run
from unpooled.coordinator.run import adoption
from unpooled.engines.nvflare.rehearsal import Rehearsal
from unpooled.protocol.engine import Engine
from unpooled.protocol.messages import Adopted, Ask, Question, Refusal, Statistics
from unpooled.protocol.records import Parameters
from unpooled.study import Study

pytestmark = pytest.mark.slow

PLAIN = {"aggregation": "plain"}
"""The limits must hold without masks."""
AIPW = study("attacked", method={"name": "aipw", "draws": 40, "folds": 1}, privacy=PLAIN)
SMALL = {"name": "fedci", "structure": "isotropic", "basis": 10, "draws": 40}
FEDCI = study("attacked", method=SMALL, privacy=PLAIN)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with on_stage(tmp_path_factory.mktemp("attacked"), AIPW) as everybody:
        yield everybody


def kinds(engine: Engine, question: Question) -> set[type]:
    """The kinds of the sites' replies."""
    return {type(reply) for reply in engine.exchange(question)[0].values()}


def agreed(engine: Engine, asked: Study) -> Agreement:
    found = run(reach_agreement(asked), engine)
    assert kinds(engine, adoption(asked, found.schema, found.scaling)) == {Adopted}
    return found


def test_folds_and_scores(stage: Rehearsal) -> None:
    with stage.remote().engine(AIPW) as engine:
        found = agreed(engine, AIPW)
        adopt = adoption(AIPW, found.schema, found.scaling)
        # A: other names move a site's place, hence its folds.
        assert kinds(engine, replace(adopt, sites=("dummy", *adopt.sites))) == {Refusal}
        # B: the sums without a fold, of a study that has none, are those of everybody or of nobody.
        everybody = {"without": np.array([-1])}
        assert kinds(engine, Ask("outcome", Parameters(fixed=everybody))) == {Statistics}
        # C: coefficients that turn a sigmoid into a step, and scores under many coefficients.
        for size, expected in ((1e9, Refusal), (0.5, Statistics)):
            own = {"treatment": np.full((1, 3, 4), size)}
            assert kinds(engine, Ask("treatment", Parameters(fixed=everybody, per_site=own))) == {expected}
        for size, expected in ((0.5, Statistics), (0.6, Refusal)):
            own = {"treatment": np.full((1, 3, 1, 4), size), "outcome": np.zeros((1, 3, 1, 2, 4))}
            assert kinds(engine, Ask("scores", Parameters(per_site=own))) == {expected}


def test_basis_functions_that_are_spikes(stage: Rehearsal) -> None:
    approve(stage, FEDCI)
    with stage.remote().engine(FEDCI) as engine:
        agreed(engine, FEDCI)
        arms = np.array([[-0.3, 0.0, -0.3]])
        free = {
            "arms": arms,
            "linear": arms,
            "propensity_slope": np.zeros(1),
            "shift": arms,
            "noise": np.zeros((1, 2)),
            "closeness": np.zeros(1),
        }
        fixed = {"fold": [-1], "noise": [[0.0, 0.0]], "direction": np.ones((1, 2, 3)), "rows": [[9.0, 9.0]]}
        given = {name: np.asarray(value) for name, value in fixed.items()}
        for length, expected in ((np.log(1e-4), Refusal), (0.0, Statistics)):
            asked = {**free, "length": np.full((1, 1), length)}
            assert kinds(engine, Ask("isotropic", Parameters(asked, given))) == {expected}
