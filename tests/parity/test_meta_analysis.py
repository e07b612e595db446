"""Pooling against numbers worked by hand, a plain version and statsmodels; then sites by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.meta_analysis import combine_effects

from oracle import aipw as oracle
from oracle.world import STUDY, frames
from unpooled import MetaAnalysis
from unpooled.errors import FitError
from unpooled.maths.meta_analysis import heterogeneity, pool, random_effects, shrunken
from unpooled.methods.aipw.group_means import GroupEstimates
from unpooled.methods.aipw.model import Estimates, of_scores, stacked_scores
from unpooled.methods.meta_analysis.draws import outcome_draws

SIZES = {"north": 40, "south": 65, "east": 50}
TABLES = frames(SIZES, seed=3)
RIDGE, TRIM = 0.7, 0.05


def fit(tables: dict[str, pd.DataFrame], **settings: Any) -> MetaAnalysis:
    return MetaAnalysis(**{"seed": 5, "ridge": RIDGE, "trim": TRIM, **settings}).fit(STUDY, tables)


# ------------------------------------------------------------------------------- pooling


def test_three_studies_by_hand() -> None:
    """Weights 4, 1, 4: μ = (4·1 + 2 + 4·4)/9 = 22/9; Q = 4(13/9)² + (4/9)² + 4(14/9)² = 1476/81 = 164/9.

    c = 9 − 33/9 = 16/3, so τ² = (164/9 − 2)/(16/3) = 73/24; I² = (164/9 − 2)/(164/9) = 73/82.
    """
    estimates, errors = np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.0, 0.5])
    fixed, spread = pool(estimates, errors), heterogeneity(estimates, errors)
    assert fixed.estimate == pytest.approx(22 / 9)
    assert fixed.error == pytest.approx(1 / 3)
    np.testing.assert_allclose(fixed.weights, [4 / 9, 1 / 9, 4 / 9])
    assert spread.q == pytest.approx(164 / 9)
    assert spread.degrees == 2
    assert spread.p_value == pytest.approx(np.exp(-82 / 9))  # chi-squared with two degrees
    assert spread.i_squared == pytest.approx(73 / 82)
    assert spread.tau_squared == pytest.approx(73 / 24)
    # 1/(1/4 + 73/24) = 24/79 and 1/(1 + 73/24) = 24/97.
    random = pool(estimates, errors, spread.tau_squared)
    weights = np.array([1 / 79, 1 / 97, 1 / 79])
    assert random.estimate == pytest.approx(weights @ estimates / weights.sum())
    assert random.error == pytest.approx((24 * weights.sum()) ** -0.5)


def test_studies_that_agree_have_no_spread_and_one_study_is_itself() -> None:
    alike = heterogeneity(np.array([2.0, 2.1, 1.9]), np.ones(3))
    assert (alike.i_squared, alike.tau_squared) == (0.0, 0.0)
    assert heterogeneity(np.array([2.0, 2.0]), np.ones(2))[:4] == (0.0, 1, 1.0, 0.0)
    assert heterogeneity(np.array([2.0]), np.array([0.5])) == (0.0, 0, 1.0, 0.0, 0.0)
    assert pool(np.array([2.0]), np.array([0.5]))[:2] == (2.0, 0.5)


@pytest.mark.parametrize("seed", range(4))
def test_pooling_is_that_of_statsmodels_and_of_a_plain_version(seed: int) -> None:
    rng = np.random.default_rng(seed)
    errors = rng.uniform(0.1, 1.0, size=6)
    estimates = 1.0 + 0.4 * seed * rng.normal(size=6) + errors * rng.normal(size=6)
    peer = combine_effects(estimates, errors**2, method_re="dl")
    plain = oracle.meta_analysis([*estimates], [*errors])
    spread = heterogeneity(estimates, errors)
    fixed, random = pool(estimates, errors), pool(estimates, errors, spread.tau_squared)
    np.testing.assert_allclose(spread.q, [peer.q, plain["q"]])
    np.testing.assert_allclose(spread.i_squared, [max(peer.i2, 0.0), plain["i_squared"]])
    np.testing.assert_allclose(spread.tau_squared, [max(peer.tau2, 0.0), plain["tau_squared"]], atol=1e-12)
    np.testing.assert_allclose(spread.p_value, peer.test_homogeneity().pvalue)
    np.testing.assert_allclose(fixed[:2], [plain["fixed"], plain["fixed_error"]])
    np.testing.assert_allclose(fixed[:2], [peer.mean_effect_fe, peer.sd_eff_w_fe])
    np.testing.assert_allclose(random[:2], [plain["random"], plain["random_error"]])
    if peer.tau2 > 0.0:
        np.testing.assert_allclose(random[:2], [peer.mean_effect_re, peer.sd_eff_w_re])
        # statsmodels has Hartung and Knapp's error as it was, and it can be smaller than the usual one.
        plainly = max(peer.sd_eff_w_re_hksj, peer.sd_eff_w_re)
        np.testing.assert_allclose(random_effects(estimates, errors, peer.tau2).error, plainly)
    assert random_effects(estimates, errors, spread.tau_squared).error == pytest.approx(
        plain["hartung_knapp"]
    )


def test_shrunken_effects_are_the_posterior_of_a_normal_model() -> None:
    """By conditioning the joint normal of effects and estimates, the mean μ being known."""
    estimates, errors, tau_squared, mean = np.array([1.0, 3.0]), np.array([0.5, 2.0]), 0.8, 1.7
    found = shrunken(estimates, errors, tau_squared)
    gain = tau_squared / (tau_squared + errors**2)
    np.testing.assert_allclose(found.constant + found.slope * mean, mean + gain * (estimates - mean))
    np.testing.assert_allclose(found.sd**2, tau_squared * (1.0 - gain))


# ---------------------------------------------------------------------------------- draws


def test_draws_of_sites_are_shrunken_and_share_the_mean() -> None:
    """And the mean under control is the site's own, of which the estimate goes with that of the effect."""
    sites = Estimates(np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.0, 0.5]))
    people, tau_squared = np.array([30.0, 20.0, 50.0]), heterogeneity(*sites).tau_squared
    control, own = np.array([3.0, -1.0, 0.0]), np.array([0.4, 0.6, 0.8])
    covariance = np.zeros((3, 2, 2))
    covariance[:, 0, 0], covariance[:, 1, 1] = sites.error**2, own**2
    covariance[:, 0, 1] = covariance[:, 1, 0] = -0.7 * sites.error * own
    both = GroupEstimates(np.stack([sites.estimate, control], axis=1), covariance, people[:, None])
    outcomes, weight = outcome_draws(both, random=True, count=4000, seed=1)
    np.testing.assert_array_equal(weight[:, 0], people)
    drawn, controls = outcomes[:, :, 0, 1] - outcomes[:, :, 0, 0], outcomes[:, :, 0, 0]
    gain, pooled = tau_squared / (tau_squared + sites.error**2), pool(*sites, tau_squared)
    middle = pooled.estimate + gain * (sites.estimate - pooled.estimate)
    covariance = np.outer(1.0 - gain, 1.0 - gain) * pooled.error**2 + np.diag(gain * sites.error**2)
    np.testing.assert_allclose(drawn.mean(axis=0), middle, atol=1e-9)
    np.testing.assert_allclose(np.cov(drawn.T, bias=True), covariance, atol=0.03)
    share = people / people.sum()
    np.testing.assert_allclose((drawn @ share).mean(), share @ middle)
    np.testing.assert_allclose((drawn @ share).var(), share @ covariance @ share, rtol=0.01)
    # Given the effect, the mean under control is normal about its regression on the effect.
    slope = -0.7 * own / sites.error
    np.testing.assert_allclose(controls.mean(axis=0), control + slope * (middle - sites.estimate), atol=1e-9)
    rest = controls - slope * drawn
    np.testing.assert_allclose(rest.var(axis=0), own**2 * (1.0 - 0.49), rtol=1e-6)
    assert np.max(np.abs(np.corrcoef(rest.T, drawn.T)[:3, 3:])) < 0.05


