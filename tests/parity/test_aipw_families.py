"""Outcome regressions of 0/1 outcomes and counts: those of one table and of statsmodels; possible effects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import expit

from oracle import aipw as oracle
from oracle.penalties import GRID, treatment_fits
from parity.test_aipw import RIDGE, TRIM
from unpooled import AIPW, MetaAnalysis, Study
from unpooled.maths.linear_algebra import unpack
from unpooled.methods.aipw.model import PooledRegressions
from unpooled.methods.aipw.newton import about_rates
from unpooled.methods.aipw.settings import AIPWContext, outcome_family
from unpooled.methods.aipw.stages import Outcome, OutcomeLikelihood
from unpooled.protocol.records import Limits, Parameters
from unpooled.protocol.rows import make_rows

pytestmark = pytest.mark.filterwarnings("ignore::unpooled.errors.FailedCheckWarning")
STUDY = Study(treatment="w", outcome="y", covariates=["a", "b"])
SIZES = {"north": 120, "south": 160, "east": 140}


def tables(family: str, seed: int = 4) -> dict[str, pd.DataFrame]:
    """Outcomes of rare events, or counts with twice the variance of Poisson's."""
    rng, found = np.random.default_rng(seed), {}
    for site, (name, count) in enumerate(SIZES.items()):
        a, b = rng.normal(size=(2, count))
        w = (rng.random(count) < expit(0.5 * a - 0.3 * b + 0.3 * site - 0.3)).astype(int)
        predictor = 0.6 * a + 0.4 * b * w + 0.3 * site + 0.5 * w
        if family == "binary":
            y = (rng.random(count) < expit(predictor - 1.5)).astype(int)
        else:
            y = rng.poisson(np.exp(predictor) * rng.gamma(2.0, 0.5, count))
        found[name] = pd.DataFrame({"a": a, "b": b, "w": w, "y": y})
    return found


def fit(family: str, method: type[AIPW] | type[MetaAnalysis] = AIPW, **settings: Any) -> Any:
    given: dict[str, Any] = {"seed": 5, "ridge": RIDGE, "trim": TRIM, **settings}
    model = method(**given).fit(STUDY, tables(family))
    assert model.result_.family == family
    return model


def own_units(model: Any) -> oracle.Table:
    """The sites' rows with outcomes as they are in the tables."""
    table = oracle.table_of(model)
    scaling = model.result_.scaling
    return replace(table, y=np.round(scaling.outcome_mean + scaling.outcome_sd * table.y))


FAMILIES = pytest.mark.parametrize("family", ["binary", "count"])


@pytest.mark.slow
@FAMILIES
@pytest.mark.parametrize("folds", [1, 3])
def test_over_sites_means_are_those_of_one_table(family: str, folds: int) -> None:
    model = fit(family, folds=folds, repeats=1, draws=200)
    table, ridge = own_units(model), oracle.Ridge(RIDGE, RIDGE, RIDGE)
    e, mu = oracle.cross_fitted(table, ridge=ridge, trim=TRIM, folds=folds, offsets=True, family=family)
    drawn = model.result_.average_outcomes.population
    for site in range(3):
        here = table.site == site
        parts = table.y[here], table.w[here], e[here], mu[here], np.zeros((0, here.sum()))
        means, covariance, _ = oracle.doubly_robust_means(*parts)
        np.testing.assert_allclose(drawn[:, site].mean(axis=0), means, rtol=1e-6)
        both = drawn[:, site].reshape(200, -1)
        np.testing.assert_allclose(np.cov(both.T, bias=True), covariance, rtol=1e-5, atol=1e-9)
    assert model.result_.fit_diagnostics["outcome_newton"]["converged"]


@pytest.mark.slow
def test_penalties_predict_people_who_are_held_out_about_as_well_as_any() -> None:
    """They are chosen by quadratic likelihoods; here every regression is fitted to its people."""
    model = fit("binary", ridge=None, repeats=1)
    table = own_units(model)
    X, width = oracle.design_of(table, offsets=True), 1 + table.x.shape[1]
    found = model.result_.fit_diagnostics["ridge"]
    for arm, name in enumerate(("outcome_control", "outcome_treated")):
        here = table.w == arm
        fits = np.array(treatment_fits(X[here], table.y[here], table.folds[:, here], width))
        assert fits[np.argmin(np.abs(np.array(GRID) - found[name]))] > fits.max() - 0.25
        assert fits.min() < fits.max() - 5.0


