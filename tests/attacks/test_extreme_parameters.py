"""Attacks C and D: parameters under which a smooth statistic singles people out."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

from attacks.coordinator import Attacker, people, study
from unpooled.disclosure.effective_people import effective_people
from unpooled.maths.linear_algebra import unpack
from unpooled.methods.fedci.stages import Evidence
from unpooled.protocol.messages import Refusal, Statistics

TABLE = people(300, numbers=3)


def scores(size: float, width: int = 4) -> dict[str, np.ndarray]:
    treatment = np.zeros((1, 3, width))
    treatment[..., 1] = size
    return {"treatment": treatment, "outcome": np.zeros((1, 3, 2, width))}


@pytest.mark.parametrize("size", [1e9, 100.0, np.nan, np.inf])
def test_coefficients_that_make_a_step_are_refused(tmp_path: Path, size: float) -> None:
    site = Attacker(tmp_path, TABLE, study(TABLE, {"name": "aipw"}))
    site.adopted()
    assert isinstance(site.statistics("scores", per_site=scores(size)), Refusal)


def test_scores_are_asked_for_once_by_draw_of_the_folds(tmp_path: Path) -> None:
    """Differences of scores under many coefficients would be a transform of the site's rows."""
    site = Attacker(tmp_path, TABLE, study(TABLE, {"name": "aipw", "repeats": 1}))
    site.adopted()
    found = [site.statistics("scores", per_site=scores(size)) for size in (0.1, 0.2, 0.3)]
    assert [type(one) for one in found] == [Statistics, Refusal, Refusal]


def fedci(tmp_path: Path) -> tuple[Attacker, dict[str, np.ndarray], dict[str, np.ndarray]]:
    site = Attacker(tmp_path, TABLE, study(TABLE, {"name": "fedci", "structure": "isotropic", "basis": 20}))
    site.adopted()
    own = next(iter(site.gateway._open.values())).adopted
    assert own is not None
    evidence = own.stages["isotropic"]
    assert isinstance(evidence, Evidence)
    start = evidence.structure.start(np.ones((2, 3)) / np.sqrt(3.0), np.full(2, 0.5))
    free = jax.tree.map(lambda leaf: np.asarray(leaf)[None], start)
    fixed = {"fold": [-1], "noise": np.zeros((1, 2)), "direction": np.ones((1, 2, 3)), "rows": [[9.0, 9.0]]}
    return site, free, {name: np.asarray(value) for name, value in fixed.items()}


def test_length_scales_that_make_a_spike_are_refused(tmp_path: Path) -> None:
    site, free, fixed = fedci(tmp_path)
    for length in (np.log(1e-4), -5.0, 50.0, np.nan):
        asked = {**free, "length": np.full_like(free["length"], length)}
        assert isinstance(site.statistics("isotropic", free=asked, fixed=fixed), Refusal)


@pytest.mark.slow
@pytest.mark.parametrize("length", [-0.99, 0.0, 3.9])
def test_within_the_bounds_every_feature_rests_on_more_than_five_people(
    tmp_path: Path, length: float
) -> None:
    site, free, fixed = fedci(tmp_path)
    asked = {**free, "length": np.full_like(free["length"], length)}
    reply = site.statistics("isotropic", free=asked, fixed=fixed)
    gram = np.asarray(unpack(reply.summed["gram"]))[0]
    adopted = next(iter(site.gateway._open.values())).adopted
    assert adopted is not None
    evidence, rows = adopted.stages["isotropic"], adopted.rows
    one = jax.tree.map(lambda leaf: leaf[0], asked)
    features = evidence.structure.features(one, rows.covariates)  # type: ignore[attr-defined]
    for arm in (0, 1):
        used = np.asarray(rows.present * (rows.treatment == arm))
        people_behind = np.asarray(effective_people(np.asarray(features).T ** 2 * used))
        own = np.diagonal(gram)[arm * features.shape[1] : (arm + 1) * features.shape[1]]
        sent = own > 1e-9 * own.max()
        assert np.all(people_behind[4:][sent[4:]] > 5.0)
