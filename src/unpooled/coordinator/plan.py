"""The plan of a study: its settings as asked, or coarser ones that every site's limits allow.

Sites state their limits when they describe their tables, so that the coordinator can choose a plan before
any statistics are requested. A site accepts only plans that the approved study offers (`Method.plans`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from unpooled.coordinator.agreement import Agreement
from unpooled.disclosure.limits import Limits, fewest_in_arm, group_problem
from unpooled.errors import LimitRefusal
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.methods.settings import MethodSettings
from unpooled.protocol.records import Scaling
from unpooled.study import Study


@dataclass(frozen=True)
class Plan:
    """The study as it is run, the folds of its diagnostics (0: none), and what differs from the study."""

    study: Study
    diagnostics: int
    notes: tuple[str, ...] = ()


def choose_plan(study: Study, agreement: Agreement) -> Plan:
    """The first plan of the method that respects the limits of every site."""
    method = methods.find(study.method.name)
    asked = methods.settings_of(method, study.method.settings)
    problems: Mapping[str, str] = {}
    for settings in method.plans(asked):
        context = method.context(settings, agreement.scaling, study.seed)
        problems = _problems(agreement, method.features(settings, context), method.folds(settings))
        if not problems:
            folds = _diagnostic_folds(study, agreement)
            chosen = methods.with_settings(study, study.method.name, settings.model_dump(mode="json"))
            return Plan(chosen, folds, (*_changes(asked, settings), *_fewer_folds(study, folds)))
    raise LimitRefusal(
        "every site must be large enough for the method, under the site's limits",
        found="; ".join(f"site '{site}': {problem}" for site, problem in problems.items()),
        remedy="use fewer covariates, merge levels, or leave these sites out of the study",
    )


def smallest_arms(study: Study, scaling: Scaling, limits: Limits) -> dict[str, int]:
    """By plan of the study, in words: the smallest arm of a site with these limits that may take part in it.

    A plan is mentioned only if it admits smaller arms than those before it.
    """
    method = methods.find(study.method.name)
    asked = methods.settings_of(method, study.method.settings)
    found: dict[str, int] = {}
    for settings in method.plans(asked):
        features = method.features(settings, method.context(settings, scaling, study.seed))
        people = fewest_in_arm(limits, features, method.folds(settings))
        if people < min(found.values(), default=people + 1):
            found[", ".join(_changes(asked, settings)) or "as asked"] = people
    return found


def most_numbers(study: Study, scaling: Scaling) -> int:
    """About how many numbers a site sends at most: the products of all features in both arms, at every θ."""
    method = methods.find(study.method.name)
    settings = methods.settings_of(method, study.method.settings)
    context = method.context(settings, scaling, study.seed)
    # A draw of the folds counts as features of its own for the limits, but its θ are in the budget already.
    features = method.features(settings, context) // settings.fold_draws
    stages = method.stages(settings, context)
    asked = sum(count for name, count in method.budget(settings, context).items() if name in stages)
    return asked * features * (features + 1)


def _problems(agreement: Agreement, features: int, folds: int) -> Mapping[str, str]:
    found = {
        site: group_problem(agreement.limits[site], features, tuple(described.arms.values()), folds)
        for site, described in agreement.descriptions.items()
    }
    return {site: problem for site, problem in found.items() if problem is not None}


def _diagnostic_folds(study: Study, agreement: Agreement) -> int:
    if not (study.diagnostics and study.by_site):
        return 0
    features = diagnostic_rounds.features(agreement.scaling)
    offered = diagnostic_rounds.PLANS
    return next((folds for folds in offered if not folds or not _problems(agreement, features, folds)), 0)


def _changes(asked: MethodSettings, chosen: MethodSettings) -> Iterable[str]:
    """The settings that differ, as sentences."""
    before, now = asked.model_dump(mode="json"), chosen.model_dump(mode="json")
    for name, value in now.items():
        if value != before[name]:
            yield f"{name} = {value} instead of {before[name]}"


def _fewer_folds(study: Study, folds: int) -> Iterable[str]:
    if study.diagnostics and not study.by_site:
        yield "diagnostics not computed, because they compare sites"
    elif study.diagnostics and folds != diagnostic_rounds.FOLDS:
        how = "without cross-fitting" if folds else "not computed"
        yield f"diagnostics {how}"
