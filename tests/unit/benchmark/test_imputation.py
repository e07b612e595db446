"""Tables with holes: how they are filled, what follows from it, and who is not shown any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.benchmark.cases import Case, simulated
from unpooled.benchmark.contenders import CONTENDERS, Cost, averages, find, imputation, taking
from unpooled.benchmark.contenders.averages import Nuisances
from unpooled.benchmark.contenders.low_rank import LowRankImputer, iterated_pca, probabilistic_pca
from unpooled.benchmark.contenders.peer import PeerTable
from unpooled.benchmark.scores import Estimate, score
from unpooled.errors import StudyError

IMPUTERS = [getattr(imputation, name) for name in ("mean", "iterative", "iterative_outcome", "ppca", "pca")]
PEERS = ("complete-case", "mean", "iterative", "iterative-outcome")


def _people(rows: int, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Lines without noise. Who lacks u1 has u2 = x1 + u1, and the other way round: nothing is lost."""
    x, u1 = rng.standard_normal((rows, 2)), rng.standard_normal(rows)
    u, turn = np.column_stack([u1, x[:, 0] + u1]), rng.random(rows)
    w = rng.integers(0, 2, rows)
    control, effect = x[:, 0] - 2.0 * x[:, 1], 1.0 + 3.0 * u1
    truth = pd.DataFrame({"y0": control, "y1": control + effect, "mu0": control, "mu1": control + effect})
    seen = np.where(np.column_stack([turn < 0.15, turn > 0.85]), np.nan, u)
    frame = pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1], "u1": seen[:, 0], "u2": seen[:, 1]})
    return frame.assign(w=w, y=control + w * effect), truth


@pytest.fixture(scope="module")
def lines() -> Case:
    rng = np.random.default_rng(3)
    made = [{site: _people(rows, rng) for site in ("a", "b")} for rows in (60, 20, 20)]
    frames = [{site: frame for site, (frame, _) in part.items()} for part in made]
    truths = [pd.concat([truth.assign(site=site) for site, (_, truth) in part.items()]) for part in made]
    return Case(frames[0], frames[1], frames[2], truths[0], truths[2], incomplete=("u1", "u2"))


@pytest.fixture(scope="module")
def holed() -> Case:
    case = simulated("causalfi", 1, sites=4, rows=100, test=20, valid=5)
    return replace(case, everybody=True).first(3)


def _values(part: dict[str, pd.DataFrame]) -> np.ndarray:
    return np.concatenate([frame.drop(columns=["w", "y"]).to_numpy(float) for frame in part.values()])


@pytest.mark.parametrize("impute", IMPUTERS)
def test_holes_are_filled_and_nothing_else_is_touched(impute: imputation.Imputer, holed: Case) -> None:
    before = {site: frame.copy() for site, frame in holed.test.items()}
    filled, seconds = impute(holed, 1)
    assert filled.incomplete == () and seconds > 0.0
    for old, new in ((holed.train, filled.train), (holed.valid, filled.valid), (holed.test, filled.test)):
        assert list(old) == list(new)
        assert list(new["site1"].columns) == list(old["site1"].columns)
        assert not np.isnan(_values(new)).any()
        there = ~np.isnan(_values(old))
        np.testing.assert_array_equal(_values(new)[there], _values(old)[there])
        for site in old:
            pd.testing.assert_frame_equal(new[site][["w", "y"]], old[site][["w", "y"]])
    for site, frame in before.items():
        pd.testing.assert_frame_equal(holed.test[site], frame)


def test_means_are_the_training_peoples(holed: Case) -> None:
    filled, _ = imputation.mean(holed, 1)
    mean = pd.concat(holed.train.values())["u3"].mean()
    missing = holed.test["site4"]["u3"].isna()
    assert missing.any()
    np.testing.assert_allclose(filled.test["site4"]["u3"][missing], mean)


