"""CausalFI's parts against textbook formulas: what is drawn for a hole, sums over sites, each update."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from oracle import causal_fi as oracle
from unpooled.maths.linear_algebra import pack
from unpooled.methods.causal_fi import chain as update
from unpooled.methods.causal_fi import fit as fitting
from unpooled.methods.causal_fi.chain import Setting, Sizes, begin
from unpooled.methods.causal_fi.columns import make_layout
from unpooled.methods.causal_fi.effects import AveragedOutcomes
from unpooled.methods.causal_fi.fit import Run
from unpooled.methods.causal_fi.model import ImputationModel
from unpooled.methods.causal_fi.stages import Augmentation
from unpooled.methods.causal_fi.structures import DIRECTION, EXPECTED, STRUCTURES, predictor
from unpooled.models.effects import AverageOfOutcomes
from unpooled.models.outcome_family import Gaussian
from unpooled.protocol.records import IncompleteColumn, Parameters
from unpooled.protocol.rows import Rows, make_rows

pytestmark = pytest.mark.slow
X, U, SITES = 2, 3, 2
SIZES = Sizes(X, U, SITES)
FACTOR = np.array([[1.0, 0.0, 0.0], [0.7, 0.8, 0.0], [-0.4, 0.5, 0.6]])
SLOPES = np.array([[0.5, -0.3, 0.2], [0.1, 0.4, -0.6]])
OUTCOME = np.array([[0.2, 0.3, -0.1, 0.8, -0.5, 0.6], [1.0, -0.2, 0.4, 0.1, 0.9, -0.7]])
TREATMENT = np.array([0.1, 0.2, -0.3, 0.5, 0.4, -0.2])
NOISE = np.array([0.3, 0.5])
LAYOUT = make_layout(
    tuple(IncompleteColumn(name, "numeric", 1) for name in ("p", "q", "r")), np.zeros(U), np.ones(U)
)


def model_of(structure: str) -> ImputationModel:
    return ImputationModel(STRUCTURES[structure], LAYOUT, Gaussian())


def known(**changed: Any) -> dict[str, Any]:
    """Parameters of a world whose outcome is linear, as a site is told them."""
    return {
        "confounders": {
            "steps": jnp.zeros((0, 1 + X + 2)),
            "intercept": jnp.array([0.1, -0.2, 0.3]),
            "slopes": jnp.asarray(SLOPES),
            "covariance": jnp.asarray(FACTOR @ FACTOR.T),
        },
        "treatment": jnp.zeros(SIZES.all),
        "outcome": jnp.asarray(OUTCOME),
        "bend": jnp.ones(2),
        "noise": jnp.asarray(NOISE),
        "offset": jnp.array([0.4, -0.3]),
        **changed,
    }


def one_person(copies: int, seen: np.ndarray, w: float, y: float) -> tuple[Rows, np.ndarray, np.ndarray]:
    """The same person many times: what is drawn for the copies is a sample of that person's u."""
    x, u = np.array([0.7, -1.1]), np.array([0.9, -0.4, 1.3])
    holed = np.where(seen, u, np.nan)
    rows = make_rows(
        np.tile(x, (copies, 1)), np.full(copies, w), np.full(copies, y), fold=np.zeros(copies), site=0,
        incomplete=np.tile(holed, (copies, 1)),
    )  # fmt: skip
    return rows, x, u


