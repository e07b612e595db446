"""Diagnostics over sites are what a slow program finds in one table; and the fit does not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from oracle import study_diagnostics as oracle
from unpooled import AIPW, FedCI, Study
from unpooled.diagnostics.study_diagnostics import StudyDiagnostics, diagnose, of_result
from unpooled.disclosure.withheld import few
from unpooled.maths.streams import stream
from unpooled.methods.diagnostics import rounds
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics
from unpooled.protocol.records import Record
from unpooled.site.folds import folds

SEED = 5
SIZES = {"north": 100, "south": 125, "east": 110}
COVARIATES = ["a", "b", "f", "c"]
INCOMPLETE = ["u", "v", "k"]
CLOSE = {"rtol": 1e-8, "atol": 1e-8}


def tables(sizes: dict[str, int] = SIZES) -> dict[str, pd.DataFrame]:
    """Numbers, a flag and levels that go with treatment and outcome; and three columns with holes."""
    rng, made = np.random.default_rng(2), {}
    for place, (name, rows) in enumerate(sizes.items()):
        a, b, u = rng.normal(0.3 * place, 1.0, (3, rows))
        f, v = (rng.random((2, rows)) < 0.35).astype(float)
        c, k = rng.choice(["x", "y", "z"], (2, rows), p=[0.4, 0.35, 0.25])
        logit = 0.7 * a - 0.5 * f + 0.6 * (c == "y") + 0.4 * np.nan_to_num(u) + 0.3 * place - 0.5
        w = (rng.random(rows) < 1.0 / (1.0 + np.exp(-logit))).astype(int)
        y = 20.0 + 3.0 * (a + 0.5 * b + f - (c == "z") + w * (1.0 + 0.4 * a) + rng.normal(size=rows))
        frame = pd.DataFrame({"a": 50.0 + 9.0 * a, "b": b, "f": f.astype(int), "c": c, "w": w, "y": y})
        frame = frame.assign(u=5.0 + 2.0 * u, v=v, k=k)
        for column, share in zip(INCOMPLETE, (0.3, 0.4, 0.2), strict=True):
            frame.loc[rng.random(rows) < share * (0.7 + 0.6 * w), column] = None
        made[name] = frame
    return made


TABLES = tables()
STUDY = Study(treatment="w", outcome="y", covariates=COVARIATES, diagnostics=True)
WITH_HOLES = Study(
    treatment="w", outcome="y", covariates=COVARIATES, incomplete=INCOMPLETE, method={"name": "causal_fi"},
    seed=SEED, diagnostics=True,
)  # fmt: skip
ONE = {"north": TABLES["north"]}


def known(sites: dict[str, pd.DataFrame], incomplete: list[str]) -> oracle.People:
    """Everybody with the folds that the diagnostics make at each site."""
    made = [
        folds(table["w"].to_numpy(float), rounds.FOLDS, stream(SEED, "diagnostic folds", place))
        for place, table in enumerate(sites.values())
    ]
    return oracle.people_of(sites, COVARIATES, incomplete, made)


def at(people: oracle.People, use: np.ndarray) -> oracle.People:
    return oracle.People(people.names, *(part[use] for part in list(vars(people).values())[1:]))


@pytest.fixture(scope="module")
def fitted() -> AIPW:
    return AIPW(seed=SEED, draws=40).fit(STUDY, TABLES)


@pytest.fixture(scope="module", params=["sites", "with holes", "one site"])
def case(request: pytest.FixtureRequest, fitted: AIPW) -> tuple[StudyDiagnostics, oracle.People]:
    if request.param == "with holes":
        return diagnose(WITH_HOLES, TABLES), known(TABLES, INCOMPLETE)
    if request.param == "one site":
        return diagnose(STUDY.with_changes(seed=SEED), ONE), known(ONE, [])
    return of_result(fitted.result_), known(TABLES, [])


def pairs(frame: pd.DataFrame) -> np.ndarray:
    return frame[["estimate", "standard_error"]].to_numpy(float)


@pytest.mark.slow
def test_estimates_are_those_of_one_table(case: tuple[StudyDiagnostics, oracle.People]) -> None:
    seen, people = case
    psi, places = oracle.scores(people), np.unique(people.site)
    by_site = [oracle.mean_and_error(psi[people.site == place]) for place in places]
    np.testing.assert_allclose(pairs(seen.sites), by_site, **CLOSE)
    found = pairs(seen.comparators)
    np.testing.assert_allclose(found[0], oracle.welch(people), **CLOSE)
    np.testing.assert_allclose(found[1], oracle.hajek(people, oracle.weights(people)), **CLOSE)
    np.testing.assert_allclose(found[2], oracle.mean_and_error(psi), **CLOSE)
    without = [oracle.mean_and_error(psi[people.site != place]) for place in places if len(places) > 1]
    np.testing.assert_allclose(pairs(seen.leave_one_out), np.reshape(without, (-1, 2)), **CLOSE)
    assert seen.sites["people"].tolist() == [np.sum(people.site == place) for place in places]


@pytest.mark.slow
def test_balance_and_effective_people_are_those_of_one_table(
    case: tuple[StudyDiagnostics, oracle.People],
) -> None:
    seen, people = case
    weight = oracle.weights(people)
    before, after = oracle.differences(people, weight)
    assert seen.balance["feature"].tolist() == list(people.names)
    np.testing.assert_allclose(seen.balance["before"], before, **CLOSE)
    np.testing.assert_allclose(seen.balance["after"], after, **CLOSE)
    assert np.max(np.abs(before)) > 0.3 > 0.2 > np.max(np.abs(after))
    places = [*(people.site == place for place in np.unique(people.site)), people.site >= 0]
    for place, name in zip(places, seen.weights["site"].unique(), strict=True):
        arms = [place & (people.w == arm) for arm in (0.0, 1.0)]
        here = seen.weights.loc[seen.weights["site"] == name]
        assert here["people"].tolist() == [arm.sum() for arm in arms]
        np.testing.assert_allclose(
            here["effective"], [oracle.effective(weight[arm]) for arm in arms], **CLOSE
        )


@pytest.mark.slow
def test_propensities_lie_where_they_do_in_one_table(case: tuple[StudyDiagnostics, oracle.People]) -> None:
    seen, people = case
    e = oracle.propensities(people)
    places = [*(people.site == place for place in np.unique(people.site)), people.site >= 0]
    for place, name in zip(places, seen.overlap["site"].unique(), strict=True):
        here = seen.overlap.loc[seen.overlap["site"] == name]
        for number, arm in enumerate(("control", "treated")):
            bins = oracle.histogram(e[place & (people.w == number)])
            found = here.loc[here["arm"] == arm, "people"].to_numpy(float)
            told = ~np.isnan(found)
            assert not np.any(told & few(bins))
            assert np.all(np.abs(found - bins)[told] <= 2.5)
            assert np.all(found[told] % 5 == 0)
    alone = oracle.outside_support(e, people.w)
    assert abs(seen.outside_support * len(people.w) - alone) <= 2.5
    assert abs(seen.extreme * len(people.w) - np.sum((e < 0.1) | (e >= 0.9))) <= 2.5


@pytest.mark.slow
def test_every_number_that_was_told_is_the_slow_ones(fitted: AIPW) -> None:
    """Before anything is rounded or withheld."""
    people, sent = known(TABLES, []), fitted.result_.diagnostic_statistics
    assert isinstance(sent, DiagnosticStatistics)
    e, weight = oracle.propensities(people), oracle.weights(people)
    for number in (0, 1):
        arm = people.w == number
        np.testing.assert_array_equal(sent.summed["histogram"][number], oracle.fine_histogram(e[arm]))
        np.testing.assert_array_equal(sent.summed["arms"][number], arm.sum())
        np.testing.assert_allclose(sent.summed["weights"][number], weight[arm].sum(), **CLOSE)
        np.testing.assert_allclose(sent.summed["weight_squares"][number], (weight[arm] ** 2).sum(), **CLOSE)
        outcome = (people.y - people.y.mean()) / people.y.std()
        risk = np.average(outcome[arm], weights=weight[arm])
        np.testing.assert_allclose(sent.arm_means[number], risk, **CLOSE)
        for place in range(3):
            bins = oracle.fine_histogram(e[arm & (people.site == place)])
            shown = sent.per_site["shown"][place, number] > 0.0
            np.testing.assert_array_equal(sent.per_site["histogram"][place, number], np.where(shown, bins, 0))
    assert sent.converged
    assert sent.clipped == 0


# ---------------------------------------------------------------------------- beside a fit


def equal(left: Any, right: Any) -> None:
    """To the last bit, whatever is inside."""
    assert type(left) is type(right)
    if isinstance(left, Record):
        equal(vars(left), vars(right))
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        for name in left:
            equal(left[name], right[name])
    else:
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


SMALL: dict[str, Any] = {
    "aipw": AIPW(seed=SEED, draws=40),
    "fedci": FedCI(seed=SEED, draws=20, evaluations=5, structure="projection", inter_dependency=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aipw", pytest.param("fedci", marks=pytest.mark.thorough)])
def test_a_fit_is_the_same_with_or_without_diagnostics(name: str, fitted: AIPW) -> None:
    model = SMALL[name]
    study = Study(treatment="w", outcome="y", covariates=COVARIATES)
    alone = model.fit(study, TABLES).result_
    beside = fitted.result_ if name == "aipw" else model.fit(STUDY, TABLES).result_
    assert alone.diagnostic_statistics is None
    np.testing.assert_array_equal(beside.site_effects, alone.site_effects)
    equal(beside.draws, alone.draws)
    # Whatever the method, the same is seen.
    equal(beside.diagnostic_statistics, fitted.result_.diagnostic_statistics)
    if name == "fedci":
        assert beside.cost.rounds == alone.cost.rounds
    assert beside.cost.rounds <= max(alone.cost.rounds, 4 + rounds.MOST_ROUNDS)


@pytest.mark.slow
def test_before_a_fit_the_same_is_seen_as_beside_it(fitted: AIPW) -> None:
    before = diagnose(STUDY.with_changes(seed=SEED), TABLES)
    beside = of_result(fitted.result_)
    for name in ("table_one", "overlap", "weights", "balance", "sites", "leave_one_out", "comparators"):
        pd.testing.assert_frame_equal(getattr(before, name), getattr(beside, name), check_exact=True)
    assert before.heterogeneity == beside.heterogeneity
    assert before.main is None
    assert beside.main is None  # that AIPW agrees with AIPW is no news
    assert before.checks["name"].tolist() == beside.checks["name"].tolist()
    other = diagnose(STUDY.with_changes(seed=SEED + 1), TABLES)
    assert not np.array_equal(pairs(other.sites), pairs(before.sites))  # other folds
