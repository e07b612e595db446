"""Effects along a covariate, and sorted; and the people who are asked about."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from unpooled.errors import StudyError
from unpooled.report.figures import curves

MANY = pd.DataFrame({"value": np.linspace(30.0, 70.0, 20), "effect": np.linspace(1.0, 3.0, 20)}).assign(
    lower=lambda f: f["effect"] - 0.5, upper=lambda f: f["effect"] + 0.5
)
NAMED = pd.DataFrame(
    {"value": ["never", "$now_{$"], "effect": [1.0, 2.0], "lower": [0.5, 1.0], "upper": [2.0, 4.0]}
)
PEOPLE = pd.DataFrame(
    {"effect": [3.0, -2.0, 1.0, 0.5], "lower": [2.0, -3.0, -1.0, 0.1], "upper": [4.0, -1.0, 2.0, 1.0]}
)


def test_many_values_are_a_line_with_a_band():
    ax = curves.effect_by(MANY, column="age (years)", outcome="weight", unit="kg", site="north")
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), MANY[["value", "effect"]])
    (band,) = ax.collections
    corners = band.get_paths()[0].vertices
    assert {tuple(MANY.loc[0, ["value", "lower"]]), tuple(MANY.loc[0, ["value", "upper"]])} <= set(
        map(tuple, corners)
    )
    assert ax.get_xlabel() == "age (years)\nother covariates at typical values of north"
    assert ax.get_ylabel() == "effect on weight (kg)"


def test_few_values_are_points_with_bars(tmp_path):
    ax = curves.effect_by(NAMED, column="$smoker_{$", outcome="weight")
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[0.0, 1.0], [1.0, 2.0]])
    assert ax.lines[0].get_marker() == "o" and ax.lines[0].get_linestyle() == "None"
    bars = [segment[:, 1].tolist() for segment in ax.collections[0].get_segments()]
    assert bars == [[0.5, 2.0], [1.0, 4.0]]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["never", r"\$now_{\$"]
    assert ax.get_ylabel() == "effect on weight"
    ax.get_figure().savefig(tmp_path / "figure.png")


def test_few_numbers_stand_where_they_are():
    few = MANY.iloc[[0, 1, 19]]
    ax = curves.effect_by(few, column="age", outcome="y")
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), few["value"])
    assert ax.lines[0].get_linestyle() == "None"


def test_people_are_sorted_and_the_title_says_whose_interval_excludes_0():
    ax = curves.sorted_effects(PEOPLE, outcome="weight", unit="kg", site="north")
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [-2.0, 0.5, 1.0, 3.0])
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [1, 2, 3, 4])
    assert ax.get_title(loc="left").endswith("excludes 0 for 75% of people")
    assert ax.get_xlabel() == "4 people at north, sorted by their effect"
    assert ax.get_ylabel() == "effect on weight (kg)"
    assert len(ax.collections) == 1


def test_both_have_a_line_at_0_and_use_the_callers_axes():
    for draw in (
        lambda ax: curves.effect_by(MANY, column="age", outcome="y", ax=ax),
        lambda ax: curves.sorted_effects(PEOPLE, outcome="y", ax=ax),
    ):
        ax = Figure().add_subplot()
        assert draw(ax) is ax
        assert list(ax.lines[-1].get_ydata()) == [0.0, 0.0]


def table(rows=101):
    return pd.DataFrame(
        {
            "age": np.linspace(20.5, 120.5, rows),
            "visits": np.arange(rows),
            "sex": [0] * 40 + [1] * (rows - 40),
            "smoker": pd.Categorical(["now"] * 60 + ["never"] * (rows - 60), ["never", "now", "gone"]),
            "empty": np.nan,
        }
    )


def test_one_covariate_moves_over_its_range_and_the_others_are_typical():
    found = curves.hypothetical(table(), "age", 11)
    np.testing.assert_allclose(found["age"], np.linspace(25.5, 115.5, 11))
    others = found[["visits", "sex", "smoker"]].drop_duplicates().to_numpy().tolist()
    assert others == [[50.0, 1, "now"]]
    assert found["empty"].isna().all()


def test_whole_numbers_stay_whole_and_few_values_are_all_shown():
    visits = curves.hypothetical(table(), "visits", 40)["visits"]
    assert (visits == visits.round()).all() and visits.is_unique
    assert (visits.min(), visits.max()) == (5.0, 95.0)
    assert curves.hypothetical(table(), "smoker", 50)["smoker"].tolist() == ["never", "now"]
    assert curves.hypothetical(table(), "sex", 50)["sex"].tolist() == [0, 1]


def test_a_covariate_that_is_nearly_always_the_same_goes_over_its_whole_range():
    people = pd.DataFrame({"dose": [0.0] * 980 + list(np.arange(1.0, 21.0))})
    found = curves.hypothetical(people, "dose", 5)["dose"]
    assert (found.min(), found.max()) == (0.0, 20.0)


def test_typical_is_a_value_that_somebody_has():
    people = pd.DataFrame({"parts": [1, 2, 4, 9], "age": [1.5, 2.5, 3.5, 4.5]})
    assert curves.hypothetical(people, "age", 5)["parts"].iloc[0] in (2, 4)


@pytest.mark.parametrize(
    ("column", "said"), [("agee", "did you mean 'age'"), ("empty", "must have observed values")]
)
def test_a_column_that_cannot_be_moved_is_refused(column, said):
    with pytest.raises(StudyError, match=said):
        curves.hypothetical(table(), column, 5)
