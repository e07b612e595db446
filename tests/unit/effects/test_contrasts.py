"""Effects by name, from draws of mean outcomes."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled.effects.contrasts import CONTRASTS, contrast, effects_table
from unpooled.effects.summary import interval

RNG = np.random.default_rng(4)
RISKS = np.stack([RNG.beta(20, 80, 4000), RNG.beta(30, 70, 4000)], axis=1)
"""About .2 and .3."""


def test_a_ratio_compares_the_means_and_its_interval_is_of_the_draws() -> None:
    found = contrast("ratio", RISKS, alpha=0.1)
    assert found.estimate == pytest.approx(RISKS[:, 1].mean() / RISKS[:, 0].mean())
    np.testing.assert_allclose([found.lower, found.upper], interval(RISKS[:, 1] / RISKS[:, 0], 0.1))


def test_an_odds_ratio_is_of_the_average_risks() -> None:
    control, treated = RISKS.mean(axis=0)
    expected = treated / (1.0 - treated) / (control / (1.0 - control))
    assert contrast("odds ratio", RISKS).estimate == pytest.approx(expected)


def test_the_number_needed_to_treat_is_the_inverse_of_the_difference() -> None:
    clear = np.stack([np.full(500, 0.2), 0.3 + 0.01 * RNG.standard_normal(500)], axis=1)
    found = contrast("number needed to treat", clear)
    lower, upper = interval(clear[:, 1] - clear[:, 0])
    np.testing.assert_allclose([found.lower, found.upper], [1.0 / upper, 1.0 / lower])
    assert found.lower < found.estimate < found.upper
    assert "two parts" not in found.note


def test_a_number_needed_to_treat_with_no_clear_difference_has_an_interval_of_two_parts() -> None:
    unclear = np.stack([np.full(500, 0.2), 0.2 + 0.05 * RNG.standard_normal(500)], axis=1)
    found = contrast("number needed to treat", unclear)
    assert found.lower < 0.0 < found.upper
    assert "two parts" in found.note


def test_ratios_of_means_near_zero_are_not_defined_and_say_so() -> None:
    near = np.stack([0.1 * RNG.standard_normal(500), np.ones(500)], axis=1)
    for name in ("ratio", "odds ratio"):
        found = contrast(name, near)
        assert np.isnan([found.estimate, found.lower, found.upper]).all()
        assert "not clearly above 0" in found.note
    certain = np.stack([np.full(500, 0.5), np.ones(500)], axis=1)
    assert "not clearly below 1" in contrast("odds ratio", certain).note


def test_a_table_has_the_effects_that_an_outcome_has() -> None:
    draws = np.stack([RISKS, RISKS + 0.1], axis=1)
    found = effects_table(draws, ["everybody", "treated"], "binary", 0.05)
    assert list(found.index) == [(group, name) for group in ("everybody", "treated") for name in CONTRASTS]
    assert "odds ratio" not in effects_table(draws, ["a", "b"], "count", 0.05).index.get_level_values(1)
    assert found.loc[("treated", "control"), "estimate"] == pytest.approx(RISKS[:, 0].mean() + 0.1)


def test_a_method_that_knows_only_differences_says_so() -> None:
    found = effects_table(RISKS[:, None], ["everybody"], "binary", 0.05, differences_only=True)
    known = [("everybody", "difference"), ("everybody", "number needed to treat")]
    assert np.isfinite(found.loc[known, "estimate"]).all()
    rest = found.drop(index=known)
    assert rest[["estimate", "lower", "upper"]].isna().all(axis=None)
    assert rest["note"].str.contains("difference only").all()
