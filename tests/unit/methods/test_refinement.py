"""Large sites: what the coordinator minimises by itself, and averages over many people."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from oracle.world import scaling_of
from unpooled.methods.fedci import METHOD, effects
from unpooled.methods.fedci.bounds import limits_of
from unpooled.methods.fedci.refinement import Profiled, profiled_axes
from unpooled.methods.fedci.stages import Evidence
from unpooled.optimise.objective import ravel
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows, make_rows

PEOPLE = 5000


def rows_of(people: int = PEOPLE) -> Rows:
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(people, 2)), (rng.random(people) < 0.4).astype(float)
    y = x[:, 0] + w * (1.0 + x[:, 1] ** 2) + 0.5 * rng.normal(size=people)
    return make_rows(x, w, y, fold=np.zeros(people), site=0)


def evidence_of(name: str) -> Evidence:
    settings = METHOD.Settings(structure=name)
    known = scaling_of(
        correlation=np.eye(2),
        site_distances=np.zeros((1, 1)),
        binary_rate=np.full(2, np.nan),
        counts=(PEOPLE,),
    )
    evidence = METHOD.stages(settings, METHOD.context(settings, known, 0))[name]
    assert isinstance(evidence, Evidence)
    return evidence


def problem(evidence: Evidence, start: Arrays, rows: Rows) -> tuple[Arrays, Statistics]:
    """The fixed parameters, and the site's statistics at `start`, as batches of one."""
    fixed = {
        "fold": np.array(-1),
        "propensity": np.array([0.5, 0.1]),
        "direction": np.eye(2),
        "noise": np.zeros(2),
        "rows": np.array([3000.0, 2000.0]),
    }
    one = evidence.statistics(Parameters(start, fixed), rows)
    found = Statistics(one.summed, jax.tree.map(lambda leaf: leaf[None], one.per_site))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], (fixed, found))


@pytest.mark.parametrize("name", ["projection", "isotropic"])
def test_the_coordinator_minimises_over_what_sites_do_not_use(name: str) -> None:
    evidence, rows = evidence_of(name), rows_of(600)
    start = evidence.structure.start(np.eye(2), np.full(2, 0.5))
    batch = jax.tree.map(lambda leaf: np.asarray(leaf)[None], start)
    box = limits_of(evidence.structure.bounds(), start)
    fixed, statistics = problem(evidence, start, rows)
    profiled = Profiled(evidence, batch, box)
    plain, _, _ = evidence.value_and_slopes(batch, fixed, statistics)
    value, slopes, _ = profiled.value_and_slopes(batch, fixed, statistics)
    assert value[0] < plain[0] - 0.1
    np.testing.assert_array_equal(ravel(slopes)[0][profiled.own], 0.0)
    # At the minimum nothing is left to gain: the objective's own slopes vanish there, up to the box.
    at = profiled.minimum(batch, fixed, statistics)
    _, there, _ = evidence.value_and_slopes(at, fixed, statistics)
    flat = ravel(at)[0]
    inside = profiled.own & (flat > box[0] + 1e-6) & (flat < box[1] - 1e-6)
    assert np.abs(ravel(there)[0][inside]).max() < 0.05
    # What sites use is untouched.
    np.testing.assert_array_equal(flat[~profiled.own], ravel(batch)[0][~profiled.own])


@pytest.mark.parametrize("name", ["projection", "isotropic"])
def test_statistics_depend_only_on_what_an_evidence_names(name: str) -> None:
    evidence, rows = evidence_of(name), rows_of(600)
    start = evidence.structure.start(np.eye(2), np.full(2, 0.5))
    for moved, value in start.items():
        other = {**start, moved: value + 0.1}
        before, after = (
            evidence.statistics(Parameters(free, {"fold": np.array(-1)}), rows) for free in (start, other)
        )
        same = all(
            np.allclose(a, b, rtol=1e-13)
            for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
        )
        assert same == (moved not in evidence.at_sites), moved


def test_axes_of_the_profiled_objective_have_unit_curvature() -> None:
    rng = np.random.default_rng(3)
    root = rng.normal(size=(6, 6))
    hessian = root @ root.T * 50.0 + 5.0 * np.eye(6)
    own = np.array([True, False, False, True, False, True])
    axes = profiled_axes(hessian, own)
    assert not axes[own].any()
    assert not axes[:, own].any()
    # The curvature of min over `own` is the inverse of a block of the inverse.
    profile = np.linalg.inv(np.linalg.inv(hessian)[np.ix_(~own, ~own)])
    inner = axes[np.ix_(~own, ~own)]
    np.testing.assert_allclose(inner.T @ profile @ inner, np.eye(3), atol=1e-9)


@pytest.mark.parametrize("name", ["projection", "isotropic"])
def test_averages_of_many_people_are_distributed_as_with_drawn_weights(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence, rows = evidence_of(name), rows_of()
    start = evidence.structure.start(np.eye(2), np.full(2, 0.5))
    draws, rng = 1500, np.random.default_rng(1)
    fixed = {
        "beta": np.repeat(0.3 * rng.normal(size=(1, 2, evidence.structure.width)), draws, axis=0),
        "key": np.array([3, 4], dtype=np.uint32),
    }
    asked = Parameters(start, fixed, {"site_shift": np.zeros((draws, 2))})
    stage = effects.GaussianProcessAverage(evidence)
    summed = stage.statistics(asked, rows).per_site
    monkeypatch.setattr(effects, "is_large", lambda rows: False)
    drawn = stage.statistics(asked, rows).per_site
    np.testing.assert_allclose(summed["sample"], drawn["sample"], rtol=1e-9)
    np.testing.assert_array_equal(summed["weight"], drawn["weight"])
    effects_of = [np.asarray(found["population"]) @ [-1.0, 1.0] for found in (summed, drawn)]
    for one, other in zip(*(found.T for found in effects_of), strict=True):  # of each group
        _alike(one, other)


def _alike(one: np.ndarray, other: np.ndarray) -> None:
    draws = len(one)
    assert one.std() == pytest.approx(other.std(), rel=0.08)  # four standard errors
    assert one.mean() == pytest.approx(other.mean(), abs=4.0 * other.std() * np.sqrt(2.0 / draws))
