"""Named data sets: two lists that share no outcome, real people, and effects that are known."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.benchmark import data_sets, surfaces
from unpooled.benchmark.cases import Case
from unpooled.benchmark.data_sets import DEVELOPMENT, REPORTED, SITES, DataSet
from unpooled.benchmark.real_data import LEAST, PARTITIONS
from unpooled.benchmark.surfaces import EFFECTS, NOISE, PROGNOSTIC_SD, Columns
from unpooled.benchmark.tables import TABLES
from unpooled.errors import StudyError

BOTH = (*DEVELOPMENT, *REPORTED)
PACKAGE = {"acic": "causallib", "pregnancies": "causallib"}


def _present(data_sets: tuple[DataSet, ...]) -> list[DataSet]:
    return [one for one in data_sets if find_spec(PACKAGE.get(one.people, "causaldata"))]


def _table(people: int = 4000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(people, 5)), columns=["v", "w", "x", "y", "z"])
    table["skewed"] = np.exp(2.0 * table["v"])
    flags = {"rare": 0.05, "even": 0.5, "third": 0.3}
    return table.assign(**{name: (rng.random(people) < share).astype(int) for name, share in flags.items()})


def test_the_lists_share_no_outcome_and_no_seed() -> None:
    outcomes = [{(one.people, one.outcome) for one in part} for part in (DEVELOPMENT, REPORTED)]
    assert not outcomes[0] & outcomes[1]
    assert len({one.seed for one in BOTH}) == len({one.name for one in BOTH}) == len(BOTH) >= 30
    assert len(REPORTED) >= 20


def test_the_lists_use_every_surface_and_three_cuts() -> None:
    surfaces_used = {one.outcome for one in BOTH if not one.outcome.isdecimal()}
    assert surfaces_used == set(EFFECTS)
    for part in (DEVELOPMENT, REPORTED):
        assert {one.cut for one in part} == {"random", "cluster", "propensity"} < set(PARTITIONS)


@pytest.mark.slow
def test_a_thousand_people_train_and_all_others_are_new() -> None:
    for one in _present((DEVELOPMENT[0], DEVELOPMENT[6], REPORTED[15], REPORTED[20])):
        case = one.case()
        assert list(case.train) == list(case.test) == [f"site{i + 1}" for i in range(SITES)]
        assert min(np.bincount(frame["w"]).min() for frame in case.train.values()) >= LEAST
        assert 1000 <= len(case.train_truth) <= 1006, one.name
        assert not any(len(frame) for frame in case.valid.values())
        trained, new = (pd.concat(part.values())["y"] for part in (case.train, case.test))
        assert not set(trained) & set(new), one.name
        for people, truth in ((case.train, case.train_truth), (case.test, case.test_truth)):
            w, y = (pd.concat(people.values())[name].to_numpy() for name in ("w", "y"))
            np.testing.assert_array_equal(y, np.where(w == 1, truth["y1"], truth["y0"]))


@pytest.mark.slow
def test_a_data_set_is_the_same_each_time() -> None:
    (one,) = _present((REPORTED[15],)) or pytest.skip("causaldata is not installed")
    pd.testing.assert_frame_equal(one.case().train["site2"], one.case().train["site2"])


@pytest.mark.slow
def test_a_surface_with_a_column_that_sites_refuse_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = _present((REPORTED[15],)) or pytest.skip("causaldata is not installed")
    drawn, real = [], data_sets.case_of

    def refusing(*parts: Any) -> Case:
        """The first time, the sites refuse a column of the surface."""
        case = real(*parts)
        drawn.append(case.train["site1"]["y"])
        flags = ["marr", "nodegree"] if len(drawn) == 1 else []
        return replace(case, train={site: frame.drop(columns=flags) for site, frame in case.train.items()})

    monkeypatch.setattr(data_sets, "case_of", refusing)
    case = one.case()
    assert len(drawn) == 2
    assert {"marr", "nodegree"} <= set(case.covariates)
    assert not set(drawn[0]) & set(case.train["site1"]["y"])


def test_columns_of_a_surface_are_clipped_and_common() -> None:
    for seed in range(5):
        of = Columns.drawn(_table(), np.random.default_rng(seed))
        assert set(of.flags) == {"even", "third"}
        assert of.all_numbers.shape == (4000, 6)
        assert np.abs(of.all_numbers).max() == surfaces.FARTHEST
        assert {*np.unique(of.p), *np.unique(of.q)} == {0.0, 1.0}


@pytest.mark.parametrize("name", EFFECTS)
def test_outcomes_are_the_surface_and_noise(name: str) -> None:
    of = Columns.drawn(_table(), np.random.default_rng(1))
    made = surfaces.simulated(of, None, name, np.random.default_rng(2))
    assert made["mu0"].std() == pytest.approx(PROGNOSTIC_SD, rel=0.01)
    for arm in (0, 1):
        error = made[f"y{arm}"] - made[f"mu{arm}"]
        assert error.std() == pytest.approx(NOISE, rel=0.05)
        assert abs(np.corrcoef(error, made["mu0"])[0, 1]) < 0.05
    effect = made["mu1"] - made["mu0"]
    assert (effect.std() < 1e-9) == (name in ("none", "constant"))
    # Without a real treatment, who is treated depends on a, as the outcome does.
    assert np.corrcoef(made["w"], of.a)[0, 1] > 0.2


def test_a_real_treatment_is_kept() -> None:
    of, treatment = Columns.drawn(_table(), np.random.default_rng(1)), np.arange(4000) % 2
    made = surfaces.simulated(of, treatment, "tree", np.random.default_rng(2))
    np.testing.assert_array_equal(made["w"], treatment)


def test_the_steps_are_those_of_the_docstring() -> None:
    of = Columns.drawn(_table(), np.random.default_rng(3))
    found = EFFECTS["steps"](of, np.random.default_rng(0))
    everywhere = {0.0, 1.0, 2.0, 1.5, 3.5, -1.0, 0.5, 2.5}
    assert set(np.round(found, 9)) == everywhere
    assert np.all(found[(of.a > 0) & (of.b <= 0.5) & (of.c >= -0.5)] == 2.0)


def test_the_tables_name_their_data_sets() -> None:
    for name, part in (("real", REPORTED), ("real-development", DEVELOPMENT)):
        table = TABLES[name]
        assert (table.data_sets, table.replicates, table.sites) == (part, len(part), (SITES,))
        with pytest.raises(StudyError, match="one of its data sets"):
            table.case(len(part) + 1, None)
