"""E-values against published ones, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.estimators.robustness.e_value import treated_share
from unpooled.maths.e_value import e_value, of_difference, of_means, of_ratios


def test_the_published_example() -> None:
    # VanderWeele and Ding (2017): risk ratio 3.9, interval 1.8 to 8.7.
    found = of_ratios(3.9, 1.8, 8.7)
    assert found.estimate == pytest.approx(7.26, abs=0.005)
    assert found.interval == pytest.approx(3.0, abs=0.005)


def test_what_protects_is_turned_round() -> None:
    assert of_ratios(1 / 3.9, 1 / 8.7, 1 / 1.8).interval == pytest.approx(of_ratios(3.9, 1.8, 8.7).interval)


def test_an_interval_that_holds_no_effect_needs_no_confounding() -> None:
    assert of_ratios(1.4, 0.9, 2.2).interval == 1.0
    assert e_value(1.0) == 1.0


def test_a_ratio_that_is_no_number_is_not_explained_away() -> None:
    assert e_value(math.inf) == e_value(0.0) == math.inf
    assert math.isnan(e_value(math.nan))


def test_a_difference_of_means_by_hand() -> None:
    # 2 kg of an sd of 4 kg: d = 0.5, exp(0.455) = 1.5762; se_d = 0.1, exp(0.455 − 0.178) = 1.3192.
    found = of_difference(2.0, 0.4, 4.0)
    assert found.ratio == pytest.approx(1.5762, abs=1e-4)
    assert found.ratio_lower == pytest.approx(1.3192, abs=1e-4)
    assert found.estimate == pytest.approx(1.5762 + math.sqrt(1.5762 * 0.5762), abs=1e-3)
    assert found.interval == pytest.approx(1.3192 + math.sqrt(1.3192 * 0.3192), abs=1e-3)


def test_a_difference_of_risks_by_hand() -> None:
    # 30 % have the outcome, half are treated, 0.2 more of them: 40 % against 20 %.
    found = of_means(0.2, 0.1, 0.3, mean=0.3, share=0.5)
    assert found.ratio == pytest.approx(2.0)
    assert (found.ratio_lower, found.ratio_upper) == pytest.approx((0.35 / 0.25, 0.45 / 0.15))
    assert of_means(0.9, 0.1, 1.0, mean=0.3, share=0.5).estimate == math.inf


def test_the_share_treated_is_over_everybody() -> None:
    frames = {"a": pd.DataFrame({"w": ["x"] * 10}), "b": pd.DataFrame({"w": ["x", "y"] * 15})}
    assert treated_share(frames, "w", "y") == pytest.approx(15 / 40)


@pytest.mark.parametrize("family", ["binary", "count"])
def test_a_study_of_risks_or_counts_gives_the_ratio_of_its_arms(family: str) -> None:
    random = np.random.default_rng(5)
    people = pd.DataFrame({"x": random.standard_normal(1200), "w": random.integers(0, 2, 1200)})
    chance = 0.2 + 0.2 * people["w"]  # twice as much when treated
    people["y"] = random.binomial(1, chance) if family == "binary" else random.poisson(5.0 * chance)
    study = up.Study(treatment="w", outcome="y", covariates="x", family=family)
    found = up.refute(up.AIPW(), study, up.split(people, sites=2), tests=["e_value"])
    means = people.groupby("w")["y"].mean()
    assert found.e_value["ratio"] == pytest.approx(means[1] / means[0], rel=0.03)
    assert found.e_value["estimate"] == pytest.approx(e_value(found.e_value["ratio"]))
    assert not found.worrying


def test_a_weak_effect_that_is_certain_is_worrying_and_no_effect_is_not() -> None:
    random = np.random.default_rng(5)
    people = pd.DataFrame({"x": random.standard_normal(4000), "w": random.integers(0, 2, 4000)})
    noise = random.standard_normal(4000)
    for effect, worrying in ((0.1, ["e_value"]), (0.0, [])):
        people["y"] = effect * people["w"] + noise
        study = up.Study(treatment="w", outcome="y", covariates="x")
        found = up.refute(up.AIPW(), study, up.split(people, sites=2), tests=["e_value"])
        assert found.worrying == worrying
