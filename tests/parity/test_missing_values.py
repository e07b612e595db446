"""Missing values without a model: a study equals one of tables that pandas has completed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.coordinator.agreement import reach_agreement
from unpooled.coordinator.left_out import checks, words
from unpooled.coordinator.rounds import run
from unpooled.data import batches
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import DataError, LimitRefusal, StudyError, UnpooledError
from unpooled.protocol.messages import Refusal
from unpooled.protocol.table_messages import CompareLeftOut, SumObserved
from unpooled.site.answer import answer

pytestmark = pytest.mark.filterwarnings("ignore::unpooled.errors.FailedCheckWarning")
NAMES = ("u", "v", "smoking", "flag")


def table(seed: int, rows: int = 150, *, at_random: bool = False) -> pd.DataFrame:
    """`u` and `v` are missing together; unless at random, more often where x is large."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    u, v = rng.normal(0.3 * seed, 1.0, size=rows), rng.exponential(size=rows)
    treated = rng.uniform(size=rows) < 1.0 / (1.0 + np.exp(-0.5 * x - 0.5 * u))
    y = x + u + treated * (1.0 + 0.5 * x) + rng.normal(size=rows)
    both = rng.uniform(size=rows) < (0.25 if at_random else 1.0 / (1.0 + np.exp(1.5 - 1.5 * x)))
    smoking = pd.Series(rng.choice(["never", "former", "now"], rows), dtype=object)
    smoking[rng.uniform(size=rows) < 0.15] = None
    flag = np.where(rng.uniform(size=rows) < 0.1, np.nan, rng.integers(0, 2, rows))
    u, v = np.where(both, np.nan, u), np.where(both, np.nan, v)
    return pd.DataFrame({"x": x, "u": u, "v": v, "smoking": smoking, "flag": flag, "w": 1 * treated, "y": y})


def tables(**changed: Any) -> dict[str, pd.DataFrame]:
    return {name: table(seed, **changed) for seed, name in enumerate(("north", "south", "east"))}


def study(missing: str, **changed: Any) -> up.Study:
    columns = {"treatment": "w", "outcome": "y", "covariates": ["x"], "incomplete": list(NAMES)}
    return up.Study(**{**columns, "missing": missing, "privacy": {"aggregation": "plain"}, **changed})


