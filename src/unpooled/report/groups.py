"""Average effects by group of people in result.json and the report; groups of few people are withheld."""

from __future__ import annotations

from typing import cast

import numpy as np

from unpooled.coordinator.result import StudyResult
from unpooled.disclosure.withheld import withheld
from unpooled.effects.contrasts import THROUGH_INFINITY
from unpooled.estimators import Estimator
from unpooled.protocol.records import CONTROLS, EVERYBODY, OVERLAP, TREATED
from unpooled.report.content import records
from unpooled.report.json_types import AverageEffect, GroupEffects, SubgroupEffect, SubgroupTest
from unpooled.study.subgroups import Subgroup, is_rule, listed

REST = "people in none of these groups"


def known_subgroups(result: StudyResult) -> list[Subgroup]:
    """The study's subgroups whose effects the method estimates."""
    groups = result.average_outcomes.groups
    return [one for one in listed(result.study.subgroups, result.schema) if one.name in groups]


def hidden_groups(result: StudyResult) -> dict[str, str]:
    """Groups that are not shown, with reasons: those of few people, and those from which these follow."""
    outcomes = result.average_outcomes
    people = dict(
        zip(outcomes.groups, np.rint(outcomes.weight.sum(axis=0)).astype(int).tolist(), strict=True)
    )
    together = [[TREATED, CONTROLS]] if TREATED in people else []
    for entry in result.study.subgroups:
        together.append([one.name for one in known_subgroups(result) if one.entry == entry])
    hidden: dict[str, str] = {}
    for names in together:
        counts = {name: people[name] for name in names if people[name]}
        counts[REST] = people[EVERYBODY] - sum(counts.values())
        hidden |= withheld({name: count for name, count in counts.items() if count > 0}, kind="group")
    return {name: why for name, why in hidden.items() if name != REST}


def group_effects(model: Estimator, alpha: float) -> list[GroupEffects]:
    """Mean outcomes and effects of all groups that may be shown."""
    result = model.result_
    outcomes, hidden = result.average_outcomes, hidden_groups(result)
    people = outcomes.weight.sum(axis=0)
    return [
        {
            "group": group,
            # The overlap population weights people, so that it has no number of them.
            "people": None if group == OVERLAP else round(float(count)),
            "effects": [
                cast(AverageEffect, {**row, "two_parts": row["note"] == THROUGH_INFINITY})
                for row in records(model.effects(group, alpha=alpha).droplevel("group").reset_index())
            ],
        }
        for group, count in zip(outcomes.groups, people, strict=True)
        if group not in hidden
    ]


def subgroup_effects(model: Estimator, alpha: float) -> list[SubgroupEffect]:
    """The table of `model.gate()` without groups of few people."""
    named = known_subgroups(model.result_)
    if not named:
        return []
    entries, hidden = {one.name: one.entry for one in named}, hidden_groups(model.result_)
    shown = model.gate(alpha=alpha).drop(index=list(hidden), errors="ignore").reset_index()
    rows = [{"by": entries[str(row["group"])], **row} for row in records(shown)]
    return cast(list[SubgroupEffect], rows)


def subgroup_tests(model: Estimator) -> list[SubgroupTest]:
    """For each column by which the study groups people: do the effects differ?"""
    named, subgroups = known_subgroups(model.result_), model.result_.study.subgroups
    hidden = {one.entry for one in named if one.name in hidden_groups(model.result_)}
    entries = dict.fromkeys(one.entry for one in named if not is_rule(subgroups[one.entry]))
    tests: list[SubgroupTest] = []
    for by in entries:
        found = model.gate_test(by)
        if by not in hidden and found.degrees:
            tests.append({"by": by, **found._asdict()})  # type: ignore[typeddict-item]
    return tests
