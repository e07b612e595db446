"""FedCI as a contender: who trains and who is asked about, where fewer sites are scored than train."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.benchmark.cases import simulated
from unpooled.benchmark.contenders import Cost, ours
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
    estimate, _ = ours.ESTIMATORS["fedci"](case, arrangement, 0)
    assert fits == expected
    found = score(estimate, case.test_truth, case.train_truth)
    # The average is everybody's who trained; alone, those who are not scored were not asked.
    assert ("ate_truth" in found) == (arrangement != "local")
    assert {"prediction", "imputation", "ate_error"} <= set(found)


def test_where_all_are_scored_each_site_alone_adds_its_share_to_the_average(fits: Fits) -> None:
    estimate, _ = ours.ESTIMATORS["fedci"](CASE, "local", 0)
    assert fits == [([site], [site]) for site in CASE.train]
    means = np.array([frame["y"].mean() for frame in CASE.train.values()])
    np.testing.assert_allclose(estimate.prediction, np.repeat(means, 7))
    np.testing.assert_allclose(estimate.ate_draws, means.mean())  # sites of one size
