"""Diagnostics against pandas, statsmodels and worked numbers, and of studies that ought to pass or fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t
from statsmodels.stats.meta_analysis import combine_effects

from oracle.records import diagnostic_statistics
from unpooled import AIPW, Study, load
from unpooled.diagnostics.balance import balance
from unpooled.diagnostics.checks import agreement_check, balance_check, comparison_check
from unpooled.diagnostics.heterogeneity import comparators, leave_one_out, pooled, site_estimates
from unpooled.diagnostics.overlap import extreme, outside_support
from unpooled.diagnostics.study_diagnostics import StudyDiagnostics, diagnose
from unpooled.errors import FitError, StudyError
from unpooled.methods.diagnostics.balance import EDGES, Regressors
from unpooled.methods.diagnostics.rounds import Unavailable
from unpooled.study import ALL_SITES

STUDY = Study(treatment="w", outcome="y", covariates=["a", "b"], diagnostics=True)


def tables(confounding: float, effects: tuple[float, ...] = (1.0, 1.0, 1.0)) -> dict[str, pd.DataFrame]:
    """Those with large a are treated, the more surely the stronger the confounding."""
    rng, made = np.random.default_rng(8), {}
    for place, effect in enumerate(effects):
        a, b, noise = rng.normal(size=(3, 120 - 8 * place))
        w = (rng.random(len(a)) < 1.0 / (1.0 + np.exp(-confounding * a))).astype(int)
        made[f"site{place}"] = pd.DataFrame({"a": a, "b": b, "w": w, "y": a + b + effect * w + noise})
    return made


def verdicts(seen: StudyDiagnostics) -> dict[str, bool]:
    return dict(zip(seen.checks["name"], seen.checks["passed"], strict=True))


# ------------------------------------------------------------------------------- Table 1


def with_missing_values() -> dict[str, pd.DataFrame]:
    rng, made = np.random.default_rng(3), {}
    for site, rows in (("north", 110), ("south", 125)):
        frame = pd.DataFrame(
            {
                "age": rng.normal(60.0, 9.0, rows),
                "flag": rng.integers(0, 2, rows),
                "level": rng.choice(["low", "mid", "top"], rows),
                "u": rng.normal(5.0, 2.0, rows),
                "v": rng.integers(0, 2, rows).astype(float),
                "w": rng.integers(0, 2, rows),
                "y": rng.normal(size=rows),
            }
        )
        frame.loc[rng.random(rows) < 0.3, "u"] = np.nan
        frame.loc[rng.random(rows) < 0.3, "v"] = np.nan
        made[site] = frame
    return made


@pytest.mark.slow
def test_table_one_is_what_pandas_groups() -> None:
    made = with_missing_values()
    study = Study(
        treatment="w", outcome="y", covariates=["age", "flag", "level"], incomplete=["u", "v"],
        method={"name": "causal_fi"}, diagnostics=True,
    )  # fmt: skip
    found = diagnose(study, made).table_one.set_index(["site", "feature"])
    assert not found["withheld"].any()
    for site, frame in {**made, ALL_SITES: pd.concat(made.values())}.items():
        wide = frame.assign(**{"level=mid": frame["level"] == "mid", "level=top": frame["level"] == "top"})
        grouped = wide.drop(columns="level").astype(float).groupby("w")
        for feature in ("age", "flag", "level=mid", "level=top", "u", "v"):
            one, row = grouped[feature], found.loc[(site, feature)]
            for number, arm in enumerate(("control", "treated")):
                assert row[f"{arm}_people"] == one.count()[number]
                assert row[f"{arm}_missing"] == one.size()[number] - one.count()[number]
                np.testing.assert_allclose(row[f"{arm}_mean"], one.mean()[number], rtol=1e-10)
                np.testing.assert_allclose(row[f"{arm}_sd"], one.std(ddof=0)[number], rtol=1e-10)
            difference = (one.mean()[1] - one.mean()[0]) / np.sqrt(one.var(ddof=0).mean())
            np.testing.assert_allclose(row["difference"], difference, rtol=1e-8, atol=1e-12)
    assert len(found) == 3 * 6


# -------------------------------------------------------------------------------- checks


@pytest.mark.slow
def test_a_trial_passes_every_check() -> None:
    seen = diagnose(STUDY, tables(0.0))
    assert verdicts(seen) == {
        "common support": True,
        "extreme propensities": True,
        "effective sample size": True,
        "balance after weighting": True,
        "sites agree": True,
    }
    assert seen.extreme == 0.0
    assert (seen.weights["effective"] > 0.95 * seen.weights["people"]).all()
    assert all(text.endswith(".") for text in seen.checks["words"])


@pytest.mark.slow
def test_strong_confounding_fails_support_and_balance() -> None:
    seen = diagnose(STUDY, tables(6.0))
    found = verdicts(seen)
    assert not found["common support"]
    assert not found["balance after weighting"]
    assert seen.extreme > 0.5
    assert "of 'a'" in seen.checks.set_index("name").loc["balance after weighting", "words"]
    naive = seen.comparators.set_index("estimator").loc["unadjusted difference", "estimate"]
    adjusted = seen.comparators.set_index("estimator").loc["doubly robust (AIPW)", "estimate"]
    assert abs(adjusted - 1.0) < 0.5 < 1.0 < abs(naive - 1.0)


@pytest.mark.slow
def test_sites_that_disagree_are_told() -> None:
    seen = diagnose(STUDY, tables(0.5, (0.0, 1.0, 4.0)))
    assert not verdicts(seen)["sites agree"]
    assert seen.heterogeneity["i_squared"] > 0.8


def test_thresholds_are_inclusive_and_what_is_not_known_is_not_judged() -> None:
    frame = pd.DataFrame({"feature": ["a", "b"], "before": [0.5, np.nan], "after": [-0.1, np.nan]})
    assert balance_check(frame).passed
    assert not balance_check(frame.assign(after=[-0.11, np.nan])).passed
    assert agreement_check({}) == []
    doubly = pd.DataFrame([("doubly robust (AIPW)", 0.0, 2.0)], columns=["estimator", "lower", "upper"])
    assert comparison_check((2.0, 3.0), doubly).passed
    apart = comparison_check((2.5, 3.0), doubly)
    assert (apart.passed, apart.found) == (False, 0.5)
    assert comparison_check((-3.0, -1.0), doubly).found == 1.0


def test_support_and_extremes_are_shares_to_the_nearest_five_people() -> None:
    people = np.zeros((2, len(EDGES) - 1))
    place = [int(np.searchsorted(EDGES, one)) - 1 for one in (0.02, 0.06, 0.12, 0.17, 0.22, 0.999)]
    people[0, place[:3]], people[1, place[3:]] = (7, 6, 40), (40, 33, 2)
    total = {"histogram": people, "arms": people.sum(axis=1)}
    statistics = diagnostic_statistics(summed=total, per_site={"shown": np.ones((1, *people.shape))})
    assert outside_support(statistics) == 50 / 128  # 7 + 6 + 33 + 2 = 48; .12 and .17 are alike
    assert extreme(statistics) == 15 / 128  # 7 + 6 + 2


def test_withheld_bins_support_others_and_count_as_many_people_as_they_may_hold() -> None:
    """Of 60 people at a site with limits, 12 treated are withheld in three bins and 4 control in one."""
    people, shown = np.zeros((2, len(EDGES) - 1)), np.ones((2, len(EDGES) - 1))
    low, middle, high, top = (int(np.searchsorted(EDGES, one)) - 1 for one in (0.01, 0.42, 0.47, 0.97))
    people[0, middle], people[1, high] = 24, 20
    shown[0, low], shown[1, [low, middle, top]] = 0, 0
    total = {"histogram": people, "arms": np.array([28.0, 32.0])}
    each = {"histogram": people[None], "shown": shown[None], "arms": total["arms"][None]}
    statistics = diagnostic_statistics(summed=total, per_site=each)
    # Only `top` has nobody of the other arm; it has at most 12 − 2 people, and `low` and `top` 12 − 1 and 4.
    assert outside_support(statistics) == 10 / 60
    assert extreme(statistics) == 15 / 60


def test_a_rare_treatment_with_extreme_propensities_has_no_common_support() -> None:
    """One in a hundred is treated; all but a few propensities are far below those of the treated."""
    rng, made = np.random.default_rng(4), {}
    for site in range(2):
        a, b, noise = rng.normal(size=(3, 3000))
        w = (rng.random(3000) < 1.0 / (1.0 + np.exp(7.0 - 2.5 * a))).astype(int)
        made[f"site{site}"] = pd.DataFrame({"a": a, "b": b, "w": w, "y": a + w + noise})
    found = verdicts(diagnose(STUDY, made))
    assert not found["common support"]
    assert not found["extreme propensities"]


def test_balance_before_weighting_is_empty_where_few_carry_a_flag() -> None:
    """From both arms' sizes and the difference one could count them."""
    found = Regressors(("many", "rare"), np.array([True, True]), np.zeros(2), np.ones(2), 0)
    ones, arms = np.array([[30.0, 20.0], [25.0, 3.0]]), np.array([60.0, 50.0])
    total = {"people": np.tile(arms[:, None], 2), "sum": ones, "square": ones, "arms": arms}
    total |= {"weight": 2.0 * total["people"], "weighted": 2.0 * ones}
    told = balance(diagnostic_statistics(summed=total), found, [1, 1])
    np.testing.assert_allclose(told["before"], [0.0, np.nan], atol=1e-12)
    assert told["after"].notna().all()


