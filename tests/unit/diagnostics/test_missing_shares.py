"""Shares of missing values: as counted, and none that few people stand behind."""

import numpy as np

from oracle import records
from unpooled.diagnostics.missingness import missing_shares
from unpooled.protocol.records import IncompleteColumn

SITES = ("a", "b", "c")


def scaling(seen, counts=(100, 80, 60)):
    columns = (IncompleteColumn("bmi", "numeric", 1), IncompleteColumn("stage", "categorical", 2))
    wide = np.array([[one, two, two] for one, two in seen])
    return records.scaling(sites=SITES, incomplete_columns=columns, counts=counts, observed=wide)


def test_counted_by_site_and_over_all() -> None:
    found = missing_shares(scaling([(90, 50), (70, 80), (40, 60)]), SITES, {})
    assert found.loc["a"].tolist() == [0.1, 0.5]
    assert found.loc["b"].tolist() == [0.125, 0.0]
    assert found.loc["all sites", "bmi"] == 40 / 240


def test_few_missing_values_are_withheld_with_a_second_site_s() -> None:
    found = missing_shares(scaling([(97, 50), (70, 80), (40, 60)]), SITES, {})
    assert found["bmi"].isna().tolist() == [True, False, True, False]
    assert not found["stage"].isna().any()


def test_few_over_all_sites_are_withheld_there_too() -> None:
    found = missing_shares(scaling([(97, 50), (80, 80), (60, 60)]), SITES, {})
    assert np.isnan(found.loc["all sites", "bmi"])


def test_hidden_sites_are_hidden_here() -> None:
    found = missing_shares(scaling([(90, 50), (70, 80), (40, 60)]), SITES, {"c": "few", "b": "why"})
    assert found.loc[["b", "c"]].isna().all(axis=None)
    assert not found.loc["a"].isna().any()


def test_nothing_incomplete() -> None:
    assert missing_shares(records.scaling(sites=SITES), SITES, {}) is None