@pytest.mark.parametrize("impute", IMPUTERS)
def test_of_new_people_neither_treatment_nor_outcome_is_used(impute: imputation.Imputer, holed: Case) -> None:
    def told(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        return {site: frame.assign(y=frame["y"] + 100.0, w=1 - frame["w"]) for site, frame in frames.items()}

    other = replace(holed, test=told(holed.test), valid=told(holed.valid))
    np.testing.assert_array_equal(_values(impute(other, 1)[0].test), _values(impute(holed, 1)[0].test))


def test_where_people_train_only_one_imputation_looks_at_the_outcome(holed: Case) -> None:
    lifted = {site: frame.assign(y=frame["y"] ** 2) for site, frame in holed.train.items()}
    other = replace(holed, train=lifted)
    filled = {name: getattr(imputation, name) for name in ("iterative", "iterative_outcome")}
    same = {
        name: np.array_equal(_values(impute(other, 1)[0].train), _values(impute(holed, 1)[0].train))
        for name, impute in filled.items()
    }
    assert same == {"iterative": True, "iterative_outcome": False}


def test_what_was_seen_of_others_is_guessed_better_than_by_means(holed: Case) -> None:
    whole = pd.concat([holed.test_truth[[f"u{j}" for j in range(1, 11)]]]).to_numpy()
    hole = np.isnan(_values(holed.test)[:, 10:])
    error = {
        impute.__name__: float(
            np.sqrt(np.mean((_values(impute(holed, 1)[0].test)[:, 10:] - whole)[hole] ** 2))
        )
        for impute in (imputation.mean, imputation.iterative, imputation.ppca, imputation.pca)
    }
    assert error["iterative"] < 0.6 * error["mean"]
    assert error["ppca"] < 0.75 * error["mean"] and error["pca"] < 0.75 * error["mean"]


@pytest.mark.parametrize("fit", [probabilistic_pca, iterated_pca])
def test_two_components_are_found_and_fill_what_they_determine(fit: Any) -> None:
    rng = np.random.default_rng(4)
    whole = 3.0 + rng.standard_normal((300, 2)) @ rng.standard_normal((2, 6)) * np.arange(1.0, 7.0)
    whole += 0.2 * rng.standard_normal(whole.shape)
    holes = np.where(rng.random(whole.shape) < 0.2, np.nan, whole)
    imputer = LowRankImputer(fit, seed=1).fit(holes)
    assert imputer.components in (2, 3)  # a third may be shrunk to nothing
    filled = imputer.transform(holes)
    enough = (~np.isnan(holes)).sum(axis=1) >= 4
    assert np.std((filled - whole)[enough & np.isnan(holes).any(axis=1)]) < 0.2 * np.nanstd(holes)
    np.testing.assert_array_equal(filled[~np.isnan(holes)], whole[~np.isnan(holes)])
    np.testing.assert_allclose(imputer.transform(holes[:5]), filled[:5], atol=1e-3)


def test_probabilistic_components_without_holes_are_those_of_the_covariance() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 5)) + 0.5 * rng.standard_normal((400, 5))
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    values, axes = np.linalg.eigh(np.cov(x.T, bias=True))
    noise = values[:2].mean()
    shrunk = (axes[:, 2:] * (1.0 - noise / values[2:])) @ axes[:, 2:].T
    # Tipping & Bishop's closed form: E[Wz | x] shrinks each leading axis by 1 − σ²/λ.
    np.testing.assert_allclose(probabilistic_pca(x, 3)(x), x @ shrunk, atol=0.02)


def test_bagged_sites_impute_and_fit_by_themselves(holed: Case) -> None:
    seen: list[Case] = []

    def spy(case: Case, arrangement: str, seed: int) -> tuple[Estimate, Cost]:
        seen.append(case)
        assert arrangement == "combined"
        said = np.full(80, float(len(seen)))
        return Estimate(said, 2.0 * said), {"fit_seconds": 1.0}

    estimate, cost = imputation.imputed(imputation.mean, spy)(holed, "bagged", 1)
    assert [list(case.train) for case in seen] == [["site1"], ["site2"], ["site3"]]
    np.testing.assert_array_equal(estimate.imputation, 2.0)
    np.testing.assert_array_equal(estimate.prediction, 4.0)
    assert cost["fit_seconds"] > 3.0
    for case in seen:
        (site,) = case.train
        missing = holed.test["site4"]["u3"].isna()
        np.testing.assert_allclose(case.test["site4"]["u3"][missing], holed.train[site]["u3"].mean())


