"""CausalFI as its users meet it: holes of every kind, what it refuses, what it gets along with."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.data.simulation import simulate
from unpooled.errors import DataError, LimitRefusal, StudyError

QUICK = {"draws": 40, "sweeps": 10, "structure": "linear"}
HOLES = ["u1", "u2", "u3"]
WHOLE = ["x1", "x2", "x3"]
pytestmark = pytest.mark.slow


def tables(sites: int = 2, rows: int = 80) -> dict[str, pd.DataFrame]:
    made = simulate("causalfi", sites=sites, rows=rows, seed=3, incomplete=3, coefficient_sd=0.5).frames
    return {site: frame[[*WHOLE, *HOLES, "w", "y"]].copy() for site, frame in made.items()}


def study(**changed: object) -> up.Study:
    roles = {"treatment": "w", "outcome": "y", "covariates": WHOLE, "incomplete": HOLES}
    return up.Study(**{**roles, **changed})  # type: ignore[arg-type]


def fitted(made: dict[str, pd.DataFrame], **changed: object) -> up.CausalFI:
    return up.CausalFI(seed=1, **QUICK).fit(study(**changed), made)  # type: ignore[return-value]


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
    made = tables(sites=3)
    made["site2"]["u2"] = np.nan
    made["site3"].loc[::2, "u1"] = np.nan
    made["site3"].loc[1::2, "u3"] = np.nan  # no complete row there
    model = fitted(made)
    for site in made:
        lower, upper = model.ate_interval(site)
        assert lower < model.ate(site) < upper
    assert np.all(np.isfinite(model.ite("site2")))


def test_almost_nothing_seen_of_a_column_works() -> None:
    made = tables(rows=120)
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


@pytest.mark.parametrize(
    ("values", "word"), [([0, 1], "binary"), (["a", "b", "c"], "categorical"), ([0, 1, 2, 3], "count")]
)
def test_other_kinds_of_columns_are_refused_for_now(values: list, word: str) -> None:
    made = tables()
    for frame in made.values():
        frame["u2"] = pd.Series(np.resize(np.array(values, dtype=object), len(frame))).where(
            frame["u2"].notna()
        )
        if word != "categorical":
            frame["u2"] = frame["u2"].astype(float)
    with pytest.raises(StudyError, match=word):
        fitted(made)


def test_other_outcomes_are_refused_for_now() -> None:
    made = tables()
    for frame in made.values():
        frame["y"] = (frame["y"] > frame["y"].median()).astype(int)
    with pytest.raises(StudyError, match="binary"):
        fitted(made, family="binary")


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
