"""The plan of a study: the first of the method's that every site's limits allow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracle.records import scaling
from oracle.world import STUDY, frames
from unpooled.coordinator.agreement import Agreement
from unpooled.coordinator.plan import choose_plan, smallest_arms
from unpooled.coordinator.run import run_study
from unpooled.disclosure.limits import NONE, Limits, group_problem
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import LimitRefusal
from unpooled.methods.causal_fi import METHOD
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.methods.method import find, settings_of, with_settings
from unpooled.protocol.records import IncompleteColumn, SiteSummaries
from unpooled.study import ColumnSchema, Description, Schema, Study

NAMES = ("a", "b", "c")


def agreement(limits: Limits = Limits(), **arms: int) -> Agreement:
    """Sites with this many people in their smaller arm."""
    columns = tuple(ColumnSchema(name=name, kind="numeric") for name in NAMES)
    descriptions = {
        name: Description(rows=3 * smaller, arms={"0": 2 * smaller, "1": smaller}, columns=columns)
        for name, smaller in arms.items()
    }
    sites = tuple(arms)
    known = scaling(
        len(NAMES),
        sites,
        counts=tuple(3 * smaller for smaller in arms.values()),
        site_distances=1.0 - np.eye(len(sites)),
    )
    schema = Schema(covariates=columns, control="0", treated="1")
    return Agreement(schema, known, descriptions, dict.fromkeys(sites, limits))


def asked(name: str = "fedci", **more: object) -> Study:
    values = {key: value for key, value in more.items() if key != "diagnostics"}
    study = with_settings(STUDY, name, values)
    return study.model_copy(update={"diagnostics": bool(more.get("diagnostics"))})


def test_large_sites_run_the_study_as_it_was_asked() -> None:
    for method in ("fedci", "causal_rff", "causal_fi", "aipw", "meta_analysis"):
        study = asked(method, diagnostics=True)
        found = choose_plan(study, agreement(north=5000, south=6000))
        assert (found.study, found.diagnostics, found.notes) == (study, diagnostic_rounds.FOLDS, ())


@pytest.mark.parametrize("method", ["fedci", "causal_rff", "aipw", "meta_analysis"])
@pytest.mark.parametrize("smaller", [30, 60, 70, 100, 150, 300, 600, 1200])
def test_the_first_plan_that_fits_every_site_is_chosen(method: str, smaller: int) -> None:
    study, known = asked(method), agreement(north=smaller, south=4000)
    one = find(method)

    def fits(settings: object) -> bool:
        features = one.features(settings, one.context(settings, known.scaling, study.seed))  # type: ignore[arg-type]
        folds = one.folds(settings)  # type: ignore[arg-type]
        return group_problem(Limits(), features, (smaller, 2 * smaller), folds) is None

    plans = one.plans(settings_of(one, study.method.settings))
    first = next(place for place, plan in enumerate(plans) if fits(plan))
    found = choose_plan(study, known)
    assert found.study.method.settings == plans[first].model_dump(mode="json")
    assert bool(found.notes) == (first > 0)


@pytest.mark.parametrize(("smaller", "weighted"), [(400, False), (4000, True)])
def test_small_sites_with_limits_are_not_asked_for_thousands_of_likelihoods(
    smaller: int, weighted: bool
) -> None:
    known = agreement(north=smaller, south=6000)
    column = IncompleteColumn("u", "numeric", 1)
    counts = SiteSummaries(known.scaling.site_names, known.scaling.counts, np.full((2, 1), smaller))
    wider = replace(
        known.scaling, incomplete_columns=(column,), incomplete_mean=np.zeros(1), incomplete_sd=np.ones(1),
        by_site=counts,
    )  # fmt: skip
    found = choose_plan(asked("causal_fi"), replace(known, scaling=wider))
    settings = settings_of(METHOD, found.study.method.settings)
    assert settings.model_dump()["importance"] == weighted
    stages = METHOD.stages(settings, METHOD.context(settings, wider, 0))  # type: ignore[arg-type]
    assert ("likelihood/linear" in stages) == weighted


@pytest.mark.parametrize("method", ["fedci", "causal_rff", "causal_fi", "aipw", "meta_analysis"])
def test_the_smallest_arms_are_those_for_which_a_plan_is_chosen(method: str) -> None:
    study = asked(method)
    found = smallest_arms(study, agreement(north=9999).scaling, Limits())
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert next(iter(found)) == "as asked"
    for plan, smaller in found.items():
        chosen = choose_plan(study, agreement(north=smaller))
        assert (", ".join(chosen.notes) or "as asked") == plan
    with pytest.raises(LimitRefusal):
        choose_plan(study, agreement(north=min(found.values()) - 1))


def test_the_notes_say_what_differs_from_the_study_as_asked() -> None:
    found = choose_plan(asked(), agreement(north=70, south=4000))
    assert found.notes == (
        "structure = isotropic instead of auto",
        "basis = 10 instead of 40",
    )
    assert choose_plan(asked("aipw"), agreement(north=59, south=4000)).notes == ("folds = 1 instead of 3",)


@pytest.mark.parametrize(
    ("smaller", "folds", "note"),
    [
        (60, 3, None),
        (59, 1, "diagnostics without cross-fitting"),
        (18, 1, "diagnostics without cross-fitting"),
        (17, 0, "diagnostics not computed"),
    ],
)
def test_diagnostics_have_as_many_folds_as_every_site_allows(
    smaller: int, folds: int, note: str | None
) -> None:
    """They have six features: a constant, a, b, c, u, and whether u is missing."""
    known = agreement(north=smaller, south=4000)
    incomplete = {"incomplete_columns": (IncompleteColumn("u", "numeric", 1),)}
    moments = {"incomplete_mean": np.zeros(1), "incomplete_sd": np.ones(1)}
    known = replace(known, scaling=replace(known.scaling, **incomplete, **moments))
    assert diagnostic_rounds.features(known.scaling) == 6
    found = choose_plan(asked("aipw", estimator="difference", diagnostics=True), known)
    assert found.diagnostics == folds
    assert found.notes == (() if note is None else (note,))
    without = choose_plan(asked("aipw", estimator="difference"), known)
    assert (without.diagnostics, without.notes) == (0, ())


def test_a_study_that_no_plan_makes_possible_is_refused_by_the_names_of_the_sites() -> None:
    with pytest.raises(LimitRefusal) as raised:
        choose_plan(asked(), agreement(north=9, south=4000, east=4))
    text = str(raised.value)
    assert "site 'north': 4 features for groups of 9 people" in text
    assert "site 'east': groups of 4 people" in text
    assert "south" not in text


def test_every_site_is_held_to_its_own_limits() -> None:
    known = agreement(north=200, south=200)
    lenient = replace(known, limits={"north": NONE, "south": NONE})
    strict = replace(known, limits={"north": NONE, "south": Limits(cell=20)})
    assert choose_plan(asked("aipw"), lenient).notes == ()
    assert choose_plan(asked("aipw"), known).notes == ()
    assert choose_plan(asked("aipw"), strict).study.method.settings["folds"] == 1


def test_a_study_with_a_coarser_plan_runs_and_says_so() -> None:
    study = asked("aipw", draws=40, folds=4, diagnostics=True)
    tables = {
        name: table.assign(y=np.arange(len(table)) // 2 % 2 * 2.0 - 1.0 + 0.1 * np.tanh(table["y"]))
        for name, table in frames({"north": 150, "south": 300}).items()
    }
    found = run_study(study, InProcess(open_sites(study, tables, Limits())))
    assert found.study.method.settings["folds"] == 1
    assert found.notes == ("folds = 1 instead of 4",)
    assert found.diagnostic_statistics is not None
    plain = run_study(study, InProcess(open_sites(study, tables, NONE)))
    assert plain.notes == () and plain.study == study