def test_apart_every_site_imputes_its_own_people_and_keeps_all_columns(holed: Case) -> None:
    seen: list[Case] = []

    def spy(case: Case, arrangement: str, seed: int) -> tuple[Estimate, Cost]:
        seen.append(case)
        assert arrangement == "federated"
        return Estimate(np.zeros(80), np.zeros(80)), {"fit_seconds": 1.0}

    train = {site: frame.copy() for site, frame in holed.train.items()}
    train["site2"]["x1"] = 1.0  # constant at one site only
    case = replace(holed, train=train)
    imputation.imputed(imputation.mean, spy, gives_average=True)(case, "federated", 1)
    (apart,) = seen
    assert apart.incomplete == () and list(apart.train) == ["site1", "site2", "site3"]
    assert (apart.train["site2"]["x1"] == 1.0).all()
    for site in apart.train:
        missing = holed.test[site]["u3"].isna()
        np.testing.assert_allclose(apart.test[site]["u3"][missing], train[site]["u3"].mean())
    # The fourth site trains no model and has no imputation of its own: it asks the first.
    missing = holed.test["site4"]["u3"].isna()
    np.testing.assert_allclose(apart.test["site4"]["u3"][missing], train["site1"]["u3"].mean())


def test_categories_become_flags_that_are_filled_too() -> None:
    case = simulated("causalfi", 1, sites=2, rows=60, test=10, valid=5, options={"kinds": "mixed"})
    filled, _ = imputation.iterative(case, 1)
    frame = filled.train["site1"]
    assert {"u3_low", "u3_middle"} <= set(frame.columns) and not {"u3", "u3_high"} & set(frame.columns)
    seen = case.train["site1"]["u3"].notna()
    np.testing.assert_array_equal(frame["u3_low"][seen], case.train["site1"]["u3"][seen] == "low")
    assert not pd.concat(filled.test.values()).isna().any(axis=None)


@pytest.mark.parametrize("name", [*PEERS, "iterative-constant"])
def test_lines_after_an_imputation_that_loses_nothing_are_found(name: str, lines: Case) -> None:
    estimate, cost = find(name).estimator()(lines, "combined", 1)
    truth = (lines.test_truth["mu1"] - lines.test_truth["mu0"]).to_numpy()
    error = np.abs(estimate.prediction - truth).max()
    if name in ("complete-case", "iterative", "iterative-outcome"):
        assert error < 0.01
        assert estimate.ate == pytest.approx(
            (lines.train_truth["mu1"] - lines.train_truth["mu0"]).mean(), abs=0.01
        )
        np.testing.assert_allclose(estimate.imputation, truth, atol=0.01)
    else:
        assert error > 0.5
    assert cost["fit_seconds"] > 0.0
    assert {"prediction", "ate_error", "in_sample_ate_error"} <= set(
        score(estimate, lines.test_truth, lines.train_truth)
    )


def test_only_complete_rows_train_and_everybody_is_asked_about(holed: Case) -> None:
    seen: list[Case] = []

    def spy(case: Case, arrangement: str, seed: int) -> tuple[Estimate, Cost]:
        seen.append(case)
        said = np.arange(sum(len(people) for people in case.test.values()), dtype=float)
        return Estimate(said, said), {"fit_seconds": 1.0}

    whole = {site: int(frame.notna().all(axis=1).sum()) for site, frame in holed.train.items()}
    estimate, cost = imputation.imputed(imputation.iterative, spy, only_complete=True)(holed, "combined", 1)
    (case,) = seen
    assert {site: len(frame) for site, frame in case.train.items()} == whole
    assert 0 < sum(whole.values()) < 300
    # 80 people of four sites are scored, then come 300 of the three that train.
    np.testing.assert_array_equal(estimate.prediction, np.arange(80.0))
    assert estimate.ate == pytest.approx(80.0 + 299 / 2)
    assert cost["fit_seconds"] > 1.0


def test_whoever_says_an_average_is_not_asked_about_those_who_train(holed: Case) -> None:
    def says(case: Case, arrangement: str, seed: int) -> tuple[Estimate, Cost]:
        assert list(case.test) == ["site1", "site2", "site3", "site4"]
        said = np.zeros(80)
        return Estimate(said, said, None, np.full(10, 7.0)), {"fit_seconds": 1.0}

    estimate, _ = imputation.imputed(imputation.iterative, says, gives_average=True)(holed, "combined", 1)
    assert score(estimate, holed.test_truth, holed.train_truth)["ate"] == 7.0


