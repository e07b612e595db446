"""CausalRFF's held-out distances: moments are integrals of the density, and each fold has its own fit."""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unpooled.methods.causal_rff.classes.log_likelihoods import ColumnKinds
from unpooled.methods.causal_rff.effects import ClassModel, HeldOutDistances, Model, RegressionModel
from unpooled.methods.causal_rff.observed.regression import Design
from unpooled.models.calibration import THRESHOLDS
from unpooled.models.outcome_family import Gaussian
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows, make_rows

RNG = np.random.default_rng(3)
PEOPLE, COLUMNS, CLASSES, FOLDS, DRAWS = 20, 3, 2, 2, 5


def rows(outcome: np.ndarray) -> Rows:
    return make_rows(X, W, outcome, fold=FOLD, site=0)


X, W = RNG.normal(size=(PEOPLE, COLUMNS)), (np.arange(PEOPLE) % 3 == 0).astype(float)
FOLD, Y = np.arange(PEOPLE) % FOLDS, RNG.normal(size=PEOPLE)


def regression() -> tuple[Model, Arrays]:
    design = Design(jnp.zeros((0, 0)), jnp.zeros(0, dtype=int), COLUMNS)
    shape = (FOLDS, DRAWS, 2)
    return RegressionModel(design, Gaussian()), {
        "length": np.ones((FOLDS, DRAWS)),
        "common": RNG.normal(size=(*shape, 1 + COLUMNS)),
        "site": RNG.normal(size=(*shape, 1)),
        "noise": RNG.uniform(0.2, 1.5, size=shape),
    }


def classes() -> tuple[Model, Arrays]:
    columns = ColumnKinds(jnp.zeros(0, dtype=int), jnp.arange(COLUMNS))
    shape = (FOLDS, DRAWS)
    share, treated = RNG.uniform(0.2, 0.8, size=(2, *shape))
    return ClassModel(columns, Gaussian()), {
        "classes": np.log(np.stack([share, 1.0 - share], axis=-1)),
        "one": np.zeros((*shape, CLASSES, 0)),
        "zero": np.zeros((*shape, CLASSES, 0)),
        "centre": RNG.normal(size=(*shape, CLASSES, COLUMNS)),
        "weight": RNG.uniform(0.5, 2.0, size=(*shape, CLASSES, COLUMNS)),
        "level": RNG.normal(size=(*shape, CLASSES)),
        "treatment": np.log(
            np.stack([np.stack([1.0 - t, t], axis=-1) for t in (treated, 0.4 * treated)], -1)
        ),
        "outcome": RNG.normal(size=(*shape, 2, CLASSES)),
        "variance": RNG.uniform(0.0, 0.3, size=(*shape, 2, CLASSES)),
        "noise": RNG.uniform(0.2, 1.5, size=(*shape, 2)),
        "chance": np.zeros((*shape, 0)),
    }


MADE = {"regression": regression(), "classes": classes()}


@pytest.fixture(params=MADE)
def made(request: pytest.FixtureRequest) -> tuple[Model, Arrays]:
    return MADE[request.param]


def test_mean_and_variance_are_integrals_of_the_density(made: tuple[Model, Arrays]) -> None:
    model, draws = made
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf[1, 2]), draws)
    grid = np.linspace(-20.0, 20.0, 4001)
    density = eqx.filter_jit(lambda y: jnp.exp(model.log_density(one, replace(rows(Y), outcome=y))))
    wide = len(rows(Y).present)
    values = np.stack([np.asarray(density(np.full(wide, y))) for y in grid])[:, :PEOPLE]
    step = grid[1] - grid[0]
    mean = step * grid @ values
    variance = step * np.sum((grid[:, None] - mean) ** 2 * values, axis=0)
    found = [np.asarray(part)[:PEOPLE] for part in model.predicted(one, rows(Y))]
    np.testing.assert_allclose(found[0], mean, atol=1e-8)
    np.testing.assert_allclose(found[1], variance, rtol=1e-7)


def test_each_person_is_predicted_by_the_fit_without_their_fold(made: tuple[Model, Arrays]) -> None:
    model, draws = made
    reply = eqx.filter_jit(HeldOutDistances(model).statistics)(
        Parameters(fixed={"draws": draws}, per_site={"draws": {}}), rows(Y)
    )
    beyond = np.zeros((2, len(THRESHOLDS)))
    for i in range(PEOPLE):
        without = [jax.tree.map(lambda leaf, i=i, k=k: leaf[FOLD[i], k], draws) for k in range(DRAWS)]
        each = [[np.asarray(part)[i] for part in model.predicted(draw, rows(Y))] for draw in without]
        means, variances = np.array(each).T
        distance = abs(Y[i] - means.mean()) / np.sqrt(means.var() + variances.mean())
        beyond[int(W[i])] += distance > THRESHOLDS
    np.testing.assert_array_equal(np.asarray(reply.summed["beyond"]), beyond)
    np.testing.assert_array_equal(np.asarray(reply.summed["total"])[:, 0], [np.sum(1.0 - W), np.sum(W)])
