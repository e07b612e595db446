"""A site that is to be looked at keeps its limits, and is looked at only where its custodian approved it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.coordinator.agreement import reach_agreement
from unpooled.coordinator.rounds import Conduct
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import ApprovalError, LimitRefusal
from unpooled.methods.aipw import METHOD
from unpooled.methods.diagnostics import study_diagnostics
from unpooled.protocol.messages import Adopt, Adopted, Ask, Refusal, Together
from unpooled.protocol.records import Parameters
from unpooled.site.answer import answer
from unpooled.site.approval import Approvals, permit
from unpooled.site.site import Site
from unpooled.study import ColumnSchema, Schema, Study

STUDY = Study(treatment="w", outcome="y", covariates=["a"], incomplete=["u"], method={"name": "causal_fi"})
SETTINGS = METHOD.Settings(estimator="difference")
"""It holds nobody out: folds are the look's alone."""


def table(rows: int, treated: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, u, y = rng.normal(size=(3, rows))
    u[: rows // 4] = np.nan
    w = rng.permutation(np.arange(rows) < treated).astype(int)
    return pd.DataFrame({"a": a, "u": u, "w": w, "y": y})


def adopt(small: pd.DataFrame, limits: Limits, *, look: bool) -> tuple[dict[str, Site], Adopt]:
    tables = {"big": table(90, 45, 0), "small": small}
    sites, asked = open_sites(STUDY, tables, limits), []

    def procedure() -> Any:
        agreement = yield from reach_agreement(STUDY)
        context = METHOD.context(SETTINGS, agreement.scaling, 0)
        schema, values = (part.model_dump(mode="json") for part in (agreement.schema, SETTINGS))
        asked.append(Adopt(schema, agreement.scaling, "aipw", values, context, 0, tuple(tables), look))
        yield asked[0]

    for _ in Conduct(procedure(), InProcess(sites)):
        pass
    return sites, asked[0]


# ---------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("small", "words"),
    [
        (table(40, 13, 1), "of arm 1"),  # folds of 5, 4 and 4
        (table(40, 26, 1), "of arm 0"),
        (table(11, 5, 1), "4 features for 11 rows"),  # an intercept, a, u, and whether u is missing
    ],
    ids=["few treated", "few others", "features"],
)
def test_limits_hold_for_what_is_looked_at_and_only_then(small: pd.DataFrame, words: str) -> None:
    with pytest.raises(LimitRefusal) as raised:
        adopt(small, Limits(), look=True)
    assert words in str(raised.value)
    assert "site 'small'" in str(raised.value)
    adopt(small, Limits(), look=False)
    adopt(small, NONE, look=True)


def test_at_the_limit_a_site_is_looked_at() -> None:
    adopt(table(30, 15, 1), Limits(), look=True)


def test_what_was_refused_is_not_adopted() -> None:
    sites, question = adopt(table(40, 13, 1), NONE, look=True)
    strict = replace(sites["small"], limits=Limits(), adopted=None)
    assert isinstance(answer(strict, question), Refusal)
    assert strict.adopted is None
    assert isinstance(answer(strict, replace(question, look=False)), Adopted)


def test_a_site_that_is_not_looked_at_has_none_of_those_stages() -> None:
    sites, question = adopt(table(30, 15, 1), NONE, look=False)
    site = sites["small"]
    assert site.adopted is not None
    assert site.adopted.looking is None
    for name in study_diagnostics.stages(question.scaling):
        reply = answer(site, Ask(name, Parameters()))
        assert isinstance(reply, Refusal)
        assert "unknown stage" in reply.found


def test_folds_are_the_looks_own_and_replay_from_the_seed() -> None:
    once, again = (adopt(table(30, 15, 1), NONE, look=True)[0]["small"].adopted for _ in range(2))
    assert once is not None and again is not None
    assert once.looking is not None and again.looking is not None
    np.testing.assert_array_equal(once.looking.fold, again.looking.fold)
    fold, w = np.asarray(once.looking.fold)[:30], np.asarray(once.looking.treatment)[:30]
    for arm in (0, 1):
        assert np.bincount(fold[w == arm]).tolist() == [5, 5, 5]
    assert np.asarray(once.rows.fold)[:30].max() == 0  # the method holds nobody out


# -------------------------------------------------------------------------------- approval

VALUES: dict[str, Any] = {
    "name": "quitting", "treatment": "w", "outcome": "y", "covariates": ["a"], "method": {"name": "aipw"}
}  # fmt: skip
SCHEMA = Schema(covariates=(ColumnSchema(name="a", kind="numeric"),), control="0", treated="1")
ADOPT = Adopt(
    SCHEMA.model_dump(mode="json"), {}, "aipw", METHOD.Settings().model_dump(mode="json"), {}, 0, ("north",)
)


@pytest.mark.parametrize("approved", [True, False])
def test_a_site_is_looked_at_as_its_custodian_approved(approved: bool) -> None:
    study = Study(**VALUES, look=approved)
    permit(study, replace(ADOPT, look=approved))
    otherwise = replace(ADOPT, look=not approved)
    for asked in (otherwise, Together((replace(ADOPT, look=approved), otherwise))):
        with pytest.raises(ApprovalError, match="looked at otherwise"):
            permit(study, asked)


def test_looking_changes_a_study_and_needs_a_new_approval(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path / "approvals.json")
    approvals.decide(Study(**VALUES), approved=True)
    with pytest.raises(ApprovalError, match="a changed version of 'quitting'") as raised:
        approvals.require(Study(**VALUES, look=True))
    assert raised.value.found.endswith(": look")
