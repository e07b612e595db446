"""Preview of a study: whether the sites agree, what would leave them, and what their limits would refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import numpy as np

from unpooled.coordinator.agreement import Agreement, reach_agreement
from unpooled.coordinator.journal import Journal, line
from unpooled.coordinator.one_arm import one_arm_checks
from unpooled.coordinator.plan import Plan, choose_plan
from unpooled.coordinator.rounds import Conduct
from unpooled.coordinator.run import adoption
from unpooled.data import Table
from unpooled.data.stored_columns import column, sentinel
from unpooled.diagnostics.duplicates import Duplicates, duplicates_of, leave_out_here
from unpooled.diagnostics.missingness import Missingness, of_agreed
from unpooled.diagnostics.overlap import Overlap, overlaps
from unpooled.disclosure.limits import NONE, Limits
from unpooled.disclosure.reveals import Line, left, reveals
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import LimitRefusal, Problems
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.methods.outcome_words import outcome_words
from unpooled.methods.settings import MethodSettings
from unpooled.protocol.codec import encode
from unpooled.protocol.duplicate_messages import AboutPeople
from unpooled.protocol.messages import Adopted, Question, Refusal, question_kinds
from unpooled.protocol.records import Arrays, Check, Parameters
from unpooled.protocol.stage import Objective, Stage
from unpooled.protocol.table_messages import Describe, Summarise
from unpooled.site.answer import answer
from unpooled.site.site import Site
from unpooled.study import Study


@dataclass(frozen=True)
class Leaving:
    """A kind of message that would leave a site; `size` is that of one reply, None if not yet known."""

    kind: str
    size: int | None
    reveals: str


@dataclass(frozen=True)
class Preview:
    """The results of the agreement rounds."""

    agreement: Agreement
    overlap: dict[str, Overlap]
    leaving: list[Leaving]
    refusals: dict[str, list[str]]
    """What each site would refuse under the default limits."""
    notes: tuple[str, ...]
    """What the plan would change under the default limits."""
    codes: list[str]
    """Values that may be codes for missing values, as sentences."""
    missingness: Missingness | None = None
    outcome_words: str = ""
    """How the outcome is read and modelled, and how to overrule it."""
    duplicates: Duplicates | None = None
    """People who are at several sites; None without an `id`."""
    one_arm: tuple[Check, ...] = ()
    """What the study rests on if sites have people in one arm only; empty if none has."""


def preview(study: Study, sites: Mapping[str, Table] | None = None) -> Preview:
    """Run only the agreement rounds, and predict what a complete run would send."""
    method = methods.find(study.method.name)
    problems, settings, opened = Problems(), None, {}
    with problems.collected():
        settings = methods.settings_of(method, study.method.settings)
    with problems.collected():
        opened = open_sites(study, sites, NONE)
    problems.raise_all()
    assert settings is not None
    engine = InProcess(opened)
    duplicates = duplicates_of(opened)
    leave_out_here(study, engine)
    conduct = Conduct(reach_agreement(study), engine)
    journal = Journal()
    for happened in conduct:
        journal.record(happened)
    agreement = conduct.result
    context = method.context(settings, agreement.scaling, study.seed)
    strict = replace(agreement, limits=dict.fromkeys(agreement.limits, Limits()))
    plan = planned(study, strict)
    questions = first_questions(plan, agreement)
    lines = [line(happened) for happened in journal.rounds]
    stages = diagnostic_rounds.of_study(study, method.stages(settings, context), agreement.scaling)
    about_people = question_kinds(AboutPeople).values()
    leaving = [Leaving(kind.words, None, kind.reply.reveals) for kind in about_people if kind.concerns(study)]
    leaving += expected_messages(stages, settings, len(agreement.schema.features), lines)
    refusals = {name: refused(site, questions) for name, site in opened.items()}
    return Preview(
        agreement,
        overlaps(agreement.descriptions, agreement.schema),
        leaving,
        refusals,
        plan.notes,
        _codes(opened, study),
        of_agreed(agreement, engine) if study.columns.modelled else None,
        outcome_words(study, agreement.scaling.family),
        duplicates,
        one_arm_checks(study, agreement.scaling),
    )


def _codes(sites: Mapping[str, Site], study: Study) -> list[str]:
    """Possible codes for missing values; a code is not a person's value, so it may be shown."""
    found = []
    for name in (*study.columns.covariates, *study.columns.incomplete):
        for site, one in sites.items():
            code = sentinel(column(one.frame, name))
            if code is not None:
                found.append(
                    f"'{name}' at site '{site}': {code[1]} values are {code[0]:g}, far from the others"
                )
    return found


