"""People cut as declared, and one table's learner over several sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from unpooled.benchmark.cases import Case, ihdp, simulated
from unpooled.benchmark.contenders import CONTENDERS
from unpooled.benchmark.contenders.peer import PeerPrediction, PeerTable, Predict, peer
from unpooled.benchmark.contenders.simple import ESTIMATORS
from unpooled.benchmark.tables import TABLES
from unpooled.data.simulation import varying
from unpooled.errors import DataError

CASE = simulated("fedci-data1", 3, sites=3, rows=20, test=7, valid=5)


def test_training_test_and_tuning_people_are_apart_and_the_truth_is_the_test_peoples() -> None:
    assert [len(frame) for frame in CASE.train.values()] == [20, 20, 20]
    assert [len(frame) for frame in CASE.test.values()] == [7, 7, 7]
    assert [len(frame) for frame in CASE.valid.values()] == [5, 5, 5]
    for site, people in CASE.test.items():
        truth = CASE.test_truth[CASE.test_truth["site"] == site]
        factual = np.where(people["w"] == 1, truth["y1"], truth["y0"])
        np.testing.assert_array_equal(people["y"], factual)
        assert not set(people["x1"]) & set(CASE.valid[site]["x1"])
        assert not set(people["x1"]) & set(CASE.train[site]["x1"])


def test_fewer_sites_are_the_first_ones_unchanged() -> None:
    two = CASE.first(2)
    assert list(two.train) == ["site1", "site2"]
    assert set(two.test_truth["site"]) == {"site1", "site2"}
    pd.testing.assert_frame_equal(two.train["site2"], CASE.train["site2"])


def test_fewer_sites_may_be_scored_than_train() -> None:
    case = CASE.scored_at(1)
    assert (list(case.train), list(case.valid), list(case.test)) == (list(CASE.train),) * 2 + (["site1"],)
    assert set(case.test_truth["site"]) == {"site1"} and len(case.train_truth) == 60
    two = CASE.scored_at(2).first(3)
    assert list(two.train) == ["site1", "site2", "site3"] and list(two.test) == ["site1", "site2"]
    assert set(two.test_truth["site"]) == {"site1", "site2"}


def test_constant_and_repeated_covariates_are_left_out() -> None:
    flag = np.array([0, 1, 1, 0, 1])
    table = pd.DataFrame({"a": np.arange(5.0), "b": 7, "c": flag, "d": 1 - flag, "w": flag, "y": 0.0})
    assert varying(table) == ["a", "c"]


def test_ihdp_is_cut_in_file_order_and_never_scores_a_training_person(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(747, 30))
    rows[:, 0] = np.arange(747) % 2
    rows[:, 5] = np.arange(747)  # x1: who it is
    pd.DataFrame(rows).to_csv(tmp_path / "ihdp_npci_4.csv", header=False, index=False)
    case = ihdp(tmp_path, 4)
    assert case.train["site2"]["x1"].tolist() == list(range(249, 332))
    assert case.test["site2"]["x1"].tolist() == list(range(332, 415))
    assert case.valid["site3"]["x1"].tolist() == list(range(664, 747))
    truth = case.test_truth[case.test_truth["site"] == "site2"]
    people = case.test["site2"]
    np.testing.assert_allclose(people["y"], np.where(people["w"] == 1, truth["y1"], truth["y0"]))
    with pytest.raises(DataError, match="ihdp_npci_9"):
        ihdp(tmp_path, 9)
    other = TABLES["causalrff-ihdp"].case(4, tmp_path)
    assert other.train["site2"]["x1"].tolist() == list(range(249, 299))
    assert other.valid["site3"]["x1"].tolist() == list(range(648, 747))
    assert {site: people["x1"].tolist() for site, people in other.test.items()} == {
        "site1": list(range(50, 150))
    }
    people, truth = other.test["site1"], other.test_truth
    np.testing.assert_allclose(people["y"], np.where(people["w"] == 1, truth["y1"], truth["y0"]))


def _mean_outcome(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
    """Says of everybody the mean outcome of the table it saw."""
    return lambda x: PeerPrediction(np.full(len(x), train.y.mean()))


def test_arrangements_show_a_learner_one_site_the_sites_in_turn_or_the_stack() -> None:
    means = np.array([frame["y"].mean() for frame in CASE.train.values()])
    said = {how: peer(_mean_outcome)(CASE, how, 0)[0].prediction for how in ("local", "bagged", "combined")}
    np.testing.assert_allclose(said["local"], np.repeat(means, 7))
    np.testing.assert_allclose(said["bagged"], means.mean())
    np.testing.assert_allclose(said["combined"], means.mean())  # sites of one size


def test_where_one_site_is_scored_the_arrangements_still_show_what_they_should() -> None:
    means = np.array([frame["y"].mean() for frame in CASE.train.values()])
    case, seen = CASE.scored_at(1), []

    def learner(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
        seen.append(len(train.y))
        return _mean_outcome(train, valid, seed)

    said = {how: peer(learner)(case, how, 0)[0].prediction for how in ("local", "bagged", "combined")}
    np.testing.assert_allclose(said["local"], np.full(7, means[0]))
    np.testing.assert_allclose(said["bagged"], np.full(7, means.mean()))
    np.testing.assert_allclose(said["combined"], np.full(7, means.mean()))
    assert seen == [20, *[20] * 3, 60]  # alone, no other site is even fitted


def _offset_sites() -> Case:
    """Sites alike but for an offset of the treated, and more of it in each."""
    rng = np.random.default_rng(2)

    def people(offset: float) -> pd.DataFrame:
        frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["x1", "x2"])
        frame["w"] = rng.integers(0, 2, 60)
        frame["y"] = frame["x1"] + offset * frame["w"] + 0.1 * rng.normal(size=60)
        return frame

    offsets = {"a": 0.0, "b": 4.0, "c": 8.0}
    parts = [{site: people(offset) for site, offset in offsets.items()} for _ in range(3)]
    effects = np.repeat(list(offsets.values()), 60)
    names = np.repeat(list(offsets), 60)
    truth = pd.DataFrame({"site": names, "y0": 0.0, "y1": effects, "mu0": 0.0, "mu1": effects})
    return Case(*parts, truth, truth)


@pytest.mark.parametrize("scored", [1, 3])
def test_told_which_site_a_row_is_from_stacked_lines_follow_the_sites(scored: int) -> None:
    case = _offset_sites().scored_at(scored)
    truth = case.test_truth["mu1"].to_numpy()
    error = {
        name: np.abs(ESTIMATORS[name](case, "combined", 0)[0].prediction - truth).max()
        for name in ("ridge", "ridge-indicators")
    }
    assert error["ridge-indicators"] < 0.3 and error["ridge"] > 3.0
    assert CONTENDERS["ridge-indicators"].arrangements == ("combined",)


def test_indicators_do_no_harm_where_there_is_one_site() -> None:
    plain, told = (
        ESTIMATORS[name](CASE.first(1), "combined", 0)[0].prediction for name in ("ridge", "ridge-indicators")
    )
    np.testing.assert_allclose(told, plain)


def test_a_persons_own_outcome_stands_in_for_its_model_in_imputation() -> None:
    def learner(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
        return lambda x: PeerPrediction(np.full(len(x), 10.0), np.full(len(x), 1.0))

    estimate, _ = peer(learner)(CASE, "combined", 0)
    people = pd.concat(CASE.test.values())
    expected = np.where(people["w"] == 1, people["y"] - 1.0, 11.0 - people["y"])
    np.testing.assert_allclose(estimate.imputation, expected)
    np.testing.assert_array_equal(estimate.prediction, 10.0)


def test_simple_contenders_find_a_constant_effect_of_lines() -> None:
    rng = np.random.default_rng(1)

    def people(count: int) -> pd.DataFrame:
        frame = pd.DataFrame(rng.normal(size=(count, 2)), columns=["x1", "x2"])
        frame["w"] = rng.integers(0, 2, count)
        frame["y"] = 2.0 * frame["x1"] + 3.0 * frame["w"] + 0.01 * rng.normal(size=count)
        return frame

    parts = [{"a": people(40), "b": people(40)} for _ in range(3)]
    truth = pd.DataFrame({"site": ["a"] * 40 + ["b"] * 40, "y0": 0.0, "y1": 3.0, "mu0": 0.0, "mu1": 3.0})
    case = Case(*parts, truth, truth)
    for name in ("constant", "ridge", "gp"):
        estimate, cost = ESTIMATORS[name](case, "combined", 0)
        np.testing.assert_allclose(estimate.prediction, 3.0, atol=0.1)
        np.testing.assert_allclose(estimate.imputation, 3.0, atol=0.15)
        assert set(cost) == {"fit_seconds"}
    assert ESTIMATORS["gp"](case, "combined", 0)[0].prediction_draws.shape == (400, 80)
