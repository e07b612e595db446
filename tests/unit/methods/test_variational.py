"""The paper's variational FedCI, against a slow NumPy version built from the full joint of Lemma 1."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import digamma, multigammaln

import unpooled as up
from unpooled.data.simulation import simulate
from unpooled.methods.fedci.conditionals import conditional_effect, individual_effect
from unpooled.methods.fedci.paper.bound import (
    SITE_SD,
    Sample,
    log_likelihood,
    make_bound,
    outcomes,
    sample,
    shift_divergence,
    start,
)
from unpooled.methods.fedci.settings import FedCIContext, FedCISettings
from unpooled.optimise.stochastic import Plateau
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows, make_rows

SITES, DIMENSION, SITE = 3, 2, 1
JITTER = 1e-8  # what the likelihood adds to the noise's variance
RNG = np.random.default_rng(5)
MOMENTS = RNG.normal(size=(SITES, 8))
DISTANCES = ((MOMENTS[:, None] - MOMENTS[None]) ** 2).mean(2)
CONTEXT = FedCIContext(
    correlation=np.eye(DIMENSION),
    site_distances=DISTANCES,
    inducing=np.zeros((0, DIMENSION)),
    family="continuous",
    outcome_mean=0.0,
    outcome_sd=1.0,
    exact=True,
    large=False,
    interval=1,
    share=1.0,
)


def people(count: int, site: int, seed: int) -> tuple[Rows, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    x, w, y = rng.normal(size=(count, DIMENSION)), rng.binomial(1, 0.5, count) * 1.0, rng.normal(size=count)
    return make_rows(x, w, y, fold=np.zeros(count), site=site), {"x": x, "w": w, "y": y}


def scattered(settings: FedCISettings, seed: int = 11) -> Any:
    """A θ away from every special value."""
    rng = np.random.default_rng(seed)
    begun = start(settings, CONTEXT, seed)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf + 0.3 * rng.normal(size=np.shape(leaf))), begun)


# ------------------------------------------------------------------ the slow version


def slow_kernel(left: np.ndarray, right: np.ndarray, length: float) -> np.ndarray:
    matrix = np.empty((len(left), len(right)))
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            r = np.sqrt(5.0) * np.linalg.norm(a - b) / length
            matrix[i, j] = (1.0 + r + r**2 / 3.0) * np.exp(-r)
    return matrix


def slow_means(network: Any, x: np.ndarray) -> np.ndarray:
    """[μ₀(x), μ₁(x)] stacked, person by person."""
    columns = []
    for head in network["own"]:
        values = []
        for person in x:
            hidden = person
            for layer in [*network["shared"], *head[:-1]]:
                hidden = np.maximum(hidden @ np.asarray(layer["weight"]) + np.asarray(layer["bias"]), 0.0)
            values.append((hidden @ np.asarray(head[-1]["weight"]) + np.asarray(head[-1]["bias"])).item())
        columns.append(np.array(values))
    return np.concatenate(columns)


def slow_joint(free: Any, one: Sample, x: np.ndarray, rho: float, site: int) -> tuple[np.ndarray, ...]:
    """Lemma 1: mean and covariance of [y(0); y(1)], and the covariance of [f(0); f(1)] alone."""
    n, root = len(x), np.asarray(one.factor)
    length = np.exp(float(free["length"][0])) * np.sqrt(DIMENSION)
    shift = np.repeat(np.asarray(one.shift)[:, site], n)
    mean = np.kron(root, np.eye(n)) @ (slow_means(free["mean"], x) + shift)
    sd = np.exp(np.asarray(one.noise))
    noise = np.diag(sd**2) + rho * sd.prod() * (1.0 - np.eye(2)) + JITTER * np.eye(2)
    smooth = np.kron(root @ root.T, slow_kernel(x, x, length))
    return mean, smooth + np.kron(noise, np.eye(n)), smooth


def slow_split(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of y_obs and of y_mis in [y(0); y(1)]."""
    n = len(w)
    return np.arange(n) + n * w.astype(int), np.arange(n) + n * (1 - w.astype(int))


