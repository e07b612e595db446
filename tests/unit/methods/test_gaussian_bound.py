"""The bound with a GaussianCandidate latent confounder, against a slow NumPy version of its terms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracle import gaussian_latent as slow
from unpooled.methods.causal_rff.paper.bound import LatentBound, gain
from unpooled.methods.causal_rff.paper.functions import MODELS, StructuralFunctions
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters

pytestmark = pytest.mark.slow

SITE = 1
NOISE = np.random.default_rng(8).normal(size=(4, 9, 2))
ZETA = 0.7


def bound(made: StructuralFunctions) -> LatentBound:
    return LatentBound(made, jnp.asarray(ZETA), 4)


def fixed(fold: int = -1) -> Any:
    return {"key": jax.random.key_data(jax.random.key(2)), "fold": jnp.asarray(fold)}


def loss(made: StructuralFunctions, free: Any, rows: Any, fold: int = -1) -> Any:
    return bound(made).statistics(Parameters(free, fixed(fold)), rows).summed


def padded(noise: np.ndarray, size: int) -> Any:
    return jnp.asarray(np.pad(noise, ((0, 0), (0, size - noise.shape[1]), (0, 0))))


def slow_gain(
    made: StructuralFunctions, free: Any, x: np.ndarray, w: float, y: float, noise: np.ndarray
) -> float:
    y = float(y > 0) if made.binary else y
    centre, log_sd = slow.centre(made, free, x, w, y, SITE), free["spread"]
    expected = 0.0
    for epsilon in noise:
        z = centre + np.exp(log_sd) * epsilon
        expected += slow.log_p(slow.said_of(made, free, z, SITE)["y"][int(w)], y) / len(noise)
        expected += slow.log_rest(made, free, z, x, w, SITE) / len(noise)
    variance = np.exp(2 * log_sd)
    kl = sum(0.5 * (v + m**2 - 1 - np.log(v)) for v, m in zip(variance, centre, strict=True))
    of_w, of_y = slow.auxiliary(made, free, x, SITE)
    return expected - kl + slow.log_p(of_w, w) + slow.log_p(of_y[int(w)], y)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("symmetric", "transfer"), [(False, None), (True, None), (False, 0.3)])
def test_every_persons_part_is_that_of_the_equations(
    binary: bool, symmetric: bool, transfer: float | None
) -> None:
    made = slow.functions(binary=binary, symmetric=symmetric, transfer=transfer)
    free = slow.scattered(made)
    rows, seen = slow.people(site=SITE)
    found = gain(made, free, rows, padded(NOISE, len(rows.present)))[:9]
    expected = [
        slow_gain(made, free, seen["x"][i], seen["w"][i], seen["y"][i], NOISE[:, i]) for i in range(9)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_padding_and_people_held_out_do_not_count() -> None:
    made = slow.functions()
    free = slow.scattered(made)
    rows, seen = slow.people(site=SITE)
    key = jax.random.fold_in(jax.random.key(2), SITE)
    noise = jax.random.normal(key, (4, len(rows.present), 2))
    each = np.asarray(gain(made, free, rows, noise))[:9]
    np.testing.assert_allclose(loss(made, free, rows), -each.sum(), rtol=1e-12)
    np.testing.assert_allclose(loss(made, free, rows, fold=2), -each[seen["fold"] != 2].sum(), rtol=1e-12)


@pytest.mark.thorough
def test_without_transfer_a_site_says_nothing_of_anothers_coefficients() -> None:
    rows, _ = slow.people(site=SITE)
    for transfer, others in ((0.0, False), (0.5, True)):
        made = slow.functions(transfer=transfer)
        slope = jax.grad(lambda free, made=made: loss(made, free, rows))(slow.scattered(made))
        for group in MODELS:
            moved = [bool(np.any(np.asarray(slope[group][v]) != 0)) for v in range(slow.SITES)]
            assert moved == [others, True, others], group


@pytest.mark.thorough
def test_with_full_transfer_all_sites_have_one_function() -> None:
    made = slow.functions(transfer=1.0)
    free = slow.scattered(made)
    rows, _ = slow.people(site=SITE)
    slope = jax.grad(lambda free: loss(made, free, rows))(free)
    for group in MODELS:
        for v in (0, 2):
            np.testing.assert_allclose(slope[group][v], slope[group][SITE], rtol=1e-12)
    elsewhere = [made.at_site(free, "decoder", jnp.asarray(v)) for v in range(slow.SITES)]
    np.testing.assert_allclose(elsewhere[0], elsewhere[2], rtol=1e-12)


def test_factors_lie_between_0_and_1_and_are_symmetric_only_when_asked() -> None:
    for symmetric in (False, True):
        made = slow.functions(symmetric=symmetric)
        for model in dict.fromkeys(MODELS.values()):
            sharing = np.asarray(made.sharing(slow.scattered(made), model, slow.SITES))
            np.testing.assert_array_equal(np.diagonal(sharing), 1.0)
            assert np.all((sharing > 0) & (sharing <= 1))
            assert np.array_equal(sharing, sharing.T) == symmetric


@pytest.mark.parametrize("binary", [False, True])
def test_the_regulariser_is_the_coordinators_and_counts_once(binary: bool) -> None:
    made = slow.functions(binary=binary)
    free = slow.scattered(made)
    parameters = Parameters(free, fixed())
    y = 0.25 if binary else 1.0
    weights = [y, y, 0.25, 0.25, 1.0, 1.0]  # y0, y1, w, the 0/1 covariate, two numbers
    size = sum(weight * np.sum(free["decoder"][:, :, c] ** 2) for c, weight in enumerate(weights))
    size += np.sum(free["encoder"] ** 2) + 0.25 * np.sum(free["treatment"] ** 2)
    size += y * np.sum(free["outcome"] ** 2)
    weak = sum(
        np.sum(np.asarray(leaf) ** 2)
        for name in ("length", "noise", "transfer")
        for leaf in jax.tree.leaves(free[name])
    )
    for total in (0.0, 12.5):
        value = bound(made).value(parameters, Statistics(jnp.asarray(total)))
        np.testing.assert_allclose(value, total + ZETA * size + 0.5 * weak, rtol=1e-12)


@pytest.mark.parametrize("binary", [False, True])
def test_gradients_are_those_of_finite_differences(binary: bool) -> None:
    made = slow.functions(binary=binary)
    free = slow.scattered(made)
    rows, _ = slow.people(site=SITE)
    leaves, tree = jax.tree.flatten(free)
    rng = np.random.default_rng(4)
    along = [rng.normal(size=np.shape(leaf)) for leaf in leaves]

    def moved(step: float) -> float:
        point = [leaf + step * way for leaf, way in zip(leaves, along, strict=True)]
        return float(loss(made, tree.unflatten(point), rows))

    slope = jax.tree.leaves(jax.grad(lambda free: loss(made, free, rows))(free))
    exact = sum(np.sum(np.asarray(part) * way) for part, way in zip(slope, along, strict=True))
    np.testing.assert_allclose((moved(1e-5) - moved(-1e-5)) / 2e-5, exact, rtol=1e-6)
