"""CausalRFF as its users meet it: sites that differ, what it refuses, what it gets along with."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.data.simulation import simulate
from unpooled.errors import DataError, LimitRefusal, StudyError

QUICK = {"draws": 40, "classes": 3, "starts": 2, "rounds": 8, "sweeps": 6}
pytestmark = pytest.mark.slow


def tables(sites: int = 2, rows: int = 60) -> dict[str, pd.DataFrame]:
    made = simulate("causalrff-same", sites=sites, rows=rows, seed=3, coefficient_seed=4).frames
    return {site: frame[["x1", "x2", "x3", "x4", "x5", "w", "y"]].copy() for site, frame in made.items()}


def study(**changed: object) -> up.Study:
    return up.Study(
        **{
            "treatment": "w",
            "outcome": "y",
            "covariates": ["x1", "x2", "x3", "x4", "x5"],
            **changed,
        }  # type: ignore[arg-type]
    )


@pytest.mark.thorough
def test_one_site_works_and_there_is_nobody_to_borrow_from() -> None:
    model = up.CausalRFF(seed=1, **QUICK).fit(study(), tables(sites=1))
    assert np.isfinite(model.ate())
    lower, upper = model.ate_interval()
    assert lower < model.ate() < upper


def test_more_classes_than_the_data_bear_are_refused_before_anything_is_fitted() -> None:
    with pytest.raises(StudyError, match="at most classes = 4"):
        up.CausalRFF(seed=1, **{**QUICK, "classes": 7}).fit(study(), tables(rows=12))


def test_constant_covariates_are_refused_by_name() -> None:
    made = tables()
    for frame in made.values():
        frame["x3"] = 1
    with pytest.raises(DataError, match="x3"):
        up.CausalRFF(seed=1, **QUICK).fit(study(), made)


@pytest.mark.thorough
def test_a_covariate_that_separates_the_arms_of_a_site_is_refused_unless_chance_may_do_it() -> None:
    made = tables()
    made["site1"]["x2"] = made["site1"]["w"]
    with pytest.raises(DataError, match=r"'x2' separates the arms exactly at site 'site1'"):
        up.CausalRFF(seed=1, **QUICK).fit(study(), made)
    few = tables()
    few["site1"]["w"] = [0, 0, *[1] * 58]
    few["site1"]["x2"] = few["site1"]["w"]
    assert np.isfinite(up.CausalRFF(seed=1, **QUICK).fit(study(), few).ate())


@pytest.mark.thorough
def test_categorical_proxies_take_part() -> None:
    made = tables()
    for index, frame in enumerate(made.values()):
        frame["ward"] = np.random.default_rng(index).choice(["a", "b", "c"], len(frame))
    model = up.CausalRFF(seed=1, **QUICK).fit(study(covariates=["x1", "x2", "x3", "x4", "x5", "ward"]), made)
    people = made["site1"].drop(columns=["w", "y"]).head(3)
    assert np.all(np.isfinite(model.effect(people, site="site1")))


@pytest.mark.thorough
def test_a_binary_outcomes_effects_are_differences_of_chances() -> None:
    made = tables()
    for frame in made.values():
        frame["y"] = (frame["y"] > frame["y"].median()).astype(int)
    for confounding in ("observed", "latent"):
        settings = {"draws": 40} if confounding == "observed" else QUICK
        model = up.CausalRFF(seed=1, confounding=confounding, **settings).fit(study(family="binary"), made)
        draws = model.effect_draws(made["site1"].drop(columns=["w", "y"]), site="site1")
        assert np.all(np.abs(draws) < 1.0)
        assert set(np.unique(np.round(model.ite_draws("site1"), 9))) <= {-1.0, 0.0, 1.0}
        treated, control = (made["site1"].loc[made["site1"]["w"] == arm, "y"].mean() for arm in (1, 0))
        assert model.ate("site1") == pytest.approx(treated - control, abs=0.35)


@pytest.mark.thorough
@pytest.mark.parametrize("site_terms", ["covariance", "transfer"])
def test_sites_hold_together_in_any_way_with_a_binary_outcome_too(site_terms: str) -> None:
    made = tables(sites=3)
    for frame in made.values():
        frame["y"] = (frame["y"] > frame["y"].median()).astype(int)
    model = up.CausalRFF(seed=1, confounding="observed", site_terms=site_terms, draws=40)
    model.fit(study(family="binary"), made)
    assert -1.0 < model.ate_interval()[0] < model.ate() < model.ate_interval()[1] < 1.0
    shares = model.borrowed()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-9)
    assert (np.diag(shares) > 0.2).all()


@pytest.mark.parametrize("site_terms", ["offsets", "deviations"])
def test_small_sites_get_fewer_frequencies_and_too_small_ones_are_refused(site_terms: str) -> None:
    """Sums that the coordinator only needs over all sites leave each site too, so they count as well."""
    plain = {"confounding": "observed", "draws": 40, "site_terms": site_terms}
    limits = up.Limits(cell=0)
    noise = np.random.default_rng(0).normal(size=60)
    made = {site: frame.assign(x1=frame["x1"] + noise) for site, frame in tables(rows=60).items()}
    model = up.CausalRFF(seed=1, **plain).fit(study(), made, limits=limits)
    assert np.isfinite(model.ate())
    (note,) = model.result_.notes
    chosen, asked = re.fullmatch(r"frequencies = (\d+) instead of (\d+)", note).groups()  # type: ignore[union-attr]
    assert int(chosen) < int(asked) == up.CausalRFF().frequencies
    with pytest.raises(LimitRefusal, match=r"site 'site1': 6 features for groups of \d people"):
        up.CausalRFF(seed=1, **plain).fit(study(), tables(rows=20), limits=limits)


def test_a_shifted_site_does_not_pull_the_first_ones_effects_along() -> None:
    """Outcomes of the second site are ten higher: the first one's effects are as if they were not."""
    made = tables()
    alike = up.CausalRFF(seed=1, confounding="observed", draws=100).fit(study(), made)
    shifted = {site: frame.copy() for site, frame in made.items()}
    shifted["site2"]["y"] += 10.0
    moved = up.CausalRFF(seed=1, confounding="observed", draws=100).fit(study(), shifted)
    people = made["site1"].drop(columns=["w", "y"])
    change = moved.effect(people, site="site1") - alike.effect(people, site="site1")
    assert np.abs(change).max() < 0.5