def test_groups_are_pooled_by_themselves_over_the_sites_that_have_them() -> None:
    rng = np.random.default_rng(5)
    wide = rng.normal(size=(4, 6, 9))
    estimate, covariance = rng.normal(size=(4, 6)), wide @ np.swapaxes(wide, 1, 2) / 20.0
    people = np.array([[50.0, 20.0, 9.0], [40.0, 30.0, 0.0], [60.0, 0.0, 12.0], [30.0, 10.0, 7.0]])
    found = GroupEstimates(estimate, covariance, people)
    for random in (True, False):
        outcomes, weight = outcome_draws(found, random=random, count=1000, seed=2)
        effects = outcomes[..., 1] - outcomes[..., 0]
        for group in range(3):
            here = people[:, group] > 0.0
            own = estimate[here, 2 * group], np.sqrt(covariance[here, 2 * group, 2 * group])
            tau_squared = heterogeneity(*own).tau_squared if random else 0.0
            gain, mean = tau_squared / (tau_squared + own[1] ** 2), pool(*own, tau_squared).estimate
            np.testing.assert_allclose(
                effects[:, here, group].mean(axis=0), mean + gain * (own[0] - mean), atol=1e-9
            )
            np.testing.assert_array_equal(weight[:, group], people[:, group])
        assert np.all(np.isfinite(outcomes))


