"""A site keeps its limits when it is asked for diagnostics, and answers only as its custodian approved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oracle.records import scaling
from unpooled.coordinator.agreement import reach_agreement
from unpooled.coordinator.rounds import Conduct
from unpooled.coordinator.run import adoption
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import ApprovalError, LimitRefusal
from unpooled.methods import method as methods
from unpooled.methods.aipw import METHOD
from unpooled.methods.diagnostics import rounds
from unpooled.protocol.messages import Adopt, Adopted, Ask, Refusal
from unpooled.protocol.records import Parameters
from unpooled.site.answer import answer
from unpooled.site.approval import Approvals, permit
from unpooled.site.site import Site
from unpooled.study import ColumnSchema, Schema, Study

STUDY = Study(treatment="w", outcome="y", covariates=["a"], incomplete=["u"], method={"name": "causal_fi"})
SETTINGS = METHOD.Settings(estimator="difference")
"""It holds nobody out: only the diagnostics have folds."""


def table(rows: int, treated: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, u, noise = rng.normal(size=(3, rows))
    y = rng.permutation(np.arange(rows) % 2 * 2 - 1) + 0.1 * noise  # nobody is far from the others
    u[: rows // 4] = np.nan
    w = rng.permutation(np.arange(rows) < treated).astype(int)
    return pd.DataFrame({"a": a, "u": u, "w": w, "y": y})


def adopt(small: pd.DataFrame, limits: Limits, *, diagnostics: int) -> tuple[dict[str, Site], Adopt]:
    tables = {"big": table(170, 85, 0), "small": small}
    sites, asked = open_sites(STUDY, tables, limits), []

    def procedure() -> Any:
        agreement = yield from reach_agreement(STUDY)
        study = methods.with_settings(STUDY, "aipw", {"estimator": "difference"})
        study = study.model_copy(update={"diagnostics": diagnostics > 0})
        asked.append(adoption(study, agreement.schema, agreement.scaling, diagnostics))
        yield asked[0]

    for _ in Conduct(procedure(), InProcess(sites)):
        pass
    return sites, asked[0]


# ---------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("small", "words", "folds"),
    [
        (table(160, 59, 1), "groups of 19 people, the smaller arm divided into 3", 3),
        (table(160, 101, 1), "groups of 19 people, the smaller arm divided into 3", 3),
        (
            table(40, 11, 1),
            "4 features for groups of 11 people",
            1,
        ),  # an intercept, a, u, and whether missing
    ],
    ids=["few treated", "few others", "features"],
)
def test_limits_hold_for_diagnostics_and_only_if_they_are_asked_for(
    small: pd.DataFrame, words: str, folds: int
) -> None:
    with pytest.raises(LimitRefusal) as raised:
        adopt(small, Limits(), diagnostics=folds)
    assert words in str(raised.value)
    assert "site 'small'" in str(raised.value)
    adopt(small, Limits(), diagnostics=0)
    adopt(small, NONE, diagnostics=folds)
    if folds > 1:
        adopt(small, Limits(), diagnostics=1)  # without folds, the smaller arm is the smallest group


def test_at_the_limit_a_site_answers() -> None:
    adopt(table(130, 60, 1), Limits(), diagnostics=3)  # folds of 20 people: 4 times `cell`
    adopt(table(40, 12, 1), Limits(), diagnostics=1)  # 4 features for 12 people: a third


def test_what_was_refused_is_not_adopted() -> None:
    sites, question = adopt(table(40, 13, 1), NONE, diagnostics=3)
    strict = replace(sites["small"], limits=Limits(), adopted=None)
    assert isinstance(answer(strict, question), Refusal)
    assert strict.adopted is None
    assert isinstance(answer(strict, replace(question, diagnostics=0)), Adopted)


def test_without_diagnostics_a_site_has_none_of_their_stages() -> None:
    sites, question = adopt(table(30, 15, 1), NONE, diagnostics=0)
    site = sites["small"]
    assert site.adopted is not None
    assert site.adopted.diagnostic_rows is None
    for name in rounds.stages(question.scaling):
        reply = answer(site, Ask(name, Parameters()))
        assert isinstance(reply, Refusal)
        assert "unknown stage" in reply.found


def test_diagnostics_have_folds_of_their_own_that_replay_from_the_seed() -> None:
    once, again = (adopt(table(30, 15, 1), NONE, diagnostics=3)[0]["small"].adopted for _ in range(2))
    assert once is not None and again is not None
    assert once.diagnostic_rows is not None and again.diagnostic_rows is not None
    np.testing.assert_array_equal(once.diagnostic_rows.fold, again.diagnostic_rows.fold)
    fold, w = np.asarray(once.diagnostic_rows.fold)[:30], np.asarray(once.diagnostic_rows.treatment)[:30]
    for arm in (0, 1):
        assert np.bincount(fold[w == arm]).tolist() == [5, 5, 5]
    assert np.asarray(once.rows.fold)[:30].max() == 0  # the method holds nobody out


# -------------------------------------------------------------------------------- approval

VALUES: dict[str, Any] = {
    "name": "quitting", "treatment": "w", "outcome": "y", "covariates": ["a"], "method": {"name": "aipw"}
}  # fmt: skip
SCHEMA = Schema(covariates=(ColumnSchema(name="a", kind="numeric"),), control="0", treated="1")
SCALING = scaling(features=1)
ADOPT = adoption(
    methods.with_explicit_settings(Study(**VALUES)),
    SCHEMA,
    SCALING,
)


def test_a_site_answers_diagnostics_with_the_folds_its_custodian_approved_or_fewer() -> None:
    study = methods.with_explicit_settings(Study(**VALUES, diagnostics=True))
    for folds in rounds.PLANS:
        permit(study, replace(ADOPT, diagnostics=folds))
    for folds in (2, 4, 50, -1):
        with pytest.raises(ApprovalError, match="other settings to adopt"):
            permit(study, replace(ADOPT, diagnostics=folds))


def test_a_site_answers_no_diagnostics_that_its_custodian_did_not_approve() -> None:
    study = methods.with_explicit_settings(Study(**VALUES, diagnostics=False))
    permit(study, replace(ADOPT, diagnostics=0))
    for folds in (1, 2, 3, True):
        with pytest.raises(ApprovalError, match="diagnostics to adopt"):
            permit(study, replace(ADOPT, diagnostics=folds))


def test_diagnostics_change_a_study_and_need_a_new_approval(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path / "approvals.json")
    approvals.decide(Study(**VALUES), approved=True)
    with pytest.raises(ApprovalError, match="a changed version of 'quitting'") as raised:
        approvals.require(Study(**VALUES, diagnostics=True))
    assert raised.value.found.endswith(": diagnostics")
