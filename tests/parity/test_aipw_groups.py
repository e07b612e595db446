"""Mean outcomes by group and arm, by AIPW and by weights, are those of one table; draws of them are joint."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from oracle import aipw as oracle
from parity.test_aipw import RIDGE, TABLES, TRIM, fit
from unpooled import AIPW, Study
from unpooled.methods.aipw.group_means import (
    GroupEstimates,
    correlation_root,
    of_scores_by_group,
    of_weights_by_group,
    outcome_draws,
    over_fold_draws,
)
from unpooled.methods.aipw.stages import MeansByGroup, Scores, WeightedOutcomes
from unpooled.models.over_all_sites import SUMS, OverAllSites
from unpooled.protocol.records import GROUPS, TARGETS, Parameters
from unpooled.protocol.rows import Rows, make_rows

FLAT = [(-1.0, 1.0), (1.0, 0.0)]
"""From control and treated to the effect and the control."""


def compared(means: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    change = np.kron(np.eye(len(means)), FLAT)
    return change @ means.ravel(), change @ covariance @ change.T


# ------------------------------------------------------------------------ one site's sums

N = 90


def people(seed: int, count: int = N) -> tuple[np.ndarray, ...]:
    """Covariates, treatment, outcome, folds and two named groups."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 3))
    w = (rng.random(count) < expit(0.8 * x[:, 0])).astype(float)
    y = 0.5 + x[:, 0] + w * (1.0 + x[:, 1]) + rng.normal(size=count)
    named = np.stack([x[:, 0] > 0.3, rng.random(count) < 0.7]).astype(float)
    return x, w, y, np.arange(count) % 2, named


def rows_of(seed: int, use: slice = slice(None), least: float = 0.0) -> Rows:
    x, w, y, fold, named = people(seed)
    return make_rows(x[use], w[use], y[use], fold=fold[use], site=0, groups=named[:, use], least=least)


def coefficients(seed: int) -> Parameters:
    rng = np.random.default_rng(seed)
    own = {"treatment": 0.4 * rng.normal(size=(2, 4)), "outcome": rng.normal(size=(2, 2, 4))}
    return Parameters(fixed={"draw": np.array(0)}, per_site=own)


