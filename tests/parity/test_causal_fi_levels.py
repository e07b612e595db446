"""Columns with levels, outcomes that are no numbers: what is drawn for a hole against sums and integrals."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from oracle import causal_fi_levels as oracle
from unpooled.maths.linear_algebra import unpack
from unpooled.methods.causal_fi import columns as levels
from unpooled.methods.causal_fi.chain import draw_probit
from unpooled.methods.causal_fi.columns import make_layout
from unpooled.methods.causal_fi.model import ImputationModel
from unpooled.methods.causal_fi.structures import STRUCTURES
from unpooled.models.outcome_family import Family, Gaussian, NegativeBinomial, Probit
from unpooled.protocol.records import IncompleteColumn
from unpooled.protocol.rows import Rows, make_rows

pytestmark = pytest.mark.slow
COPIES = 4000
X = np.array([0.7, -1.1])
# A number, a 0/1 column, a category of three levels, a count, another number: features 0 | 1 | 2 3 | 4 | 5.
COLUMNS = (
    IncompleteColumn("p", "numeric", 1),
    IncompleteColumn("q", "binary", 1),
    IncompleteColumn("r", "categorical", 2),
    IncompleteColumn("s", "count", 1),
    IncompleteColumn("t", "numeric", 1),
)
SENT = {
    "mean": np.array([0.0, 0.4, 0.3, 0.3, 1.5, 0.0]),
    "sd": np.array([1.0, 0.5, 0.45, 0.45, 1.2, 1.0]),
}
LAYOUT = make_layout(COLUMNS, **SENT)
RNG = np.random.default_rng(3)
STEPS = np.where(levels.allowed(LAYOUT, 2), 0.4 * RNG.standard_normal((4, 1 + 2 + 4 + 2)), 0.0)
STEPS[0, [0, -2, -1]] = -0.6, 0.7, 1.0
FACTOR = np.array([[0.9, 0.0], [0.5, 0.7]])
CONFOUNDERS = {
    "steps": STEPS,
    "intercept": np.array([0.1, -0.3]),
    "slopes": 0.5 * RNG.standard_normal((2 + 4, 2)),
    "covariance": FACTOR @ FACTOR.T,
}
TREATMENT = np.array([0.1, 0.2, -0.3, 0.5, 0.4, -0.2, 0.3, -0.4, 0.2])
OUTCOME = np.array([0.3, -0.2, 0.4, 0.6, 0.5, -0.4, 0.3, 0.4, -0.5])
U = np.array([0.9, (1 - 0.4) / 0.5, -0.3 / 0.45, (1 - 0.3) / 0.45, (2 - 1.5) / 1.2, -0.8])
FAMILIES = {
    "number": (Gaussian(), 1.9, np.array([0.3, 0.3])),
    "binary": (Probit(jnp.asarray(0.4), jnp.asarray(0.5)), 1.2, np.ones(2)),
    "count": (NegativeBinomial(jnp.asarray(2.0), jnp.asarray(1.5)), (7 - 2.0) / 1.5, np.array([0.2, 0.8])),
}


def parameters(outcome: np.ndarray) -> dict[str, Any]:
    arms = np.stack([outcome, outcome])
    return {
        "confounders": jax.tree.map(jnp.asarray, CONFOUNDERS),
        "treatment": jnp.asarray(TREATMENT),
        "outcome": jnp.asarray(arms),
        "bend": jnp.ones(2),
        "offset": jnp.zeros(2),
    }


def copies(missing: tuple[int, ...], outcome: float, count: int = COPIES) -> Rows:
    """The same person many times."""
    u = U.copy()
    u[list(missing)] = np.nan
    return make_rows(
        np.tile(X, (count, 1)), np.ones(count), np.full(count, outcome), fold=np.zeros(count), site=0,
        incomplete=np.tile(u, (count, 1)),
    )  # fmt: skip


@eqx.filter_jit
def completed(model: ImputationModel, draw: Any, rows: Rows, key: jax.Array) -> jax.Array:
    """Compiled once for all that is tried of a structure and a family."""
    return model.completed(draw, rows, key).u


def coefficients(structure: str) -> np.ndarray:
    return STRUCTURES[structure].start(OUTCOME, 1.0, 0.3, np.random.default_rng(1))


@pytest.mark.parametrize(
    ("structure", "name"),
    [
        ("softplus", "number"),
        pytest.param("linear", "binary", marks=pytest.mark.thorough),
        pytest.param("softplus", "count", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("missing", [(1,), (2, 3, 0), (0, 1, 2, 3, 4)])
def test_levels_and_numbers_are_filled_as_enumeration_has_it(
    missing: tuple[int, ...], structure: str, name: str
) -> None:
    family, outcome, noise = FAMILIES[name]
    draw = {**parameters(coefficients(structure)), "noise": jnp.asarray(noise)}
    rows, model = copies(missing, outcome), ImputationModel(STRUCTURES[structure], LAYOUT, family)
    drawn = np.asarray(completed(model, draw, rows, jax.random.key(4)))[:COPIES]
    seen = np.setdiff1d(np.arange(6), missing)
    np.testing.assert_allclose(drawn[:, seen], np.tile(U[seen], (COPIES, 1)), atol=1e-12)
    truth = oracle.posterior(SENT, CONFOUNDERS, X, np.where(np.isin(np.arange(6), missing), np.nan, U))
    truth = oracle.given(truth, lambda u: log_outcome(model, draw, family, noise, outcome, u), TREATMENT, X)
    # 32 ways are weighed, so what is far from likely beforehand may be a little off.
    mean, sd = truth.moments()
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.06 * np.maximum(sd, 0.05).max())
    np.testing.assert_allclose(drawn.std(axis=0), sd, atol=0.05)
    before = oracle.posterior(SENT, CONFOUNDERS, X, np.where(np.isin(np.arange(6), missing), np.nan, U))
    off = np.abs(before.moments()[0] - mean) / np.maximum(sd, 0.05)
    assert np.max(off) > 0.05  # outcome and treatment do tell


def log_outcome(
    model: ImputationModel, draw: Any, family: Family, noise: np.ndarray, outcome: float, u: np.ndarray
) -> np.ndarray:
    """log p(y | w = 1, x, u) at many u, by SciPy."""
    g = np.column_stack([np.ones(len(u)), np.tile(X, (len(u), 1)), u])
    eta = np.asarray(jax.vmap(lambda one: predict(model, draw, one))(jnp.asarray(g)))
    seen = float(family.seen(jnp.asarray(outcome)))
    if isinstance(family, Gaussian):
        return stats.norm.logpdf(seen, eta, np.sqrt(noise[1]))
    if isinstance(family, NegativeBinomial):
        shape = 1.0 / noise[1]
        return stats.nbinom.logpmf(seen, shape, shape / (shape + np.exp(eta)))
    return stats.norm.logcdf(eta if seen == 1.0 else -eta)


def predict(model: ImputationModel, draw: Any, g: jax.Array) -> jax.Array:
    from unpooled.methods.causal_fi.structures import predictor

    return predictor(model.structure, draw["outcome"][1], g, draw["bend"][1])


@pytest.mark.parametrize(
    "name", ["binary", *[pytest.param(name, marks=pytest.mark.thorough) for name in ("number", "count")]]
)
def test_what_to_expect_of_somebody_is_the_integral_over_all_that_is_missing(name: str) -> None:
    family, _, noise = FAMILIES[name]
    missing = (0, 1, 2, 3)
    draw = {**parameters(coefficients("softplus")), "noise": jnp.asarray(noise)}
    rows, model = copies(missing, 0.0, 1), ImputationModel(STRUCTURES["softplus"], LAYOUT, family)
    holed = np.where(np.isin(np.arange(6), missing), np.nan, U)
    truth = oracle.posterior(SENT, CONFOUNDERS, X, holed)
    g = np.column_stack([np.ones(len(truth.u)), np.tile(X, (len(truth.u), 1)), truth.u])
    eta = np.asarray(jax.vmap(lambda one: predict(model, draw, one))(jnp.asarray(g)))
    expected = np.asarray(family.mean(jnp.asarray(eta)))
    treated = jnp.ones(len(rows.present), int)
    find = eqx.filter_jit(model.expected)
    np.testing.assert_allclose(find(draw, rows, treated)[0], truth.weight @ expected, rtol=0.02, atol=0.01)
    assigned = truth.weight * stats.norm.cdf(g @ TREATMENT)
    np.testing.assert_allclose(
        find(draw, rows, treated, assigned=True)[0],
        assigned @ expected / assigned.sum(),
        rtol=0.02,
        atol=0.01,
    )


@pytest.mark.thorough
def test_steps_towards_levels_are_found_again() -> None:
    """Many people whose levels follow from known steps; latents and coefficients in turn, as a chain does."""
    people, rng = 4000, np.random.default_rng(8)
    x = rng.standard_normal((people, 2))
    u = oracle.draw_levels(SENT, STEPS, x, rng)
    rows = make_rows(x, np.zeros(people), np.zeros(people), fold=np.zeros(people), site=0, incomplete=u)
    design = np.column_stack([np.ones(people), x, u[:, LAYOUT.level_positions]])
    free = levels.allowed(LAYOUT, 2)
    common = np.pad(design.T @ design, (0, levels.CURVE))
    level_sums = eqx.filter_jit(levels.level_sums)
    found, kept = np.zeros_like(STEPS), []
    for number in range(150):
        sums = level_sums(LAYOUT, jnp.asarray(found), rows, rows.present, None, jax.random.key(number))
        own = iter(np.asarray(unpack(sums["gram"])))
        products = np.stack([common if all_ else next(own) for all_ in levels.asked_of_all(LAYOUT)])
        drawn = draw_probit(products, np.asarray(sums["score"]), np.ones(len(found)), free, rng)
        found = drawn.coefficients
        kept.append(found)
    draws = np.stack(kept[50:])
    sd = draws.std(axis=0)
    away = np.abs(draws.mean(axis=0) - STEPS)[free] / sd[free]
    assert np.all(draws[:, ~free] == 0.0)
    assert np.max(away) < 5.0  # posterior sds, with the chain's own error
    assert np.max(sd[:, :7]) < 0.25  # and they are known


def test_a_count_has_the_chances_of_its_steps() -> None:
    rows = copies((4,), 0.0)
    uniform = jnp.asarray((np.arange(len(rows.present)) + 0.5) / COPIES)
    found = levels.fill_levels(LAYOUT, jnp.asarray(STEPS), rows, uniform, None)
    raw = np.asarray(found.features)[:COPIES, 0] * SENT["sd"][4] + SENT["mean"][4]
    weight = np.exp(np.asarray(found.log_weight)[:COPIES])
    share = np.bincount(np.round(raw).astype(int), weights=weight, minlength=31) / weight.sum()
    expected = np.exp(oracle.count_chances(STEPS[0], np.array([1.0, *X])))
    # What else is seen weighs too, and depends on the count.
    full = np.tile(U, (31, 1))
    full[:, 4] = (np.arange(31) - SENT["mean"][4]) / SENT["sd"][4]
    others = np.array([oracle.log_levels(SENT, STEPS, X, one) for one in full]) - np.log(expected)
    expected = expected * np.exp(others)
    np.testing.assert_allclose(share, expected / expected.sum(), atol=2e-3)