@pytest.mark.slow
@FAMILIES
def test_without_penalty_it_is_aipw_with_the_models_of_statsmodels(family: str) -> None:
    """Over four sites that are taken to be comparable, against one table."""
    model = fit(family, ridge=1e-7, folds=1, site_terms="none", draws=200)
    table = pd.concat(tables(family).values(), ignore_index=True)
    y, w = table["y"].to_numpy(float), table["w"].to_numpy()
    X = sm.add_constant(table[["a", "b"]].to_numpy())
    e = np.clip(sm.Logit(w, X).fit(disp=0).predict(X), TRIM, 1.0 - TRIM)
    kind = sm.families.Binomial() if family == "binary" else sm.families.Poisson()
    mu = np.stack([sm.GLM(y[w == arm], X[w == arm], kind).fit().predict(X) for arm in (0, 1)], axis=1)
    means, _, _ = oracle.doubly_robust_means(y, w, e, mu, np.zeros((0, len(y))))
    found = model.result_.average_outcomes.overall("population").mean(axis=0)
    np.testing.assert_allclose(found, means, rtol=1e-5)
    # Conditional effects are those of g-computation, whose average is near that of AIPW.
    effects = model.effect_draws(table, site="south").mean(axis=0)
    np.testing.assert_allclose(np.corrcoef(effects, mu[:, 1] - mu[:, 0])[0, 1], 1.0, atol=0.01)
    if family == "count":
        known = [sm.GLM(y[w == arm], X[w == arm], kind).fit(scale="X2").scale for arm in (0, 1)]
        noise = model.result_.draws.by_site["noise"][0, 0]
        rates = [y[w == arm].mean() for arm in (0, 1)]
        np.testing.assert_allclose(1.0 + noise * rates, known, rtol=1e-3)


@pytest.mark.slow
@FAMILIES
@pytest.mark.parametrize("method", [AIPW, MetaAnalysis])
def test_effects_of_people_are_possible(family: str, method: type[AIPW] | type[MetaAnalysis]) -> None:
    model = fit(family, method, ridge=None)
    table = tables(family)["south"].assign(a=lambda one: 4.0 * one["a"])  # beyond what was seen
    conditional = model.effect_draws(table, site="south")
    individual = model.ite_draws("south")
    if family == "binary":
        assert np.all(np.abs(conditional) <= 1.0) and np.ptp(conditional) > 0.5
        np.testing.assert_allclose(individual, np.clip(np.round(individual), -1, 1), atol=1e-9)
    else:
        np.testing.assert_allclose(individual, np.round(individual), atol=1e-6)
        signed = np.where(tables(family)["south"]["w"] == 1, 1.0, -1.0) * individual
        assert np.all(signed <= tables(family)["south"]["y"].to_numpy() + 1e-6)  # no count below 0


@pytest.mark.slow
def test_newton_converges_with_the_seven_digits_that_sites_with_limits_send() -> None:
    several = [tables("binary", seed) for seed in range(3)]
    large = {name: pd.concat([one[name] for one in several], ignore_index=True) for name in SIZES}
    plain, limited = (
        AIPW(seed=5, repeats=1).fit(STUDY, large, **more) for more in ({}, {"limits": Limits()})
    )
    for name in ("newton", "outcome_newton"):
        assert limited.result_.fit_diagnostics[name]["converged"]
    assert abs(limited.ate() - plain.ate()) < 0.1 * plain.ate_draws().std()


