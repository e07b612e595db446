"""The figures: labelled, in the caller's axes where given."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from oracle import records
from unpooled.report.figure_data import densities, traffic_table
from unpooled.report.figures import average, convergence, costs


def words(ax):
    ticks = [label.get_text() for label in ax.get_yticklabels()]
    return " ".join([ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel(), *ticks])


def test_effects_are_labelled_with_the_outcome_and_its_unit(model):
    for ax in (
        average.forest(model.summary(), outcome="weight", unit="kg"),
        average.posterior(densities(model), model.summary(), outcome="weight", unit="kg"),
    ):
        assert "weight (kg)" in ax.get_xlabel()
        assert "north\nn = 30" in words(ax)
        assert "all sites\nn = 90" in words(ax)


def test_a_figure_without_a_unit_says_nothing_of_one(model):
    assert average.forest(model.summary(), outcome="y").get_xlabel() == "average effect on y"


def test_the_callers_axes_are_used():
    ax = Figure().add_subplot()
    assert convergence.convergence({"isotropic": [3.0, 1.0]}, ax=ax) is ax


def test_convergence_shows_the_distance_to_the_end():
    ax = convergence.convergence({"isotropic": [9.0, 2.0, 1.5], "projection": [5.0, 5.0]})
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [7.5, 0.5, 0.0])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [0.0, 0.0])


def test_an_objective_that_was_infinite_at_first_leaves_a_gap():
    ax = convergence.convergence({"isotropic": [np.inf, 4.0, 1.0]})
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [np.nan, 3.0, 0.0])


def test_densities_integrate_to_one(model):
    for _, mine in densities(model).groupby("site"):
        assert np.trapezoid(mine["density"], mine["effect"]) == pytest.approx(1.0, abs=0.02)


def test_draws_that_are_all_the_same_can_still_be_drawn(model):
    certain = records.model(model.result_.study, np.full((50, 2), 2.0))
    assert np.isfinite(densities(certain)["density"]).all()


@pytest.mark.parametrize(
    ("largest", "unit"), [(900, "bytes"), (9_000, "kilobytes"), (9_000_000, "megabytes")]
)
def test_bytes_come_in_a_unit_people_read(largest, unit):
    table = traffic_table({"a": largest}, {"a": 1})
    assert isinstance(table, pd.DataFrame)
    assert costs.traffic(table).get_xlabel() == unit


def test_dollars_in_names_are_no_formula(model, tmp_path):
    summary = model.summary().rename(index={"north": "$n_{$"})
    table = pd.DataFrame({"site": ["$n_{$"], "up": [1.0], "down": [2.0]})
    for ax in (average.forest(summary, outcome="$y_{$", unit="$"), costs.traffic(table)):
        ax.get_figure().savefig(tmp_path / "figure.png")
