"""CausalFI's tables: which people, which holes, who is scored and how, and what older cells lack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.benchmark import runner
from unpooled.benchmark.cases import Case, incomplete_ihdp
from unpooled.benchmark.comparison import VIEWS, markdown, summarise, verdict
from unpooled.benchmark.contenders import Cost, ours, taking
from unpooled.benchmark.runner import CellStore
from unpooled.benchmark.scores import Estimate, score
from unpooled.benchmark.tables import TABLES
from unpooled.data.simulation import simulate
from unpooled.data.simulation.causal_fi import COEFFICIENT_SEED
from unpooled.errors import DataError

U = tuple(f"u{j}" for j in range(1, 11))
COLUMNS = (2, 4, 6, 8, 10)
SYNTHETIC = TABLES["causalfi-synthetic"]


@pytest.fixture(scope="module")
def whole() -> Case:
    return SYNTHETIC.case(1, None)


def _holes(case: Case) -> pd.DataFrame:
    return pd.concat(case.train.values())[list(U)].isna()


def test_every_table_of_the_paper_is_declared() -> None:
    declared = {name: table for name, table in TABLES.items() if name.startswith("causalfi")}
    assert {name: table.sites for name, table in declared.items()} == {
        "causalfi-synthetic": (10, 30, 50),
        "causalfi-mcar": (10, 30, 50),
        **{f"causalfi-columns-{columns}": (30,) for columns in COLUMNS},
        "causalfi-ihdp": (2, 4, 6),
    }
    assert {(table.replicates, table.method, table.contenders) for table in declared.values()} == {
        (10, "causal_fi", taking("incomplete"))
    }
    assert [name for name, table in declared.items() if table.needs_files] == ["causalfi-ihdp"]
    assert all(set(table.quick) < set(table.contenders) for table in TABLES.values())
    assert {"causal_fi", "complete-case", "mean", "iterative", "ipw", "dr"} < set(SYNTHETIC.contenders)
    assert not set(TABLES["fedci-data1"].contenders) & {"causal_fi", "mean", "iterative"}


def test_people_of_all_fifty_sites_are_scored_however_many_train(whole: Case) -> None:
    for sites in SYNTHETIC.sites:
        case = whole.first(sites)
        assert (len(case.train), len(case.valid), len(case.test)) == (sites, sites, 50)
        assert set(case.train_truth["site"]) == set(case.train) and len(case.test_truth) == 2500
        assert {len(frame) for frame in case.train.values()} == {100}
        assert {len(frame) for part in (case.valid, case.test) for frame in part.values()} == {50}


def test_training_and_scored_people_have_holes_in_u_and_nowhere_else(whole: Case) -> None:
    assert whole.incomplete == U
    assert whole.covariates == [f"x{j}" for j in range(1, 11)]
    for part in (whole.train, whole.valid, whole.test):
        missing = pd.concat(part.values()).isna().any()
        assert set(missing.index[missing]) == set(U)
    people = pd.concat(whole.test.values())
    np.testing.assert_array_equal(
        people["y"], np.where(people["w"] == 1, whole.test_truth["y1"], whole.test_truth["y0"])
    )
    complete = people.notna().all(axis=1).to_numpy()
    effect = (whole.test_truth["mu1"] - whole.test_truth["mu0"]).to_numpy()
    np.testing.assert_allclose(whole.test_truth["conditional"][complete], effect[complete])


@pytest.mark.parametrize(("replicate", "draw"), [(1, 0), (2, 1), (3, 2), (4, 0)])
def test_replicates_take_three_draws_of_the_coefficients_in_turn(replicate: int, draw: int) -> None:
    made = simulate("causalfi", sites=2, rows=100, seed=replicate, coefficient_seed=COEFFICIENT_SEED + draw)
    assert SYNTHETIC.case(replicate, None).train["site2"].equals(made.frames["site2"])


def test_holes_at_random_fall_on_the_same_people(whole: Case) -> None:
    other = TABLES["causalfi-mcar"].case(1, None)
    pd.testing.assert_frame_equal(other.train_truth[list(U)], whole.train_truth[list(U)])
    outcome = pd.concat(whole.train.values())["y"].to_numpy()
    related = [np.corrcoef(outcome, _holes(case).sum(axis=1))[0, 1] for case in (whole, other)]
    assert related[0] > 0.5 and abs(related[1]) < 5 / np.sqrt(5000)


@pytest.mark.parametrize("columns", COLUMNS)
def test_the_first_few_columns_have_the_holes_of_the_whole_table(columns: int, whole: Case) -> None:
    case = TABLES[f"causalfi-columns-{columns}"].case(1, None)
    assert case.incomplete == U[:columns] and case.everybody
    assert len(case.covariates) == 20 - columns
    expected = _holes(whole)
    expected[list(U[columns:])] = False
    pd.testing.assert_frame_equal(_holes(case), expected)


def _folder(folder: Path, replicate: int = 4) -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(747, 30))
    rows[:, 0] = np.arange(747) % 2
    rows[:, 9] = np.arange(747)  # x5: who it is
    mask = rng.integers(0, 2, (747, 4))
    pd.DataFrame(rows).to_csv(folder / f"ihdp_npci_{replicate}.csv", header=False, index=False)
    pd.DataFrame(mask).to_csv(folder / f"observed_mask_{replicate}.csv", header=False, index=False)
    return mask


def test_masks_are_laid_over_the_first_four_columns_of_six_sites(tmp_path: Path) -> None:
    mask = _folder(tmp_path)
    case = TABLES["causalfi-ihdp"].case(4, tmp_path)
    assert case.incomplete == ("x1", "x2", "x3", "x4")
    assert case.covariates == [f"x{j}" for j in range(5, 26)]
    assert case.train["site2"]["x5"].tolist() == list(range(124, 204))
    assert case.test["site2"]["x5"].tolist() == list(range(204, 228))
    assert case.valid["site6"]["x5"].tolist() == list(range(724, 744))
    for part in (case.train, case.valid, case.test):
        people = pd.concat(part.values())
        seen = people[list(case.incomplete)].notna().to_numpy()
        np.testing.assert_array_equal(seen, mask[people["x5"].to_numpy(int)] == 1)
        assert people[case.covariates].notna().all(axis=None)
    few = case.first(2)
    assert (len(few.train), len(few.test), len(few.test_truth)) == (2, 6, 144)
    people, truth = pd.concat(few.test.values()), few.test_truth
    np.testing.assert_allclose(people["y"], np.where(people["w"] == 1, truth["y1"], truth["y0"]))
    assert "conditional" not in truth


def test_a_mask_that_is_absent_or_not_its_tables_is_an_error(tmp_path: Path) -> None:
    mask = _folder(tmp_path)
    path = tmp_path / "observed_mask_4.csv"
    for wrong in (mask[:700], mask[:, :3], mask + 1):
        pd.DataFrame(wrong).to_csv(path, header=False, index=False)
        with pytest.raises(DataError, match="columns of 0 and 1"):
            incomplete_ihdp(tmp_path, 4)
    path.unlink()
    with pytest.raises(DataError, match=r"no observed_mask_4\.csv"):
        incomplete_ihdp(tmp_path, 4)


TRUTH = pd.DataFrame(
    {"y0": [0.0, 1.0], "y1": [2.0, 5.0], "mu0": [0.0, 0.0], "mu1": [1.0, 3.0], "conditional": [2.0, 2.0]}
)


def test_what_is_seen_lets_expect_another_effect_than_the_persons_own() -> None:
    # Own effects 1 and 3, of which 2 and 2 can be expected; the training people's average is 2.
    said = np.array([2.0, 3.0])
    found = score(Estimate(said, said, ate=1.5), TRUTH, TRUTH)
    assert found["prediction"] == pytest.approx(np.sqrt(0.5))
    assert found["conditional"] == pytest.approx(np.sqrt(0.5))
    assert found["ate_error"] == pytest.approx(0.5)
    assert (found["ate"], found["in_sample_ate_error"], found["ate_truth"]) == pytest.approx((1.5, 0.5, 2.0))
    exact = score(Estimate(said, np.array([2.0, 2.0])), TRUTH, TRUTH)
    assert exact["conditional"] == 0.0 and exact["prediction"] == pytest.approx(1.0)
    assert "in_sample_ate_error" not in exact


def test_intervals_of_the_expected_effect_are_held_against_it() -> None:
    draws = np.random.default_rng(0).normal([2.0, 2.0], 0.1, (4000, 2))
    found = score(Estimate(np.zeros(2), draws.mean(axis=0), draws, draws.mean(axis=1)), TRUTH, TRUTH)
    assert (found["conditional_95_coverage"], found["cate_95_coverage"]) == (1.0, 0.0)
    assert found["conditional_95_width"] == pytest.approx(found["cate_95_width"])
    assert found["in_sample_ate_error"] == pytest.approx(0.0, abs=0.01)


def _old_cell(**more: Any) -> dict[str, Any]:
    key = {"contender": "ridge", "arrangement": "combined", "sites": 2, "replicate": 1}
    return {**key, "prediction": 2.0, "imputation": 1.0, "ate_error": 0.5, "ate": 3.0, **more}


def test_cells_stored_before_these_scores_are_read_beside_new_ones(tmp_path: Path) -> None:
    old = pd.DataFrame([_old_cell(error=None)])
    old.to_parquet(tmp_path / "some.parquet")
    measures = VIEWS["overview"]
    shown = markdown(summarise(CellStore(tmp_path, "some").cells, measures), measures)
    assert "prediction" in shown and "conditional" not in shown and "in_sample" not in shown
    store = CellStore(tmp_path, "some")
    store.add(_old_cell(contender="causal_fi", arrangement="federated", conditional=0.7))
    again = CellStore(tmp_path, "some").cells
    assert np.isnan(again["conditional"].to_numpy(float)[0]) and again["conditional"].iloc[1] == 0.7
    summary = summarise(again, measures)
    assert "0.70 (0.70)" in markdown(summary, measures)
    assert "conditional" not in verdict(summary, "causal_fi")  # of the peer it is not known
    better = summarise(again.assign(conditional=[0.9, 0.7]), measures)
    assert "best stacked peer (conditional) in 1 of 1" in verdict(better, "causal_fi")


def test_a_contender_without_an_idea_of_holes_is_a_row_that_says_so(tmp_path: Path, whole: Case) -> None:
    table = replace(SYNTHETIC, case=lambda replicate, folder: whole)
    todo = runner.cells(
        contenders=("ridge", "mean", "zero"), sites=(3,), replicates=1, arrangements=("combined",)
    )
    rows = {row["contender"]: row for row in runner.run(table, todo, CellStore(tmp_path, table.name), None)}
    assert "'ridge' must be given complete tables" in rows["ridge"]["error"]
    for name in ("mean", "zero"):
        assert "error" not in rows[name] and rows[name]["conditional"] > 0.0
    assert rows["mean"]["conditional"] < rows["zero"]["conditional"]


@pytest.mark.parametrize("arrangement", ["federated", "combined"])
def test_ours_is_told_which_columns_have_holes_and_asked_about_everybody(
    arrangement: str, whole: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def fit(model: Any, study: Any, train: Any, test: Any) -> tuple[Estimate, Cost]:
        seen.append((study, list(train), [site for site, _ in test], sum(len(people) for _, people in test)))
        return Estimate(np.zeros(2500), np.zeros(2500)), {"fit_seconds": 1.0}

    monkeypatch.setattr(ours, "_fit", fit)
    monkeypatch.setattr(ours.up, "CausalFI", lambda seed: None, raising=False)
    ours.plain("CausalFI")(whole.first(3), arrangement, 0)
    ((study, trained, asked, people),) = seen
    assert study.columns.incomplete == U and people == 2500
    if arrangement == "federated":
        # Their own site where it trains, else the three in turn.
        assert asked == [*trained, *[trained[turn % 3] for turn in range(47)]]
    else:
        assert set(asked) == set(trained) == {"stacked"}