@pytest.mark.parametrize("seen", [(True, False, False), (False, False, False), (False, True, True)])
@pytest.mark.parametrize(("w", "y"), [(0.0, 1.7), (1.0, 1.7), (1.0, 6.0)])
def test_a_hole_is_filled_from_the_analytic_posterior(seen: tuple[bool, ...], w: float, y: float) -> None:
    copies, mask, draw = 3000, np.array(seen), known()
    rows, x, u = one_person(copies, mask, w, y)
    model = model_of("linear")
    drawn = np.asarray(eqx.filter_jit(model.completed)(draw, rows, jax.random.key(5)).u)[:copies]
    np.testing.assert_array_equal(drawn[:, mask], np.tile(u[mask], (copies, 1)))
    arm = int(w)
    mean = np.asarray(draw["confounders"]["intercept"]) + x @ SLOPES
    left = y - OUTCOME[arm, 0] - OUTCOME[arm, 1:3] @ x - float(draw["offset"][arm])
    expected, spread = oracle.given_all(mean, FACTOR @ FACTOR.T, mask, u, OUTCOME[arm, 3:], left, NOISE[arm])
    for place, column in enumerate(np.flatnonzero(~mask)):
        sd = np.sqrt(spread[place, place])
        assert stats.kstest(drawn[:, column], "norm", args=(expected[place], sd)).pvalue > 1e-3
    covariance = np.cov(drawn[:, ~mask], rowvar=False).reshape(spread.shape)
    np.testing.assert_allclose(covariance, spread, atol=5 * np.max(np.diag(spread)) / np.sqrt(copies))


def test_the_treatment_tells_of_a_hole_too() -> None:
    copies, mask = 4000, np.array([True, False, True])
    rows, x, u = one_person(copies, mask, 1.0, 0.2)
    draw = known(treatment=jnp.asarray(TREATMENT), outcome=jnp.zeros((2, SIZES.all)))
    completed = eqx.filter_jit(model_of("linear").completed)
    drawn = np.asarray(completed(draw, rows, jax.random.key(6)).u)[:copies, 1]
    # By quadrature: p(u₂ | x, u₁, u₃) Φ(gᵀb).
    mean = np.asarray(draw["confounders"]["intercept"]) + x @ SLOPES
    prior, spread = oracle.given_all(mean, FACTOR @ FACTOR.T, mask, u, np.zeros(3), 0.0, 1.0)
    grid = prior[0] + np.sqrt(spread[0, 0]) * np.linspace(-7, 7, 4001)
    full = np.tile(u, (len(grid), 1))
    full[:, 1] = grid
    density = stats.norm.pdf(grid, prior[0], np.sqrt(spread[0, 0]))
    density *= stats.norm.cdf(TREATMENT[0] + x @ TREATMENT[1:3] + full @ TREATMENT[3:])
    chance = np.cumsum(density) / density.sum()
    assert stats.kstest(drawn, lambda at: np.interp(at, grid, chance)).pvalue > 1e-3
    assert stats.kstest(drawn, "norm", args=(prior[0], np.sqrt(spread[0, 0]))).pvalue < 1e-3


