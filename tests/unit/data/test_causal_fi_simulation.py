"""The paper's CausalFI data: moments and holes against their formulas, and the truth of what is seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.data.simulation import Simulation, causal_fi, simulate, varying
from unpooled.data.simulation.causal_fi import COEFFICIENT_SEED, conditional_truth, draw_process
from unpooled.data.simulation.causal_fi_process import COUNT, MIXED, CausalFiProcess
from unpooled.errors import StudyError

MANY = 20_000
U, X = [f"u{j}" for j in range(1, 11)], [f"x{j}" for j in range(1, 11)]
PROCESS = draw_process(COEFFICIENT_SEED)


def drawn(**changed: Any) -> Simulation:
    return simulate("causalfi", **{"sites": 2, "rows": 50, "seed": 5, **changed})


@pytest.fixture(scope="module")
def many() -> Simulation:
    return drawn(sites=1, rows=MANY)


@pytest.fixture(scope="module")
def at_random() -> Simulation:
    return drawn(sites=1, rows=MANY, mechanism="mcar")


@pytest.fixture(scope="module")
def mixed() -> Simulation:
    return drawn(sites=1, rows=4000, mechanism="mcar", kinds="mixed")


def sigmoid(value: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-value))


def softplus(value: Any) -> Any:
    return np.log(1.0 + np.exp(value))


def holes(data: Simulation) -> np.ndarray:
    return pd.concat(data.frames.values())[U].isna().to_numpy()


def effects(data: Simulation) -> np.ndarray:
    return (data.truth["mu1"] - data.truth["mu0"]).to_numpy(float)


def assert_mean(values: np.ndarray, expected: Any = 0.0) -> None:
    """Within five standard errors."""
    error = values.std(axis=0) / np.sqrt(len(values))
    assert np.all(np.abs(values.mean(axis=0) - expected) < 5 * error + 1e-9)


def test_a_site_holds_x_and_what_is_seen_of_u_and_the_truth_holds_all_of_it() -> None:
    data = drawn(test_rows=10)
    assert data.incomplete == tuple(U)
    for frames, truth, rows in ((data.frames, data.truth, 50), (data.test, data.test_truth, 10)):
        assert list(frames["site2"].columns) == [*X, *U, "w", "y"] and len(frames["site2"]) == rows
        assert list(truth.columns) == ["site", "row", "y0", "y1", "mu0", "mu1", *U, "conditional"]
        assert not truth.isna().any(axis=None)
        seen, whole = pd.concat(frames.values())[U].to_numpy(), truth[U].to_numpy()
        there = ~np.isnan(seen)
        assert 0 < there.sum() < there.size
        np.testing.assert_array_equal(seen[there], whole[there])


def test_confounders_have_the_covariance_of_the_world(many: Simulation) -> None:
    z = np.column_stack([many.truth[U], many.frames["site1"][X]])
    assert_mean(z)
    assert_mean((z[:, :, None] * z[:, None, :]).reshape(MANY, -1), PROCESS.covariance.ravel())
    np.testing.assert_allclose(np.diag(PROCESS.covariance), 1.0)
    # Five factors stand out from what is each confounder's own.
    spectrum = np.linalg.eigvalsh(PROCESS.covariance)
    assert spectrum[14] < 0.2 and spectrum[15] > 0.5


def test_x_tells_about_u() -> None:
    uu, ux, xx = (PROCESS.covariance[rows, cols] for rows, cols in _blocks())
    explained = np.diag(ux @ np.linalg.solve(xx, ux.T)) / np.diag(uu)
    assert explained.min() > 0.6 and explained.max() < 0.99


def _blocks() -> list[tuple[slice, slice]]:
    u, x = slice(0, 10), slice(10, 20)
    return [(u, u), (u, x), (x, x)]


def test_treatment_and_outcomes_follow_u_by_the_formulas(many: Simulation) -> None:
    u, w = many.truth[U].to_numpy(), many.frames["site1"]["w"].to_numpy()
    surprise = w - sigmoid(0.2 + u @ PROCESS.propensity[1])
    assert_mean(np.column_stack([surprise, surprise[:, None] * u]))
    np.testing.assert_allclose(many.truth["mu0"], softplus(0.9 + u @ PROCESS.control[1]), rtol=1e-5)
    np.testing.assert_allclose(many.truth["mu1"], softplus(2.0 + u @ PROCESS.treated[1]), rtol=1e-5)


def test_slopes_spread_as_told() -> None:
    processes = [draw_process(seed) for seed in range(300)]
    spread = [
        np.std([getattr(process, arm)[1] for process in processes])
        for arm in ("propensity", "control", "treated")
    ]
    assert spread == pytest.approx([0.5, 3.0, 3.0], rel=0.05)
    assert np.std([draw_process(seed, 1.0).control[1] for seed in range(300)]) == pytest.approx(1.5, rel=0.05)


def test_a_value_is_seen_as_often_as_the_formula_says(many: Simulation) -> None:
    frame, when = many.frames["site1"], causal_fi._missingness_model(5)
    x, w, y = frame[X].to_numpy(), frame[["w"]].to_numpy(), frame[["y"]].to_numpy()
    chance = sigmoid(5.0 + w * when.treatment + y * when.outcome + x @ when.covariates)
    surprise = ~holes(many) - chance
    assert_mean(np.concatenate([surprise, surprise * y, surprise * w, surprise * x[:, :1]], axis=1))


def test_the_holes_parameters_have_the_ranges_of_the_paper_and_differ_by_seed() -> None:
    when = [causal_fi._missingness_model(seed) for seed in range(400)]
    for values in ([one.treatment for one in when], [one.outcome for one in when]):
        assert -2.0 <= np.min(values) < -1.99 and -0.01 < np.max(values) <= 0.0
        assert np.mean(values) == pytest.approx(-1.0, abs=0.05)
    slopes = np.array([one.covariates for one in when])
    # E[LLᵀ]: 5/12 on the diagonal, 5/16 off it.
    moments = np.einsum("sij,skj->ik", slopes, slopes) / 4000
    np.testing.assert_allclose(np.diag(moments), 5 * 0.25 / 3, rtol=0.15)
    np.testing.assert_allclose(moments[~np.eye(10, dtype=bool)], 5 * 0.25**2, rtol=0.2)


def test_a_sixth_to_a_half_is_missing_and_a_fifth_to_a_half_of_the_rows_is_complete() -> None:
    shares, complete = [], []
    for draw in range(3):
        for seed in range(1, 11):
            found = holes(drawn(rows=500, seed=seed, coefficient_seed=COEFFICIENT_SEED + draw))
            shares.append(found.mean(axis=0))
            complete.append(1.0 - found.any(axis=1).mean())
    assert np.min(complete) > 0.19 and np.max(complete) < 0.48
    assert np.mean(shares, axis=1).min() > 0.16 and np.mean(shares, axis=1).max() < 0.5
    # A column whose e₂ is near 0 is nearly always seen; none is nearly always missing.
    assert np.max(shares) < 0.75 and np.std([share.mean() for share in shares]) > 0.02


def test_the_seed_redraws_people_and_the_coefficient_seed_redraws_the_world() -> None:
    data, again, other = drawn(), drawn(), drawn(seed=6)
    pd.testing.assert_frame_equal(data.frames["site1"], again.frames["site1"])
    pd.testing.assert_frame_equal(data.truth, again.truth)
    assert not set(data.truth["u1"]) & set(other.truth["u1"])
    assert not np.allclose(drawn(coefficient_seed=99).truth["mu1"], data.truth["mu1"])


def test_fewer_columns_with_holes_leave_people_and_the_other_holes_alone() -> None:
    data, few = drawn(), drawn(incomplete=3)
    assert few.incomplete == ("u1", "u2", "u3")
    assert not few.frames["site1"][U[3:]].isna().any(axis=None)
    same = [*X, "u1", "u2", "u3", "w", "y"]
    pd.testing.assert_frame_equal(data.frames["site2"][same], few.frames["site2"][same])
    pd.testing.assert_frame_equal(data.truth[U], few.truth[U])


def test_holes_at_random_are_as_many_and_know_nothing_of_the_people(
    many: Simulation, at_random: Simulation
) -> None:
    pd.testing.assert_frame_equal(many.truth[U], at_random.truth[U])
    pd.testing.assert_series_equal(many.frames["site1"]["y"], at_random.frames["site1"]["y"])
    by_cause, by_chance = holes(many), holes(at_random)
    np.testing.assert_allclose(by_chance.mean(axis=0), by_cause.mean(axis=0), atol=0.025)
    assert by_chance.any(axis=1).mean() == pytest.approx(by_cause.any(axis=1).mean(), abs=0.025)
    known = np.column_stack([at_random.frames["site1"][["w", "y", *X]], at_random.truth[U]])
    related = [np.corrcoef(known, found, rowvar=False)[:22, 22:] for found in (by_cause, by_chance)]
    assert np.abs(related[0][1]).max() > 0.4
    assert np.abs(related[1]).max() < 5 / np.sqrt(MANY)


def _given(process: CausalFiProcess, row: np.ndarray, count: int) -> np.ndarray:
    """Draws of (u, x) given the numbers of a row that are there, by the textbook's formulas."""
    seen = ~np.isnan(row)
    within, across = process.covariance[np.ix_(seen, seen)], process.covariance[np.ix_(~seen, seen)]
    mean = across @ np.linalg.inv(within) @ row[seen]
    left = process.covariance[np.ix_(~seen, ~seen)] - across @ np.linalg.inv(within) @ across.T
    whole = np.tile(row, (count, 1))
    whole[:, ~seen] = np.random.default_rng(0).multivariate_normal(mean, left, count)
    return whole