def _confounded(rows: int) -> PeerTable:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 2))
    w = (rng.random(rows) < 1.0 / (1.0 + np.exp(-x[:, 0]))).astype(int)
    return PeerTable(x, w, 2.0 * x[:, 0] + w * (1.0 + x[:, 1]) + 0.1 * rng.standard_normal(rows))


@pytest.mark.parametrize(
    ("name", "model"), [("ipw", averages.lines), ("dr", averages.lines), ("dr", averages.trees)]
)
def test_averages_undo_confounding_within_their_errors(name: str, model: averages.Model) -> None:
    table = _confounded(20_000)
    parts = getattr(averages, name)(table, model(table, 1))
    naive = table.y[table.w == 1].mean() - table.y[table.w == 0].mean()
    assert naive > 2.0
    assert abs(parts.mean() - 1.0) < 5 * parts.std() / np.sqrt(len(parts)) < 0.3


def test_inverse_weights_against_an_example_worked_by_hand() -> None:
    table = PeerTable(np.zeros((4, 1)), np.array([1, 1, 0, 0]), np.array([4.0, 1.0, 1.0, 2.0]))
    known = Nuisances(np.array([0.5, 0.25, 0.5, 0.75]), np.zeros(4), np.zeros(4))
    parts = averages.ipw(table, known)
    # Treated weigh 2 and 4: (2·4 + 4·1)/6 = 2. Control 2 and 4: (2·1 + 4·2)/6 = 5/3.
    assert parts.mean() == pytest.approx(2.0 - 5.0 / 3.0)


def test_doubly_robust_averages_forgive_wrong_propensities_where_lines_are_right() -> None:
    table = _confounded(5000)
    wrong = replace(averages.lines(table, 1), propensity=np.full(5000, 0.5))
    assert averages.dr(table, wrong).mean() == pytest.approx(1.0, abs=0.06)
    assert averages.ipw(table, wrong).mean() > 2.0


def test_trees_take_missing_values_as_they_are(holed: Case) -> None:
    for name in ("ipw-not-imputed", "dr-not-imputed"):
        estimate, _ = find(name).estimator()(holed, "combined", 1)
        assert estimate.ate is not None and np.isfinite(estimate.ate)
        assert np.isnan(estimate.prediction).all()
    table = _confounded(300)
    empty = replace(table, x=np.column_stack([table.x, np.full(300, np.nan)]))
    np.testing.assert_array_equal(averages.trees(empty, 1).propensity, averages.trees(table, 1).propensity)


@pytest.mark.parametrize("name", ["ipw", "dr", "pca-ipw", "pca-dr"])
def test_whoever_speaks_of_averages_only_is_scored_on_nothing_else(name: str, lines: Case) -> None:
    estimate, _ = find(name).estimator()(lines, "combined", 1)
    found = score(estimate, lines.test_truth, lines.train_truth)
    assert {"ate", "in_sample_ate_error", "ate_95_coverage"} <= set(found)
    assert not {"prediction", "imputation", "conditional", "ate_error"} & set(found)
    assert np.isfinite(list(found.values())).all()


def test_contenders_refuse_tables_that_are_not_for_them(holed: Case) -> None:
    whole = simulated("fedci-data1", 1, sites=2, rows=20, test=5, valid=5)
    for name, contender in CONTENDERS.items():
        for case, kind in ((holed, "incomplete"), (whole, "complete")):
            if name in taking(kind):
                contender.require_taken(case)
            else:
                with pytest.raises(StudyError, match=f"'{name}' must be given"):
                    contender.require_taken(case)
    assert set(taking("complete")) & set(taking("incomplete")) == {"zero"}


def test_ours_for_holes_is_absent_until_it_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    import unpooled

    ours: Any = find("causal_fi")
    monkeypatch.setattr(unpooled, "__dir__", lambda: ["FedCI"])
    assert ours.missing() == "this version has no unpooled.CausalFI"
    monkeypatch.setattr(unpooled, "__dir__", lambda: ["CausalFI", "FedCI"])
    assert ours.missing() is None
