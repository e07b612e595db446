"""Refuting a study: changed tables, what each test finds, what it calls worrying."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.data import check, describe
from unpooled.errors import DataError, StudyError
from unpooled.estimators.robustness.common_cause import with_noise
from unpooled.estimators.robustness.noise_correlation import with_correlation
from unpooled.estimators.robustness.placebo import propensity, shuffled, strata, without_effect
from unpooled.estimators.robustness.subsets import part
from unpooled.study import agree

STUDY = up.Study(treatment="w", outcome="y", covariates=["x1", "x2", "k"])


def tables(
    seed: int, rows: int = 100, *, hidden: float = 0.0, effect: float = 1.0
) -> dict[str, pd.DataFrame]:
    """Three sites, a category among the confounders; `hidden` confounds beyond what is seen."""
    made = {}
    for site in range(3):
        random = np.random.default_rng([seed, site])
        x, u = random.normal(0.3 * site, 1.0, (rows, 2)), random.standard_normal(rows)
        k = random.choice(["a", "b", "c"], rows)
        logit = 0.8 * x[:, 0] - 0.5 * x[:, 1] + 0.5 * (k == "a") + hidden * u
        w = random.binomial(1, 1.0 / (1.0 + np.exp(-logit)))
        mean = x[:, 0] + 0.5 * x[:, 1] + 0.5 * (k == "a") + 0.3 * site + hidden * u
        y, before = mean + effect * w + random.standard_normal(rows), mean + random.standard_normal(rows)
        frame = {"x1": x[:, 0], "x2": x[:, 1], "k": k, "w": w, "y": y, "before": before}
        made[f"site{site}"] = pd.DataFrame(frame)
    return made


@pytest.fixture(scope="module")
def clean() -> dict[str, pd.DataFrame]:
    return tables(7)


@pytest.fixture(scope="module")
def model(clean) -> up.AIPW:
    return up.AIPW(seed=3).fit(STUDY, clean)


def test_a_placebo_keeps_the_arms_of_every_site_and_stratum(clean) -> None:
    table, before = clean["site0"], clean["site0"].copy()
    schema = agree({"site0": describe(table, STUDY.columns)}, STUDY.columns)
    stratum = strata(table, STUDY.columns, schema, site="site0")
    assert np.bincount(stratum).tolist() == [20] * 5
    moved = shuffled(table, stratum, "w", np.random.default_rng(1))
    treated = [frame.groupby(stratum)["w"].sum().tolist() for frame in (table, moved)]
    assert treated[0] == treated[1]
    assert treated[0][0] < treated[0][-1], "the last fifth is the likeliest to be treated"
    assert (moved["w"] != table["w"]).any()
    pd.testing.assert_frame_equal(moved.drop(columns="w"), table.drop(columns="w"))
    pd.testing.assert_frame_equal(table, before)


def test_people_are_alike_by_categories_and_by_values_that_are_seen_but_not_by_what_is_missing() -> None:
    random = np.random.default_rng(2)
    table = pd.DataFrame({"k": random.choice(["a", "b"], 80), "u": random.standard_normal(80), "y": 0.0})
    table["w"] = pd.Categorical(np.where((table["k"] == "a") | (table["u"] > 1.0), "drug", "none"))
    table.loc[(table["w"] == "none") & (random.random(80) < 0.7), "u"] = np.nan  # never when treated
    study = up.Study(treatment="w", outcome="y", covariates="k", incomplete="u", treated="drug")
    schema = agree({"s": describe(table, study.columns)}, study.columns)
    chance = pd.Series(propensity(table, study.columns, schema, site="s"))
    missing, small, large = table["u"].isna(), table["u"] < 0.0, table["u"] > 1.0
    assert chance[table["k"] == "a"].min() > chance[(table["k"] == "b") & ~large].max()
    people = table["k"] == "b"
    assert chance[people & small].median() < chance[people & missing].mean() < chance[people & large].min()
    assert chance[people & missing].nunique() == 1
    moved = shuffled(table, np.zeros(80, dtype=int), "w", random)
    assert moved["w"].dtype == table["w"].dtype
    assert moved["w"].value_counts().to_dict() == table["w"].value_counts().to_dict()


def test_a_small_site_has_fewer_strata(clean) -> None:
    table = clean["site0"].head(25)
    schema = agree({"site0": describe(table, STUDY.columns)}, STUDY.columns)
    assert set(strata(table, STUDY.columns, schema, site="site0")) == {0, 1}
    few = strata(table.head(9), STUDY.columns, schema, site="site0")
    assert set(few) == {0}


@pytest.mark.parametrize("effect", [0.2, -0.2])
@pytest.mark.parametrize("family", ["continuous", "binary", "count"])
def test_the_effect_that_was_found_is_taken_off_the_treated(family: str, effect: float) -> None:
    random = np.random.default_rng(4)
    drawn = {"continuous": random.normal, "binary": partial(random.binomial, 1), "count": random.poisson}
    table = pd.DataFrame({"x": 0.0, "w": random.integers(0, 2, 20_000)})
    table["y"] = drawn[family](0.5 + effect * table["w"])
    study = up.Study(treatment="w", outcome="y", covariates="x", family=family)
    before = table.copy()
    without = without_effect(table, study.columns, "1", effect, random)
    lost = (table["y"] - without["y"])[table["w"] == 1].mean()
    assert lost == pytest.approx(effect, abs=0.015)
    assert np.array_equal(without["y"][table["w"] == 0], table["y"][table["w"] == 0])
    check(without, study.columns, site="s")
    pd.testing.assert_frame_equal(table, before)


def test_an_effect_larger_than_the_outcomes_leaves_what_the_family_allows() -> None:
    table = pd.DataFrame({"x": 0.0, "w": [0, 1] * 20, "y": [0, 0, 1, 1] * 10})
    for family, effect in product(("binary", "count"), (9.0, -9.0)):
        study = up.Study(treatment="w", outcome="y", covariates="x", family=family)
        check(
            without_effect(table, study.columns, "1", effect, np.random.default_rng(1)),
            study.columns,
            site="s",
        )


def test_noise_is_added_and_parts_are_taken_beside_the_table(clean) -> None:
    table, before = clean["site1"], clean["site1"].copy()
    noisy = with_noise(table, "noise", np.random.default_rng(1))
    pd.testing.assert_frame_equal(noisy.drop(columns="noise"), table)
    kept = part(table, "w", np.random.default_rng(1))
    assert kept["w"].value_counts().to_dict() == {
        arm: int(np.ceil(0.8 * count)) for arm, count in table["w"].value_counts().items()
    }
    assert len(kept.merge(table)) == len(kept)
    pd.testing.assert_frame_equal(table, before)


@pytest.mark.slow
def test_clean_data_pass_every_test_and_are_left_as_they_were(clean, model) -> None:
    before = {site: table.copy() for site, table in clean.items()}
    said: list[str] = []
    found = up.refute(model, STUDY, clean, negative_control="before", repeats=2, tell=said.append)
    assert found.worrying == []
    assert found.table["test"].tolist() == [
        "placebo",
        "common_cause",
        "subsets",
        "negative_control",
        "e_value",
    ]
    rows = found.table.set_index("test")
    assert found.main.estimate == model.ate()
    assert abs(rows["estimate"]["common_cause"] - model.ate()) < 0.5 * found.main.sd
    assert abs(rows["estimate"]["subsets"] - model.ate()) < 2.0 * found.main.sd
    assert rows["lower"]["placebo"] < 0.0 < rows["upper"]["placebo"]
    assert all("The result is worrying" in words for words in rows["words"])
    assert said == [
        *(f"{test}, {number} of 2" for test in ("placebo", "common_cause", "subsets") for number in (1, 2)),
        "negative_control",
    ]
    assert found.refits.groupby("test").size().to_dict() == {
        "placebo": 2, "common_cause": 2, "subsets": 2, "negative_control": 1,
    }  # fmt: skip
    for site, table in clean.items():
        pd.testing.assert_frame_equal(table, before[site])


def test_the_same_seed_gives_the_same_numbers_and_a_model_is_fitted_where_it_was_not(clean, model) -> None:
    again = up.refute(up.AIPW(seed=3), STUDY, clean, tests=["placebo"], repeats=2)
    before = up.refute(model, STUDY, clean, tests="placebo", repeats=2)
    pd.testing.assert_frame_equal(again.refits, before.refits)
    assert again.refits["estimate"].nunique() == 2
    other = up.refute(up.AIPW(seed=4), STUDY, clean, tests=["placebo"], repeats=1)
    assert other.refits["estimate"][0] != again.refits["estimate"][0]


def test_an_analysis_that_adjusts_for_nothing_finds_an_effect_of_a_placebo(clean) -> None:
    naive = up.AIPW(seed=3, estimator="difference")
    found = up.refute(naive, STUDY, clean, tests=["placebo"], repeats=1)
    assert found.worrying == ["placebo"]
    assert "Here it excludes 0." in found.table["words"][0]


def test_hidden_confounding_shows_in_a_negative_control() -> None:
    confounded = tables(2, hidden=1.0)
    found = up.refute(up.AIPW(seed=3), STUDY, confounded, tests=["placebo"], negative_control="before")
    assert found.worrying == ["negative_control"], "which no placebo can show"


def test_a_control_of_zeros_and_ones_is_read_as_such(clean) -> None:
    flagged = {site: table.assign(flag=(table["before"] > 0).astype(int)) for site, table in clean.items()}
    study = STUDY.with_changes(columns={**STUDY.columns.model_dump(), "units": {"y": "kg"}})
    found = up.refute(up.AIPW(seed=3), study, flagged, tests=["e_value"], negative_control="flag")
    assert abs(found.table["estimate"][0]) < 1.0
    assert found.table["test"].tolist() == ["negative_control", "e_value"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"tests": ["placbo"]}, "did you mean 'placebo'"),
        ({"tests": ["negative_control"]}, "needs a negative control"),
        ({"tests": ["noise_correlation"]}, "method 'aipw'"),
        ({"negative_control": "x1"}, "no other role"),
        ({"repeats": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_fitted(
    asked: dict[str, Any], told, clean
) -> None:
    with pytest.raises(StudyError, match=told):
        up.refute(up.AIPW(), STUDY, clean, watch=pytest.fail, **asked)


def test_a_control_that_no_site_has_is_refused_with_the_nearest(clean) -> None:
    with pytest.raises(DataError, match="did you mean 'before'"):
        up.refute(up.AIPW(), STUDY, clean, negative_control="befor", watch=pytest.fail)


def test_tables_elsewhere_or_other_tables_are_refused(clean, model) -> None:
    class Far:
        def engine(self, study):
            raise AssertionError

    with pytest.raises(StudyError, match="remote sites"):
        up.refute(model, STUDY, Far())  # pyright: ignore
    changed = {**clean, "site0": clean["site0"].assign(y=clean["site0"]["y"] + 1.0)}
    for other in (changed, {**clean, "site0": clean["site0"].head(90)}, {"site0": clean["site0"]}):
        with pytest.raises(StudyError, match="those that the model was fitted to"):
            up.refute(model, STUDY, other, tests=["e_value"])


def test_a_site_that_the_fit_went_on_without_stays_away(clean, model) -> None:
    lost = up.AIPW(seed=3)
    lost.result_ = replace(model.result_, lost_sites={"site9": "no answer"})
    found = up.refute(lost, STUDY, {**clean, "site9": "nowhere.csv"}, tests=["e_value"])
    assert found.main.estimate == model.ate()


@pytest.mark.thorough
@pytest.mark.slow
def test_another_noise_correlation_needs_no_fit(clean) -> None:
    from unpooled.estimators.robustness.analysis import Analysis

    few = {site: table.head(40) for site, table in clean.items()}
    settings: dict[str, Any] = {
        "seed": 3, "structure": "isotropic", "draws": 40, "basis": 5, "evaluations": 5,
    }  # fmt: skip
    fitted = up.FedCI(**settings).fit(STUDY, few)
    changed = with_correlation(Analysis(fitted, STUDY, few), 0.9)
    anew = up.FedCI(**settings, noise_correlation=0.9).fit(STUDY, few)
    assert anew.ate() == pytest.approx(fitted.ate(), abs=1e-9)
    np.testing.assert_allclose(changed.ite("site1"), anew.ite("site1"), atol=1e-9)
    assert not np.allclose(changed.ite("site1"), fitted.ite("site1"), atol=1e-3)
    found = up.refute(fitted, STUDY, few, tests=["noise_correlation"])
    row = found.table.iloc[0]
    assert row["lower"] <= row["estimate"] <= row["upper"]
    assert not row["worrying"]
    assert "of people have an effect with the sign of the average" in row["words"]


@pytest.mark.slow
@pytest.mark.thorough
def test_the_interval_of_a_placebo_holds_0_as_often_as_it_should() -> None:
    held = 0
    for seed in range(100):
        found = up.refute(up.AIPW(seed=seed), STUDY, tables(seed + 1000), tests=["placebo"], repeats=1)
        held += not found.worrying
    assert held >= 93
