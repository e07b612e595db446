"""The figure of where values are missing."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from unpooled.report.figures import missing_values

SHARES = pd.DataFrame(
    {"bmi": [0.2, 0.4, 0.3], "smoking": [0.0, 0.9, 0.5]}, index=["north", "south", "all sites"]
)
PATTERNS = pd.DataFrame(
    {"missing": ["nothing", "bmi", "smoking", "bmi, smoking", "x", "z"], "rows": [1200, 3, 5, 7, 1, 2]}
)


def test_every_share_is_written_all_sites_last():
    ax = missing_values.missing(SHARES, PATTERNS)
    assert [text.get_text() for text in ax.texts] == ["20%", "0%", "40%", "90%", "30%", "50%"]
    assert [text.get_weight() for text in ax.texts] == ["normal"] * 4 + ["bold"] * 2
    assert [label.get_text() for label in ax.get_yticklabels()] == ["north", "south", "all sites"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["bmi", "smoking"]
    np.testing.assert_array_equal(ax.images[0].get_array(), SHARES)
    assert ax.images[0].get_clim() == (0.0, 1.0)
    assert ax.get_title(loc="left") == "Share of missing values"


def test_the_most_frequent_patterns_are_told():
    told = missing_values.missing(SHARES, PATTERNS).get_xlabel().replace("\n", " ").replace("\u00a0", " ")
    assert told.endswith("nothing (1,200); bmi, smoking (7); smoking (5); bmi (3); and 2 more")


def test_without_patterns_nothing_is_said_of_them():
    assert missing_values.missing(SHARES).get_xlabel() == ""


def test_a_withheld_share_is_no_number_and_the_figure_says_why():
    ax = missing_values.missing(SHARES.where(SHARES != 0.4))
    assert [text.get_text() for text in ax.texts][2] == "–"
    assert ax.get_xlabel() == "grey: withheld (few people)"


@pytest.mark.parametrize(
    ("columns", "written"), [(missing_values.WRITTEN, True), (missing_values.WRITTEN + 1, False)]
)
def test_many_columns_are_told_by_colour_with_its_scale(columns, written):
    shares = pd.DataFrame(np.full((3, columns), 0.5), columns=[f"$x_{{{i}$" for i in range(columns)])
    ax = missing_values.missing(shares)
    assert bool(ax.texts) is written
    assert len(ax.get_figure().axes) == (1 if written else 2)
    ax.get_figure().draw_without_rendering()


def test_the_callers_axes_are_used():
    ax = Figure().add_subplot()
    assert missing_values.missing(SHARES, ax=ax) is ax
    assert ax.images