def test_the_conditional_truth_is_the_mean_over_what_could_be_in_the_holes() -> None:
    data = drawn()
    frame = data.frames["site1"]
    missing = frame[U].isna().sum(axis=1)
    chosen = [int(np.argmin((missing - wanted).abs())) for wanted in (1, 3, 5, 8, 10)]
    assert missing.iloc[chosen].is_monotonic_increasing and missing.iloc[chosen[-1]] > 7
    for row in chosen:
        u = _given(PROCESS, frame.iloc[row][[*U, *X]].to_numpy(float), 100_000)[:, :10]
        effect = softplus(2.0 + u @ PROCESS.treated[1]) - softplus(0.9 + u @ PROCESS.control[1])
        assert_mean(effect, data.truth["conditional"].iloc[row])
    np.testing.assert_allclose(
        conditional_truth(PROCESS, pd.concat(data.frames.values())), data.truth["conditional"]
    )


def test_without_holes_the_conditional_truth_is_the_effect_itself(
    many: Simulation, mixed: Simulation
) -> None:
    for data in (many, mixed):
        whole = ~holes(data).any(axis=1)
        assert whole.sum() > 500
        np.testing.assert_allclose(data.truth["conditional"][whole], effects(data)[whole], atol=1e-9)


@pytest.mark.parametrize("name", ["at_random", "mixed"])
def test_where_holes_are_at_random_what_is_seen_tells_no_more_than_the_conditional_truth(
    name: str, request: pytest.FixtureRequest
) -> None:
    data = request.getfixturevalue(name)
    conditional = data.truth["conditional"].to_numpy()
    surprise = effects(data) - conditional
    assert 1.0 < surprise.std() < 0.6 * effects(data).std()
    known = np.column_stack([np.ones(len(surprise)), conditional, data.frames["site1"][X], holes(data)])
    assert_mean(surprise[:, None] * known)


