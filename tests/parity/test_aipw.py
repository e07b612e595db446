"""AIPW over sites is AIPW on one table; weights and differences too; and its intervals hold what they say."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from oracle import aipw as oracle
from oracle.penalties import penalty
from oracle.world import STUDY, frames
from unpooled import AIPW, MetaAnalysis, Study
from unpooled.errors import DataError
from unpooled.maths.normal import independent_normals, normal_quantiles
from unpooled.methods.aipw import newton, regressions
from unpooled.methods.aipw.model import PooledRegressions
from unpooled.methods.aipw.stages import Outcome, Scores, Treatment, WeightedOutcomes
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows, make_rows

SIZES = {"north": 40, "south": 65, "east": 50}
RIDGE, TRIM = 0.7, 0.05


def confounded(seed: int = 3) -> dict[str, pd.DataFrame]:
    """The treated are those with large a, more of them from site to site."""
    rng, tables = np.random.default_rng(seed), frames(SIZES, seed=seed)
    for number, (name, table) in enumerate(tables.items()):
        chance = 1.0 / (1.0 + np.exp(0.4 - 0.9 * table["a"] - 0.3 * number))
        w = (rng.random(len(table)) < chance).astype(int)
        tables[name] = table.assign(w=w, y=table["y"] + 2.0 * (w - table["w"]))
    return tables


TABLES = confounded()
STACKED = {"all": pd.concat(TABLES.values(), ignore_index=True)}


def fit(tables: dict[str, pd.DataFrame], study: Study = STUDY, **settings: Any) -> AIPW:
    trim = {} if settings.get("estimator") == "difference" else {"trim": TRIM}
    return AIPW(**{"seed": 5, "ridge": RIDGE, **trim, **settings}).fit(study, tables)


def numbers(model: AIPW) -> tuple[np.ndarray, np.ndarray]:
    found = model.estimates()
    return found["estimate"].to_numpy(), found["standard_error"].to_numpy()


def of_draw(model: AIPW, table: oracle.Table, ridge: oracle.Ridge, draw: int, *, offsets: bool) -> np.ndarray:
    """Estimates and errors by site and stacked, [2, site + 1], from one table of everybody."""
    here = [*(table.site == site for site in np.unique(table.site)), table.site >= 0]
    given: dict[str, Any] = {"ridge": ridge, "trim": TRIM, "folds": model.folds, "draw": draw}
    if model.estimator == "aipw":
        psi = oracle.scores(table, offsets=offsets, **given)
        found = [oracle.mean_and_error(psi[use]) for use in here]
    else:
        e = oracle.propensities(table, oracle.design_of(table, offsets=offsets), **given)
        found = [oracle.weighted_difference(table.y[use], table.w[use], e[use]) for use in here]
    return np.array(found).T


def expected(
    model: AIPW, *, offsets: bool, ridge: oracle.Ridge | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """By site, their average and stacked; the sites are those of the draw whose average is the median."""
    table, sd = oracle.table_of(model), model.result_.outcome_sd
    ridge = ridge or oracle.Ridge(RIDGE, RIDGE, RIDGE)
    each = [of_draw(model, table, ridge, draw, offsets=offsets) for draw in range(len(table.folds))]
    share = np.array([np.mean(table.site == site) for site in np.unique(table.site)])
    averages = [share @ one[0, :-1] for one in each]
    errors = [np.sqrt(np.sum((share * one[1, :-1]) ** 2)) for one in each]
    average = oracle.over_draws(averages, errors)
    stacked = oracle.over_draws([one[0, -1] for one in each], [one[1, -1] for one in each])
    sites = each[averages.index(average[0])][0, :-1]
    variance = [
        np.median([one[1, s] ** 2 + (one[0, s] - sites[s]) ** 2 for one in each]) for s in range(len(share))
    ]
    # Sites that vary together over the draws make the average vary more than they would by themselves.
    apart = np.sum(share**2 * variance)
    shared = max(average[1] ** 2 - apart, 0.0) / (1.0 - share @ share) if len(share) > 1 else 0.0
    assert shared <= min(variance)
    error = np.sqrt(max(average[1] ** 2, apart))
    estimates = [*sites, average[0], stacked[0]]
    return sd * np.array(estimates), sd * np.array([*np.sqrt(variance), error, stacked[1]])


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["aipw", "ipw"])
@pytest.mark.parametrize("site_terms", ["offsets", "none"])
@pytest.mark.parametrize("folds", [1, 3])
def test_over_sites_it_is_the_estimate_of_one_table(estimator: str, site_terms: str, folds: int) -> None:
    model = fit(TABLES, estimator=estimator, site_terms=site_terms, folds=folds)
    for found, known in zip(numbers(model), expected(model, offsets=site_terms == "offsets"), strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-8, atol=1e-8)
    assert model.result_.fit_diagnostics["newton"]["converged"]


@pytest.mark.slow
@pytest.mark.parametrize("folds", [1, 3])
def test_penalties_are_those_of_cross_validation_of_one_table(folds: int) -> None:
    """Without folds by GCV and AIC."""
    model = fit(TABLES, ridge=None, folds=folds)
    known = oracle.chosen(oracle.table_of(model), offsets=True)
    found = model.result_.fit_diagnostics["ridge"]
    names = ("treatment", "outcome_control", "outcome_treated")
    np.testing.assert_allclose([found[name] for name in names], list(vars(known).values()))
    assert len({round(one, 6) for one in vars(known).values()}) > 1
    for found, one in zip(numbers(model), expected(model, offsets=True, ridge=known), strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["aipw", "ipw"])
def test_with_one_site_it_is_the_plain_estimator(estimator: str) -> None:
    model = fit(STACKED, estimator=estimator)
    for found, known in zip(numbers(model), expected(model, offsets=False), strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(found, found[0], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["aipw", "ipw", "difference"])
def test_cutting_a_table_into_sites_changes_nothing_but_rounding(estimator: str) -> None:
    """Without folds, which sites make by themselves."""
    folds = {} if estimator == "difference" else {"folds": 1}
    apart, together = (
        fit(tables, estimator=estimator, site_terms="none", **folds) for tables in (TABLES, STACKED)
    )
    for found, known in zip(numbers(apart), numbers(together), strict=True):
        np.testing.assert_allclose(found[-1], known[-1], rtol=1e-8)


@pytest.mark.slow
def test_a_difference_of_means_is_exact() -> None:
    estimate, error = numbers(fit(TABLES, estimator="difference"))
    for place, table in zip((0, 1, 2, 4), (*TABLES.values(), STACKED["all"]), strict=True):
        arms = [table.loc[table["w"] == arm, "y"] for arm in (0, 1)]
        welch = np.sqrt(sum(arm.var(ddof=1) / len(arm) for arm in arms))
        np.testing.assert_allclose(estimate[place], arms[1].mean() - arms[0].mean(), rtol=1e-12)
        np.testing.assert_allclose(error[place], welch, rtol=1e-10)


@pytest.mark.slow
def test_draws_have_the_estimates_and_the_errors_that_are_told() -> None:
    model = fit(TABLES)
    estimate, error = numbers(model)
    names = [*SIZES, None]
    np.testing.assert_allclose([model.ate(name) for name in names], estimate[:4], rtol=1e-9)
    spread = [model.ate_draws(name).std() for name in names]
    np.testing.assert_allclose(spread[:3], error[:3], rtol=1e-9)
    np.testing.assert_allclose(spread[3], error[3], rtol=0.015)
    overall = model.result_.fit_diagnostics["overall"]
    ends = [overall["lower"], overall["upper"]]
    np.testing.assert_allclose(model.ate_interval(), ends, atol=0.08 * error[3])
    known = model.estimates().loc["all sites", ["lower", "upper"]].to_numpy(float)
    np.testing.assert_allclose(known, ends)


@pytest.mark.slow
def test_effects_of_people_are_those_of_the_outcome_regressions() -> None:
    model = fit(TABLES, draws=4000)
    table, sd = oracle.table_of(model), model.result_.outcome_sd
    X = oracle.design_of(table, offsets=True)
    P = penalty(X.shape[1], 1 + table.x.shape[1], RIDGE)
    both = [oracle.linear(X[table.w == arm], table.y[table.w == arm], P) for arm in (0, 1)]
    here = table.site == 1
    effect = sd * X[here] @ (both[1] - both[0])
    found = model.effect_draws(TABLES["south"], site="south")
    np.testing.assert_allclose(
        found.mean(axis=0), effect, atol=5.0 * np.max(found.std(axis=0)) / np.sqrt(4000)
    )
    missing = np.where(table.w[here] == 1, X[here] @ both[0], X[here] @ both[1])
    known = sd * np.where(table.w[here] == 1, 1.0, -1.0) * (table.y[here] - missing)
    individual = model.ite_draws("south")
    tolerance = 5.0 * np.max(individual.std(axis=0)) / np.sqrt(4000)
    np.testing.assert_allclose(individual.mean(axis=0), known, atol=tolerance)
    assert np.all(individual.std(axis=0) > found.std(axis=0))  # the other arm's noise is in it


# ------------------------------------------------------------------------- as published


@pytest.mark.slow
def test_over_four_sites_it_is_what_the_book_has_of_one_table() -> None:
    """Hernán & Robins, What If, chapters 11 and 12: 2.5 kg unadjusted, and 3.4 (2.4, 4.5) by weights."""
    people = pytest.importorskip("causaldata").nhefs.load_pandas().data
    people = people.loc[people["wt82_71"].notna()]
    curved, levels = ["age", "smokeintensity", "smokeyrs", "wt71"], ["education", "exercise", "active"]
    table = people[["qsmk", "wt82_71", "sex", "race", *curved]].astype(float)
    table = table.assign(**{f"{name} squared": table[name] ** 2 for name in curved})
    table = table.assign(**{name: "level " + people[name].astype(int).astype(str) for name in levels})
    covariates = [name for name in table if name not in ("qsmk", "wt82_71")]
    study = Study(treatment="qsmk", outcome="wt82_71", covariates=covariates)
    sites = {f"site{cut}": table.iloc[cut::4].reset_index(drop=True) for cut in range(4)}
    difference = fit(sites, study, estimator="difference").estimates().loc["stacked"]
    assert difference["estimate"] == pytest.approx(2.54, abs=0.005)
    plain: dict[str, Any] = {"folds": 1, "ridge": 1e-6, "trim": 0.01, "site_terms": "none"}
    weighted = fit(sites, study, estimator="ipw", **plain).estimates().loc["stacked"]
    found = weighted[["estimate", "lower", "upper"]].to_numpy(float)
    np.testing.assert_allclose(found, [3.44, 2.41, 4.47], atol=0.005)


# ------------------------------------------------------------------------------ refusals


def few_treated(table: pd.DataFrame, count: int) -> pd.DataFrame:
    return table.assign(w=(np.arange(len(table)) < count).astype(int))


@pytest.mark.slow
def test_an_arm_of_one_is_refused_where_its_spread_is_needed() -> None:
    tables = {**TABLES, "north": few_treated(TABLES["north"], 1)}
    with pytest.raises(DataError, match="two people in each arm"):
        fit(tables, estimator="ipw")
    assert np.all(np.isfinite(numbers(fit(tables))[1]))


@pytest.mark.slow
def test_an_arm_that_is_all_in_one_fold_is_refused() -> None:
    tables = {name: few_treated(table, 1) for name, table in TABLES.items()}
    with pytest.raises(DataError, match="outside every fold"):
        fit(tables)


# -------------------------------------------------------------------------- Newton's steps


def conduct(x: np.ndarray, w: np.ndarray, ridge: float) -> tuple[regressions.Propensity, list[float]]:
    """The procedure of one site whose rows are these; and the penalised likelihood of every point asked."""
    X, seen = np.column_stack([np.ones(len(x)), x]), []
    rows, lower = np.tril_indices(X.shape[1])
    pooling = PooledRegressions(1, X.shape[1], offsets=False)
    procedure = regressions.propensity(pooling, regressions.held_out(1), ridge)
    question = next(procedure)
    while True:
        beta = question.parameters.per_site["treatment"][0, 0]  # type: ignore[attr-defined]
        logit = X @ beta
        e = expit(logit)
        likelihood = np.sum(w * logit - np.logaddexp(0.0, logit))
        seen.append(likelihood - 0.5 * ridge * beta[1:] @ beta[1:])
        total = {
            "gram": ((X.T * (e * (1.0 - e))) @ X)[rows, lower][None, None],
            "score": ((w - e) @ X)[None, None],
            "likelihood": np.array([[likelihood]]),
        }
        try:
            question = procedure.send(Statistics(total))
        except StopIteration as done:
            return done.value, seen


def test_newton_finds_the_mode_in_a_few_rounds() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 4))
    w = (rng.random(300) < 1.0 / (1.0 + np.exp(-x @ [1.0, -0.5, 0.2, 0.0]))).astype(float)
    found, _ = conduct(x, w, 0.5)
    assert found.converged
    assert found.rounds <= 6
    known = oracle.logistic(np.column_stack([np.ones(300), x]), w, penalty(5, 5, 0.5))
    np.testing.assert_allclose(found.coefficients[0, 0], known, atol=1e-9)


# Two treated who stand apart: nearly separated, with leverage, so that late Newton steps go too far.
APART = np.array(
    [[11.4, -16.8], [1.6, -28.7], [-1.5, -0.6], [-0.3, -0.2], [0.5, 4.9],
     [-0.7, -1.3], [-1.1, -18.5], [-2.9, -1.1], [-5.2, 0.1], [0.1, 12.2]]
)  # fmt: skip


def test_a_step_that_goes_too_far_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    w = (np.arange(10) < 2).astype(float)
    few, seen = conduct(APART, w, 1e-3)
    assert (few.rounds, few.converged) == (newton.STEPS, False)
    monkeypatch.setattr(newton, "STEPS", 100)
    found, seen = conduct(APART, w, 1e-3)
    assert found.converged
    assert np.min(np.diff(seen)) < -1.0  # it did go too far
    X, beta = np.column_stack([np.ones(10), APART]), found.coefficients[0, 0]
    slope = X.T @ (w - expit(X @ beta)) - 1e-3 * np.array([0.0, *beta[1:]])
    np.testing.assert_allclose(slope, 0.0, atol=1e-7)


def test_people_who_can_be_told_apart_end_in_finite_coefficients() -> None:
    x = np.linspace(-2.0, 2.0, 30)[:, None]
    found, _ = conduct(x, (x[:, 0] > 0.0).astype(float), 1.0)
    assert found.converged
    assert np.all(np.isfinite(found.coefficients))


# ------------------------------------------------------------------------------- the draws


def test_quantile_draws_are_as_good_as_independent() -> None:
    sd = np.array([1.0, 0.3, 2.0, 1.5, 0.8])
    drawn = independent_normals(400, sd, np.random.default_rng([1, 5]))
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=1e-12)
    np.testing.assert_allclose(drawn.mean(axis=0), 0.0, atol=1e-12)
    total, size = drawn.sum(axis=1), np.sqrt(np.sum(sd**2))
    np.testing.assert_allclose(total.std(), size, rtol=0.015)
    np.testing.assert_allclose(
        np.sort(total)[[10, 100, 300, 390]] / size, [-1.94, -0.67, 0.67, 1.94], atol=0.1
    )
    between = np.corrcoef(drawn.T) - np.eye(5)
    assert np.max(np.abs(between)) < 0.15
    np.testing.assert_allclose(np.sort(drawn[:, 1]), 0.3 * normal_quantiles(400))
    assert not np.array_equal(drawn, independent_normals(400, sd, np.random.default_rng([2, 5])))


# ------------------------------------------------------------------------------- the rows


def rubbish(rows: Rows, rng: np.random.Generator) -> Rows:
    """Padding with numbers where none may count."""
    absent = np.asarray(rows.present) == 0
    people = len(absent)
    return Rows(
        jnp.where(absent[:, None], rng.normal(size=(people, 3)), rows.covariates),
        jnp.where(absent, 1.0, rows.treatment),
        jnp.where(absent, rng.normal(size=people), rows.outcome),
        rows.present, rows.fold, rows.site, rows.salt, rows.least, rows.incomplete, rows.seen,
        rows.more_folds,
    )  # fmt: skip


@pytest.mark.parametrize(
    "stage",
    [Treatment(True), Outcome(True), Scores(0.02), WeightedOutcomes(0.02)],
    ids=lambda s: type(s).__name__,
)
def test_padding_counts_for_nothing(stage: Any) -> None:
    rng = np.random.default_rng(4)
    x, y, w = rng.normal(size=(20, 3)), rng.normal(size=20), np.arange(20) % 2
    more = 1 - (np.arange(20) // 3 % 2)[None]
    rows = make_rows(x, w.astype(float), y, fold=np.arange(20) % 2, site=0, more_folds=more)
    assert len(rows.present) > 20
    by_fold = isinstance(stage, Scores | WeightedOutcomes)
    each = {
        "treatment": rng.normal(size=(2, 4) if by_fold else 4),
        "outcome": rng.normal(size=(2, 2, 4)),
    }
    fixed = {"without": np.array(1), "draw": np.array(1)}
    parameters = Parameters(fixed=fixed, per_site=each)
    for part in ("summed", "per_site"):
        clean, dirty = (
            getattr(stage.statistics(parameters, each), part) for each in (rows, rubbish(rows, rng))
        )
        assert clean.keys() == dirty.keys()
        for name in clean:
            np.testing.assert_allclose(dirty[name], clean[name], rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------------- coverage

REPEATED = 500


def simulated(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """An average effect of 1 at every site; a, b and the site go with both treatment and outcome."""
    tables = {}
    for site, rows in enumerate((100, 140, 180)):
        x = rng.normal(size=(rows, 2))
        w = (rng.random(rows) < expit(0.6 * x[:, 0] - 0.3 * x[:, 1] + 0.3 * (site - 1))).astype(int)
        y = x[:, 0] + 0.5 * x[:, 1] + 0.4 * site + w * (1.0 + 0.5 * x[:, 0]) + rng.normal(size=rows)
        tables[f"site{site}"] = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "w": w, "y": y})
    return tables


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("model", "row"),
    [
        (AIPW(draws=20), "all sites"),
        (AIPW(draws=20, estimator="ipw"), "all sites"),
        (MetaAnalysis(draws=20), "fixed effects"),
    ],
    ids=["aipw", "ipw", "meta-analysis"],
)
def test_intervals_hold_the_truth_as_often_as_they_say(model: AIPW | MetaAnalysis, row: str) -> None:
    rng, study = np.random.default_rng(17), Study(treatment="w", outcome="y", covariates=["a", "b"])
    found = [model.set_params(seed=seed).fit(study, simulated(rng)).estimates() for seed in range(REPEATED)]
    held = np.array([(one["lower"] < 1.0) & (one["upper"] > 1.0) for one in found])
    covered = dict(zip(found[0].index, held.mean(axis=0), strict=True))
    # Weights take the propensities as known, so theirs are wider than they need be.
    assert 0.93 <= covered[row] <= (1.0 if getattr(model, "estimator", "") == "ipw" else 0.97), covered
    assert held[:, :3].mean() >= 0.93, covered
