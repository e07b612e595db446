"""Run a study from its first question to its result, with progress, journal, resumption and lost sites."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unpooled.coordinator import left_out
from unpooled.coordinator.agreement import Agreement, reach_agreement
from unpooled.coordinator.checkpoint import Checkpoint, earlier, set_aside, writing
from unpooled.coordinator.duplicates import leave_out_copies, words
from unpooled.coordinator.journal import Journal
from unpooled.coordinator.lock import alone
from unpooled.coordinator.one_arm import one_arm_checks
from unpooled.coordinator.plan import choose_plan
from unpooled.coordinator.result import StudyResult
from unpooled.coordinator.rounds import Conduct, Round
from unpooled.disclosure.private_files import replace_file
from unpooled.errors import FitError, SiteLost
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics, Unavailable
from unpooled.methods.method import Fit
from unpooled.models.over_all_sites import as_one_site
from unpooled.optimise.procedure import Procedure, ask_each, side_by_side
from unpooled.protocol.engine import Engine
from unpooled.protocol.messages import Adopt
from unpooled.protocol.records import Scaling
from unpooled.protocol.stage import Stage
from unpooled.study import Schema, Study
from unpooled.study.subgroups import listed

ROUNDS_BEFORE_FITTING = 4
"""Describe, two rounds of sums, adopt."""
LOST_SITES = "lost_sites.json"
WITHOUT_SITES = "they compare sites, and the study leaves out effects by site"

Watcher = Callable[[Round], None]


def run_study(
    study: Study,
    engine: Engine,
    *,
    watch: Watcher | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    journal: Path | None = None,
) -> StudyResult:
    """Fit a study over an engine's sites.

    Parameters
    ----------
    study : Study
        The question, with the method and its settings.
    engine : Engine
        How messages reach the sites.
    watch : callable, optional
        Called with every finished `Round`.
    checkpoint : path, optional
        Where every round is recorded; with `resume`, the study continues from there.
    journal : path, optional
        Where one JSON line per round is written.
    """
    if checkpoint is None:
        return _run(study, engine, watch, None, resume, journal)
    with alone(checkpoint.parent):
        return _run(study, engine, watch, checkpoint, resume, journal)


def _run(
    study: Study,
    engine: Engine,
    watch: Watcher | None,
    checkpoint: Path | None,
    resume: bool,
    journal: Path | None,
) -> StudyResult:
    study = methods.with_explicit_settings(study)
    record = Journal(journal)
    stored = None if checkpoint is None else _opened(checkpoint, resume)
    folder = None if checkpoint is None else checkpoint.parent
    lost = LostSites(engine, study.min_sites, folder, resume=resume)
    while True:
        conduct = Conduct(study_procedure(study), engine, stored)
        try:
            for happened in conduct:
                record.record(happened)
                if watch is not None:
                    watch(happened)
            break
        except SiteLost as error:
            lost.lose(error)
            if checkpoint is not None:
                set_aside(checkpoint)
                stored = Checkpoint(checkpoint)
    return _result(conduct.result, study.hash, record, lost.reasons)


def _opened(checkpoint: Path, resume: bool) -> Checkpoint:
    if not resume:
        with writing(checkpoint.parent):
            for one in earlier(checkpoint):
                one.unlink()
    return Checkpoint(checkpoint, resume=resume)


@dataclass(frozen=True)
class Fitted:
    """The return value of a study's procedure."""

    study: Study
    """The study as it was run, with the settings of its plan."""
    agreement: Agreement
    notes: tuple[str, ...]
    context: object
    fit: Fit
    diagnostics: DiagnosticStatistics | Unavailable | None


def study_procedure(study: Study) -> Procedure[Fitted]:
    """A whole study as one procedure: people at several sites are left out, then agree, adopt and fit.

    Diagnostics run in the same rounds as the fit.
    """
    copies = None if study.duplicates == "ignore" else (yield from leave_out_copies(study))
    agreement = yield from reach_agreement(study)
    plan = choose_plan(study, agreement)
    method = methods.find(study.method.name)
    settings = methods.settings_of(method, plan.study.method.settings)
    context = method.context(settings, agreement.scaling, study.seed)
    names = [one.name for one in listed(study.subgroups, agreement.schema)]
    adopted = yield from ask_each(adoption(plan.study, agreement.schema, agreement.scaling, plan.diagnostics))
    notes = (
        *(() if copies is None else words(copies, study)),
        *(() if agreement.left_out is None else left_out.words(agreement.left_out)),
        *_weighted(agreement),
        *plan.notes,
        *_left_out({site: reply.left_out for site, reply in adopted.items()}),
        *_without({site: reply.without_subgroups for site, reply in adopted.items()}),
    )
    fit = _named(method.fit(settings, context, study.seed), names)
    if not study.by_site:
        fit = _over_all_sites(fit, method.stages(settings, context))
    if not plan.diagnostics:
        reason = "a site is too small for them under its limits" if study.by_site else WITHOUT_SITES
        missing = Unavailable(reason) if study.diagnostics else None
        return Fitted(plan.study, agreement, notes, context, (yield from fit), missing)
    diagnose = diagnostic_rounds.diagnose(agreement.scaling, plan.diagnostics)
    found, diagnostics = yield from side_by_side(fit, diagnose)
    return Fitted(plan.study, agreement, notes, context, found, diagnostics)


