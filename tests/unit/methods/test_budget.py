"""An honest run of every method asks no more than its budget, and every plan asks no more than the study."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contract.cases import CASES, SLOWEST
from oracle.records import scaling
from oracle.world import STUDY, frames
from unpooled.coordinator.run import run_study
from unpooled.disclosure.bounds import check_finite, check_parameters
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.methods.method import find, settings_of, with_settings
from unpooled.protocol.messages import Ask, Question, Together, Vjp
from unpooled.site.allowance import BEFORE_FITTING, budget_of, stage_budget, theta_of
from unpooled.study import Study


class Counting(InProcess):
    """An engine that counts θ by stage, and checks that every question is within its stage's bounds."""

    def __init__(self, sites: Any) -> None:
        super().__init__(sites)
        self.opened = sites
        self.theta: Counter[str] = Counter()
        self.rounds = 0

    def exchange(self, question: Question) -> Any:
        self.rounds += 1
        self.theta.update(theta_of(question))
        for index, site in enumerate(self.opened.values()):
            asked = question.to_site(index)
            for part in asked.questions if isinstance(asked, Together) else (asked,):
                if isinstance(part, Ask | Vjp):
                    check_parameters(site.adopted.stages[part.stage], part.parameters)
                if isinstance(part, Vjp):
                    check_finite(part.cotangent)
        return super().exchange(question)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case in SLOWEST)) for case in CASES]
)
def test_an_honest_run_stays_within_its_budget_and_bounds(case: str) -> None:
    name, values = CASES[case]
    study = with_settings(STUDY, name, values, seed=1).model_copy(update={"diagnostics": True})
    _stays_within_its_budget(study, frames())


@pytest.mark.slow
@pytest.mark.parametrize("family", ["binary", "count"])
@pytest.mark.parametrize("case", ["fedci", "aipw", "meta_analysis", "causal_rff", "causal_rff, observed"])
def test_so_does_one_of_other_outcomes(case: str, family: str) -> None:
    """Their stages, and the parameters of these, are others."""
    name, values = CASES[case]
    asked = STUDY.with_changes(columns={**STUDY.columns.model_dump(), "family": family})
    study = with_settings(asked, name, values, seed=1)
    made = {"binary": lambda y: (y > y.median()).astype(int), "count": lambda y: y.clip(0).round()}[family]
    _stays_within_its_budget(study, {site: one.assign(y=made(one["y"])) for site, one in frames().items()})


def _stays_within_its_budget(study: Study, tables: dict[str, pd.DataFrame]) -> None:
    sites = open_sites(study, tables, NONE)
    engine = Counting(sites)
    run_study(study, engine)
    adopted = sites["north"].adopted
    assert adopted is not None
    allowed = stage_budget(adopted)
    asked = {stage.partition(":")[0] for stage in engine.theta}
    assert asked <= set(adopted.stages) and any(not stage.startswith("diagnostics/") for stage in asked)
    over = {stage: (count, allowed) for stage, count in engine.theta.items() if count > _most(allowed, stage)}
    assert not over
    fitting = max(adopted.method.most_rounds(adopted.settings), diagnostic_rounds.MOST_ROUNDS)
    assert engine.rounds <= BEFORE_FITTING + fitting <= budget_of(study, 0).rounds


def _most(allowed: dict[str, int], stage: str) -> int:
    return allowed.get(stage.partition(":")[0], 0)


@pytest.mark.parametrize("case", CASES)
def test_plans_are_the_study_and_then_coarser_ones(case: str) -> None:
    name, values = CASES[case]
    method = find(name)
    asked = settings_of(method, values)
    _require_coarser(method, asked)


@pytest.mark.parametrize("name", ["fedci", "causal_rff", "causal_fi", "aipw", "meta_analysis"])
def test_plans_of_a_default_study_are_coarser_too(name: str) -> None:
    method = find(name)
    _require_coarser(method, method.Settings())


@pytest.mark.parametrize("structure", ["projection", "isotropic", "ard", "paper"])
def test_plans_of_a_single_structure_have_no_more_features(structure: str) -> None:
    method = find("fedci")
    _require_coarser(method, method.Settings(structure=structure))  # type: ignore[call-arg]


def _require_coarser(method: Any, asked: Any) -> None:
    known = scaling(3, ("north", "south"), counts=(130, 170), site_distances=0.4 * (1.0 - np.eye(2)))
    plans = method.plans(asked)
    assert plans[0] == asked
    assert len(set(plans)) == len(plans)
    sizes = [(method.folds(plan), method.features(plan, method.context(plan, known, 1))) for plan in plans]
    assert all(folds <= sizes[0][0] and features <= sizes[0][1] for folds, features in sizes)
    assert all(method.most_rounds(plan) <= method.most_rounds(asked) for plan in plans)
    for plan in plans:  # a plan is a study of its own
        context = method.context(plan, known, 1)
        assert settings_of(method, plan.model_dump(mode="json")) == plan
        assert set(method.budget(plan, context)) >= set(method.stages(plan, context))