def slow_log_likelihood(free: Any, one: Sample, table: dict[str, np.ndarray], site: int) -> float:
    mean, covariance, _ = slow_joint(free, one, table["x"], 0.0, site)
    seen, _ = slow_split(table["w"])
    return float(stats.multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)]).logpdf(table["y"]))


def slow_wishart_divergence(free: Any, settings: FedCISettings) -> float:
    dq, sd = 2.0 + np.exp(float(free["degrees"])), np.exp(np.asarray(free["sd"]))
    rho = 1.0 / (1.0 + np.exp(-float(free["correlation"])))
    vq = np.diag(sd) @ np.array([[1.0, rho], [rho, 1.0]]) @ np.diag(sd) / dq
    c, d0 = settings.wishart_correlation, settings.wishart_degrees
    v0 = settings.wishart_mean * np.array([[1.0, c], [c, 1.0]]) / d0
    ratio = np.linalg.inv(v0) @ vq
    gammas = multigammaln(d0 / 2, 2) - multigammaln(dq / 2, 2)
    digammas = digamma(dq / 2) + digamma(dq / 2 - 0.5)
    scales = -d0 * np.log(np.linalg.det(ratio)) + dq * (np.trace(ratio) - 2.0)
    return 0.5 * (scales + (dq - d0) * digammas) + gammas


def slow_site_covariance(free: Any) -> np.ndarray:
    moments = MOMENTS
    squared = ((moments[:, None] - moments[None]) ** 2).sum(2)
    scale = np.exp(float(free["closeness"])) ** 2 * moments.shape[1]
    return np.exp(2.0 * float(free["sd"])) * (np.exp(-0.5 * squared / scale) + 1e-6 * np.eye(SITES))


# ----------------------------------------------------------------- Lemma 1 → Lemma 2


@pytest.fixture(params=["linear", pytest.param("network", marks=pytest.mark.thorough)])
def world(request: pytest.FixtureRequest) -> Any:
    settings = FedCISettings(inference="variational", mean=request.param)
    bound, free = make_bound(settings, CONTEXT), scattered(settings)
    drawn = jax.tree.map(lambda leaf: leaf[0], sample(bound.evidence, free, jax.random.key(3), 1))
    return settings, bound, free, drawn


def test_the_likelihood_is_that_of_the_joint_of_both_outcomes(world: Any) -> None:
    _, bound, free, one = world
    rows, table = people(9, SITE, 1)
    ours = float(log_likelihood(bound.evidence, free, one, rows))
    assert ours == pytest.approx(slow_log_likelihood(free, one, table, SITE), rel=1e-8)


def test_the_observed_covariance_is_lemma_two(world: Any) -> None:
    _, bound, free, one = world
    rows, table = people(9, SITE, 1)
    inner = outcomes(bound.evidence, free, one).free
    ours = np.asarray(bound.evidence.observed_covariance(inner, rows, rows.present))[:9, :9]
    _, covariance, _ = slow_joint(free, one, table["x"], 0.0, SITE)
    seen, _ = slow_split(table["w"])
    np.testing.assert_allclose(ours, covariance[np.ix_(seen, seen)], rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.6])
