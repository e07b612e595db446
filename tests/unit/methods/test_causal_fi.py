"""CausalFI as its users meet it: holes of every kind, what it refuses, what it gets along with."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import unpooled as up
from unpooled.data.simulation import simulate
from unpooled.errors import DataError, LimitRefusal, StudyError

QUICK = {"draws": 40, "sweeps": 10, "most_sweeps": 10, "structure": "linear"}
HOLES = ["u1", "u2", "u3"]
WHOLE = ["x1", "x2", "x3"]
pytestmark = pytest.mark.slow


def tables() -> dict[str, pd.DataFrame]:
    """Always of one size, so that little is compiled."""
    made = simulate("causalfi", sites=3, rows=90, seed=3, incomplete=3, coefficient_sd=0.5).frames
    return {site: frame[[*WHOLE, *HOLES, "w", "y"]].copy() for site, frame in made.items()}


def study(**changed: object) -> up.Study:
    roles = {"treatment": "w", "outcome": "y", "covariates": WHOLE, "incomplete": HOLES}
    return up.Study(**{**roles, **changed})  # type: ignore[arg-type]


def fitted(made: dict[str, pd.DataFrame], **changed: object) -> up.CausalFI:
    return up.CausalFI(seed=1, **QUICK).fit(study(**changed), made)  # type: ignore[return-value]


@pytest.mark.thorough
def test_new_people_may_lack_what_nobody_lacked_in_training() -> None:
    made = tables()
    assert made["site1"]["u2"].isna().any()
    model = fitted(made)
    person = made["site1"].loc[made["site1"][HOLES].notna().all(axis=1), [*WHOLE, *HOLES]].head(1)
    people = pd.concat([person] * 5, ignore_index=True)
    for row, missing in enumerate([[], ["u1"], ["u1", "u3"], HOLES]):
        people.loc[row, missing] = np.nan
    people.loc[4] = np.nan
    people.loc[4, WHOLE] = people.loc[0, WHOLE]
    draws = model.effect_draws(people, site="site1")
    assert np.all(np.isfinite(draws))
    np.testing.assert_allclose(draws[:, 3], draws[:, 4])  # the same pattern, the same person
    assert not np.allclose(draws[:, 0], draws[:, 1])


def test_a_column_that_one_site_lacks_is_borrowed_from_the_others() -> None:
    made = tables()
    made["site2"]["u2"] = np.nan
    made["site3"].loc[::2, "u1"] = np.nan
    made["site3"].loc[1::2, "u3"] = np.nan  # no complete row there
    model = fitted(made)
    for site in made:
        lower, upper = model.ate_interval(site)
        assert lower < model.ate(site) < upper
    assert np.all(np.isfinite(model.ite("site2")))


def test_almost_nothing_seen_of_a_column_works() -> None:
    made = tables()
    for frame in made.values():
        frame.loc[9:, "u1"] = np.nan
    assert np.isfinite(fitted(made).ate())


def test_a_column_that_nobody_has_is_refused_by_name() -> None:
    made = tables()
    for frame in made.values():
        frame["u2"] = np.nan
    with pytest.raises(DataError, match="u2"):
        fitted(made)


def test_a_site_that_shows_too_few_values_refuses_by_the_columns_name() -> None:
    made = tables()
    made["site2"].loc[2:, "u3"] = np.nan
    with pytest.raises(LimitRefusal, match="u3"):
        up.CausalFI(seed=1, **QUICK).fit(study(), made, limits=up.Limits(cell=5))


def clinics(family: str) -> tuple[dict[str, pd.DataFrame], float]:
    """Holes in columns of every kind, more of them where the outcome is high; and the average effect."""
    rng, frames, effects = np.random.default_rng(4), {}, []
    for site in ("site1", "site2", "site3"):
        age, smoker = rng.standard_normal(100), rng.integers(0, 2, 100)
        visits, group = rng.poisson(1.0 + smoker), rng.choice(["a", "b", "c"], 100)
        pressure = 0.6 * age + 0.5 * smoker + 0.5 * rng.standard_normal(100)
        w = (rng.random(100) < 1.0 / (1.0 + np.exp(-0.8 * pressure - 0.8 * smoker + 0.7))).astype(int)
        eta = 0.6 * pressure + 0.5 * smoker - 0.2 * visits + 0.3 * (group == "b")
        arms = [-0.6 + eta, 0.1 + eta + 0.2 * smoker]
        means = [stats.norm.cdf(one) if family == "binary" else np.exp(one) for one in arms]
        mean = np.where(w == 1, means[1], means[0])
        y = rng.random(100) < mean if family == "binary" else rng.poisson(mean)
        effects.append(means[1] - means[0])
        frame = pd.DataFrame(
            {
                "age": age, "pressure": pressure, "smoker": smoker.astype(float),
                "visits": visits.astype(float), "group": group.astype(object), "w": w, "y": y.astype(int),
            }
        )  # fmt: skip
        frame.loc[(group == "c"), "pressure"] = np.nan  # a level seen only where another column is missing
        for column in ("pressure", "smoker", "visits", "group"):
            frame.loc[rng.random(100) < 0.15 + 0.1 * (frame["y"] > 0), column] = np.nan
        frames[site] = frame
    return frames, float(np.mean(effects))


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["binary", "count"])
def test_columns_and_outcomes_of_every_kind(family: str) -> None:
    made, truth = clinics(family)
    roles = {"covariates": ["age"], "incomplete": ["pressure", "smoker", "visits", "group"], "family": family}
    model = fitted(made, **roles)
    lower, upper = model.ate_interval()
    assert lower < truth < upper
    assert upper - lower < (0.3 if family == "binary" else 1.0)
    every = pd.concat(made.values())
    naive = every.loc[every["w"] == 1, "y"].mean() - every.loc[every["w"] == 0, "y"].mean()
    assert abs(model.ate() - truth) < abs(naive - truth)  # confounded by what has holes
    people = made["site2"].drop(columns=["w", "y"])
    people.loc[0, ["pressure", "smoker", "visits", "group"]] = None  # nothing seen
    draws = model.effect_draws(people, site="site2")
    assert np.all(np.isfinite(draws))
    assert family == "count" or np.max(np.abs(draws)) <= 1.0
    assert np.all(np.mod(model.ite_draws("site1"), 1.0).round(6) % 1.0 == 0.0)  # whole outcomes, both


def test_people_whose_treatment_or_outcome_is_missing_are_refused_or_left_out() -> None:
    made = tables()
    made["site1"].loc[:4, "y"] = np.nan
    made["site2"]["w"] = made["site2"]["w"].astype(float).where(made["site2"].index > 2)
    with pytest.raises(DataError, match=r"5 missing of 90[\s\S]*drop_unknown"):
        fitted(made)
    model = fitted(made, drop_unknown=True)
    assert model.summary()["n"].tolist() == [85, 87, 90, 262]


@pytest.mark.thorough
def test_a_shift_of_nothing_is_the_main_analysis_bit_for_bit() -> None:
    made = tables()
    main = fitted(made)
    again = up.CausalFI(seed=1, **QUICK, shifts=[{"column": "u1", "size": 0.0}]).fit(study(), made)
    np.testing.assert_array_equal(again.ate_draws(), main.ate_draws())
    found = up.sensitivity(up.CausalFI(seed=1, **QUICK), study(), made, column="u1", sizes=[2.0])
    assert found.curve["size"].tolist() == [0.0, 2.0]
    assert found.curve.loc[0, "ate"] == main.ate()
    assert found.curve.loc[1, "ate"] != main.ate()


@pytest.mark.parametrize(
    ("shift", "word"),
    [
        ({"column": "v1", "size": 1.0}, "u1"),
        ({"column": "u1", "size": 1.0, "site": "site9"}, "site9"),
        ({"column": "u1", "size": 1.0, "arm": "treatet"}, "treated"),
    ],
)
def test_a_shift_of_what_is_not_there_is_refused(shift: dict, word: str) -> None:
    with pytest.raises(StudyError, match=word):
        up.CausalFI(seed=1, **QUICK, shifts=[shift]).fit(study(), tables())


@pytest.mark.thorough
def test_the_papers_networks_are_there_for_comparison() -> None:
    few = {"hidden": (4,), "rounds": 4, "draws": 20, "imputations": 5, "monte_carlo": 1}
    made = tables()
    model = up.CausalFI(seed=1, inference="variational", **few).fit(study(), made)
    assert np.isfinite(model.ate())
    people = made["site1"].drop(columns=["w", "y"])
    assert model.effect(people, site="site1").shape == (90,)
    assert np.all(np.isfinite(model.ite("site1")))


def test_without_holes_it_is_the_regression_of_complete_data() -> None:
    rng, frames = np.random.default_rng(2), {}
    for site in ("north", "south"):
        u = rng.standard_normal((150, 2))
        w = (rng.random(150) < 1.0 / (1.0 + np.exp(-u[:, 0]))).astype(int)
        y = 1.0 + 2.0 * w + u @ [1.0, -0.5] + w * u[:, 0] + 0.5 * rng.standard_normal(150)
        frames[site] = pd.DataFrame(
            {"x1": rng.standard_normal(150), "a": u[:, 0], "b": u[:, 1], "w": w, "y": y}
        )
    roles = {"covariates": ["x1"], "incomplete": ["a", "b"]}
    model = fitted(frames, **roles)
    every = pd.concat(frames.values())
    design = np.column_stack([np.ones(300), every[["x1", "a", "b"]]])
    arms = [
        np.linalg.lstsq(design[every["w"] == arm], every.loc[every["w"] == arm, "y"], rcond=None)[0]
        for arm in (0, 1)
    ]
    assert model.ate() == pytest.approx(np.mean(design @ (arms[1] - arms[0])), abs=0.05)
    effect = model.effect(frames["north"][["x1", "a", "b"]], site="north")
    # Sites' offsets are learned to be small, so both sites are nearly the pooled regression.
    np.testing.assert_allclose(effect, design[:150] @ (arms[1] - arms[0]), atol=0.3)


@pytest.mark.thorough
def test_an_effect_that_bends_is_biased_by_one_imputation_and_not_here() -> None:
    path = Path(__file__).parents[3] / "benchmarks" / "imputation_bias.py"
    spec = importlib.util.spec_from_file_location("imputation_bias", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.compare(1)
    assert np.mean(found["imputed"] - found["truth"]) < -0.3
    assert abs(np.mean(found["ours"] - found["truth"])) < 0.15
    assert np.mean((found["lower"] <= found["truth"]) & (found["truth"] <= found["upper"])) > 0.9
