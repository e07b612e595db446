"""The paper's CausalRFF data: every moment against its formula, summed over classes or over a grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unpooled.data.simulation import Simulation, causal_rff, simulate
from unpooled.errors import StudyError

MANY = 40_000
SHARES = [0.11, 0.17, 0.34, 0.26, 0.12]
DISCRETE = [name for name in causal_rff.OPTIONS if name != "causalrff-continuous"]


def drawn(name: str, **changed: Any) -> Simulation:
    return simulate(name, **{"sites": 2, "rows": 50, "seed": 5, **changed})


def sigmoid(value: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-value))


def softplus(value: Any) -> Any:
    return np.log(1.0 + np.exp(value))


def assert_mean(values: np.ndarray, expected: Any) -> None:
    """Within five standard errors."""
    error = values.std(axis=0) / np.sqrt(len(values))
    assert np.all(np.abs(values.mean(axis=0) - expected) < 5 * error + 1e-9)


def people(data: Simulation, site: str) -> dict[str, np.ndarray]:
    frame, truth = data.frames[site], data.truth[data.truth["site"] == site]
    between_sites = {name: truth[name].to_numpy(float) for name in ("y0", "y1", "mu0", "mu1")}
    return {"x": frame.filter(like="x").to_numpy(float), "w": frame["w"].to_numpy(), **between_sites}


@pytest.mark.parametrize(
    ("name", "shift"), [("causalrff-same", 0.0), ("causalrff-diff", 4.0), ("causalrff-delta", 1.5)]
)
def test_people_of_five_classes_have_the_moments_of_the_formulas(name: str, shift: float) -> None:
    options = {"delta": 1.5} if name == "causalrff-delta" else {}
    found = people(drawn(name, rows=MANY, **options), "site2")
    process = causal_rff._classes(causal_rff.COEFFICIENT_SEED, 2.0)
    rho = np.array(SHARES)
    intercepts, slopes = process.flags
    flags = sigmoid(intercepts + slopes)  # a row per class
    treated = sigmoid(process.propensity + shift)
    mu0, mu1 = softplus(0.9 + process.control[1] + shift), softplus(7.9 + process.treated[1] + shift)
    assert_mean(found["x"], rho @ flags)
    assert_mean(found["x"] * found["w"][:, None], (rho * treated) @ flags)
    assert_mean(found["x"][:, 1:] * found["x"][:, :1], (rho * flags[:, 0]) @ flags[:, 1:])
    assert_mean(found["w"], rho @ treated)
    for arm, mu in (("0", mu0), ("1", mu1)):
        assert_mean(found[f"mu{arm}"], rho @ mu)
        assert_mean(found[f"mu{arm}"] * found["w"], rho @ (treated * mu))
        assert_mean(found[f"y{arm}"] * found["w"], rho @ (treated * mu))
        assert_mean(found[f"y{arm}"] * found["x"][:, 0], rho @ (flags[:, 0] * mu))
        # Given the class, and not the covariates: five values, as often as the classes.
        values, counts = np.unique(np.round(found[f"mu{arm}"], 9), return_counts=True)
        order = np.argsort(mu)
        np.testing.assert_allclose(values, mu[order], atol=1e-8)
        np.testing.assert_allclose(counts / MANY, rho[order], atol=0.013)


def test_people_of_a_plane_have_the_moments_of_the_formulas() -> None:
    found = people(drawn("causalrff-continuous", rows=MANY), "site2")
    process = causal_rff._plane(causal_rff.COEFFICIENT_SEED, 2.0)
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    z = np.stack(np.meshgrid(points, points), axis=-1).reshape(-1, 2)
    rho = np.outer(weights, weights).ravel() / weights.sum() ** 2
    flags = sigmoid(process.flags[0] + z @ process.flags[1])
    treated = sigmoid(z @ process.propensity)
    mu0, mu1 = softplus(0.9 + z @ process.control[1]), softplus(3.0 + z @ process.treated[1])
    assert flags.shape[1] == 20
    assert_mean(found["x"], np.append(rho @ flags, np.zeros(10)))
    assert_mean(found["x"][:, :20] * found["w"][:, None], (rho * treated) @ flags)
    numbers = found["x"][:, 20:]
    assert_mean(numbers * found["w"][:, None], (rho * treated) @ (z @ process.numbers))
    assert_mean(numbers * numbers[:, :1], process.numbers[:, 0] @ process.numbers + np.eye(10)[0])
    for arm, mu in (("0", mu0), ("1", mu1)):
        assert_mean(found[f"mu{arm}"], rho @ mu)
        assert_mean(found[f"y{arm}"] * found["w"], rho @ (treated * mu))
    assert len(np.unique(found["mu0"])) == MANY
    assert 0.05 < found["w"].mean() < 0.95


@pytest.mark.parametrize("sd", [2.0, 0.5])
def test_coefficients_have_the_spread_of_the_paper(sd: float) -> None:
    processes = [causal_rff._classes(seed, sd) for seed in range(400)]
    lines = {
        "propensity": [process.propensity for process in processes],
        "control": [process.control[1] for process in processes],
        "treated": [process.treated[1] for process in processes],
        "intercepts": [process.flags[0] for process in processes],
        "slopes": [process.flags[1] for process in processes],
    }
    for name, values in lines.items():
        assert np.std(values) == pytest.approx(sd, rel=0.08), name
        assert np.mean(values) == pytest.approx(0.0, abs=0.12 * sd), name
    assert {(process.control[0], process.treated[0]) for process in processes} == {(0.9, 7.9)}


def test_in_the_plane_the_arms_slopes_have_half_the_spread_of_the_covariates() -> None:
    processes = [causal_rff._plane(seed, 2.0) for seed in range(800)]
    for line in ("propensity", "control", "treated"):
        slopes = [getattr(process, line) for process in processes]
        slopes = [slope if line == "propensity" else slope[1] for slope in slopes]
        assert np.std(slopes) == pytest.approx(1.0, rel=0.09), line
    assert np.std([process.flags[1] for process in processes]) == pytest.approx(2.0, rel=0.03)
    assert np.std([process.numbers for process in processes]) == pytest.approx(1.0, rel=0.03)


def test_the_first_site_stands_unshifted_and_the_others_are_shifted_alike() -> None:
    same, diff, delta = (drawn(f"causalrff-{name}", sites=3).truth for name in ("same", "diff", "delta"))
    assert same[same["site"] == "site1"].equals(diff[diff["site"] == "site1"])
    assert diff.equals(delta)
    none = drawn("causalrff-delta", sites=3, delta=0.0).truth
    assert none.equals(same)
    assert causal_rff._shifts("causalrff-diff", 3, 4.0, 3).tolist() == [0.0, 4.0, 4.0]
    assert causal_rff._shifts("causalrff-delta", 3, 2.5, 3).tolist() == [0.0, 2.5, 2.5]


def test_many_sites_have_shifts_of_their_own_drawn_with_the_coefficients() -> None:
    shifts = causal_rff._shifts("causalrff-large-diff", 2000, 4.0, 3)
    assert 0.0 <= shifts.min() < 0.1 and 7.9 < shifts.max() <= 8.0
    assert shifts.mean() == pytest.approx(4.0, abs=5 * 8 / np.sqrt(12 * 2000))
    np.testing.assert_array_equal(causal_rff._shifts("causalrff-large-diff", 20, 4.0, 3), shifts[:20])
    assert not np.allclose(causal_rff._shifts("causalrff-large-diff", 20, 4.0, 4), shifts[:20])
    assert not causal_rff._shifts("causalrff-large-same", 20, 4.0, 3).any()
    # Softplus of a large number is that number, so a site's largest mean shows its shift.
    truth = drawn("causalrff-large-diff", sites=4, rows=200).truth
    largest = truth.groupby("site")["mu1"].max().to_numpy()
    np.testing.assert_allclose(np.diff(largest), np.diff(shifts[:4]), atol=0.01)


@pytest.mark.parametrize("name", causal_rff.OPTIONS)
def test_the_seed_redraws_people_and_the_coefficient_seed_redraws_the_process(name: str) -> None:
    data, other = drawn(name), drawn(name, seed=6)
    assert not data.frames["site1"].equals(other.frames["site1"])
    process = drawn(name, coefficient_seed=99)
    if name != "causalrff-continuous":
        means = [set(np.round(made.truth.query("site == 'site1'")["mu1"], 9)) for made in (data, other)]
        assert means[0] == means[1]
    assert not set(np.round(data.truth["mu1"], 9)) & set(np.round(process.truth["mu1"], 9))


@pytest.mark.parametrize("name", DISCRETE)
def test_covariates_are_flags_and_no_column_is_the_class(name: str) -> None:
    data = drawn(name, rows=400, test_rows=400)
    for frame, truth in ((data.frames["site1"], data.truth), (data.test["site1"], data.test_truth)):
        covariates = frame.filter(like="x")
        assert set(np.unique(covariates)) == {0, 1}
        assert all(kind.kind == "i" for kind in covariates.dtypes)
        # Each class has a mean of its own: no flag may be that of one class.
        means = truth.query("site == 'site1'")["mu0"].round(9).to_numpy()
        for value in np.unique(means):
            assert not (covariates.to_numpy() == (means == value)[:, None]).all(axis=0).any()


def test_every_training_arm_has_two_people_however_few_would_be_untreated() -> None:
    data = drawn("causalrff-diff", sites=20, rows=20, test_rows=20)
    fewest = [min(np.bincount(frame["w"], minlength=2)) for frame in data.frames.values()]
    assert min(fewest) == 2
    assert min(min(np.bincount(frame["w"], minlength=2)) for frame in data.test.values()) == 0


def test_a_shift_that_leaves_an_arm_empty_for_ever_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal_rff, "TRIES", 50)
    with pytest.raises(StudyError, match="delta"):
        drawn("causalrff-delta", delta=60.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sites": 0}, {"rows": 3}, {"seed": -1}, {"test_rows": -1}, {"delta": -1.0}, {"delta": np.nan},
        {"coefficient_sd": -1.0}, {"coefficient_seed": -1},
    ],
)  # fmt: skip
def test_impossible_sizes_are_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match=f"'{next(iter(wrong))}' must be at least"):
        drawn("causalrff-delta", **wrong)


def test_sites_may_have_one_arm_if_nobody_is_drawn_again() -> None:
    """A shift of 8 leaves hardly any control: a table drawn once has none at most sites."""
    once = drawn("causalrff-delta", sites=12, delta=8.0, least_in_arm=0)
    shares = [frame["w"].mean() for frame in once.frames.values()]
    assert sum(share == 1.0 for share in shares[1:]) >= 3 and 0.0 < shares[0] < 1.0
    again = drawn("causalrff-delta", sites=3, delta=4.0, least_in_arm=2)
    assert again.frames["site2"].equals(drawn("causalrff-delta", sites=3, delta=4.0).frames["site2"])
