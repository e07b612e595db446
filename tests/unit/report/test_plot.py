"""`unpooled.plot`: the same figures by name, from a fitted model or from what was found."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import unpooled
from oracle.records import with_subgroups
from unpooled import plot
from unpooled.diagnostics.missingness import missingness
from unpooled.disclosure.by_site import BySite
from unpooled.errors import StudyError


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"age": rng.normal(50.0, 10.0, 80), "smoker": rng.choice(["never", "now"], 80)})
    frame["quit"] = rng.integers(0, 2, 80)
    frame["weight"] = rng.normal(0.0, 0.5, 80) + frame["quit"] * frame["age"] / 10.0
    return {"north": frame[:30], "south": frame[30:]}


@pytest.fixture(scope="module")
def fitted(people):
    study = unpooled.Study(
        treatment="quit",
        outcome="weight",
        covariates=["age", "smoker"],
        units={"weight": "kg", "age": "years"},
    )
    return unpooled.AIPW(draws=20, folds=2).fit(study, people)


@pytest.fixture(scope="module")
def diagnostics():
    estimates = {"estimate": [1.0, 2.0, 1.5], "lower": [0.0, 1.0, 0.5], "upper": [2.0, 3.0, 2.5]}
    return SimpleNamespace(
        overlap=pd.DataFrame(
            {
                "site": "north",
                "arm": ["control", "treated"],
                "lower": 0.0,
                "upper": 1.0,
                "people": [20.0, 10.0],
            }
        ),
        balance=pd.DataFrame({"feature": ["age"], "before": [0.3], "after": [0.1]}),
        leave_one_out=pd.DataFrame({"site": ["north", "south", "east"], **estimates}),
        comparators=pd.DataFrame(
            {"estimator": ["unadjusted difference", "doubly robust (AIPW)", "IPW"], **estimates}
        ),
    )


def shifted():
    curve = pd.DataFrame({"size": [0.0, 0.5], "ate": [1.0, 2.0], "lower": [0.5, 1.0], "upper": [2.0, 3.0]})
    return SimpleNamespace(column="bmi", curve=curve, tipping={"below": None, "above": 0.25})


def valued(slope=0.8):
    """A policy, as its figure needs it."""
    fifths = pd.DataFrame(
        {"predicted": [0.0, 0.5, 1.0, 1.5, 2.0], "effect": [0.2, 0.4, 1.1, 1.2, 1.9]}, index=range(1, 6)
    ).assign(lower=lambda f: f["effect"] - 0.5, upper=lambda f: f["effect"] + 0.5)
    calibration = pd.DataFrame({"estimate": [slope], "lower": [-0.1], "upper": [1.7]}, index=["slope"])
    return SimpleNamespace(
        outcome="weight", unit="kg", sorted_effects=lambda: fifths, calibration=lambda: calibration
    )


def test_fifths_have_estimates_with_intervals_beside_predictions_and_the_slope_in_words():
    found = valued()
    ax = plot.fifths(found)
    estimated, predicted = ax.lines[1], ax.lines[2]
    np.testing.assert_array_equal(estimated.get_ydata(), found.sorted_effects()["effect"])
    np.testing.assert_array_equal(predicted.get_ydata(), found.sorted_effects()["predicted"])
    np.testing.assert_array_equal(np.round(predicted.get_xdata()), [1, 2, 3, 4, 5])
    bars = [segment[:, 1].tolist() for segment in ax.collections[0].get_segments()]
    np.testing.assert_allclose(bars, found.sorted_effects()[["lower", "upper"]])
    assert "calibration slope 0.80 [−0.10, 1.70]" in ax.get_xlabel()
    assert ax.get_ylabel() == "average effect on weight (kg)"
    assert "all predictions are equal" in plot.fifths(valued(np.nan)).get_xlabel()


def test_averages_are_labelled_with_the_studys_outcome_and_unit(fitted):
    for draw in (plot.ate, plot.forest):
        ax = draw(fitted)
        assert ax.get_xlabel() == "average effect on weight (kg)"
        assert [label.get_text().split("\n")[0] for label in ax.get_yticklabels()] == [
            "all sites",
            "south",
            "north",
        ]
    np.testing.assert_allclose(ax.lines[1].get_xdata(), [fitted.ate()])


def test_an_effect_goes_along_one_covariate_of_typical_people(fitted, people):
    ax = plot.effect_by(fitted, "age", site="north", points=5)
    north = people["north"]
    value = np.linspace(*north["age"].quantile([0.05, 0.95]), 5)
    asked = pd.DataFrame({"age": value, "smoker": north["smoker"].mode()[0]})
    np.testing.assert_allclose(ax.lines[0].get_xdata(), value)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), fitted.effect(asked, site="north"))
    lower, upper = fitted.effect_interval(asked, site="north")
    bars = np.array([segment[:, 1] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(bars, np.column_stack([lower, upper]))
    assert ax.get_xlabel() == "age (years)\nother covariates at typical values of north"
    assert ax.get_ylabel() == "effect on weight (kg)"


def test_typical_may_be_of_other_people(fitted):
    others = pd.DataFrame({"age": np.arange(60.0, 80.0), "smoker": "now", "shoes": 42})
    ax = plot.effect_by(fitted, "age", site="north", people=others)
    assert ax.lines[0].get_xdata().min() >= 60.0
    assert ax.get_xlabel() == "age (years)"
    assert len(ax.lines[0].get_xdata()) == 18  # whole years, from the 5th to the 95th per cent


def test_levels_of_a_category_are_points(fitted):
    ax = plot.effect_by(fitted, "smoker", site="south")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["never", "now"]


def test_a_sites_people_are_sorted_by_their_effect(fitted, people):
    ax = plot.sorted_effects(fitted, site="south")
    expected = np.sort(fitted.effect(people["south"], site="south"))
    np.testing.assert_allclose(ax.lines[0].get_ydata(), expected)
    assert ax.get_xlabel().startswith("50 people at south")


@pytest.mark.parametrize(
    ("column", "site", "said"),
    [
        ("agee", "north", "did you mean 'age'"),
        ("weight", "north", "known: "),
        ("age", "nord", "did you mean 'north'"),
    ],
)
def test_a_name_that_is_not_known_is_answered_with_the_nearest(fitted, column, site, said):
    with pytest.raises(StudyError, match=said):
        plot.effect_by(fitted, column, site=site)


def test_without_a_table_the_remedy_is_to_attach_it(fitted, tmp_path):
    loaded = unpooled.load(fitted.save(tmp_path / "model"))
    with pytest.raises(StudyError, match="attach"):
        plot.sorted_effects(loaded, site="north")


def test_sites_left_out_are_seen_before_the_doubly_robust_estimate_of_all(diagnostics, fitted):
    ax = plot.leave_one_out(diagnostics, study=fitted.result_.study)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["north", "south", "east"]
    assert (ax.patches[0].get_x(), ax.patches[0].get_width()) == (1.0, 2.0)
    assert ax.get_xlabel() == "average effect on weight (kg)"
    assert plot.leave_one_out(diagnostics).get_xlabel() == "average effect on the outcome"


def test_the_models_own_estimate_stands_above_simpler_ones(diagnostics, fitted):
    ax = plot.comparators(diagnostics, fitted)
    assert [label.get_text() for label in ax.get_yticklabels()][:2] == ["this study", "unadjusted difference"]
    assert ax.texts[0].get_text().startswith(f"{fitted.ate():.2f}  [{fitted.ate_interval()[0]:.2f}")
    assert ax.get_xlabel() == "average effect on weight (kg)"


def test_without_a_model_no_estimator_stands_out(diagnostics, fitted):
    ax = plot.comparators(diagnostics, study=fitted.result_.study)
    assert len(ax.texts) == 3
    assert {text.get_weight() for text in ax.texts} == {"normal"}
    assert ax.get_xlabel() == "average effect on weight (kg)"


@pytest.mark.slow
def test_real_diagnostics_can_be_drawn(people, fitted):
    found = unpooled.diagnose(fitted.result_.study, people)
    for draw in (plot.overlap, plot.love, plot.leave_one_out, plot.comparators):
        draw(found).get_figure().draw_without_rendering()
    assert len(plot.overlap_by_site(found)) == 2


def test_every_figure_is_drawn_in_the_callers_axes(fitted, diagnostics, model):
    study = unpooled.Study(treatment="w", outcome="y", covariates=["a"], incomplete=["b"])
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"w": [0, 1] * 20, "y": rng.normal(size=40), "a": rng.normal(size=40)})
    table["b"] = np.where(np.arange(40) % 4, table["a"] ** 2, np.nan)
    shares = BySite(np.eye(2), axes=2)
    telling = SimpleNamespace(
        result_=SimpleNamespace(
            fit_diagnostics={"chosen": "observed", "observed": {"borrowed": shares}}, sites=("north", "south")
        )
    )
    drawn = {
        "ate": (fitted,), "forest": (fitted,), "traffic": (fitted,), "convergence": (model,),
        "borrowed": (telling,), "missing": (missingness(study, {"n": table[:18], "s": table[18:]}),),
        "sensitivity": (shifted(),),
        **dict.fromkeys(("overlap", "love", "leave_one_out", "comparators"), (diagnostics,)),
    }  # fmt: skip
    drawn |= {"subgroups": (with_subgroups((30, 30, 30, 45)),)}
    drawn |= {"effect_by": (fitted, "age"), "sorted_effects": (fitted,)}
    drawn |= {"fifths": (valued(),)}
    assert {*drawn, "overlap_by_site"} == set(plot.__all__)
    for name, given in drawn.items():
        ax = Figure().add_subplot()
        site = {"site": "north"} if name in ("effect_by", "sorted_effects") else {}
        assert getattr(plot, name)(*given, **site, ax=ax) is ax, name
        assert ax.has_data() and ax.get_title(loc="left"), name
    assert len(plot.overlap_by_site(diagnostics)) == 1


def test_a_figure_without_numbers_is_an_error(fitted, diagnostics):
    silent = SimpleNamespace(**{name: frame[:0] for name, frame in vars(diagnostics).items()})
    empty = SimpleNamespace(shares=pd.DataFrame(index=["all sites"]), patterns=pd.DataFrame())
    together = SimpleNamespace(overlap=diagnostics.overlap.assign(site="all sites"))
    assert plot.overlap(together).containers
    given = {plot.missing: empty, plot.borrowed: fitted, plot.convergence: fitted}
    given |= dict.fromkeys((plot.overlap, plot.love, plot.leave_one_out, plot.comparators), silent) | {
        plot.overlap_by_site: together
    }
    for draw, found in given.items():
        with pytest.raises(StudyError, match="numbers to draw"):
            draw(found)


@pytest.mark.slow
def test_matplotlib_is_imported_only_when_something_is_drawn():
    program = (
        "import sys, unpooled as up; assert 'matplotlib' not in sys.modules; print(up.plot.forest.__name__)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert told.stdout.strip() == "forest", told.stderr