@pytest.mark.thorough
@pytest.mark.parametrize("structure", ["softplus", pytest.param("index", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("y", [4.0, *(pytest.param(y, marks=pytest.mark.thorough) for y in (-1.5, 0.5))])
def test_an_outcome_that_bends_tells_of_a_hole_as_it_should(structure: str, y: float) -> None:
    copies, mask = 4000, np.array([True, True, False])
    rows, x, u = one_person(copies, mask, 1.0, y)
    shape, rng = STRUCTURES[structure], np.random.default_rng(9)
    outcome = np.stack([shape.start(OUTCOME[arm], 1.0, 0.2, rng) for arm in (0, 1)])
    outcome[:, -9:] += 0.6 * rng.standard_normal((2, 9))
    draw = known(treatment=jnp.asarray(TREATMENT), outcome=jnp.asarray(outcome))
    model = model_of(structure)
    found = eqx.filter_jit(model.completed)(draw, rows, jax.random.key(7))
    drawn = np.asarray(found.u)[:copies, 2]
    # By quadrature: p(u₃ | x, u₁, u₂) Φ(gᵀb) N(y; η(u), σ²).
    mean = np.asarray(draw["confounders"]["intercept"]) + x @ SLOPES
    prior, spread = oracle.given_all(mean, FACTOR @ FACTOR.T, mask, u, np.zeros(3), 0.0, 1.0)
    grid = prior[0] + np.sqrt(spread[0, 0]) * np.linspace(-7, 7, 4001)
    full = np.column_stack([np.ones_like(grid), np.tile([*x, *u], (len(grid), 1))])
    full[:, -1] = grid
    of = jax.vmap(lambda g: predictor(shape, jnp.asarray(outcome[1]), g, jnp.ones(())))
    eta = np.asarray(of(jnp.asarray(full))) + float(draw["offset"][1])
    log = stats.norm.logpdf(grid, prior[0], np.sqrt(spread[0, 0])) + stats.norm.logcdf(full @ TREATMENT)
    density = np.exp(log + stats.norm.logpdf(y, eta, np.sqrt(NOISE[1])))
    chance = np.cumsum(density) / density.sum()
    assert stats.kstest(drawn, lambda at: np.interp(at, grid, chance)).pvalue > 1e-3
    assert np.all(np.asarray(found.latent)[:copies] > 0.0)
    before, treated = np.exp(log - log.max()), jnp.ones(len(rows.present), int)
    np.testing.assert_allclose(
        model.expected(draw, rows, treated, assigned=True)[0], before @ eta / before.sum(), rtol=2e-3
    )
    plain = stats.norm.pdf(grid, prior[0], np.sqrt(spread[0, 0]))
    np.testing.assert_allclose(model.expected(draw, rows, treated)[0], plain @ eta / plain.sum(), rtol=2e-3)


def test_a_shift_moves_what_the_outcome_goes_by_and_not_what_x_tells() -> None:
    """u as if the outcome were less by what the shift adds to it; shifted is u plus the shift."""
    copies, mask, draw = 3000, np.array([True, False, False]), known()
    size = np.array([0.5, 0.8, -0.4])
    rows, x, u = one_person(copies, mask, 1.0, 1.7)
    shifted = {**draw, "shift": jnp.asarray(np.stack([np.zeros(3), size]))}
    found = eqx.filter_jit(model_of("linear").completed)(shifted, rows, jax.random.key(5))
    mean = np.asarray(draw["confounders"]["intercept"]) + x @ SLOPES
    left = 1.7 - OUTCOME[1, 0] - OUTCOME[1, 1:3] @ x - float(draw["offset"][1])
    left -= OUTCOME[1, 3:] @ (size * ~mask)
    expected, spread = oracle.given_all(mean, FACTOR @ FACTOR.T, mask, u, OUTCOME[1, 3:], left, NOISE[1])
    drawn = np.asarray(found.u)[:copies]
    np.testing.assert_allclose(
        drawn[:, ~mask].mean(axis=0), expected, atol=5 * np.sqrt(np.max(spread) / copies)
    )
    np.testing.assert_allclose(np.asarray(found.shifted)[:copies] - drawn, np.tile(size * ~mask, (copies, 1)))


@pytest.mark.parametrize("completed", [True, False])
def test_an_average_is_of_people_given_their_outcome_or_given_what_is_seen(completed: bool) -> None:
    copies, mask, draw = 3000, np.array([True, False, False]), known()
    rows, x, u = one_person(copies, mask, 1.0, 6.0)
    each = {"offset": draw.pop("offset")}
    fixed = {**draw, "bootstrap": jax.random.key_data(jax.random.key(7))}
    average = eqx.filter_jit(AverageOfOutcomes(AveragedOutcomes(model_of("linear"), completed)).statistics)
    found = average(Parameters(fixed=fixed, per_site=each), rows).per_site["population"]
    mean, noise = np.asarray(draw["confounders"]["intercept"]) + x @ SLOPES, NOISE[1] if completed else 1e9
    left = 6.0 - OUTCOME[1, 0] - OUTCOME[1, 1:3] @ x - float(each["offset"][1])
    expected, spread = oracle.given_all(mean, FACTOR @ FACTOR.T, mask, u, OUTCOME[1, 3:], left, noise)
    filled = np.append(x, np.r_[u[0], expected])
    arms = OUTCOME[:, 0] + OUTCOME[:, 1:] @ filled + np.asarray(each["offset"])
    slopes = (OUTCOME[1] - OUTCOME[0])[4:]
    sd = np.sqrt(slopes @ spread @ slopes / copies) if completed else 1e-6
    assert abs(float(found[0, 1] - found[0, 0]) - (arms[1] - arms[0])) < 8 * sd


@pytest.mark.thorough
def test_no_shift_and_a_shift_of_nothing_give_the_same_sums() -> None:
    made, question = people(), asked()
    made["u"][::3, 1] = np.nan
    rows = make_rows(
        *(made[name] for name in ("x", "w", "y")), fold=np.zeros(60), site=0, incomplete=made["u"]
    )
    stage = Augmentation(model_of("linear"))
    plain = eqx.filter_jit(stage.statistics)(question, rows)
    question.per_site["shift"] = jnp.zeros((2, U))
    moved = eqx.filter_jit(stage.statistics)(question, rows)
    own = moved.summed.pop("treatment_products")
    np.testing.assert_allclose(own, moved.summed["confounders"], rtol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), plain, moved)


# ---------------------------------------------------------------------- sums over sites


def people(count: int = 60) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(count, X))
    u = 0.2 + x @ SLOPES + rng.normal(size=(count, U)) @ FACTOR.T
    w = (rng.random(count) < 0.5).astype(float)
    g = np.column_stack([np.ones(count), x, u])
    y = np.sum(g * OUTCOME[w.astype(int)], axis=1) + 0.5 * rng.normal(size=count)
    return {"x": x, "u": u, "w": w, "y": y, "g": g, "site": rng.integers(0, SITES, count)}


def asked() -> Parameters:
    draw = known()
    offset = draw.pop("offset")
    key = jax.random.key_data(jax.random.key(1))
    fixed = {"draw": draw, "mode": jnp.asarray(OUTCOME + 0.3), "fold": -1, "key": key}
    return Parameters(fixed=fixed, per_site={"offset": offset, "mode_offset": 0.5 * offset})


@pytest.mark.parametrize("structure", ["softplus"])
def test_with_nothing_missing_sums_over_sites_are_those_of_the_stacked_rows(structure: str) -> None:
    made, question = people(), asked()
    stage = Augmentation(model_of(structure))
    rng = np.random.default_rng(2)
    start = [STRUCTURES[structure].start(OUTCOME[arm], 1.0, 0.2, rng) for arm in (0, 1)]
    question.fixed["mode"] = question.fixed["draw"]["outcome"] = jnp.asarray(np.stack(start))
    statistics = eqx.filter_jit(stage.statistics)
    found = [
        statistics(
            question,
            make_rows(
                *(made[name][here] for name in ("x", "w", "y")), fold=np.zeros(here.sum()), site=0,
                incomplete=made["u"][here],
            ),
        )
        for here in (made["site"] == 0, made["site"] == 1, np.full(len(made["y"]), True))
    ]  # fmt: skip
    for name in ("confounders", "outcome", "score", "square"):
        parts = [np.asarray(each.summed[name]) for each in found]
        np.testing.assert_allclose(parts[0] + parts[1], parts[2], rtol=1e-10, atol=1e-10)
    for name in ("people", "site_cross", "site_score"):
        parts = [np.asarray(each.per_site[name]) for each in found]
        np.testing.assert_allclose(parts[0] + parts[1], parts[2], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(
        found[2].summed["confounders"], pack(jnp.asarray(made["g"].T @ made["g"])), rtol=1e-10
    )


def test_an_arms_update_is_the_textbooks_posterior() -> None:
    made = people(200)
    site, y, g = made["site"], made["y"], made["g"]
    flags = (site[:, None] == np.arange(SITES)).astype(float)
    groups = STRUCTURES["linear"].groups(SIZES.all)
    arm = update._Arm(
        gram=g.T @ g,
        score=g.T @ y,
        square=y @ y,
        people=flags.sum(axis=0),
        cross=flags.T @ g,
        site_score=flags.T @ y,
        mode=np.zeros(SIZES.all),
        noise=np.asarray(0.4),
        variances=EXPECTED,
        site=np.asarray(0.2),
    )
    every = update._Arm(*(np.broadcast_to(part, (4000, 1, *np.shape(part))) for part in arm))
    common = 0.1 * np.arange(SIZES.all)  # what the slopes are expected to be
    setting = Setting(LAYOUT, Gaussian(), groups, several=True, column=0)
    found, _ = update._outcome(setting, np.tile(common, (4000, 1)), every, np.random.default_rng(3))
    drawn = {name: part[:, 0] for name, part in found.items()}
    left = y - g @ common
    mean, covariance = oracle.regression(g, left, site, noise=0.4, prior=EXPECTED[groups], offset=0.2)
    mean[: SIZES.all] += common
    both = np.concatenate([drawn["outcome"], drawn["offset"]], axis=1)
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(both.mean(axis=0), mean, atol=5 * sd.max() / np.sqrt(len(both)))
    np.testing.assert_allclose(np.cov(both, rowvar=False), covariance, atol=0.12 * np.max(sd) ** 2)
    np.testing.assert_allclose(drawn["mode"][0], mean[: SIZES.all], rtol=1e-8)  # linear: there at once


def test_what_bends_moves_by_one_prior_sd_at_most() -> None:
    made, groups = people(200), STRUCTURES["softplus"].groups(SIZES.all)
    slopes = np.concatenate([made["g"], made["g"][:, 1:], np.ones((200, 2))], axis=1)
    size = len(groups)
    parts = (
        slopes.T @ slopes,
        slopes.T @ (9.0 * made["y"]),
        1.0,
        *(np.zeros(at) for at in (1, (1, size), 1, size)),
    )
    arm = update._Arm(*(np.asarray(part)[None, None] for part in (*parts, 0.4, EXPECTED, 0.2)))
    setting = Setting(LAYOUT, Gaussian(), groups, several=False, column=0)
    found, _ = update._outcome(setting, np.zeros((1, size)), arm, np.random.default_rng(0))
    moved = found["mode"][0, 0]
    mean = np.linalg.solve(parts[0] + 0.4 * np.diag(1.0 / EXPECTED[groups]), parts[1])
    np.testing.assert_allclose(moved / mean, moved[0] / mean[0], rtol=1e-8)  # towards the mean
    assert np.max(np.abs(moved / np.sqrt(EXPECTED[groups]))[groups >= DIRECTION]) == pytest.approx(1.0)


def test_confounders_are_drawn_from_their_conjugate_posterior() -> None:
    made = people(80)
    gram = np.tile(made["g"].T @ made["g"], (4000, 1, 1))
    drawn = update.draw_numbers(gram, 1 + X, np.random.default_rng(4))
    h, u = made["g"][:, : 1 + X], made["u"]
    inside = h.T @ h + np.eye(1 + X)
    slopes = np.linalg.solve(inside, h.T @ u)
    left = u.T @ u - slopes.T @ inside @ slopes + update.LEAST_SPREAD * (U + 2) * np.eye(U)
    expected = left / (len(u) + U + 2 - U - 1)  # the mean of an inverse Wishart
    np.testing.assert_allclose(
        drawn["covariance"].mean(axis=0), expected, atol=0.02 * np.max(np.diag(expected))
    )
    found = np.concatenate([drawn["intercept"][:, None], drawn["slopes"]], axis=1)
    np.testing.assert_allclose(found.mean(axis=0), slopes, atol=0.01)
    spread = np.linalg.inv(inside)[1, 1] * expected[0, 0]
    assert np.var(found[:, 1, 0]) == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize("structure", ["softplus", "index"])
def test_an_arm_that_no_bend_helps_is_straight(structure: str) -> None:
    shape, rng = STRUCTURES[structure], np.random.default_rng(5)
    g = jnp.asarray(np.append(1.0, rng.normal(size=X + U)))
    straight = jnp.asarray(shape.linear_arm(OUTCOME[1]))
    assert predictor(shape, straight, g, jnp.zeros(())) == pytest.approx(float(OUTCOME[1] @ g))
    moved = straight.at[SIZES.all :].add(0.7)  # whatever direction and shape are
    assert predictor(shape, moved, g, jnp.zeros(())) == pytest.approx(float(OUTCOME[1] @ g))
    begun = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * 2), begin(SIZES, LAYOUT, Gaussian()))
    bent = begun._replace(
        outcome=np.ones((2, 2, len(straight))), mode=np.ones((2, 2, len(straight))), bend=np.ones((2, 2))
    )
    misfit = np.zeros((2, 2))
    runs = {"linear": Run(begun, np.array([[0.5, 0.2], [0.6, 0.2]]), misfit)}
    runs[structure] = Run(bent, np.array([[0.3, 0.4], [0.5, 0.3]]), misfit)
    preferred = fitting._linear_is_preferred(runs, structure)
    np.testing.assert_array_equal(preferred, [False, True])
    assert fitting._error(runs, structure, preferred) == pytest.approx(0.5 * (0.4 + 0.2))
    found = fitting._with_linear_arms(runs, structure, preferred)
    np.testing.assert_array_equal(found.bend, [[1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(found.outcome[:, 0], 1.0)
    np.testing.assert_array_equal(found.outcome[:, 1], 0.0)


@pytest.mark.parametrize(
    ("gain", "bends"),
    [
        ([0.10, 0.12, 0.11], True),
        ([0.01, 0.01, 0.01], False),  # less than 2 %
        ([0.40, -0.20, 0.01], False),  # less than its standard error
        ([-0.10, -0.12, -0.11], False),
    ],
)
def test_an_arm_bends_only_if_that_is_better_by_more_than_chance(gain: list[float], bends: bool) -> None:
    begun, misfit = begin(SIZES, LAYOUT, Gaussian()), np.zeros((3, 2))
    linear = np.ones((3, 2))
    bent = Run(begun, linear - np.outer(gain, [1.0, 0.0]), misfit)
    runs = {"linear": Run(begun, linear, misfit), "softplus": bent}
    assert fitting._linear_is_preferred(runs, "softplus").tolist() == [not bends, True]
    assert not fitting._linear_is_preferred(runs, "linear").any()
    assert not fitting._linear_is_preferred({"softplus": bent}, "softplus").any()


def test_a_chain_starts_from_nothing() -> None:
    chain = begin(SIZES, LAYOUT, Gaussian())
    assert not np.asarray(chain.outcome).any()
    assert chain.confounders["covariance"].shape == (U, U)


@pytest.mark.parametrize("structure", ["linear", "softplus"])
def test_imputing_only_people_with_gaps_is_imputing_everybody(structure: str) -> None:
    rng, people = np.random.default_rng(8), 4000
    x, u = rng.normal(size=(people, X)), rng.normal(size=(people, U))
    # Everybody is the same person but for gaps, which every tenth has.
    x[:], u[:] = x[0], u[0]
    u[::10, 1] = np.nan
    w, y = np.ones(people), np.full(people, 1.2)
    few = make_rows(x, w, y, fold=np.zeros(people), site=0, incomplete=u)
    assert few.gaps is not None
    all_ = eqx.tree_at(lambda rows: rows.gaps, few, None)
    model, size = model_of(structure), STRUCTURES[structure].groups(SIZES.all).size
    outcome = np.concatenate([OUTCOME, 0.1 * np.ones((2, size - SIZES.all))], axis=1)
    draw = known(treatment=jnp.asarray(TREATMENT), outcome=jnp.asarray(outcome))
    completed = eqx.filter_jit(model.completed)
    one, other = (completed(draw, rows, jax.random.key(3)) for rows in (few, all_))
    for holes in (np.arange(0, people, 10), np.arange(1, people, 10)):
        for part in ("latent", "u"):
            first, second = (np.asarray(getattr(each, part))[holes] for each in (one, other))
            first, second = (values if part == "latent" else values[:, 1] for values in (first, second))
            if np.ptp(first) == 0.0:
                np.testing.assert_array_equal(first, second)
            else:
                assert stats.ks_2samp(first, second).pvalue > 1e-3
    expected = eqx.filter_jit(model.expected)
    arm = jnp.ones(len(few.present), int)
    for assigned in (False, True):
        first, second = (expected(draw, rows, arm, assigned=assigned)[:people] for rows in (few, all_))
        np.testing.assert_allclose(first, second, rtol=1e-4)