def completed(sites: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Means of all sites in place of missing numbers, zeros in place of others, and 0/1 columns of gaps."""
    every = pd.concat(sites.values())
    found = {}
    for name, one in sites.items():
        full = one[["x", "w", "y"]].copy()
        for number in ("u", "v"):
            full[number] = one[number].fillna(every[number].mean())
        full["never"], full["now"] = (1.0 * (one["smoking"] == level) for level in ("never", "now"))
        full["flag"] = one["flag"].fillna(0.0)
        for gap in ("u", "smoking", "flag"):  # v is missing where u is
            full[f"{gap} missing"] = 1.0 * one[gap].isna()
        found[name] = full
    return found


BY_HAND = ["x", "u", "v", "never", "now", "flag", "u missing", "smoking missing", "flag missing"]


def plain(covariates: list[str]) -> up.Study:
    return up.Study(treatment="w", outcome="y", covariates=covariates, privacy={"aggregation": "plain"})


@pytest.mark.parametrize("aggregation", ["plain", "secure"])
def test_indicators_equal_a_table_completed_by_hand(aggregation: str) -> None:
    asked = study("indicator", privacy={"aggregation": aggregation})
    found = up.AIPW(seed=3).fit(asked, tables())
    expected = up.AIPW(seed=3).fit(plain(BY_HAND), completed(tables()))
    assert [one.name for one in found.result_.schema.covariates if one.flags] == BY_HAND[6:]
    np.testing.assert_allclose(
        found.estimates().to_numpy(float), expected.estimates().to_numpy(float), rtol=1e-6
    )
    people, by_hand = tables()["south"].drop(columns=["w", "y"]), completed(tables())["south"]
    effects = found.effect(people, site="south")
    np.testing.assert_allclose(effects, expected.effect(by_hand, site="south"), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_indicators_equal_a_table_completed_by_hand_with_other_methods() -> None:
    small = {name: one.head(60) for name, one in tables().items()}
    for model in (up.FedCI(seed=1, draws=40, structure="ard"), up.MetaAnalysis(seed=1)):
        found = type(model)(**model.get_params()).fit(study("indicator"), small)
        expected = type(model)(**model.get_params()).fit(plain(BY_HAND), completed(small))
        np.testing.assert_allclose(found.ate(), expected.ate(), rtol=1e-6)


@pytest.mark.parametrize("aggregation", ["plain", "secure"])
def test_complete_cases_equal_tables_without_the_others(aggregation: str) -> None:
    asked = study("complete cases", privacy={"aggregation": aggregation})
    found = up.AIPW(seed=3).fit(asked, tables())
    kept = {name: one.dropna() for name, one in tables().items()}
    expected = up.AIPW(seed=3).fit(plain(["x", *NAMES]), kept)
    np.testing.assert_allclose(
        found.estimates().to_numpy(float), expected.estimates().to_numpy(float), rtol=1e-9
    )
    assert found.result_.counts == tuple(map(len, kept.values()))
    assert "are left out because u or v or smoking or flag is missing" in found.result_.notes[0]
    assert "complete cases" in list(found.checks()["name"])


def test_large_tables_leave_out_the_same_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {name: tmp_path / f"{name}.parquet" for name in tables()}
    for name, one in tables().items():
        one.to_parquet(paths[name])
    for missing in ("complete cases", "indicator"):
        whole = run(reach_agreement(study(missing)), InProcess(open_sites(study(missing), tables(), NONE)))
        with monkeypatch.context() as patch:
            patch.setattr(batches, "LARGE", 10)
            patch.setattr(batches, "BATCH", 64)
            sites = open_sites(study(missing), paths, NONE)
            assert all(isinstance(site.table, batches.Batches) for site in sites.values())
            found = run(reach_agreement(study(missing)), InProcess(sites))
        assert found.schema.features == whole.schema.features
        np.testing.assert_allclose(found.scaling.mean, whole.scaling.mean, rtol=1e-9)
        np.testing.assert_allclose(found.scaling.correlation, whole.scaling.correlation, atol=1e-9)
        if missing == "complete cases":
            assert found.left_out is not None
            assert whole.left_out is not None
            np.testing.assert_array_equal(found.left_out.counts, whole.left_out.counts)
            np.testing.assert_allclose(found.left_out.differences, whole.left_out.differences, rtol=1e-9)


def differences_by_hand(sites: dict[str, pd.DataFrame]) -> tuple[np.ndarray, np.ndarray]:
    """Left out by site and arm, and standardised mean differences of x, w and y."""
    gaps = {name: one[list(NAMES)].isna().any(axis=1) for name, one in sites.items()}
    out = pd.concat([one.loc[gaps[name]] for name, one in sites.items()])
    kept = pd.concat([one.loc[~gaps[name]] for name, one in sites.items()])
    counts = [[int(np.sum(gaps[name] & (one["w"] == arm))) for arm in (0, 1)] for name, one in sites.items()]
    columns = ["x", "w", "y"]
    return np.array(counts), (
        (out[columns].mean() - kept[columns].mean()) / kept[columns].std(ddof=0)
    ).to_numpy()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("at_random", [False, True])
def test_people_who_are_left_out_are_compared_with_the_others(masked: bool, at_random: bool) -> None:
    sites = tables(at_random=at_random, rows=400)
    asked = study("complete cases")
    found = run(reach_agreement(asked), InProcess(open_sites(asked, sites, NONE), masked=masked)).left_out
    assert found is not None
    counts, differences = differences_by_hand(sites)
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_allclose(found.differences, differences, rtol=1e-6, atol=1e-9)
    assert found.names == ("x", "w", "y")
    (verdict,) = checks(found)
    assert verdict.passed == at_random
    if not at_random:
        assert verdict.found == pytest.approx(np.abs(differences).max(), rel=1e-6)


def test_small_numbers_of_people_who_are_left_out_are_not_told() -> None:
    sites = tables()
    sites["east"] = sites["east"].assign(**{name: sites["east"][name].ffill().bfill() for name in NAMES})
    sites["east"].loc[[3, 4], "u"] = np.nan
    asked = study("complete cases")
    opened = open_sites(asked, sites, Limits())
    agreed = run(reach_agreement(asked), InProcess(opened))
    assert agreed.left_out is not None
    assert np.isnan(agreed.left_out.counts[2]).any()
    assert "east not shown" in next(words(agreed.left_out))
    people = sum(int(np.any(one[list(NAMES)].isna().to_numpy(), axis=1).sum()) for one in sites.values())
    assert agreed.left_out.compared.max() == people - 2  # the sums leave them out as well
    # Without limits at the sites, what is shown is limited all the same.
    plainly = run(reach_agreement(asked), InProcess(open_sites(asked, sites, NONE)))
    assert plainly.left_out is not None
    assert "not shown" in next(words(plainly.left_out))


def test_levels_that_only_people_who_are_left_out_have_do_not_matter() -> None:
    sites = tables()
    sites["north"]["place"] = np.where(sites["north"]["u"].isna(), "abroad", "here")
    for name in ("south", "east"):
        sites[name]["place"] = np.where(np.arange(150) % 2, "here", "there")
    asked = study("complete cases", covariates=["x", "place"])
    found = run(reach_agreement(asked), InProcess(open_sites(asked, sites, NONE))).left_out
    assert found is not None
    assert found.names == ("x", "place=there", "w", "y")
    abroad = int(np.sum(sites["north"]["place"] == "abroad"))
    assert (
        found.compared.tolist()
        == [found.compared.max(), found.compared.max() - abroad] + [found.compared.max()] * 2
    )


def test_columns_without_gaps_need_no_indicator() -> None:
    asked = up.Study(
        treatment="w", outcome="y", covariates=["x"], incomplete=["u", "full"], missing="indicator"
    )
    sites = {name: one.assign(full=np.cos(one["x"])) for name, one in tables().items()}
    schema = run(reach_agreement(asked), InProcess(open_sites(asked, sites, NONE))).schema
    assert schema.features == ("x", "u", "full", "u missing")
    with pytest.raises(DataError, match="'full' must have no missing values"):
        up.AIPW().fit(asked, sites).effect(sites["north"].assign(full=np.nan), site="north")


def test_a_site_with_few_gaps_refuses_indicators_under_its_limits() -> None:
    sites = {name: one.assign(u=one["u"].fillna(0.0)) for name, one in tables().items()}
    sites["north"].loc[[0, 1], "u"] = np.nan
    asked = study("indicator", incomplete=["u"])
    with pytest.raises(LimitRefusal, match="u missing"):
        up.AIPW().fit(asked, sites, limits=Limits())
    up.AIPW().fit(asked, sites)


def test_a_site_without_complete_cases_is_refused_by_name() -> None:
    sites = tables()
    sites["south"]["u"] = np.nan
    with pytest.raises(DataError, match="'south' must have people without missing values"):
        open_sites(study("complete cases"), sites, NONE)


def test_a_site_answers_only_about_the_missing_values_of_its_study() -> None:
    sites = open_sites(study("indicator"), tables(), NONE)
    agreed = run(reach_agreement(study("indicator")), InProcess(sites))
    questions = (SumObserved(agreed.schema), CompareLeftOut(agreed.schema, np.zeros(3)))
    for question, missing in zip(questions, ("indicator", "complete cases"), strict=True):
        others = [way for way in ("model", "indicator", "complete cases") if way != missing]
        assert all(question.mismatch(study(way)) for way in others)
    assert questions[0].mismatch(study("indicator")) is None
    assert not agreed.schema.is_of(study("complete cases").columns)
    assert not agreed.schema.is_of(study("indicator", incomplete=["u", "v"]).columns)
    site = open_sites(study("complete cases"), tables(), NONE)["north"]
    schema = run(reach_agreement(study("complete cases")), InProcess({"north": site})).schema
    for centre in (np.zeros(2), np.full(3, np.nan), np.full(3, 1e9)):
        assert isinstance(answer(site, CompareLeftOut(schema, centre)), Refusal)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"incomplete": []}, "needs columns in `incomplete`"),
        ({"covariates": ["x", "u missing"]}, "may not have the name of an indicator"),
    ],
)
def test_ways_of_missing_values_that_make_no_sense(changed: dict[str, Any], found: str) -> None:
    with pytest.raises(StudyError, match=found):
        study("indicator", **changed)


def test_the_default_leaves_missing_values_to_the_method() -> None:
    with pytest.raises(UnpooledError, match='missing = "complete cases" or "indicator"'):
        up.AIPW().fit(study("model"), tables())


def test_filled_gaps_do_not_hide_values_that_few_people_have() -> None:
    """Gaps are filled with 0, but the two people whose value is 0 are still few."""
    sites = tables(at_random=True)
    flag = np.where(np.arange(150) < 40, np.nan, np.where(np.arange(150) < 42, 0.0, 1.0))
    sites["north"] = sites["north"].assign(flag=flag)
    with pytest.raises(LimitRefusal, match=r"flag \(zeros\)"):
        up.AIPW().fit(study("indicator", incomplete=["flag"]), sites, limits=Limits())
    sites["north"] = sites["north"].assign(flag=np.where(np.arange(150) < 47, flag, 1.0))
    sites["north"].loc[40:46, "flag"] = 0.0
    up.AIPW().fit(study("indicator", incomplete=["flag"]), sites, limits=Limits())


def test_with_limits_no_one_who_is_left_out_dominates_the_sums() -> None:
    sites = {name: one.copy() for name, one in tables(rows=400).items()}
    person = int(np.flatnonzero(sites["north"]["u"].isna())[0])
    asked = study("complete cases")

    def outcomes(value: float, limits: Limits) -> float:
        sites["north"].loc[person, "y"] = value
        agreed = run(reach_agreement(asked), InProcess(open_sites(asked, sites, limits)))
        assert agreed.left_out is not None
        return float(agreed.left_out.differences[2])

    far = outcomes(1e6, Limits())
    assert abs(far) < 2.0
    assert far == pytest.approx(outcomes(1e5, Limits()), rel=1e-6)
    assert abs(outcomes(1e6, NONE)) > 100.0