def _over_all_sites(fit: Procedure[Fit], stages: Mapping[str, Stage]) -> Procedure[Fit]:
    """A fit without effects by site."""
    found = yield from as_one_site(fit, stages)
    return replace(found, outcomes=found.outcomes.over_all_sites())


def _weighted(agreement: Agreement) -> Iterator[str]:
    if agreement.effective is not None:
        people = agreement.scaling.people
        yield f"{people:,} people with sampling weights count as {agreement.effective:,.0f} of equal weight"


def _left_out(columns: dict[str, tuple[str, ...]]) -> Iterator[str]:
    for site, names in columns.items():
        if names:
            columns_of = ", ".join(names)
            yield f"site '{site}' leaves out columns in which too few of its people differ: {columns_of}"


def _without(subgroups: dict[str, tuple[str, ...]]) -> Iterator[str]:
    for site, names in subgroups.items():
        if names:
            groups = ", ".join(names)
            yield (
                f"the people of site '{site}' do not count in these subgroups, because sums over few of them "
                f"would follow: {groups}"
            )


def _named(fit: Procedure[Fit], names: Sequence[str]) -> Procedure[Fit]:
    """A fit whose mean outcomes have the names of the study's subgroups.

    A method without means by group has none of them.
    """
    found = yield from fit
    outcomes = found.outcomes
    groups = outcomes.sample.shape[2]
    if groups == len(outcomes.groups):
        return found
    if groups != len(outcomes.groups) + len(names):
        raise FitError(
            "a method must tell the mean outcomes of every subgroup",
            found=f"{groups - len(outcomes.groups)} for {len(names)} subgroups",
            remedy="report this as a bug",
        )
    return replace(found, outcomes=outcomes.named(names))


def adoption(study: Study, schema: Schema, scaling: Scaling, diagnostics: int | None = None) -> Adopt:
    """The question that makes the sites adopt a study, whose settings must all be filled in."""
    default = diagnostic_rounds.FOLDS if study.diagnostics and study.by_site else 0
    return Adopt(
        schema=schema,
        scaling=scaling,
        method=study.method.name,
        settings=study.method.settings,
        seed=study.seed,
        sites=scaling.site_names,
        diagnostics=default if diagnostics is None else diagnostics,
        by_site=study.by_site,
        subgroups=study.subgroups,
    )


class LostSites:
    """Sites that became unreachable, with the reason; stored next to the checkpoint for resumption."""

    def __init__(self, engine: Engine, least: int | None, folder: Path | None, *, resume: bool) -> None:
        self._engine, self._least = engine, least
        self._path = None if folder is None else folder / LOST_SITES
        self.reasons: dict[str, str] = {}
        if resume and self._path is not None and self._path.exists():
            self.reasons = json.loads(self._path.read_text(encoding="utf-8"))
            for site in self.reasons:
                engine.exclude(site)

    def lose(self, lost: SiteLost) -> None:
        """Continue with the other sites, or raise if too few remain."""
        others = len(self._engine.sites) - 1
        if self._least is None or others < self._least:
            raise lost
        self._engine.exclude(lost.site)
        self.reasons[lost.site] = lost.reason
        if self._path is not None:
            with writing(self._path.parent):
                replace_file(self._path, json.dumps(self.reasons).encode())


def _result(found: Fitted, asked: str, journal: Journal, lost: dict[str, str]) -> StudyResult:
    scaling = found.agreement.scaling
    return StudyResult(
        study=found.study,
        asked=asked,
        notes=found.notes,
        schema=found.agreement.schema,
        scaling=scaling,
        context=found.context,
        draws=found.fit.draws,
        average_outcomes=found.fit.outcomes.scaled(scaling.outcome_mean, scaling.outcome_sd),
        fit_diagnostics=found.fit.diagnostics,
        fit_checks=(
            *one_arm_checks(found.study, scaling),
            *left_out.checks(found.agreement.left_out),
            *found.fit.checks,
        ),
        calibration=found.fit.calibration,
        noise_of_arms=found.fit.noise_of_arms,
        diagnostic_statistics=found.diagnostics,
        cost=journal.cost(),
        lost_sites=lost,
        rounds=tuple(journal.rounds),
    )
