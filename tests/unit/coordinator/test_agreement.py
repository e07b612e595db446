"""What the sites agree on is what the stacked table would have said."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from unpooled.coordinator.agreement import FLAG_SCALE, Agreement, _distances, reach_agreement
from unpooled.coordinator.rounds import Conduct
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import DataError
from unpooled.protocol.records import REFERENCES
from unpooled.study import Study

STUDY = Study(treatment="w", outcome="y", covariates=["a", "b", "c"])


def _tables(**changed: object) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    tables = {}
    for name, rows in {"n": 12, "s": 25, "e": 17}.items():
        a = rng.gamma(2.0, size=rows) + 100.0
        frame = {"a": a, "b": (rng.random(rows) < 0.4).astype(int), "c": 0.5 * a + rng.normal(size=rows)}
        frame |= {"w": np.arange(rows) % 2, "y": rng.normal(size=rows)}
        tables[name] = pd.DataFrame(frame).assign(**changed)
    return tables


def _agree(tables: dict[str, pd.DataFrame]) -> tuple[Agreement, int]:
    conduct = Conduct(reach_agreement(STUDY), InProcess(open_sites(STUDY, tables, NONE)))
    rounds = len(list(conduct))
    return conduct.result, rounds


def test_the_agreed_numbers_are_those_of_the_stacked_table_in_three_rounds() -> None:
    tables = _tables()
    agreement, rounds = _agree(tables)
    assert rounds == 3
    pooled = pd.concat(tables.values())
    x, scaling = pooled[["a", "b", "c"]].to_numpy(float), agreement.scaling
    np.testing.assert_allclose(scaling.mean, x.mean(axis=0))
    np.testing.assert_allclose(scaling.sd, x.std(axis=0))
    np.testing.assert_allclose(scaling.outcome_sd, pooled["y"].std(ddof=0))
    np.testing.assert_allclose(scaling.correlation, np.corrcoef(x.T), rtol=1e-10)
    np.testing.assert_allclose(scaling.binary_rate, [np.nan, pooled["b"].mean(), np.nan])
    assert scaling.counts == (12, 25, 17)
    assert scaling.site_names == ("n", "s", "e")
    assert scaling.sites == 3


def test_a_rare_flag_is_not_blown_up_by_its_sd_and_may_still_not_repeat_another() -> None:
    def flag(table: pd.DataFrame) -> np.ndarray:
        return (np.arange(len(table)) == 1).astype(int)

    tables = _tables(b=flag)
    scaling = _agree(tables)[0].scaling
    sd = pd.concat(tables.values())["b"].std(ddof=0)
    assert sd < FLAG_SCALE == scaling.sd[1]
    np.testing.assert_allclose(scaling.correlation[1, 1], (sd / FLAG_SCALE) ** 2)
    with pytest.raises(DataError, match="'b' and 'c'"):
        _agree(_tables(b=flag, c=flag))


def test_distances_of_sites_are_those_of_their_moments_and_binary_columns_have_no_shape() -> None:
    tables = _tables()
    scaling = _agree(tables)[0].scaling
    pooled = pd.concat(tables.values())[["a", "b", "c"]].to_numpy(float)
    moments = []
    for table in tables.values():
        x = (table[["a", "b", "c"]].to_numpy(float) - pooled.mean(axis=0)) / pooled.std(axis=0)
        shape = [stats.skew(x[:, [0, 2]]), stats.kurtosis(x[:, [0, 2]])]
        moments.append([*x.mean(axis=0), *x.std(axis=0), *np.round(np.clip(shape, -5.0, 5.0), 1).ravel()])
    for i, one in enumerate(moments):
        for j, other in enumerate(moments):
            squares = np.square(np.subtract(one, other))
            np.testing.assert_allclose(scaling.site_distances[i, j], squares.mean(), rtol=1e-6, atol=1e-12)


def test_of_many_sites_those_that_are_far_apart_are_references() -> None:
    rng = np.random.default_rng(1)
    moments = np.concatenate([rng.normal(size=(30, 4)), 0.01 * rng.normal(size=(20, 4)), 9.0 * np.eye(4)])
    found = _distances(moments)
    assert found.shape == (54, REFERENCES)
    references = np.argmin(found, axis=0)
    assert len(set(references)) == REFERENCES
    assert {50, 51, 52, 53} <= set(references)  # the outlying ones
    np.testing.assert_allclose(found, np.mean((moments[:, None] - moments[references]) ** 2, axis=2))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"c": 4.0}, "constant: c"),
        ({"y": 1.5}, "the outcome 'y' must vary"),
        ({"c": lambda t: 3 - 2 * t["a"]}, "'a' and 'c'"),
        ({"c": lambda t: 3 - 2 * t["y"]}, "'c' and 'y \\(the outcome\\)'"),
        ({"c": lambda t: 7 - 2 * t["w"]}, "'c' separates the arms"),
        ({"c": "the same word"}, "constant: c"),
        ({"c": lambda t: 1e-90 * t["c"]}, "constant: c"),
    ],
)
def test_columns_that_say_nothing_are_refused_by_name(changed: dict, words: str) -> None:
    with pytest.raises(DataError, match=words):
        _agree(_tables(**changed))


def test_a_table_given_twice_is_refused() -> None:
    tables = _tables()
    with pytest.raises(DataError, match="'n' and 'again'"):
        _agree({**tables, "again": tables["n"]})
    with pytest.raises(DataError, match="'n' and 'again'"):
        _agree({**tables, "again": tables["n"].sample(frac=1.0, random_state=1)})
    with pytest.raises(DataError, match="'n' and 'again'"):
        _agree({"n": tables["n"], "again": tables["n"].iloc[::-1]})


def test_a_table_that_differs_in_a_small_column_only_is_another_table() -> None:
    """Columns are compared each on its own scale: `a` is a billion times larger than `c`."""
    table = _tables()["s"].assign(a=lambda t: 1e9 * t["a"])
    other = table.assign(c=lambda t: t["c"] + 1e-3 * np.cos(np.arange(len(t))))
    _agree({"n": table, "other": other})
    with pytest.raises(DataError, match="'n' and 'again'"):
        _agree({"n": table, "again": table.sample(frac=1.0, random_state=1)})


def test_the_scaling_that_sites_receive_says_nothing_about_single_sites() -> None:
    shared = _agree(_tables())[0].scaling.shared()
    assert (shared.sites, shared.people, shared.largest_site) == (3, 54, 50)
    for attribute in ("counts", "site_names", "known"):
        with pytest.raises(ValueError, match="at the coordinator only"):
            getattr(shared, attribute)
