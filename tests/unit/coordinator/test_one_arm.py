"""Sites where everybody or nobody was treated: who takes part, and what is said about it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unpooled import AIPW, CausalRFF, FedCI, Limits, MetaAnalysis, Study
from unpooled.diagnostics.preview import preview
from unpooled.diagnostics.study_diagnostics import diagnose, hidden_sites
from unpooled.disclosure.withheld import withheld
from unpooled.errors import DataError

STUDY = Study(treatment="w", outcome="y", covariates=["a", "b"], diagnostics=True)
SIZES = {"trial": 90, "north": 70, "south": 80}


def tables(arms: dict[str, int]) -> dict[str, pd.DataFrame]:
    """An effect of 1 at every site; `arms` names the sites with one arm."""
    rng, made = np.random.default_rng(4), {}
    for site, rows in SIZES.items():
        a, b, noise = rng.normal(size=(3, rows))
        w = np.full(rows, arms[site]) if site in arms else rng.integers(0, 2, rows)
        made[site] = pd.DataFrame({"a": a, "b": b, "w": w, "y": a + w + 0.5 * noise})
    return made


HISTORICAL = tables({"north": 0, "south": 0})
EXTERNAL = tables({"trial": 1, "north": 0, "south": 0})


def test_one_arm_over_all_sites_is_refused() -> None:
    with pytest.raises(DataError, match="exactly two levels over all sites"):
        FedCI().fit(STUDY, tables({site: 0 for site in SIZES}))


def test_methods_that_compare_within_sites_name_these_sites() -> None:
    for model in (MetaAnalysis(), AIPW(), AIPW(estimator="ipw"), AIPW(estimator="difference")):
        with pytest.raises(DataError, match="only controls at 'north' and 'south'"):
            model.fit(STUDY, HISTORICAL)
    with pytest.raises(DataError, match=r"site_terms = 'none'.* With an intercept for each site"):
        AIPW().fit(STUDY, HISTORICAL)


@pytest.mark.parametrize("estimator", ["ipw", "difference"])
def test_means_within_sites_say_what_can_predict_the_arm_that_a_site_lacks(estimator: str) -> None:
    """Regressions in common are no way out for them: what is advised is AIPW, which accepts these sites."""
    own = AIPW(estimator=estimator, site_terms="none")
    with pytest.raises(DataError) as refused:
        own.fit(STUDY, HISTORICAL)
    assert "estimator = 'aipw' with site_terms = 'none'" in refused.value.remedy
    assert f"'{estimator}' has no such regressions" in refused.value.remedy
    study = STUDY.with_changes(
        method={"name": "aipw", "estimator": "aipw", "site_terms": "none"}, diagnostics=False
    )
    assert "outcomes do not depend on the site" in preview(study, HISTORICAL).one_arm[0].words


@pytest.mark.slow
def test_no_site_with_both_arms_fails_a_check_that_says_why() -> None:
    aipw = AIPW(site_terms="none").fit(STUDY, EXTERNAL)
    check = aipw.checks().set_index("name").loc["both arms at the same site"]
    assert not check["passed"] and check["found"] == 0.0
    assert "only treated people at 'trial'; only controls at 'north' and 'south'" in check["words"]
    assert "outcomes do not depend on the site" in check["words"]
    fedci = FedCI(structure="projection", draws=40, evaluations=8).fit(STUDY, EXTERNAL)
    assert "cannot be told apart from the effect" in fedci.checks()["words"].iloc[0]
    both = AIPW().fit(STUDY, tables({}))
    assert "both arms at the same site" not in set(both.checks()["name"])


@pytest.mark.slow
def test_an_empty_arm_is_not_a_small_arm() -> None:
    """Under limits, of which those for arms apply to arms that have people."""
    free, limited = (
        AIPW(site_terms="none").fit(STUDY, HISTORICAL, limits=one)
        for one in (Limits(rows=0, cell=0, share=float("inf")), Limits())
    )
    assert limited.ate() == pytest.approx(free.ate(), abs=0.15)
    assert not limited.diagnostics().hidden
    few = {**HISTORICAL, "north": HISTORICAL["north"].assign(w=(np.arange(SIZES["north"]) < 3).astype(int))}
    with pytest.raises(Exception, match="at least 5 people"):
        AIPW(site_terms="none").fit(STUDY, few, limits=Limits())


@pytest.mark.slow
def test_aipw_does_not_tell_the_effect_of_a_site_that_compares_nobody() -> None:
    """Its scores are right on average over all sites: at one, weighted residuals of an arm do not cancel."""
    model = AIPW(site_terms="none").fit(STUDY, HISTORICAL)
    summary = model.summary()["ate"]
    assert list(summary[summary.isna()].index) == ["north", "south"]
    assert np.isnan(model.ate("north")) and np.isnan(model.ate_interval("north")).all()
    assert list(model.estimates().isna().all(axis=1)) == [False, True, True, False, False]
    assert "people in one arm only" in model.effects(site="north")["note"].iloc[0]
    assert hidden_sites(model.result_)["south"].startswith("nobody was treated")
    whole = AIPW(site_terms="none").fit(STUDY.with_changes(by_site=False), HISTORICAL)
    assert whole.ate() == pytest.approx(model.ate(), abs=0.05)


@pytest.mark.slow
def test_an_interval_is_wider_where_no_site_has_both_arms() -> None:
    """Site shifts are then learned from differences between sites of one arm, and stay with the effect."""
    every = CausalRFF(confounding="observed", frequencies=0, draws=400)
    both, some, none = (
        every.fit(STUDY, made).ate_draws().std() for made in (tables({}), HISTORICAL, EXTERNAL)
    )
    assert both < some and 1.5 * some < none
    alike = CausalRFF(confounding="observed", frequencies=0, site_terms="none", draws=400)
    assert alike.fit(STUDY, EXTERNAL).ate_draws().std() < 0.5 * none


@pytest.mark.slow
def test_site_shifts_of_fedci_widen_the_interval_where_sites_are_unlike() -> None:
    """Shifts of sites with similar covariates are taken to be similar, and hardly add to it there."""
    unlike = {
        site: table.assign(a=table["a"] + place) for place, (site, table) in enumerate(EXTERNAL.items())
    }
    sd = [
        FedCI(structure="projection", draws=200, inter_dependency=shifts).fit(STUDY, unlike).ate_draws().std()
        for shifts in (False, True)
    ]
    assert 1.5 * sd[0] < sd[1]


@pytest.mark.slow
def test_diagnostics_compare_only_sites_with_both_arms() -> None:
    seen = diagnose(STUDY, HISTORICAL)
    assert list(seen.sites["site"]) == ["trial"] and list(seen.leave_one_out["site"]) == ["trial"]
    assert seen.heterogeneity == {}
    weights = seen.weights.set_index(["site", "arm"])["effective"]
    assert np.isnan(weights["north", "treated"]) and weights["north", "control"] > 50.0
    one = seen.table_one.set_index(["site", "feature"]).loc[("north", "a")]
    assert one["treated_people"] == 0 and np.isnan([one["treated_mean"], one["treated_sd"]]).all()
    stacked = pd.concat(HISTORICAL.values())
    means = stacked.groupby("w")["y"].mean()
    difference = seen.comparators.set_index("estimator")["estimate"]["unadjusted difference"]
    assert difference == pytest.approx(means[1] - means[0])


def test_the_preview_says_what_rests_on_other_sites() -> None:
    study = STUDY.with_changes(method={"name": "fedci"})
    found = preview(study, EXTERNAL)
    assert found.overlap["north"].hint == "nobody in the treated arm: the effect here rests on other sites"
    (check,) = found.one_arm
    assert not check.passed and "predicted from other sites" in check.words
    assert preview(study, tables({})).one_arm == ()


def test_a_site_with_one_arm_is_shown_if_it_is_large() -> None:
    counts, arms = {"trial": 60, "north": 50, "south": 40}, np.array([[0, 60], [50, 0], [28, 12]])
    total = arms.sum(axis=0)
    assert withheld(counts, arms, total, one_arm=("trial", "north")) == {}
    assert "trial" in withheld(counts, arms, total)
    small = np.array([[0, 60], [4, 0], [28, 12]])
    assert "north" in withheld({**counts, "north": 4}, small, total, one_arm=("trial", "north"))
