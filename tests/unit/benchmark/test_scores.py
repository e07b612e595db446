"""Every score against an example worked by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unpooled.benchmark.scores import Estimate, interval_scores, root_mean_square, score

TRUTH = pd.DataFrame({"y0": [0.0, 1.0], "y1": [2.0, 5.0], "mu0": [0.0, 0.0], "mu1": [1.0, 3.0]})


def test_the_two_tasks_have_targets_of_their_own() -> None:
    # Individual effects 2 and 4, conditional ones 1 and 3.
    found = score(Estimate(np.array([2.0, 5.0]), np.array([1.0, 5.0])), TRUTH, TRUTH)
    assert found == {
        "imputation": pytest.approx(np.sqrt(0.5)),
        "prediction": pytest.approx(np.sqrt(2.0)),
        "imputation_ate_error": pytest.approx(0.5),
        "ate_error": pytest.approx(1.0),
        "ate": pytest.approx(3.0),
        "outcome_sd": pytest.approx(0.5),
    }


def test_training_people_have_an_error_of_their_own() -> None:
    found = score(Estimate(np.zeros(2), np.ones(2), training=np.array([1.0, 7.0]), ate=4.0), TRUTH, TRUTH)
    assert found["in_sample_prediction"] == pytest.approx(np.sqrt(8.0))
    assert found["in_sample_ate_error"] == pytest.approx(2.0)


def test_root_mean_square_is_not_the_mean_absolute_error() -> None:
    assert root_mean_square(np.array([0.0, 6.0])) == pytest.approx(np.sqrt(18.0))


def test_an_interval_pays_its_width_and_more_where_it_misses() -> None:
    # 101 draws 0, 1, …, 100: the 80 % interval is [10, 90].
    draws = np.tile(np.arange(101.0)[:, None], (1, 3))
    found = interval_scores(draws, np.array([50.0, 95.0, 10.0]), 80)
    assert found["coverage"] == pytest.approx(2 / 3)
    assert found["width"] == pytest.approx(80.0)
    assert found["score"] == pytest.approx(80.0 + (2 / 0.2) * 5.0 / 3)


def test_draws_bring_coverage_at_three_levels_and_the_sd_of_the_average() -> None:
    draws = np.random.default_rng(0).normal([1.0, 3.0], 0.1, (4000, 2))
    found = score(Estimate(np.zeros(2), draws.mean(axis=0), draws, draws.mean(axis=1)), TRUTH, TRUTH)
    assert [found[f"cate_{level}_coverage"] for level in (50, 80, 95)] == [1.0, 1.0, 1.0]
    assert found["ate_95_coverage"] == 1.0
    assert found["ate_sd"] == pytest.approx(0.1 / np.sqrt(2.0), rel=0.05)
    assert found["cate_95_width"] == pytest.approx(2 * 1.96 * 0.1, rel=0.05)
