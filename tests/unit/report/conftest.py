"""A study and a model of it that was never fitted."""

import numpy as np
import pytest

from oracle import records
from unpooled.study import Study


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def study(place):
    return Study(
        treatment="quit",
        outcome="weight",
        covariates=["age"],
        units={"weight": "kg"},
        method={"name": "fedci"},
        sites={"north": str(place / "north.csv")},
    )


@pytest.fixture(scope="module")
def model(study):
    return records.model(study, np.random.default_rng(1).normal([3.0, 4.0], 0.5, (200, 2)))
