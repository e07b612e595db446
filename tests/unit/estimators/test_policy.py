"""Whom to treat: sums of scores, rules, predictions in the right order, and what an honest value is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.errors import DataError, StudyError
from unpooled.estimators.policy import sums as of
from unpooled.estimators.policy import tree
from unpooled.estimators.policy.design import ENDS, parts_of, valued_parts
from unpooled.estimators.policy.policy import Policy
from unpooled.estimators.policy.sums import POLICIES, People
from unpooled.study import ColumnSchema, Schema

STUDY = up.Study(treatment="w", outcome="y", covariates=["a", "b", "k"], diagnostics=False)
COST = 0.2


def people(seed: int, n: int, clusters: int | None = None) -> People:
    random = np.random.default_rng(seed)
    effect = random.normal(0.3, 1.0, n)
    control = random.normal(size=n)
    return People(
        treatment=random.binomial(1, 0.5, n).astype(float),
        outcome=random.normal(size=n),
        scores=np.stack([control, control + effect + random.normal(size=n)], axis=1),
        predicted=0.5 * effect + random.normal(0.0, 0.5, n),
        chosen=random.random(n) < 0.4,
        weight=random.uniform(0.5, 2.0, n),
        cluster=None if clusters is None else random.integers(clusters, size=n),
    )


def policy_of(parts: list[list[People]], cuts: np.ndarray, *, larger: bool = True) -> Policy:
    """The policy of parts, each with the people of some sites."""
    sign = 1.0 if larger else -1.0
    found = [of.over_sites([of.site_sums(one, cuts, cost=COST, sign=sign) for one in part]) for part in parts]
    return Policy(COST, larger, "", (), 0, "y", "", "aipw", tuple(found))


def clusters_of(part: list[People]) -> dict[tuple[int, int], list[tuple[People, int]]]:
    """The people of each cluster; without clusters each person is one."""
    found: dict[tuple[int, int], list[tuple[People, int]]] = {}
    for site, one in enumerate(part):
        for i in range(len(one.outcome)):
            own = i if one.cluster is None else int(one.cluster[i])
            found.setdefault((site, own), []).append((one, i))
    return found


def slow_average(parts: list[list[People]], value) -> tuple[float, float]:
    """The weighted mean of `value(people, i)`, person by person, where it is not None; with its error."""
    total, mean, variance = 0.0, 0.0, 0.0
    for part in parts:
        groups = clusters_of(part).values()
        weight = sum(p.weight[i] for group in groups for p, i in group if value(p, i) is not None)
        found = sum(p.weight[i] * v for group in groups for p, i in group if (v := value(p, i)) is not None)
        centre, square = found / weight, 0.0
        for group in groups:
            square += sum(p.weight[i] * (v - centre) for p, i in group if (v := value(p, i)) is not None) ** 2
        total, mean, variance = total + weight, mean + weight * centre, variance + square
    return mean / total, np.sqrt(variance) / total


def decided(name: str, one: People, i: int, sign: float) -> tuple[float, float]:
    """Whether a policy treats a person, and the score of the outcome."""
    if name == "as observed":
        return one.treatment[i], one.outcome[i]
    treats = {
        "nobody": False,
        "everybody": True,
        "predicted effect": sign * one.predicted[i] > COST,
        "rule": bool(one.chosen[i]),
    }[name]
    return float(treats), one.scores[i, int(treats)]


@pytest.mark.parametrize(("clusters", "larger"), [(None, True), (12, False)])
def test_values_gains_and_fifths_are_those_of_a_loop_over_people(clusters, larger):
    parts = [[people(s, n, clusters) for s, n in one] for one in ([(1, 60), (2, 90)], [(3, 80), (4, 50)])]
    cuts, sign = np.array([-0.4, 0.0, 0.3, 0.8]), 1.0 if larger else -1.0
    found = policy_of(parts, cuts, larger=larger)
    values, gains, fifths = found.values(), found.gains("everybody"), found.sorted_effects()
    for name in POLICIES:
        mean, error = slow_average(parts, lambda p, i, name=name: decided(name, p, i, sign)[1])
        reach = 1.959963984540054 * error
        np.testing.assert_allclose(values.loc[name].iloc[1:], [mean, mean - reach, mean + reach], rtol=1e-9)
        share, _ = slow_average(parts, lambda p, i, name=name: decided(name, p, i, sign)[0])
        assert values.loc[name, "treated"] == pytest.approx(share)

        def gain(p: People, i: int, name: str = name) -> float:
            treated, outcome = decided(name, p, i, sign)
            return sign * (outcome - p.scores[i, 1]) - COST * (treated - 1.0)

        if name != "everybody":
            mean, error = slow_average(parts, gain)
            np.testing.assert_allclose(
                gains.loc[name, ["gain", "lower"]].astype(float), [mean, mean - 1.959963984540054 * error]
            )
    ends = [-np.inf, *cuts, np.inf]
    for group in range(5):

        def effect(p: People, i: int, group: int = group) -> float | None:
            inside = ends[group] < p.predicted[i] <= ends[group + 1]
            return p.scores[i, 1] - p.scores[i, 0] if inside else None

        mean, error = slow_average(parts, effect)
        reach = 1.959963984540054 * error
        np.testing.assert_allclose(
            fifths.loc[group + 1, ["effect", "lower", "upper"]].astype(float),
            [mean, mean - reach, mean + reach],
        )


@pytest.mark.parametrize("clusters", [None, 15])
def test_the_slope_is_that_of_a_regression_with_errors_by_cluster(clusters):
    part = [people(5, 70, clusters), people(6, 110, clusters)]
    sums = of.over_sites([of.site_sums(one, np.zeros(4), cost=COST, sign=1.0) for one in part])
    design = np.concatenate([np.stack([np.ones_like(p.predicted), p.predicted], axis=1) for p in part])
    effect = np.concatenate([p.scores[:, 1] - p.scores[:, 0] for p in part])
    weight = np.concatenate([p.weight for p in part])
    bread = np.linalg.inv((design.T * weight) @ design)
    solution = bread @ (design.T * weight) @ effect
    rows = weight * (effect - design @ solution)
    names = list(clusters_of(part))
    index = [names.index((s, i if clusters is None else int(p.cluster[i]))) for s, p in enumerate(part)
             for i in range(len(p.outcome))]  # fmt: skip
    meat = np.zeros((2, 2))
    for cluster in range(len(names)):
        own = np.array(index) == cluster
        total = rows[own] @ design[own]
        meat += np.outer(total, total)
    error = np.sqrt((bread @ meat @ bread)[1, 1])
    np.testing.assert_allclose(of.slope(sums), [solution[1], error], rtol=1e-9)


def test_slopes_of_parts_are_combined_so_that_their_z_scores_add_up():
    value, error = of.combined_slopes([(2.0, 1.0), (-3.0, 6.0), (np.nan, np.nan)])
    assert value / error == pytest.approx((2.0 - 0.5) / np.sqrt(2.0))


def test_scores_are_those_of_the_formula():
    random = np.random.default_rng(2)
    w, y, means, e = (random.binomial(1, 0.5, 9) * 1.0, random.normal(size=9), random.normal(size=(9, 2)),
                      random.uniform(0.0, 1.0, 9))  # fmt: skip
    found = of.doubly_robust(w, y, means, e, 0.1)
    for i in range(9):
        chance = min(max(e[i], 0.1), 0.9)
        treated = means[i, 1] + (w[i] / chance) * (y[i] - means[i, 1])
        control = means[i, 0] + ((1.0 - w[i]) / (1.0 - chance)) * (y[i] - means[i, 0])
        np.testing.assert_allclose(found[i], [control, treated])


def test_cut_points_divide_all_sites_into_fifths_and_do_not_depend_on_the_sites():
    random = np.random.default_rng(4)
    all_of_them, weight = random.gamma(2.0, 1.0, 5000), random.uniform(0.5, 1.5, 5000)
    cuts = of.cut_points([(all_of_them, weight)])
    split = of.cut_points([(all_of_them[:900], weight[:900]), (all_of_them[900:], weight[900:])])
    np.testing.assert_allclose(split, cuts, rtol=1e-9)
    groups = np.searchsorted(cuts, all_of_them)
    shares = np.bincount(groups, weight, minlength=5) / weight.sum()
    np.testing.assert_allclose(shares, 0.2, atol=0.01)
    assert np.all(np.isinf(of.cut_points([(np.full(10, 0.1), np.ones(10))])))


def slow_best(answered: np.ndarray, benefit: np.ndarray, weight: np.ndarray, depth: int = 2) -> float:
    """The largest benefit of any tree, cell by cell; a second question may be left out."""
    least, best = tree.SMALLEST * weight.sum(), -np.inf
    for first in range(answered.shape[1] if depth else 1):
        sides = [answered[:, first], ~answered[:, first]]
        if first and min(weight[side].sum() for side in sides) < least:
            continue
        total = 0.0
        for side in sides:
            options = [max((weight * benefit)[side].sum(), 0.0)]
            for second in range(1, answered.shape[1] if depth == 2 else 1):
                both = [side & answered[:, second], side & ~answered[:, second]]
                if min(weight[cell].sum() for cell in both) >= least:
                    options.append(sum(max((weight * benefit)[cell].sum(), 0.0) for cell in both))
            total += max(options)
        best = max(best, total)
    return best


@pytest.mark.parametrize("seed", range(6))
def test_the_rule_from_sums_is_the_best_of_all_trees(seed):
    random = np.random.default_rng(seed)
    x = random.normal(size=(120, 2))
    answered = np.concatenate([np.ones((120, 1), bool), *(x[:, [j]] <= [-0.8, 0.0, 0.7] for j in (0, 1))], 1)
    benefit, weight = random.normal(size=120), random.uniform(0.5, 1.5, 120)
    halves = [tree.cells(answered[part], benefit[part], weight[part]) for part in (slice(50), slice(50, 120))]
    together = tree.together(halves)
    for depth in (0, 1, 2):
        chosen = tree.best_rule(together, depth).of(answered)
        best = slow_best(answered, benefit, weight, depth)
        assert (weight * benefit)[chosen].sum() == pytest.approx(best)
    rule = tree.best_rule(together)
    cells = product((True, False), repeat=2)
    sizes = [
        weight[(answered[:, rule.first] == yes) & (answered[:, rule.after[0 if yes else 1]] == also)].sum()
        for yes, also in cells
    ]
    assert all(size == 0.0 or size >= tree.SMALLEST * weight.sum() for size in sizes)


def test_without_a_reason_to_ask_nobody_or_everybody_is_treated():
    answered = np.stack([np.ones(40, bool), np.arange(40) < 20], axis=1)
    for sign, words in ((1.0, "treat everybody"), (-1.0, "treat nobody")):
        rule = tree.best_rule(tree.cells(answered, np.full(40, sign), np.ones(40)))
        assert rule.words([tree.Question(0, np.inf, "", ""), tree.Question(0, 0.0, "x", "z")]) == words


def test_a_question_is_asked_only_if_it_is_worth_a_standard_error():
    n, random = 400, np.random.default_rng(3)
    x = random.normal(size=(n, 2))
    answered = np.stack([np.ones(n, bool), x[:, 0] <= 0.0, x[:, 1] <= 0.0], axis=1)
    for strength in (2.0, 1.0, 0.0):
        benefit = np.where(answered[:, 1], 1.0, -1.0) + random.normal(size=n)
        benefit += strength * np.where(answered[:, 2], 1.0, -1.0)
        sites = [(answered[own], benefit[own], np.ones(len(x))[own]) for own in (slice(150), slice(150, n))]
        found = tree.together([tree.cells(*site) for site in sites])
        rules = [tree.best_rule(found, depth) for depth in (0, 1, 2)]
        rule = tree.simplest(rules, [tree.forgone(rules, *site) for site in sites])
        less = [benefit[rules[2].of(answered)].sum() - benefit[one.of(answered)].sum() for one in rules]
        differ = [rules[2].of(answered) != one.of(answered) for one in rules]
        errors = [np.sqrt((benefit[one] ** 2).sum()) for one in differ]
        first = next(one for one, lost, error in zip(rules, less, errors, strict=True) if lost <= error)
        assert rule == first
        if not strength:  # the second covariate has nothing to do with the benefit
            assert (rule.first, rule.after) in ((1, (0, 0)), (0, (1, 0)))


def schema() -> Schema:
    return Schema(
        covariates=(
            ColumnSchema(name="age", kind="numeric"),
            ColumnSchema(name="sex", kind="categorical", levels=("f", "m")),
            ColumnSchema(name="city", kind="categorical", levels=("a", "b", "c")),
            ColumnSchema(name="smoker", kind="binary"),
        ),
        control="0",
        treated="1",
    )


def test_a_rule_is_told_in_the_units_of_the_tables():
    from oracle.world import scaling_of

    scaling = scaling_of(mean=np.array([61.7, 0.5, 0.2, 0.3, 0.4]), sd=np.array([9.87, 0.5, 0.4, 0.46, 0.5]))
    questions = tree.questions_of(schema(), scaling)
    yes = [question.yes for question in questions]
    assert "age <= 61.7" in yes and {"sex is f", "city is not b", "city is not c", "smoker = 0"} <= set(yes)
    ages = [place for place, one in enumerate(questions) if one.feature == 0 and place]
    sex = yes.index("sex is f")

    def told(first, after, treats):
        return tree.Rule(first, after, treats).words(questions)

    old, young, both = ages[6], ages[2], (True, True)
    assert told(old, (sex, 0), ((False, True), both)) == f"treat if {yes[old]} and sex is m, or " + (
        questions[old].no
    )
    assert told(old, (young, 0), ((True, False), (False, False))) == f"treat if {yes[young]}"
    assert told(0, (sex, 0), ((True, False), (False, False))) == "treat if sex is f"
    # What is told is what is done: who is exactly at a threshold is told to be at most there.
    point = float(yes[old].removeprefix("age <= "))
    at = (np.array([[point, 0, 0, 0, 0]]) - scaling.mean) / scaling.sd
    assert tree.answers(questions, at)[0, old]


def test_parts_have_their_shares_within_the_arms_keep_clusters_and_know_every_level():
    random = np.random.default_rng(8)
    table = pd.DataFrame({"w": random.binomial(1, 0.3, 1000), "a": random.normal(size=1000), "b": 0.0,
                          "k": ["rare"] + ["other"] * 999, "house": np.arange(1000) // 4})  # fmt: skip
    for seed in range(5):
        part = parts_of(table, STUDY.columns, np.random.default_rng(seed))
        assert part[0] == 0
        for arm in (0, 1):
            shares = np.bincount(part[table["w"] == arm], minlength=len(ENDS)) / (table["w"] == arm).sum()
            np.testing.assert_allclose(np.cumsum(shares), ENDS, atol=0.006)
    clustered = STUDY.columns.model_copy(update={"cluster": "house"})
    part = parts_of(table, clustered, np.random.default_rng(1))
    assert (pd.Series(part).groupby(table["house"]).nunique() == 1).all()


def tables(seed: int, n: int, base: float, slope: float) -> dict[str, pd.DataFrame]:
    """Two sites; the effect is base + slope · a, and `a` also confounds."""
    random = np.random.default_rng(seed)
    x, site = random.normal(size=(n, 2)), random.integers(2, size=n)
    k = random.choice(["u", "v"], n)
    w = random.binomial(1, 1.0 / (1.0 + np.exp(-0.7 * x[:, 0])))
    y = x[:, 0] + 0.5 * x[:, 1] + 0.3 * site + w * (base + slope * x[:, 0]) + random.normal(size=n)
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "k": k, "w": w, "y": y})
    return {f"s{number}": table[site == number].reset_index(drop=True) for number in (0, 1)}


def aipw(seed: int = 1) -> up.AIPW:
    return up.AIPW(folds=1, draws=20, seed=seed)


@pytest.mark.slow
def test_the_best_policy_is_found_and_valued():
    found = up.policy(aipw(), STUDY, tables(3, 1600, 0.0, 1.0), cost=0.5)
    # The best policy treats a > 0.5, with a gain of E[(a − 0.5)₊] = φ(0.5) − 0.5 Φ(−0.5) = 0.198.
    gains, values = found.gains(), found.values()
    assert gains.loc["predicted effect", "lower"] < 0.198 < gains.loc["predicted effect", "upper"]
    assert gains.loc["rule", "lower"] > 0.0
    assert "a > " in found.rule
    assert gains.loc["everybody", "upper"] < 0.0  # the average effect is 0, and treating costs
    # Predictions at a = 0.5 have errors of about 0.12, so that the share above has one of about 0.12 φ(0.5);
    # the slope has one of about 0.13, from the scores and from the predictions. The bounds are three errors.
    assert values.loc["predicted effect", "treated"] == pytest.approx(0.309, abs=0.13)
    calibration = found.calibration()
    assert calibration.loc["slope", "estimate"] == pytest.approx(1.0, abs=0.4)
    assert (calibration["p_value"] < 0.001).all()
    fifths = found.sorted_effects()
    assert fifths["share"].sum() == pytest.approx(1.0)
    # Mean of a standard normal in its fifths.
    assert fifths["effect"].tolist() == pytest.approx([-1.40, -0.53, 0.0, 0.53, 1.40], abs=0.5)


@pytest.mark.slow
def test_smaller_is_better_is_larger_is_better_of_the_negative_outcome():
    sites = tables(4, 600, 0.2, 0.5)
    turned = {name: table.assign(y=-table["y"]) for name, table in sites.items()}
    one = up.policy(aipw(), STUDY, sites, cost=0.1)
    other = up.policy(aipw(), STUDY, turned, cost=0.1, larger_is_better=False)
    # Predictions are means of draws, whose errors have no other sign.
    left, right = (each.gains("as observed").drop(index="predicted effect") for each in (one, other))
    pd.testing.assert_frame_equal(left, right, rtol=1e-6)
    assert one.rule == other.rule and one.rules == other.rules
    assert up.policy(aipw(), STUDY, sites, cost=0.1).gains().equals(one.gains())
    assert not up.policy(aipw(2), STUDY, sites, cost=0.1).gains().equals(one.gains())


@pytest.mark.slow
def test_own_outcomes_of_the_last_part_do_not_change_any_decision(monkeypatch):
    """Who was valued last is nobody whose outcome a fit has seen, except for the rule of everybody."""
    sites, seen = tables(5, 500, 0.0, 1.0), []

    def watched(design, watch, tell):
        for part in valued_parts(design, watch, tell):
            seen.append((design, part))
            yield part

    monkeypatch.setattr("unpooled.estimators.policy.policy.valued_parts", watched)
    up.policy(aipw(), STUDY, sites)
    design, last = seen[-1]
    changed = {}
    for name, table in sites.items():
        # Two people of the same arm swap outcomes, so that the units on which all agree stay the same.
        places = np.flatnonzero((design.places[name] == len(ENDS) - 1) & (table["w"] == 1))
        y = table["y"].to_numpy().copy()
        y[places] = y[places][::-1]
        changed[name] = table.assign(y=y)
    up.policy(aipw(), STUDY, changed)
    for name, now in seen[-1][1].people.items():
        before = last.people[name]
        np.testing.assert_allclose(now.predicted, before.predicted, rtol=1e-9)
        np.testing.assert_array_equal(now.chosen, before.chosen)
        assert not np.allclose(now.scores, before.scores)


@pytest.mark.slow
def test_weights_clusters_counts_and_gaps_are_taken():
    random = np.random.default_rng(9)
    sites = {
        name: table.assign(
            weight=random.uniform(0.5, 2.0, len(table)),
            house=np.arange(len(table)) // 3,
            y=random.poisson(np.exp(0.3 * table["a"] + 0.3 * table["w"] * (table["a"] > 0))),
            b=table["b"].where(random.random(len(table)) > 0.1),
        )
        for name, table in tables(6, 700, 0.0, 0.0).items()
    }
    study = up.Study(
        treatment="w", outcome="y", covariates=["a", "k"], incomplete=["b"], missing="indicator",
        weight="weight", cluster="house", diagnostics=False,
    )  # fmt: skip
    found = up.policy(aipw(), study, sites)
    assert np.isfinite(found.gains().to_numpy()).all()
    assert found.values()["outcome"].between(0.5, 2.0).all()


@pytest.mark.thorough
@pytest.mark.slow
def test_without_differences_in_effect_neither_slope_nor_value_is_exaggerated():
    rejected, above = [], []
    for seed in range(60):
        found = up.policy(aipw(seed), STUDY, tables(1000 + seed, 500, 0.0, 0.0))
        slope, gains = found.calibration().loc["slope"], found.gains()
        rejected.append(not slope["lower"] <= 0.0 <= slope["upper"])
        above.append(gains.loc[["predicted effect", "rule"], "lower"].gt(0.0).to_list())
    # 3 and 1.5 of 60 are expected; more than 9 and 6 have probabilities below 0.001.
    assert sum(rejected) <= 9
    assert np.all(np.sum(above, axis=0) <= 6)


def test_what_cannot_be_valued_is_refused():
    table = tables(7, 60, 0.0, 0.0)
    for study, cost, words in (
        (STUDY, np.nan, "cost must be a number"),
        (
            up.Study(treatment="w", outcome="y", covariates=["a"], incomplete=["b"]),
            0.0,
            "complete covariates",
        ),
        (up.Study(treatment="w", outcome="y", covariates=["a"], id="k"), 0.0, "at one site"),
    ):
        with pytest.raises(StudyError, match=words):
            up.policy(aipw(), study, table, cost=cost)
    with pytest.raises(StudyError, match="trim"):
        up.policy(aipw(), STUDY, table, trim=0.6)
    trial = {"trial": table["s0"][table["s0"]["w"] == 1], "s1": table["s1"]}
    with pytest.raises(DataError, match="both arms"):
        up.policy(aipw(), STUDY, trial)
    with pytest.raises(StudyError, match="policy must be known"):
        policy_of([[people(1, 20)]], np.zeros(4)).gains("anybody")