# --------------------------------------------------------------------------- heterogeneity

COUNTS = {"a": 100, "b": 60, "c": 40, "d": 200}
SITES = diagnostic_statistics(
    site_people=np.array([100.0, 60.0, 40.0, 200.0]),
    site_weights=np.array([100.0, 60.0, 40.0, 200.0]),
    site_estimates=np.array([0.4, 1.1, -0.3, 0.7]),
    site_errors=np.array([0.2, 0.3, 0.25, 0.1]),
)


def test_heterogeneity_is_that_of_statsmodels() -> None:
    frame = site_estimates(SITES, 2.0, COUNTS, {})
    found = pooled(frame, 2.0)
    known = combine_effects(2.0 * SITES.site_estimates, (2.0 * SITES.site_errors) ** 2, method_re="dl")
    expected = {
        "q": known.q, "i_squared": known.i2, "tau_squared": known.tau2,
        "p_value": known.test_homogeneity().pvalue, "degrees": 3, "sites": 4,
    }  # fmt: skip
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10)
    for name, short, error in (("fixed", "fe", "fe"), ("random", "re", "re_hksj")):
        one = [found[name]["estimate"], found[name]["standard_error"]]
        expected_pair = [getattr(known, f"mean_effect_{short}"), getattr(known, f"sd_eff_w_{error}")]
        np.testing.assert_allclose(one, expected_pair, rtol=1e-10)
    assert known.sd_eff_w_re_hksj > known.sd_eff_w_re  # else the usual one would be used
    reach = t.ppf(0.975, 3) * np.sqrt(known.tau2 + known.sd_eff_w_re_hksj**2)
    ends = [found["random"]["prediction_lower"], found["random"]["prediction_upper"]]
    np.testing.assert_allclose(ends, [known.mean_effect_re - reach, known.mean_effect_re + reach])
    assert known.tau2 > 0.0
    rows = comparators(SITES, 2.0, found)
    np.testing.assert_allclose(rows["estimate"].iloc[-2:], [known.mean_effect_fe, known.mean_effect_re])
    reach = (rows["upper"] - rows["lower"]) / 2.0 / rows["standard_error"]
    np.testing.assert_allclose(reach, [1.959964] * 4 + [t.ppf(0.975, 3)], rtol=1e-6)


