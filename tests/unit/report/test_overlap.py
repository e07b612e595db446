"""Propensities by arm: shares of the arm, mirrored, and marks where numbers are withheld."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure

from unpooled.report.figures import propensities

PEOPLE = {"control": [30.0, 10.0], "treated": [5.0, 15.0]}


def histogram(sites, people=PEOPLE):
    rows = [
        (site, arm, 0.5 * place, 0.5 * place + 0.5, count)
        for site in sites
        for arm, counts in people.items()
        for place, count in enumerate(counts)
    ]
    return pd.DataFrame(rows, columns=["site", "arm", "lower", "upper", "people"])


def bars(ax):
    """(left end, height) of every bar, those with a hatch apart."""
    found = {True: [], False: []}
    for container in ax.containers:
        for bar in container:
            found[bool(bar.get_hatch())].append((bar.get_x(), bar.get_y() + bar.get_height()))
    return found


def legend(owner):
    return [text.get_text() for text in owner.get_legend().get_texts()]


def test_the_treated_go_up_and_the_others_down_as_shares_of_their_arm():
    ax = propensities.overlap(histogram(["north", "south"]))
    found = bars(ax)
    np.testing.assert_allclose(found[False], [(0.0, 0.25), (0.5, 0.75), (0.0, -0.75), (0.5, -0.25)])
    assert found[True] == []
    assert legend(ax) == ["treated (up)", "control (down)"]
    assert (ax.get_title(loc="left"), ax.get_xlabel()) == ("Propensity score by arm", "propensity score")
    assert ax.get_xlim() == (0.0, 1.0)
    assert ax.yaxis.get_major_formatter()(-0.5, 0) == "50%"


def test_a_withheld_number_is_marked_where_it_is_missing_and_the_legend_says_why():
    people = {"control": [30.0, 10.0], "treated": [np.nan, 16.0]}
    ax = propensities.overlap(histogram(["north"], people))
    found = bars(ax)
    # At most 4 people are withheld: 16 of 20 at least are told.
    np.testing.assert_allclose(found[False], [(0.0, 0.0), (0.5, 0.8), (0.0, -0.75), (0.5, -0.25)])
    np.testing.assert_allclose(found[True], [(0.0, 0.2)])
    assert legend(ax)[-1] == "withheld (few people)"


def test_numbers_of_all_sites_are_not_added_to_those_of_each():
    hidden = histogram(["north"], {"control": [np.nan] * 2, "treated": [np.nan] * 2})
    ax = propensities.overlap(pd.concat([hidden, histogram(["all sites"])]))
    assert len(bars(ax)[False]) == 4
    assert bars(ax)[True] == []


def test_the_callers_axes_are_used():
    ax = Figure().add_subplot()
    assert propensities.overlap(histogram(["north"]), ax=ax) is ax
    assert ax.containers


def test_few_sites_have_a_panel_each(tmp_path):
    names = ["north", "south", "east", "$w_{$"]
    axes = propensities.overlap_by_site(histogram([*names, "all sites"]))
    assert [ax.get_title(loc="left") for ax in axes] == [*names[:3], r"\$w_{\$"]
    assert all(len(bars(ax)[False]) == 4 for ax in axes)
    assert [bool(ax.get_xlabel()) for ax in axes] == [False, True, True, True]
    axes[0].get_figure().savefig(tmp_path / "figure.png")


@pytest.mark.parametrize("hidden", [False, True])
def test_many_sites_are_strips_of_both_arms(hidden, tmp_path):
    names = [f"site {number}" for number in range(propensities.PANELS + 1)]
    people = {"control": [30.0, 10.0], "treated": [np.nan if hidden else 4.0, 16.0]}
    axes = propensities.overlap_by_site(histogram(names, people))
    assert [ax.get_title(loc="left") for ax in axes] == ["control", "treated"]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == names
    np.testing.assert_allclose(axes[0].collections[0].get_array(), [[0.75, 0.25]] * len(names))
    np.testing.assert_allclose(axes[1].collections[0].get_array()[:, 1], 0.8)
    marked = [part for part in axes[1].collections if isinstance(part, PatchCollection)]
    assert sum(len(part.get_paths()) for part in marked) == hidden * len(names)
    assert bool(axes[0].get_figure().legends) is hidden
    axes[0].get_figure().savefig(tmp_path / "figure.png")
