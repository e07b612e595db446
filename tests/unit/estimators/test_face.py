"""The face of an estimator before and around a fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import unpooled
from oracle import records
from unpooled.coordinator.result import StudyResult
from unpooled.errors import ResultsError, StudyError
from unpooled.estimators import ESTIMATORS, FedCI, load, of_study
from unpooled.methods.fedci.settings import FedCIContext
from unpooled.methods.method import METHODS
from unpooled.protocol.records import Draws
from unpooled.study import Study

STUDY = Study(treatment="w", outcome="y", covariates=["a"], sites={"n": "north.csv"})


def _result() -> StudyResult:
    study = STUDY.with_changes(seed=4, method={"name": "fedci", "draws": 30})
    context = FedCIContext(
        np.eye(1),
        np.zeros((2, 2)),
        np.zeros((5, 1)),
        family="continuous",
        outcome_mean=0.0,
        outcome_sd=1.0,
        exact=True,
        large=False,
        interval=1,
        share=1.0,
    )
    return records.model(
        study,
        np.arange(8.0).reshape(4, 2),
        sites=("n", "s"),
        counts=(10, 30),
        context=context,
        draws=Draws({"weights": {"projection": 1.0}}),
    ).result_


def test_every_method_has_its_estimator() -> None:
    assert set(ESTIMATORS) == set(METHODS)
    for name, estimator in ESTIMATORS.items():
        assert estimator.method == name
        assert getattr(unpooled, estimator.__name__) is estimator


def test_the_constructor_only_stores_and_the_fit_checks() -> None:
    model = FedCI(draws="many", structure="unheard")
    assert model.get_params()["draws"] == "many"
    with pytest.raises(StudyError, match="must be valid"):
        model.fit(STUDY, {})


def test_a_study_file_names_its_estimator() -> None:
    model = of_study(_asking({"draws": 50}))
    assert (model.seed, model.draws, type(model)) == (9, 50, FedCI)
    with pytest.raises(StudyError, match="did you mean 'draws'"):
        of_study(_asking({"drawz": 50}))


def _asking(settings: dict[str, int]) -> Study:
    return STUDY.with_changes(seed=9, method={"name": "fedci", **settings})


def test_averages_weigh_sites_by_their_people() -> None:
    model = FedCI()
    model.result_ = _result()
    np.testing.assert_allclose(model.ate_draws(), np.arange(8.0).reshape(4, 2) @ [0.25, 0.75])
    np.testing.assert_allclose(model.ate_draws("s"), [1.0, 3.0, 5.0, 7.0])
    assert model.ate("n") == pytest.approx(3.0)
    lower, upper = model.ate_interval("n", alpha=0.5)
    assert (lower, upper) == tuple(np.quantile([0.0, 2.0, 4.0, 6.0], [0.25, 0.75]))


def test_a_saved_result_comes_back_whole_without_the_addresses_of_tables(tmp_path: Path) -> None:
    result = _result()
    folder = result.save(tmp_path / "model")
    back = StudyResult.load(folder)
    assert back.sites == result.sites
    assert back.study.seed == 4
    assert back.cost == result.cost
    assert (back.schema, back.lost_sites) == (result.schema, result.lost_sites)
    assert back.fit_diagnostics == result.fit_diagnostics
    assert back.draws == result.draws
    for name in ("mean", "sd", "correlation"):
        np.testing.assert_array_equal(getattr(back.scaling, name), getattr(result.scaling, name))
    assert isinstance(back.context, FedCIContext)
    np.testing.assert_array_equal(back.context.inducing, result.context.inducing)
    np.testing.assert_array_equal(back.site_effects, result.site_effects)
    assert b"north.csv" not in b"".join(path.read_bytes() for path in folder.iterdir())
    model = load(folder)
    assert (model.seed, model.draws) == (4, 30)


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ResultsError, match="new or empty"):
        _result().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("spoil", ["nothing there", "no model", "cut short", "not a study"])
def test_what_is_no_saved_model_is_refused(tmp_path: Path, spoil: str) -> None:
    folder = tmp_path / "model"
    if spoil != "nothing there":
        _result().save(folder)
    if spoil == "no model":
        (folder / "model.msgpack").unlink()
    if spoil == "cut short":
        (folder / "model.msgpack").write_bytes((folder / "model.msgpack").read_bytes()[:-9])
    if spoil == "not a study":
        (folder / "study.json").write_text("{}")
    with pytest.raises(unpooled.UnpooledError) as raised:
        load(folder)
    assert isinstance(raised.value, ResultsError), type(raised.value)