@pytest.mark.parametrize("joined", [False, True])
def test_the_missing_outcome_is_conditioned_as_in_lemma_two(world: Any, rho: float, joined: bool) -> None:
    _, bound, free, one = world
    rows, table = people(9, SITE, 1)
    others, more = people(4, SITE, 2)
    drawn = outcomes(bound.evidence, free, one)
    here = drawn._replace(shift=drawn.shift[:, :, SITE])
    given = others if joined else None
    mean, variance = individual_effect(bound.evidence, here, rows, given, jnp.asarray(rho))
    known = {name: np.concatenate([table[name], more[name]]) for name in table} if joined else table
    joint, covariance, _ = slow_joint(free, one, known["x"], rho, SITE)
    seen, hidden = slow_split(known["w"])
    gain = covariance[np.ix_(hidden, seen)] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
    missing = joint[hidden] + gain @ (known["y"] - joint[seen])
    left = np.diag(covariance[np.ix_(hidden, hidden)] - gain @ covariance[np.ix_(seen, hidden)])
    effect = (2 * known["w"] - 1) * (known["y"] - missing)
    asked = slice(9, None) if joined else slice(None)
    count = 4 if joined else 9
    np.testing.assert_allclose(np.asarray(mean)[0, :count], effect[asked], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(np.asarray(variance)[:count], left[asked], rtol=1e-5)


def test_new_people_get_the_conditional_of_both_functions(world: Any) -> None:
    _, bound, free, one = world
    rows, table = people(9, SITE, 1)
    new = np.random.default_rng(8).normal(size=(4, DIMENSION))
    drawn = outcomes(bound.evidence, free, one)
    here = drawn._replace(shift=drawn.shift[:, :, SITE])
    mean, variance = conditional_effect(bound.evidence, here, rows, jnp.asarray(new))
    joint, covariance, smooth = slow_joint(free, one, np.concatenate([table["x"], new]), 0.0, SITE)
    seen = np.arange(9) + 13 * table["w"].astype(int)
    contrast = np.zeros((4, 26))
    contrast[np.arange(4), 9 + np.arange(4)], contrast[np.arange(4), 22 + np.arange(4)] = -1.0, 1.0
    gain = contrast @ smooth[:, seen] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
    expected = contrast @ joint + gain @ (table["y"] - joint[seen])
    left = np.diag(contrast @ smooth @ contrast.T - gain @ smooth[seen] @ contrast.T)
    np.testing.assert_allclose(np.asarray(mean)[0], expected, rtol=1e-7)
    np.testing.assert_allclose(np.asarray(variance), left, rtol=1e-6)


# ------------------------------------------------------------------------- the bound


@pytest.mark.slow
def test_the_sum_of_the_sites_replies_gives_the_pooled_bound(world: Any) -> None:
    settings, bound, free, _ = world
    key = jax.random.key_data(jax.random.key(9))
    parameters = Parameters(free, {"key": key})
    parts = [people(count, site, 20 + site) for site, count in enumerate((8, 11, 6))]
    replies = [bound.statistics(parameters, rows) for rows, _ in parts]
    assert all(reply.per_site == {} and jnp.shape(reply.summed) == () for reply in replies)
    ours = float(bound.value(parameters, Statistics(sum(reply.summed for reply in replies))))
    drawn = sample(bound.evidence, free, jax.random.wrap_key_data(key), settings.monte_carlo)
    singles = [Sample(*(leaf[k] for leaf in drawn)) for k in range(settings.monte_carlo)]
    tables = [(table, site) for site, (_, table) in enumerate(parts)]
    expected = -np.mean([sum(slow_log_likelihood(free, one, t, s) for t, s in tables) for one in singles])
    expected += slow_wishart_divergence(free["arms"], settings) + slow_wishart_divergence(
        free["noise"], settings
    )
    expected += slow_shift_divergence(free) + slow_penalties(free)
    assert ours == pytest.approx(expected, rel=1e-8)


def slow_shift_divergence(free: Any) -> float:
    u, m = slow_site_covariance(free["shift"]), slow_site_covariance(free["sites"])
    inverse, h = np.linalg.inv(m), np.asarray(free["shift"]["mean"])
    logs = np.linalg.slogdet(m)[1] - np.linalg.slogdet(u)[1]
    return float(sum(0.5 * (np.trace(inverse @ u) + row @ inverse @ row - SITES + logs) for row in h))


def slow_penalties(free: Any) -> float:
    network = free["mean"]
    layers = [*network["shared"], *network["own"][0], *network["own"][1]]
    weights = sum(float((np.asarray(one["weight"]) ** 2).sum()) * len(one["weight"]) / 4.0 for one in layers)
    biases = sum(float((np.asarray(one["bias"]) ** 2).sum()) / 2.0 for one in layers)
    sites = (
        (float(free["sites"]["sd"]) - np.log(SITE_SD)) ** 2 + (2 * float(free["sites"]["closeness"])) ** 2
    ) / 2
    return weights + biases + sites + float(free["length"][0]) ** 2 / 2


def test_the_divergence_of_the_shifts_agrees_with_monte_carlo() -> None:
    settings = FedCISettings(inference="variational")
    free = scattered(settings)
    u, m = slow_site_covariance(free["shift"]), slow_site_covariance(free["sites"])
    total, rng, errors = 0.0, np.random.default_rng(2), []
    for h in np.asarray(free["shift"]["mean"]):
        drawn = rng.multivariate_normal(h, u, 100_000)
        logs = stats.multivariate_normal(h, u).logpdf(drawn) - stats.multivariate_normal(None, m).logpdf(
            drawn
        )
        total, errors = total + logs.mean(), [*errors, logs.std() / np.sqrt(len(logs))]
    weak = slow_penalties(free) - slow_penalties(
        free | {"sites": {"sd": np.log(SITE_SD), "closeness": np.zeros(())}}
    )
    ours = float(shift_divergence(make_bound(settings, CONTEXT).evidence, free)) - weak
    assert ours == pytest.approx(total, abs=4 * np.hypot(*errors))


@pytest.mark.slow
def test_the_gradient_is_finite_and_agrees_with_differences(world: Any) -> None:
    _, bound, free, _ = world
    rows, _ = people(9, SITE, 1)
    fixed = {"key": jax.random.key_data(jax.random.key(6))}

    @jax.jit
    def value(free: Any) -> jax.Array:
        parameters = Parameters(free, fixed)
        return bound.value(parameters, bound.statistics(parameters, rows))

    gradient = jax.jit(jax.grad(value))(free)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))
    assert float(gradient["arms"]["degrees"]) != 0.0
    # Gamma draws jump with their shape at a fixed key, so the degrees of freedom stay where they are.
    rng = np.random.default_rng(1)
    move = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), free)
    move = move | {name: move[name] | {"degrees": 0.0} for name in ("arms", "noise")}
    step = 1e-6
    ahead, behind = (jax.tree.map(lambda a, b, s=s: a + s * step * b, free, move) for s in (1, -1))
    slope = (float(value(ahead)) - float(value(behind))) / (2 * step)
    along = sum(float(jnp.sum(a * b)) for a, b in zip(*map(jax.tree.leaves, (gradient, move)), strict=True))
    assert along == pytest.approx(slope, rel=1e-5)