def test_of_a_single_shown_site_there_is_no_heterogeneity() -> None:
    frame = site_estimates(SITES, 1.0, COUNTS, {"b": "", "c": "", "d": ""})
    assert frame["site"].tolist() == ["a"]
    assert pooled(frame, 2.0) == {}
    no_error = frame.assign(standard_error=0.0)
    assert pooled(pd.concat([frame, no_error]), 2.0) == {}
    assert leave_one_out(SITES, 1.0, COUNTS, dict.fromkeys(COUNTS, "")).empty


def test_without_a_site_it_is_the_mean_of_everybody_elses_scores() -> None:
    rng = np.random.default_rng(1)
    scores = {
        site: rng.normal(place, 1.0 + place, count) for place, (site, count) in enumerate(COUNTS.items())
    }
    sites = diagnostic_statistics(
        site_people=np.array([float(len(one)) for one in scores.values()]),
        site_weights=np.array([float(len(one)) for one in scores.values()]),
        site_estimates=np.array([one.mean() for one in scores.values()]),
        site_errors=np.array([one.std(ddof=1) / np.sqrt(len(one)) for one in scores.values()]),
    )
    found = leave_one_out(sites, 3.0, COUNTS, {"c": "few"}).set_index("site")
    assert list(found.index) == ["a", "b", "d"]
    for site in found.index:
        rest = 3.0 * np.concatenate([one for name, one in scores.items() if name != site])
        expected = [rest.mean(), rest.std(ddof=1) / np.sqrt(len(rest))]
        np.testing.assert_allclose(
            found.loc[site, ["estimate", "standard_error"]].to_list(), expected, rtol=1e-10
        )