def test_mixed_columns_are_numbers_flags_categories_and_counts(mixed: Simulation) -> None:
    frame, truth = mixed.frames["site1"], mixed.truth
    assert set(truth["u2"]) == {0, 1} and set(truth["u3"]) == {"low", "middle", "high"}
    assert truth["u2"].mean() == pytest.approx(0.5, abs=0.04)
    assert truth["u3"].value_counts(normalize=True).to_numpy() == pytest.approx([1 / 3] * 3, abs=0.04)
    for name in ("u4", "u9"):  # Poisson with mean 2
        assert (truth[name].mean(), truth[name].var()) == pytest.approx((2.0, 2.0), rel=0.12)
        assert set(frame[name].dropna()) <= set(range(13))
    assert frame["u3"].isna().any() and set(frame["u3"].dropna()) == {"low", "middle", "high"}
    assert COUNT.moments == pytest.approx((2.0, np.sqrt(2.0)), rel=1e-3)


def test_treatment_and_outcomes_follow_mixed_columns_as_numbers(mixed: Simulation) -> None:
    truth = mixed.truth.assign(
        u3=mixed.truth["u3"].map({"low": 0, "middle": 1, "high": 2}),
        u8=mixed.truth["u8"].map({"low": 0, "middle": 1, "high": 2}),
    )
    u = truth[U].to_numpy(float)
    u = (u - [kind.moments[0] for kind in MIXED]) / [kind.moments[1] for kind in MIXED]
    assert_mean(u), assert_mean(u**2, 1.0)
    np.testing.assert_allclose(truth["mu1"], softplus(2.0 + u @ PROCESS.treated[1]), rtol=1e-5)
    surprise = mixed.frames["site1"]["w"].to_numpy() - sigmoid(0.2 + u @ PROCESS.propensity[1])
    assert_mean(surprise[:, None] * u)


def test_the_conditional_truth_of_mixed_columns_is_that_of_those_who_show_the_same() -> None:
    process = draw_process(COEFFICIENT_SEED, kinds="mixed")
    row = drawn(kinds="mixed", seed=1).frames["site1"].head(1).copy()
    row[U] = np.nan
    row["u1"], row["u2"], row["u3"] = 0.4, 1.0, "middle"
    numbers = np.append([0.4, *[np.nan] * 9], row[X].to_numpy(float))
    z = _given(process, numbers, 200_000)
    same = (z[:, 1] > 0) & (np.abs(z[:, 2]) < 0.4307)
    u = process.standard(z[same, :10])
    effect = softplus(2.0 + u @ process.treated[1]) - softplus(0.9 + u @ process.control[1])
    assert len(effect) > 2000
    found = [conditional_truth(process, pd.concat([row] * 50), seed=seed).mean() for seed in (1, 2)]
    assert found[0] != found[1]
    assert found == pytest.approx([effect.mean()] * 2, abs=5 * effect.std() / np.sqrt(2000))


def test_categories_stay_covariates_of_a_study() -> None:
    data = drawn(kinds="mixed", incomplete=2)
    assert varying(data.frames["site1"].drop(columns=["u1", "u2"])) == [*X, *U[2:]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"sites": 0}, {"rows": 0}, {"seed": -1}, {"test_rows": -1}, {"incomplete": 0}, {"incomplete": 11},
        {"coefficient_sd": -1.0}, {"coefficient_seed": -1}, {"mechanism": "mnar"}, {"kinds": "text"},
    ],
)  # fmt: skip
def test_impossible_wishes_are_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match=f"'{next(iter(wrong))}' must be"):
        drawn(**wrong)
