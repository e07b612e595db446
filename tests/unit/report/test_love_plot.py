"""The Love plot."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from unpooled.report.figures.love_plot import MOST, love

BALANCE = pd.DataFrame(
    {"feature": ["age", "sex=m", "bmi"], "before": [-0.4, 0.05, 0.2], "after": [0.02, -0.15, -0.01]}
)


def drawn(ax):
    """Both kinds of markers: where they are, and whether they are filled with white."""
    found = {part.get_label(): part for part in ax.collections}
    return {
        name: (part.get_offsets()[:, 0], (part.get_facecolor()[:, :3] == 1.0).all())
        for name, part in found.items()
        if name.endswith("weighting")
    }


def test_absolute_values_stand_by_size_open_before_and_filled_after():
    ax = love(BALANCE)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["sex=m", "bmi", "age"]  # age on top
    found = drawn(ax)
    np.testing.assert_allclose(found["before weighting"][0], [0.05, 0.2, 0.4])
    np.testing.assert_allclose(found["after weighting"][0], [0.15, 0.01, 0.02])
    assert (found["before weighting"][1], found["after weighting"][1]) == (True, False)
    assert ax.get_title(loc="left") == "Covariate balance"
    assert ax.get_xlabel() == "absolute standardised mean difference"


@pytest.mark.parametrize("threshold", [0.1, 0.25])
def test_the_limit_is_a_dashed_line(threshold):
    (line,) = love(BALANCE, threshold=threshold).lines
    assert line.get_xdata() == [threshold, threshold]
    assert line.is_dashed()
    assert line.get_label() == f"threshold {threshold}"


def test_of_many_features_the_largest_are_shown_whether_before_or_after():
    count = MOST + 20
    size = np.linspace(0.0, 0.5, count)
    balance = pd.DataFrame({"feature": [f"x{i}" for i in range(count)], "before": size, "after": 0.0})
    balance.loc[0, "after"] = -0.9
    ax = love(balance)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert len(names) == MOST
    assert (names[0], names[-1]) == ("x0", f"x{count - 1}")
    assert ax.get_title(loc="left") == f"Balance: {MOST} largest of {count} differences"


def test_a_difference_that_is_not_known_is_left_out_and_breaks_nothing(tmp_path):
    balance = pd.DataFrame({"feature": ["$x_{$", "y"], "before": [np.nan, 0.3], "after": [np.nan, np.nan]})
    ax = love(balance)
    ax.get_figure().savefig(tmp_path / "figure.png")
    assert ax.get_xlim()[1] > 0.3
    assert [label.get_text() for label in ax.get_yticklabels()] == ["y"]
    assert ax.get_title(loc="left") == "Covariate balance"


def test_the_callers_axes_are_used():
    ax = Figure().add_subplot()
    assert love(BALANCE, ax=ax) is ax
    assert ax.collections
