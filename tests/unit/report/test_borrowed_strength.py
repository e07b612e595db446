"""The figure of borrowed shares, and how a results folder comes to it."""

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from oracle import records
from unpooled.diagnostics.borrowed_strength import borrowed
from unpooled.disclosure.by_site import BySite
from unpooled.report.content import report_content
from unpooled.report.figure_files import draw_borrowed
from unpooled.report.figures import borrowed_strength
from unpooled.report.folder import finite
from unpooled.report.report_figures import draw_report_figures
from unpooled.report.results import result

SHARES = np.array([[0.86, 0.14], [-0.04, 1.04]])
TOLD = {
    "chosen": "observed",
    "observed": {"borrowed": BySite(SHARES, axes=2), "noise": 0.5},
    "categorical": {"borrowed": BySite(np.eye(2), axes=2)},
}


def _frame(count=2):
    names = [f"site {index}" for index in range(count)]
    return pd.DataFrame(np.eye(count), index=names, columns=names)


def test_shares_are_those_of_the_model_chosen():
    found = borrowed(TOLD, ("north", "south"))
    assert (found.loc["north", "south"], found.loc["south", "north"]) == (0.14, -0.04)
    assert (found.index.name, found.columns.name) == ("site", "from")


@pytest.mark.parametrize("between_sites", [{}, {"chosen": "gaussian", "gaussian": {}}])
def test_a_model_that_tells_no_shares_has_none(between_sites):
    assert borrowed(between_sites, ("north", "south")) is None


def test_the_figure_writes_every_share_and_says_which_way_it_goes():
    ax = borrowed_strength.borrowed(borrowed(TOLD, ("north", "south")))
    assert [text.get_text() for text in ax.texts] == ["86%", "14%", "−4%", "104%"]
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("estimate for", "data from")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["north", "south"]
    np.testing.assert_array_equal(ax.images[0].get_array(), SHARES)


def test_many_sites_are_told_by_colour_alone():
    assert not borrowed_strength.borrowed(_frame(borrowed_strength.WRITTEN + 1)).texts


def test_the_callers_axes_are_used():
    ax = Figure().add_subplot()
    assert borrowed_strength.borrowed(_frame(), ax=ax) is ax


def test_the_figure_lies_beside_its_shares(tmp_path):
    path = draw_borrowed(borrowed(TOLD, ("$n_{$", "south")), tmp_path / "borrowed.png")
    assert path.stat().st_size > 1000
    found = pd.read_csv(path.with_suffix(".csv"), index_col="site")
    np.testing.assert_allclose(found, SHARES)


def test_a_results_folder_has_the_figure_where_shares_are_told(model, tmp_path):
    context = records.causal_rff_context(2, rates=np.array([0.5, 0.5]), frequencies=np.zeros((0, 2)))
    study, effects = model.result_.study, model.result_.site_effects
    telling = records.model(study, effects, fit_diagnostics=TOLD, context=context)
    for one in (model, telling):
        content = finite(report_content(one, finite(result(one)), None, None, None))
        drawn = draw_report_figures(one, content, tmp_path)
        assert ("borrowed" in drawn) is (tmp_path / "borrowed.png").exists() is (one is telling)
    numbers = json.loads(json.dumps(finite(result(telling))))
    assert numbers["diagnostics"]["observed"]["borrowed"] == SHARES.tolist()
    assert [row["name"] for row in numbers["minimax_bounds"]] == ["Lemma 3", "Lemma 4 (i)", "Lemma 4 (ii)"]