# ------------------------------------------------------------------------ whole fits

STUDY = up.Study(treatment="w", outcome="y", covariates=["x1", "x2"])
ROWS = 24


def trial(seed: int) -> tuple[dict[str, pd.DataFrame], np.ndarray]:
    """A randomised trial at two sites with effects 1 + 2·x₂, and those effects, site after site."""
    rng = np.random.default_rng(seed)
    frames = {}
    for site in ("north", "south"):
        x = rng.normal(size=(ROWS, 2))
        w = rng.permutation(np.arange(ROWS) % 2)
        y = x[:, 0] + w * (1.0 + 2.0 * x[:, 1]) + 0.3 * rng.normal(size=ROWS)
        frames[site] = pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1], "w": w, "y": y})
    return frames, np.concatenate([1.0 + 2.0 * frame["x2"] for frame in frames.values()])


FRAMES, EFFECTS = trial(1)
NEW, NEW_EFFECTS = trial(2)


def fitted(frames: dict[str, pd.DataFrame] = FRAMES, **settings: Any) -> tuple[up.FedCI, list[str]]:
    questions: list[str] = []
    chosen = {"inference": "variational", "draws": 200, "rounds": 150, "learning_rate": 0.05} | settings
    model = up.FedCI(seed=3, **chosen).fit(STUDY, frames, watch=lambda one: questions.append(one.question))
    return model, questions


