"""Figures of the benchmark show what the frames say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unpooled.report.figures.comparisons import ate_by_sites, by_sites, ranking
from unpooled.report.figures.costs import cost_curve, slope

SUMMARY = pd.DataFrame(
    {
        "contender": ["fedci", "fedci", "gp", "gp"], "arrangement": ["federated"] * 2 + ["combined"] * 2,
        "sites": [1, 5, 1, 5], "prediction": [3.0, 1.0, 4.0, 2.0], "prediction_se": 0.1,
        "imputation": [2.0, 1.1, 3.0, 1.8],
    }
)  # fmt: skip


def test_a_line_for_each_arrangement_falls_with_the_sites() -> None:
    ax = by_sites(SUMMARY, measure="prediction", series="arrangement")
    lines = {line.get_label(): line for line in ax.containers}
    assert set(lines) == {"federated", "combined"}
    np.testing.assert_allclose(np.asarray(lines["federated"][0].get_ydata(), float), [3.0, 1.0])
    assert ax.get_ylim()[0] == 0.0


def test_the_best_contender_stands_on_top() -> None:
    ax = ranking(SUMMARY[SUMMARY["sites"] == 5], ours="fedci")
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[-1] == "fedci (federated)"  # the highest place
    prediction = ax.collections[1].get_offsets()
    np.testing.assert_allclose(prediction[:, 0], [2.0, 1.0])


def test_intervals_are_drawn_about_the_truth() -> None:
    cells = pd.DataFrame(
        {"sites": [1, 1, 5], "replicate": [1, 2, 1], "ate": [2.0, 4.0, 3.1], "ate_truth": 3.0}
    ).assign(ate_95_lower=lambda f: f["ate"] - 1.0, ate_95_upper=lambda f: f["ate"] + 1.0)
    ax = ate_by_sites(cells)
    segments = np.concatenate(
        [part.get_segments() for part in ax.collections if hasattr(part, "get_segments")]
    )
    np.testing.assert_allclose(np.sort(segments[:, 0, 0]), [-2.0, -0.9, 0.0])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["5 sites", "1 site"]


def test_the_slope_is_the_exponent_of_growth() -> None:
    size = np.array([10.0, 20.0, 40.0])
    assert slope(size, 3.0 * size**1.5) == pytest.approx(1.5)
    points = pd.DataFrame({"rows": size, "warm_seconds": size, "megabytes": 7.0, "peak_gb": size**2})
    legend = cost_curve(points, growing="rows").get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert [label[-4:] for label in labels] == ["1.00", "0.00", "2.00"]