@pytest.mark.slow
def test_with_fixed_effects_the_average_is_the_pooled_estimate() -> None:
    model = fit(TABLES, pooling="fixed")
    known = model.estimates().loc["fixed effects"]
    assert model.ate() == pytest.approx(known["estimate"])
    assert model.ate_draws().std() == pytest.approx(known["standard_error"])
    assert model.ate("north") == pytest.approx(known["estimate"])
    assert model.result_.fit_diagnostics["overall"] is model.result_.fit_diagnostics["fixed"]


# ---------------------------------------------------------------------------------- sites


@pytest.mark.slow
@pytest.mark.parametrize("folds", [1, 3])
def test_sites_by_themselves_and_then_pooled_are_the_plain_version(folds: int) -> None:
    model = fit(TABLES, folds=folds)
    table, sd = oracle.table_of(model), model.result_.outcome_sd
    chosen: dict[str, Any] = {"trim": TRIM, "folds": folds, "offsets": False}
    chosen["ridge"] = oracle.Ridge(RIDGE, RIDGE, RIDGE)
    found = []
    for site in range(3):
        psi = [oracle.scores(table.at(site), **chosen, draw=draw) for draw in range(len(table.folds))]
        found.append(oracle.over_draws(*zip(*(oracle.mean_and_error(one) for one in psi), strict=True)))
    estimates, errors = ([sd * one for one in part] for part in zip(*found, strict=True))
    known = oracle.meta_analysis(estimates, errors)
    numbers = model.estimates()
    pooled = [known["fixed"], known["random"], known["random"]]
    np.testing.assert_allclose(numbers["estimate"], [*estimates, *pooled], rtol=1e-8)
    another = np.sqrt(known["tau_squared"] + known["hartung_knapp"] ** 2)
    both = [known["fixed_error"], known["hartung_knapp"], another]
    np.testing.assert_allclose(numbers["standard_error"], [*errors, *both], rtol=1e-8)
    reach = (numbers["upper"] - numbers["estimate"]) / numbers["standard_error"]
    np.testing.assert_allclose(reach, [1.959964] * 4 + [4.302653] * 2, rtol=1e-6)  # t with 2 degrees
    told = model.result_.fit_diagnostics["random"]
    np.testing.assert_allclose(
        [told["lower"], told["upper"]], numbers.loc["random effects", ["lower", "upper"]]
    )
    ends = [told["prediction_lower"], told["prediction_upper"]]
    np.testing.assert_allclose(ends, numbers.loc["another site", ["lower", "upper"]].to_numpy(float))
    for name in ("q", "i_squared", "tau_squared"):
        np.testing.assert_allclose(model.heterogeneity()[name], known[name], rtol=1e-7, atol=1e-12)
    assert model.result_.fit_diagnostics["overall"] is model.result_.fit_diagnostics["random"]


@pytest.mark.slow
def test_one_site_is_its_own_pooled_estimate() -> None:
    model = fit({"north": TABLES["north"]})
    numbers = model.estimates()["estimate"].to_numpy()
    np.testing.assert_allclose(numbers, numbers[0])
    assert model.ate() == pytest.approx(numbers[0])
    assert model.heterogeneity()["q"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("offset", "noise"), [(0.0, 0.0), (3e4, 0.0), (0.0, 1e-9)])
def test_a_site_whose_scores_differ_by_rounding_is_refused(offset: float, noise: float) -> None:
    """Its standard error is rounding, whatever the machine's rounding is, and would get it all the weight."""
    north = TABLES["north"]
    shifts = noise * np.random.default_rng(1).standard_normal(len(north))
    flat = north.assign(y=offset + north["w"].astype(float) + shifts)
    others = {name: table.assign(y=table["y"] + offset) for name, table in TABLES.items()}
    with pytest.raises(FitError, match="standard error"):
        fit({**others, "north": flat}, ridge=1e-12)


def test_scores_are_pooled_without_subtracting_large_numbers() -> None:
    """One sum of squares less another loses all digits here: the mean is 1e9 times the sd."""
    rng = np.random.default_rng(3)
    parts = [1e9 + rng.standard_normal(size) for size in (40, 25)]
    sums = {
        "people": np.array([len(part) for part in parts], dtype=float),
        "weight": np.array([len(part) for part in parts], dtype=float),
        "mean": np.array([part.mean() for part in parts]),
        "squares": np.array([((part - part.mean()) ** 2).sum() for part in parts]),
    }
    everybody = np.concatenate(parts)
    found = of_scores(stacked_scores(sums))
    np.testing.assert_allclose(found.estimate, everybody.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.error, everybody.std(ddof=1) / np.sqrt(len(everybody)), rtol=1e-6)
