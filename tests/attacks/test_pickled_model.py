"""Somebody sends a fitted model to a colleague as a pickle: no row must travel with it."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from engines.stage import study, tables
from unpooled.errors import StudyError
from unpooled.estimators import Estimator, of_study
from unpooled.study import Study

pytestmark = pytest.mark.slow
ASKED = study("pickled", method={"name": "aipw", "draws": 40, "estimator": "difference"})


@pytest.fixture(scope="module")
def made() -> dict[str, pd.DataFrame]:
    return tables()


@pytest.fixture(scope="module")
def model(made: dict[str, pd.DataFrame]) -> Estimator:
    return of_study(ASKED).fit(ASKED, made)


def test_a_pickle_holds_no_value_of_any_row(model: Estimator, made: dict[str, pd.DataFrame]) -> None:
    content = pickle.dumps(model)
    for name, table in made.items():
        assert f"canary-{name}".encode() not in content
        for column in ("a", "b", "c", "y"):
            assert np.ascontiguousarray(table[column]).tobytes() not in content
            assert not any(np.float64(value).tobytes() in content for value in table[column])


def test_a_pickle_does_not_say_where_the_tables_are(tmp_path: Path, made: dict[str, pd.DataFrame]) -> None:
    for name, table in made.items():
        table.to_parquet(tmp_path / f"secret-{name}.parquet")
    sites = {name: str(tmp_path / f"secret-{name}.parquet") for name in made}
    asked = Study(**{**ASKED.model_dump(), "sites": sites})
    fitted = of_study(asked).fit(asked)
    assert b"secret-" not in pickle.dumps(fitted)
    assert set(fitted.result_.study.sites) == set(made)  # the model itself is as it was


def test_an_unpickled_model_has_its_results_and_asks_for_tables(
    model: Estimator, made: dict[str, pd.DataFrame]
) -> None:
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        np.testing.assert_array_equal(again.ate_draws(), model.ate_draws())
        with pytest.raises(StudyError, match="attach"):
            again.effect(made["north"], site="north")
    again = pickle.loads(pickle.dumps(model)).attach(made)
    people = made["north"].head(3)
    np.testing.assert_array_equal(again.effect(people, site="north"), model.effect(people, site="north"))
    assert "sites_" in vars(model)


def test_an_estimator_that_was_not_fitted_is_pickled_as_before() -> None:
    again = pickle.loads(pickle.dumps(of_study(ASKED)))
    assert again.get_params() == of_study(ASKED).get_params()