def test_without_a_site_others_count_by_their_sampling_weights() -> None:
    """All people of a site have the same weight."""
    rng, weights = np.random.default_rng(2), dict(zip(COUNTS, (0.5, 2.0, 1.0, 3.0), strict=True))
    scores = {site: rng.normal(place, 1.0, count) for place, (site, count) in enumerate(COUNTS.items())}
    sites = diagnostic_statistics(
        site_people=np.array([float(count) for count in COUNTS.values()]),
        site_weights=np.array([weights[site] * count for site, count in COUNTS.items()]),
        site_estimates=np.array([one.mean() for one in scores.values()]),
        site_errors=np.array([one.std(ddof=1) / np.sqrt(len(one)) for one in scores.values()]),
    )
    found = leave_one_out(sites, 1.0, COUNTS, {}).set_index("site")
    for site in COUNTS:
        others = [name for name in COUNTS if name != site]
        rest = np.concatenate([scores[name] for name in others])
        weight = np.repeat([weights[name] for name in others], [COUNTS[name] for name in others])
        mean, count = np.average(rest, weights=weight), len(rest)
        error = np.sqrt(np.sum((weight * (rest - mean)) ** 2) * count / (count - 1)) / weight.sum()
        row = found.loc[site, ["estimate", "standard_error"]].to_list()
        np.testing.assert_allclose(row[0], mean, rtol=1e-10)
        np.testing.assert_allclose(row[1], error, rtol=1e-10)


# -------------------------------------------------------------------------------- refusals


@pytest.mark.slow
def test_where_diagnostics_are_unavailable_the_fit_is_complete_and_the_reason_is_reported() -> None:
    """One treated person at each site, so all of them in one fold; the fit holds nobody out."""
    made = {name: one.assign(w=(np.arange(len(one)) < 1).astype(int)) for name, one in tables(0.0).items()}
    model = AIPW(seed=1, draws=40, folds=1).fit(STUDY, made)
    assert np.all(np.isfinite(model.result_.site_effects))
    assert isinstance(model.result_.diagnostic_statistics, Unavailable)
    with pytest.raises(FitError, match="outside every fold") as raised:
        model.diagnostics()
    assert "diagnostics = false" in raised.value.remedy
    assert str(raised.value).count("\n") == 2
    with pytest.raises(FitError, match="outside every fold"):
        diagnose(STUDY, made)


@pytest.mark.slow
def test_a_fit_without_diagnostics_says_so() -> None:
    model = AIPW(draws=40).fit(Study(treatment="w", outcome="y", covariates=["a", "b"]), tables(0.0))
    with pytest.raises(StudyError, match="diagnostics=True"):
        model.diagnostics()


@pytest.mark.slow
def test_saved_diagnostics_are_the_same_when_loaded(tmp_path: Path) -> None:
    model = AIPW(draws=40).fit(STUDY, tables(0.5))
    model.save(tmp_path / "model")
    before, after = model.diagnostics(), load(tmp_path / "model").diagnostics()
    for name in ("table_one", "overlap", "weights", "balance", "sites", "leave_one_out", "comparators"):
        pd.testing.assert_frame_equal(getattr(before, name), getattr(after, name), check_exact=True)