def planned(study: Study, agreement: Agreement) -> Plan:
    """The plan under the limits of an agreement; if there is none, the study as it is, which sites refuse."""
    try:
        return choose_plan(study, agreement)
    except LimitRefusal:
        folds = diagnostic_rounds.FOLDS if study.diagnostics else 0
        return Plan(methods.with_explicit_settings(study), folds)


def first_questions(plan: Plan, agreement: Agreement) -> list[Question]:
    """The questions to every site before the first stage."""
    adopting = adoption(plan.study, agreement.schema, agreement.scaling, plan.diagnostics)
    return [Describe(plan.study.columns), Summarise(agreement.schema, by_site=plan.study.by_site), adopting]


def refused(site: Site, questions: list[Question], limits: Limits | None = None) -> list[str]:
    """What a site would refuse under `limits`, by default the default limits; the site is not changed."""
    strict = replace(site, limits=Limits() if limits is None else limits)
    replies = [answer(strict, question) for question in questions]
    found = [f"{reply.expected}; found {reply.found}" for reply in replies if isinstance(reply, Refusal)]
    return list(dict.fromkeys(found))


def expected_messages(
    stages: Mapping[str, Stage], settings: MethodSettings, features: int, lines: list[Line]
) -> list[Leaving]:
    """All kinds of messages: sizes measured in the agreement, and from the statistics' shapes for stages."""
    measured = next(iter(left(lines, stages).values()))
    found = [Leaving(one["kind"], one["bytes"] // one["count"], one["reveals"]) for one in measured]
    found.append(Leaving("adopt", len(encode(Adopted(rows=0))), reveals("adopt", stages)))
    # If structures are weighted, minimisation asks for all rows and for each fold in one exchange.
    problems = 1 + getattr(settings, "folds", 0) if "held_out" in stages else 1
    for name, stage in stages.items():
        for kind, size in _sizes(name, stage, settings, features, problems).items():
            label = f"{name}: {kind}"
            found.append(Leaving(label, size, reveals(label, stages)))
    return found


def _sizes(
    name: str, stage: Stage, settings: MethodSettings, features: int, problems: int
) -> dict[str, int | None]:
    """Bytes of a reply to this many problems, by kind of question."""
    if name.startswith("effect"):
        draws = getattr(settings, "draws", None)
        return {"statistics": None if draws is None else 8 * draws}
    structure = getattr(stage, "structure", None)
    free: Arrays = {}
    if structure is not None and hasattr(structure, "start"):
        free = structure.start(np.ones((2, features)), np.ones(2))
    sizes = {"statistics": _shape_bytes(stage, free, features)}
    if isinstance(stage, Objective):
        sizes["gradient"] = _bytes(free) or None
    return {kind: None if size is None else size * problems for kind, size in sizes.items()}


def _shape_bytes(stage: Stage, free: Arrays, features: int) -> int | None:
    """The size of the statistics from their shapes, without computing them."""
    from unpooled.protocol.rows import make_rows

    people = np.zeros(2)
    rows = make_rows(np.zeros((2, features)), people, people, fold=people, site=0)
    parameters = Parameters(free, {"fold": np.array(-1), "noise": np.zeros(2)})
    try:
        return _bytes(jax.eval_shape(stage.statistics, parameters, rows))
    except (KeyError, AttributeError, TypeError, IndexError, ValueError):
        return None  # the stage needs more parameters, so its size is unknown before it runs


def _bytes(tree: object) -> int:
    return sum(int(np.prod(leaf.shape)) * 8 for leaf in jax.tree.leaves(tree))