@FAMILIES
def test_slopes_and_curvatures_are_the_derivatives_of_the_likelihood(family: str) -> None:
    """By differences of the log likelihood, person by person."""
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(30, 2)), (np.arange(30) % 2).astype(float)
    y = rng.poisson(1.2, 30) if family == "count" else rng.integers(0, 2, 30)
    mean, sd = float(y.mean()), float(y.std())
    stage = OutcomeLikelihood(False, outcome_family(AIPWContext(2, 1, sd, mean, family)))
    rows = make_rows(x, w, (y - mean) / sd, fold=np.arange(30) % 3, site=0)
    beta = 0.3 * rng.normal(size=(2, 3))

    def at(point: np.ndarray) -> dict[str, np.ndarray]:
        fixed = {"without": np.array(1), "draw": np.array(0)}
        found = stage.statistics(Parameters(fixed=fixed, per_site={"outcome": point}), rows)
        return {name: np.asarray(one) for name, one in found.summed.items()}

    def value(point: np.ndarray, arm: int) -> float:
        total = 0.0
        for i in np.flatnonzero((w == arm) & (np.arange(30) % 3 != 1)):
            eta = point[arm] @ np.append(1.0, x[i])
            total += y[i] * eta - (np.exp(eta) if family == "count" else np.log1p(np.exp(eta)))
        return total

    here, step = at(beta), 1e-4
    for arm in (0, 1):
        np.testing.assert_allclose(here["likelihood"][arm], value(beta, arm), rtol=1e-12)
        for f in range(3):
            move = np.zeros((2, 3))
            move[arm, f] = step
            slope = (value(beta + move, arm) - value(beta - move, arm)) / (2 * step)
            np.testing.assert_allclose(here["score"][arm, f], slope, rtol=1e-5, atol=1e-6)
            curvature = (at(beta - move)["score"][arm] - at(beta + move)["score"][arm]) / (2 * step)
            np.testing.assert_allclose(unpack(here["gram"])[arm, f], curvature, rtol=1e-5, atol=1e-6)


@FAMILIES
def test_the_first_expansion_needs_no_round_of_its_own(family: str) -> None:
    """From sums of products, it is what the likelihood would have given at everybody's rate."""
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(30, 2)), (np.arange(30) % 2).astype(float)
    y = rng.poisson(1.2, 30) if family == "count" else rng.integers(0, 2, 30)
    known = outcome_family(AIPWContext(2, 1, float(y.std()), float(y.mean()), family))
    rows = make_rows(x, w, (y - y.mean()) / y.std(), fold=np.zeros(30), site=0)
    pooling = PooledRegressions(1, 3, offsets=False)
    fixed = {"without": np.array(-1), "draw": np.array(0)}
    sums = Outcome(False).statistics(Parameters(fixed=fixed), rows)
    gram, score, _ = pooling.system(jax.tree.map(lambda leaf: np.asarray(leaf)[None], sums))
    totals = np.asarray(known.rate * gram[..., 0] + known.sd * score)  # type: ignore[union-attr]
    found = about_rates(gram, totals, counts=family == "count")
    at = Parameters(fixed=fixed, per_site={"outcome": found.point[0]})
    again = OutcomeLikelihood(False, known).statistics(at, rows).summed
    np.testing.assert_allclose(found.value[0], again["likelihood"], rtol=1e-10)
    np.testing.assert_allclose(found.slope[0], again["score"], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.curvature[0], unpack(np.asarray(again["gram"])), rtol=1e-10)


def test_a_rate_that_only_one_person_has_is_not_sent() -> None:
    """Coefficients under which a single person's expected count is large: the sums would be theirs."""
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(60, 1)), (np.arange(60) % 2).astype(float)
    x[7] = 6.0
    y = rng.poisson(1.0, 60)
    stage = OutcomeLikelihood(
        False, outcome_family(AIPWContext(1, 1, float(y.std()), float(y.mean()), "count"))
    )
    fixed = {"without": np.array(-1), "draw": np.array(0)}
    steep = np.array([[0.0, 0.1], [-4.0, 3.0]])
    for least, zero in ((0.0, False), (3.0, True)):
        rows = make_rows(x, w, (y - y.mean()) / y.std(), fold=np.zeros(60), site=0, least=least)
        found = stage.statistics(Parameters(fixed=fixed, per_site={"outcome": steep}), rows).summed
        for name in ("gram", "score", "likelihood"):
            assert np.all(np.asarray(found[name])[1] == 0.0) == zero
            assert np.any(np.asarray(found[name])[0] != 0.0)
        errors = np.where(w == 1, (y - np.exp(-4.0 + 3.0 * x[:, 0])) ** 2 / np.exp(-4.0 + 3.0 * x[:, 0]), 0.0)
        assert (float(found["pearson"][1]) < 0.5 * errors.sum()) == zero
