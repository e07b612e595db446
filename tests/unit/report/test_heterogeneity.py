"""Forests without each site, and by estimator."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from unpooled.report.figures import style
from unpooled.report.figures.heterogeneity import comparators, leave_one_out
from unpooled.report.figures.style import MANY, shortened

WITHOUT = pd.DataFrame(
    {"site": ["north", "south"], "estimate": [3.0, -1.0], "lower": [2.0, -2.0], "upper": [4.0, 0.5]}
)
FULL = {"estimate": 2.5, "lower": 1.5, "upper": 3.5}
ESTIMATORS = pd.DataFrame(
    {
        "estimator": ["FedCI", "AIPW"],
        "estimate": [3.0, np.nan],
        "lower": [2.0, np.nan],
        "upper": [4.0, np.nan],
    }
)


def names(ax):
    """From top to bottom."""
    labels = zip(ax.get_yticks(), ax.get_yticklabels(), strict=True)
    return [label.get_text() for _, label in sorted(labels, key=lambda each: -each[0])]


def test_a_row_for_each_site_left_out_with_its_numbers():
    ax = leave_one_out(WITHOUT, **FULL, outcome="weight", unit="kg")
    assert names(ax) == ["north", "south"]
    assert [text.get_text() for text in ax.texts] == ["3.00  [2.00, 4.00]", "−1.00  [−2.00, 0.50]"]
    intervals = [list(line.get_xdata()) for line in ax.lines if len(set(line.get_ydata())) == 1]
    assert [2.0, 4.0] in intervals and [-2.0, 0.5] in intervals
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("average effect on weight (kg)", "excluded site")


def test_the_interval_of_all_sites_lies_behind():
    ax = leave_one_out(WITHOUT, **FULL, outcome="weight")
    (band,) = ax.patches
    assert (band.get_x(), band.get_x() + band.get_width()) == (1.5, 3.5)
    (line,) = [line for line in ax.lines if line.get_label() == "all sites"]
    assert list(line.get_xdata()) == [2.5, 2.5]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "all sites",
        "95% interval, all sites",
    ]
    assert ax.get_xlabel() == "average effect on weight"


def test_the_studys_own_estimator_is_first_and_orange():
    ax = comparators(ESTIMATORS, outcome="weight", unit="kg")
    assert names(ax) == ["FedCI", "AIPW"]
    markers = {
        line.get_marker(): to_hex(line.get_color()) for line in ax.lines if line.get_marker() != "None"
    }
    assert markers == {"D": style.ORANGE.lower(), "s": style.BLUE.lower()}
    assert ax.get_xlabel() == "average effect on weight (kg)"


def test_an_estimate_that_could_not_be_had_is_said_to_be_so():
    texts = [text.get_text() for text in comparators(ESTIMATORS, outcome="weight").texts]
    assert texts == ["3.00  [2.00, 4.00]", "not estimated"]


def test_the_callers_axes_are_used():
    for draw in (
        lambda ax: leave_one_out(WITHOUT, **FULL, outcome="y", ax=ax),
        lambda ax: comparators(ESTIMATORS, outcome="y", ax=ax),
    ):
        ax = Figure().add_subplot()
        assert draw(ax) is ax
        assert ax.lines


def test_many_rows_with_long_names_keep_their_place():
    count = 2 * MANY
    long = pd.DataFrame({"site": ["a $long_{ name of a site$ " * 4] * count, "estimate": 3.0})
    ax = leave_one_out(long.assign(lower=2.0, upper=4.0), **FULL, outcome="$y_{$ " * 20, unit="$")
    figure = ax.get_figure()
    figure.draw_without_rendering()
    assert ax.get_window_extent().width > 0.4 * figure.bbox.width
    assert figure.get_size_inches()[1] < 0.2 * count + 2


@pytest.mark.parametrize("length", [30, 31, 200])
def test_a_long_name_loses_its_middle_and_a_dollar_is_no_formula(length):
    name = "$" + "a" * (length - 2) + "z"
    short = shortened(name)
    assert len(short) == 31  # with the stroke before the dollar
    assert short.startswith(r"\$a") and short.endswith("z")
    assert ("…" in short) == (length > 30)
