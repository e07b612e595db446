"""A model that was never fitted, with the face of one that was."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from unpooled.effects.summary import combine, interval, table
from unpooled.study import Study


@dataclass
class FakeOutcome:
    study: Study
    sites: tuple = ("north", "south")
    counts: tuple = (30, 60)
    context: dict = field(default_factory=dict)
    schema: dict = field(default_factory=dict)
    scaling: dict = field(default_factory=lambda: {"outcome_sd": 2.0, "incomplete_columns": []})
    site_effects: np.ndarray = field(default_factory=lambda: np.zeros((2, 2)))
    looked: dict | None = None
    diagnostics: dict = field(
        default_factory=lambda: {
            "weights": {"isotropic": 1.0},
            "structures": {"isotropic": {"objective": 1.5, "evaluations": 3, "history": [9.0, 2.0, 1.5]}},
        }
    )
    left_out: dict = field(default_factory=dict)
    cost: dict = field(
        default_factory=lambda: {
            "rounds": 3,
            "seconds": 0.5,
            "bytes_up": {"north": 1500, "south": 1600},
            "bytes_down": {"north": 900, "south": 900},
        }
    )


class FakeModel:
    def __init__(self, study, draws):
        self.result_ = FakeOutcome(study)
        self.draws = draws

    def ate_draws(self, site=None):
        if site is None:
            return combine(self.draws, self.result_.counts)
        return self.draws[:, self.result_.sites.index(site)]

    def ate(self, site=None):
        return float(self.ate_draws(site).mean())

    def ate_interval(self, site=None, *, alpha=0.05):
        lower, upper = interval(self.ate_draws(site), alpha)
        return float(lower), float(upper)

    def summary(self, *, alpha=0.05):
        return table(self.draws, self.result_.sites, self.result_.counts, alpha)

    def save(self, folder):
        Path(folder).mkdir()
        return Path(folder)


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
    return FakeModel(study, np.random.default_rng(1).normal([3.0, 4.0], 0.5, (200, 2)))