@pytest.fixture(scope="module")
def whole() -> tuple[up.FedCI, list[str]]:
    return fitted()


def history_of(model: up.FedCI) -> np.ndarray:
    return np.array(model.result_.fit_diagnostics["structures"]["variational"]["history"].values)


def cate_error(model: up.FedCI) -> float:
    found = np.concatenate([model.effect(frame, site=site) for site, frame in NEW.items()])
    return float(np.sqrt(np.mean((found - NEW_EFFECTS) ** 2)))


def improves(history: np.ndarray) -> bool:
    return bool(history[-20:].mean() < history[:20].mean() - 3.0 * history[-20:].std())


@pytest.mark.thorough
@pytest.mark.slow
def test_the_bound_improves_and_each_round_is_one_exchange() -> None:
    simulated = simulate("fedci-data1", sites=2, rows=ROWS, seed=4, dimension=2)
    model, questions = fitted(simulated.frames)
    history = history_of(model)
    assert improves(history)
    assert questions.count("variational: gradient") == len(history)
    assert [q for q in questions if "statistics" in q] == ["effect/variational: statistics"]


@pytest.mark.slow
def test_people_and_populations_get_their_effects(whole: Any) -> None:
    model, _ = whole
    assert cate_error(model) < 0.3 < 0.2 * NEW_EFFECTS.std()
    assert model.ate() == pytest.approx(EFFECTS.mean(), abs=0.3)
    own = np.concatenate([model.ite(site) for site in FRAMES])
    assert np.sqrt(np.mean((own - EFFECTS) ** 2)) < 0.5
    others = np.concatenate([model.ite(site, frame) for site, frame in NEW.items()])
    assert np.sqrt(np.mean((others - NEW_EFFECTS) ** 2)) < 0.5


@pytest.mark.slow
def test_the_average_effect_is_the_average_of_the_people(whole: Any) -> None:
    model, _ = whole
    for site, frame in FRAMES.items():
        assert model.effect(frame, site=site).mean() == pytest.approx(model.ate(site), abs=0.03)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers() -> None:
    first, second = (fitted(rounds=5)[0] for _ in range(2))
    np.testing.assert_array_equal(first.result_.site_effects, second.result_.site_effects)


@pytest.mark.slow
def test_swapping_the_arms_flips_the_effect(whole: Any) -> None:
    swapped = {site: frame.assign(w=1 - frame["w"]) for site, frame in FRAMES.items()}
    assert fitted(swapped)[0].ate() == pytest.approx(-whole[0].ate(), abs=0.1)


@pytest.mark.slow
@pytest.mark.thorough
def test_without_inter_dependency_there_are_no_shifts() -> None:
    model, _ = fitted(inter_dependency=False)
    assert not np.any(model.result_.draws.shared["shift"])
    assert cate_error(model) < 0.3


@pytest.mark.slow
@pytest.mark.thorough
def test_network_means_and_adagrad_work() -> None:
    model, _ = fitted(mean="network", optimiser="adagrad", learning_rate=0.2)
    assert improves(history_of(model))
    assert cate_error(model) < 0.5 * NEW_EFFECTS.std()


# -------------------------------------------------------------------------- stopping


def test_a_plateau_is_reached_where_the_bound_is_flat_but_not_where_it_falls() -> None:
    noise = np.random.default_rng(0).normal(size=200)
    rule = Plateau(window=50)
    assert rule.reached(list(noise[:100]))
    assert not rule.reached(list(noise[:100] - 0.1 * np.arange(100)))
    assert not rule.reached(list(noise[:99]))
    assert not rule.reached(list(noise[:50]))