def fits(parameters: Parameters, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Everybody's propensity and mean outcomes."""
    x, _, _, fold, _ = people(seed)
    X, own = np.column_stack([np.ones(N), x]), parameters.per_site
    e = expit(np.sum(X * own["treatment"][fold], axis=1))
    return np.clip(e, TRIM, 1.0 - TRIM), np.einsum("nf,naf->na", X, own["outcome"][fold])


def known(stage: MeansByGroup, parameters: Parameters, seed: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    _, w, y, _, named = people(seed)
    e, mu = fits(parameters, seed)
    if isinstance(stage, WeightedOutcomes):
        return compared(*oracle.weighted_means(y, w, e, named))
    means, population, sample = oracle.doubly_robust_means(y, w, e, mu, named)
    return compared(means, population if kind == "products" else sample)


def found(stage: MeansByGroup, own: Any, kind: str = "products") -> GroupEstimates:
    own = jax.tree.map(np.asarray, own)
    if isinstance(stage, WeightedOutcomes):
        return of_weights_by_group(own)
    return of_scores_by_group(own, kind)


STAGES = pytest.mark.parametrize(
    ("stage", "kind"),
    [(Scores(TRIM), "products"), (Scores(TRIM), "noise"), (WeightedOutcomes(TRIM), "products")],
    ids=["scores", "scores in the sample", "weights"],
)


@STAGES
def test_means_and_covariances_are_those_of_influence_functions(stage: MeansByGroup, kind: str) -> None:
    parameters = coefficients(1)
    own = found(stage, stage.statistics(parameters, rows_of(2)).per_site, kind)
    means, covariance = known(stage, parameters, 2, kind)
    np.testing.assert_allclose(own.estimate, means, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(own.covariance, covariance, rtol=1e-9, atol=1e-14)
    _, w, _, _, named = people(2)
    e, _ = fits(parameters, 2)
    counts = [N, w.sum(), N - w.sum(), np.sum((w - e) ** 2), *named.sum(axis=1)]
    np.testing.assert_allclose(own.people, counts, rtol=1e-12)


@STAGES
def test_batches_of_a_table_have_the_sums_of_the_table(stage: MeansByGroup, kind: str) -> None:
    parameters = coefficients(1)
    whole = found(stage, stage.statistics(parameters, rows_of(2)).per_site, kind)
    parts = [stage.of_batch(parameters, rows_of(2, slice(*ends))) for ends in ((0, 25), (25, 37), (37, N))]
    merged = stage.merged(jax.tree.map(lambda *leaves: np.stack(leaves)[:, None], *parts))
    own = found(stage, merged.per_site, kind)
    for part, one in zip(own, whole, strict=True):
        np.testing.assert_allclose(part[0], one, rtol=1e-10, atol=1e-13)
    # In a study without effects by site, sums of two sites are those of one table.
    wrapped = OverAllSites(stage)
    one = wrapped.statistics(parameters, rows_of(2))
    two = wrapped.merged(jax.tree.map(lambda *leaves: np.stack(leaves), *parts))
    for sums in (one, two):
        again = found(stage, stage.of_people(jax.tree.map(np.asarray, sums.summed[SUMS])), kind)
        for part, expected in zip(again, whole, strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("stage", [Scores(TRIM), WeightedOutcomes(TRIM)], ids=["scores", "weights"])
def test_a_named_group_with_few_people_is_left_out_where_there_are_limits(stage: MeansByGroup) -> None:
    x, w, y, fold, named = people(2)
    few = named.copy()
    few[0] = np.arange(N) < 4
    rows = make_rows(x, w, y, fold=fold, site=0, groups=few, least=5.0)
    own = jax.tree.map(np.asarray, stage.statistics(coefficients(1), rows).per_site)
    assert found(stage, own).people[4] == 0.0 < found(stage, own).people[5]
    other = make_rows(x, w, np.where(few[0] > 0, 0.0, y), fold=fold, site=0, groups=few, least=5.0)
    again = jax.tree.map(np.asarray, stage.statistics(coefficients(1), other).per_site)
    place = slice(4, 5) if isinstance(stage, Scores) else slice(8, 10)
    np.testing.assert_array_equal(own["mean"][place], again["mean"][place])


def test_no_product_of_two_groups_rests_on_the_few_people_they_share() -> None:
    """Groups of 46 people each that have one person in common, whose score is large."""
    x, w, y, fold, _ = people(2)
    shared = np.stack([np.arange(N) <= 45, np.arange(N) >= 45]).astype(float)
    parameters, stage = coefficients(1), Scores(TRIM)

    def product(height: float, least: float) -> float:
        outcome = np.where(np.arange(N) == 45, height, y)
        rows = make_rows(x, w, outcome, fold=fold, site=0, groups=shared, least=least, per_feature=3.0)
        own = stage.of_batch(parameters, rows).per_site
        return float(own["products"][8, 10]) / float(np.sqrt(own["products"][8, 8] * own["products"][10, 10]))

    assert abs(product(60.0, 0.0)) > 0.3
    assert product(60.0, 5.0) == 0.0


def test_a_site_with_few_people_for_so_many_means_sends_those_of_a_group_only() -> None:
    x, w, y, fold, _ = people(2)

    def sent(people: int) -> np.ndarray:
        use = slice(people)
        rows = make_rows(x[use], w[use], y[use], fold=fold[use], site=0, least=3.0, per_feature=5.0)
        return np.asarray(Scores(TRIM).of_batch(coefficients(1), rows).per_site["products"])

    for products, all_ in ((sent(39), False), (sent(40), True)):  # 8 means of 5 people each
        own = np.kron(np.eye(4), np.ones((2, 2))) > 0.0
        assert np.all(products[own] != 0.0)
        assert np.all(products[~own] != 0.0) == np.any(products[~own] != 0.0) == all_


# ------------------------------------------------------------------------------ whole fits


def by_draw(
    model: AIPW, kind: str = "products"
) -> tuple[list[list[tuple[np.ndarray, np.ndarray]]], np.ndarray]:
    """By draw of the folds and site: means [group, arm] in the outcome's units, and covariances."""
    table, result = oracle.table_of(model), model.result_
    ridge, folds = oracle.Ridge(RIDGE, RIDGE, RIDGE), model.folds
    nobody, every, sizes = np.zeros((0, len(table.w))), [], []
    for draw in range(len(table.folds)):
        given: dict[str, Any] = {"ridge": ridge, "trim": TRIM, "folds": folds, "draw": draw}
        e, mu = oracle.cross_fitted(table, offsets=True, **given)
        here = [table.site == site for site in np.unique(table.site)]
        one = []
        for use in here:
            parts = table.y[use], table.w[use], e[use]
            if model.estimator == "ipw":
                means, covariance = oracle.weighted_means(*parts, nobody[:, use])
            else:
                means, *both = oracle.doubly_robust_means(*parts, mu[use], nobody[:, use])
                covariance = both[0 if kind == "products" else 1]
            one.append(
                (result.scaling.outcome_mean + result.outcome_sd * means, result.outcome_sd**2 * covariance)
            )
        every.append(one)
        member = np.stack([table.w >= 0, table.w, 1 - table.w, (table.w - e) ** 2])
        sizes.append([member[:, use].sum(axis=1) for use in here])
    return every, np.mean(sizes, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["aipw", "ipw"])
def test_over_sites_means_by_group_are_those_of_one_table(estimator: str) -> None:
    model = fit(TABLES, estimator=estimator, folds=1, draws=200)
    (sites,), sizes = by_draw(model)
    outcomes = model.result_.average_outcomes
    assert outcomes.groups == GROUPS == tuple(model.groups())
    np.testing.assert_allclose(outcomes.weight, sizes, rtol=1e-7)
    for number, (means, covariance) in enumerate(sites):
        drawn = outcomes.population[:, number].reshape(200, -1)
        np.testing.assert_allclose(drawn.mean(axis=0), means.ravel(), rtol=1e-7)
        np.testing.assert_allclose(np.cov(drawn.T, bias=True), covariance, rtol=1e-6, atol=1e-9)
    overall = sum(sizes[s, :, None] * sites[s][0] for s in range(3)) / sizes.sum(axis=0)[:, None]
    np.testing.assert_allclose(outcomes.overall("population").mean(axis=0), overall, rtol=1e-7)
    found = model.effects()["estimate"].to_dict()
    assert found["treated", "treated"] == pytest.approx(_observed_mean(1), rel=1e-7)
    assert found["controls", "control"] == pytest.approx(_observed_mean(0), rel=1e-7)
    assert model.att() == pytest.approx(overall[1, 1] - overall[1, 0], rel=1e-7)
    assert model.ratio("overlap") == pytest.approx(overall[3, 1] / overall[3, 0], rel=1e-7)


def _observed_mean(arm: int) -> float:
    everybody = pd.concat(TABLES.values())
    return float(everybody.loc[everybody["w"] == arm, "y"].mean())


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_over_draws_of_the_folds_every_mean_is_combined_as_the_effect_is(target: str) -> None:
    kind = "products" if target == "population" else "noise"
    model = fit(TABLES, folds=3, draws=2000)
    every, sizes = by_draw(model, kind)
    share, change = sizes / sizes.sum(axis=0), np.kron(np.eye(4), FLAT)
    drawn = getattr(model.result_.average_outcomes, target).reshape(2000, 3, -1) @ change.T
    for place in range(8):
        each = np.array([[change[place] @ means.ravel() for means, _ in one] for one in every])
        errors = np.array([[change[place] @ cov @ change[place] for _, cov in one] for one in every]) ** 0.5
        own = share[:, place // 2]
        averages = each @ own
        middle = each[np.argsort(averages)[1]]  # of three
        np.testing.assert_allclose(drawn[:, :, place].mean(axis=0), middle, rtol=1e-7)
        variance = np.median(errors**2 + (each - middle) ** 2, axis=0)
        total = np.median(errors**2 @ own**2 + (averages - np.median(averages)) ** 2)
        shared = max(total - own**2 @ variance, 0.0) / (1.0 - own @ own)
        np.testing.assert_allclose(drawn[:, :, place].var(axis=0), np.maximum(variance, shared), rtol=0.05)
        np.testing.assert_allclose((drawn[:, :, place] @ own).var(), max(total, own**2 @ variance), rtol=0.05)


@pytest.mark.slow
def test_an_unadjusted_difference_has_the_means_of_its_arms_and_no_other_groups() -> None:
    model = fit(TABLES, estimator="difference")
    assert model.groups() == ["everybody"]
    for site, table in TABLES.items():
        drawn = model.mean_draws(site=site)
        arms = [table.loc[table["w"] == arm, "y"] for arm in (0, 1)]
        np.testing.assert_allclose(drawn.mean(axis=0), [arm.mean() for arm in arms], rtol=1e-9)
        welch = np.diag([arm.var(ddof=1) / len(arm) for arm in arms])
        np.testing.assert_allclose(np.cov(drawn.T, bias=True), welch, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["aipw", "ipw", "difference"])
def test_without_effects_by_site_means_by_group_are_those_of_one_table(estimator: str) -> None:
    """Weights are normalised over all sites then."""
    more = {} if estimator == "difference" else {"folds": 1}
    study = STUDY.with_changes(by_site=False)
    model = fit(TABLES, study, estimator=estimator, draws=200, **more)
    table, result = oracle.table_of(model), model.result_
    e, mu = np.full(len(table.w), 0.5), np.zeros((len(table.w), 2))
    if estimator != "difference":
        ridge = oracle.Ridge(RIDGE, RIDGE, RIDGE)
        e, mu = oracle.cross_fitted(table, ridge=ridge, trim=TRIM, folds=1, offsets=True)
    nobody = np.zeros((0, len(table.w)))
    if estimator == "aipw":
        means, covariance, _ = oracle.doubly_robust_means(table.y, table.w, e, mu, nobody)
    else:
        means, covariance = oracle.weighted_means(table.y, table.w, e, nobody)
    groups = len(model.groups())
    drawn = result.average_outcomes.population.reshape(200, -1)
    means = result.scaling.outcome_mean + result.outcome_sd * means[:groups]
    np.testing.assert_allclose(drawn.mean(axis=0), means.ravel(), rtol=1e-7)
    known = result.outcome_sd**2 * covariance[: 2 * groups, : 2 * groups]
    np.testing.assert_allclose(np.cov(drawn.T, bias=True), known, rtol=1e-6, atol=1e-9)


STUDY = Study(treatment="w", outcome="y", covariates=["a", "b", "c"])


# --------------------------------------------------------------------- draws and their roots


def test_a_root_has_the_correlation_and_one_that_no_distribution_has_is_mended() -> None:
    rng = np.random.default_rng(1)
    wide = rng.normal(size=(2, 6, 4))
    covariance = wide @ np.swapaxes(wide, 1, 2)  # of rank 4
    covariance[1, 2] = covariance[1, :, 2] = 0.0
    root = correlation_root(covariance)
    assert np.all(root == np.tril(root))
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    known = covariance / np.where(sd > 0, sd, 1.0)[:, :, None] / np.where(sd > 0, sd, 1.0)[:, None]
    known[1, 2, 2] = 1.0
    np.testing.assert_allclose(root @ np.swapaxes(root, 1, 2), known, atol=1e-7)
    impossible = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    mended = correlation_root(impossible)
    np.testing.assert_allclose(np.diag(mended @ mended.T), 1.0)


def test_draws_of_several_sites_add_up_to_their_average() -> None:
    rng = np.random.default_rng(3)
    wide = rng.normal(size=(1, 5, 8, 20))
    people = rng.integers(20, 90, size=(1, 5, 4)).astype(float)
    each = GroupEstimates(rng.normal(size=(1, 5, 8)), wide @ np.swapaxes(wide, 2, 3) / 400, people)
    means = over_fold_draws(each)
    drawn = outcome_draws(means, 1000, seed=1)
    effect = drawn[..., 1] - drawn[..., 0]
    both = np.stack([effect, drawn[..., 0]], axis=-1).reshape(1000, 5, 8)
    np.testing.assert_allclose(both.mean(axis=0), each.estimate[0], atol=1e-9)
    for site in range(5):
        np.testing.assert_allclose(np.cov(both[:, site].T, bias=True), each.covariance[0, site], atol=1e-9)
    share = np.repeat(people[0] / people[0].sum(axis=0), 2, axis=1)
    overall = np.einsum("ksj,sj->kj", both, share)
    np.testing.assert_allclose(overall.std(axis=0), means.combined.overall.error, rtol=0.02)
    few = outcome_draws(means, 6, seed=1)  # fewer than means
    assert np.all(np.isfinite(few))


# -------------------------------------------------------------------------------- coverage


def risks(rng: np.random.Generator) -> tuple[dict[str, pd.DataFrame], dict[str, tuple[float, float]]]:
    """0/1 outcomes at three sites; and the true mean outcomes of these sites' populations by group."""
    tables, truth = {}, {}
    fine = np.random.default_rng(0).normal(size=(200_000, 2))
    sums = {group: np.zeros(3) for group in GROUPS}
    for site, count in enumerate((150, 200, 250)):

        def chances(x: np.ndarray, site: int = site) -> tuple[np.ndarray, ...]:
            e = expit(-0.3 + 0.6 * x[:, 0] - 0.4 * x[:, 1] + 0.2 * site)
            return e, expit(-1.2 + 0.7 * x[:, 0] + 0.2 * site), expit(-0.5 + 0.7 * x[:, 0] + 0.5 * x[:, 1])

        x = rng.normal(size=(count, 2))
        e, control, treated = chances(x)
        w = (rng.random(count) < e).astype(int)
        y = (rng.random(count) < np.where(w == 1, treated, control)).astype(int)
        tables[f"site{site}"] = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "w": w, "y": y})
        e, control, treated = chances(fine)
        for group, h in zip(GROUPS, (np.ones_like(e), e, 1.0 - e, e * (1.0 - e)), strict=True):
            sums[group] += count * np.array([np.mean(h), np.mean(h * control), np.mean(h * treated)])
    truth = {group: (one[1] / one[0], one[2] / one[0]) for group, one in sums.items()}
    return tables, truth


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_intervals_of_every_group_hold_the_truth_as_often_as_they_say() -> None:
    rng, study = np.random.default_rng(23), Study(treatment="w", outcome="y", covariates=["a", "b"])
    held: dict[tuple[str, str], list[bool]] = {}
    for seed in range(300):
        tables, truth = risks(rng)
        table = AIPW(repeats=1, seed=seed).fit(study, tables).effects()
        for group, (control, treated) in truth.items():
            values = {
                "control": control, "treated": treated, "difference": treated - control,
                "ratio": treated / control, "odds ratio": treated * (1 - control) / control / (1 - treated),
            }  # fmt: skip
            for name, value in values.items():
                row = table.loc[(group, name)]
                held.setdefault((group, name), []).append(bool(row["lower"] < value < row["upper"]))
    covered = {name: np.mean(one) for name, one in held.items()}
    assert min(covered.values()) >= 0.91 and max(covered.values()) <= 0.985, covered
    assert 0.935 <= np.mean(list(covered.values())) <= 0.965, covered
