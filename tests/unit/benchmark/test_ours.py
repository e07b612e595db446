"""FedCI as a contender: who trains and who is asked about, where fewer sites are scored than train."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.benchmark.cases import simulated
from unpooled.benchmark.contenders import Contender, Cost, ours
from unpooled.benchmark.scores import Estimate, score

CASE = simulated("fedci-data1", 3, sites=3, rows=20, test=7, valid=5)
Fits = list[tuple[list[str], list[str]]]


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> Fits:
    """Which sites each fit was given and asked about; a fit says of everybody the mean outcome it saw."""
    seen: Fits = []

    def fit(
        model: Any, study: Any, train: dict[str, pd.DataFrame], test: list[tuple[str, pd.DataFrame]]
    ) -> tuple[Estimate, Cost]:
        seen.append((list(train), [site for site, _ in test]))
        mean = np.mean(pd.concat(train.values())["y"])
        said = np.full(sum(len(people) for _, people in test), mean)
        return Estimate(said, said, np.tile(said, (20, 1)), np.full(20, mean)), {"fit_seconds": 1.0}

    monkeypatch.setattr(ours, "_fit", fit)
    return seen


@pytest.mark.parametrize(
    ("arrangement", "expected"),
    [
        ("federated", [(["site1", "site2", "site3"], ["site1"])]),
        ("combined", [(["stacked"], ["stacked"])]),
        ("local", [(["site1"], ["site1"])]),
    ],
)
def test_only_the_scored_sites_people_are_asked_about(fits: Fits, arrangement: str, expected: Fits) -> None:
    case = CASE.scored_at(1)
    estimate, _ = ours.plain("FedCI")(case, arrangement, 0)
    assert fits == expected
    found = score(estimate, case.test_truth, case.train_truth)
    # The average is everybody's who trained; alone, those who are not scored were not asked.
    assert ("ate_truth" in found) == (arrangement != "local")
    assert {"prediction", "imputation", "ate_error"} <= set(found)


def test_where_all_are_scored_each_site_alone_adds_its_share_to_the_average(fits: Fits) -> None:
    estimate, _ = ours.plain("FedCI")(CASE, "local", 0)
    assert fits == [([site], [site]) for site in CASE.train]
    means = np.array([frame["y"].mean() for frame in CASE.train.values()])
    np.testing.assert_allclose(estimate.prediction, np.repeat(means, 7))
    np.testing.assert_allclose(estimate.ate_draws, means.mean())  # sites of one size


def test_an_estimator_takes_part_by_the_name_of_its_class(fits: Fits) -> None:
    added = Contender("new", "ours", ("federated",), estimator_class="AIPW")
    added.estimator()(CASE, "federated", 0)
    assert fits == [(list(CASE.train), list(CASE.train))]
    assert "no unpooled.Absent" in str(Contender("absent", "ours", (), estimator_class="Absent").missing())


class _Saying:
    """A fitted model that says of each person the first covariate."""

    result_ = SimpleNamespace(cost=SimpleNamespace(rounds=1, bytes_up={"site1": 1}))

    def fit(self, study: Any, train: Any) -> None: ...

    def effect(self, people: pd.DataFrame, *, site: str) -> np.ndarray:
        return people["x1"].to_numpy()

    def ite(self, site: str, people: pd.DataFrame) -> np.ndarray:
        return people["x1"].to_numpy()

    def effect_draws(self, people: pd.DataFrame, *, site: str) -> np.ndarray:
        return people["x1"].to_numpy()[None]

    def ate_draws(self) -> np.ndarray:
        return np.zeros(1)


@pytest.mark.parametrize("arrangement", ["federated", "combined"])
def test_training_people_are_asked_in_the_order_of_the_truth(arrangement: str) -> None:
    make: Any = lambda seed: _Saying()  # noqa: E731
    estimate, _ = ours.ours(make)(CASE, arrangement, 0)
    first = [frame["x1"] for frame in CASE.train.values()]
    np.testing.assert_array_equal(estimate.training, pd.concat(first))
    assert CASE.train_truth["site"].tolist() == [site for site in CASE.train for _ in range(20)]
