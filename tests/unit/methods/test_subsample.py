"""Large sites: a first descent with some of their people ends where everybody's would."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import unpooled as up
from oracle.world import scaling_of
from unpooled.data.simulation import simulate
from unpooled.methods.fedci import METHOD, laplace, subsample
from unpooled.optimise import lbfgs
from unpooled.protocol.records import ROUNDED, Parameters
from unpooled.protocol.rows import make_rows

SETTINGS = METHOD.Settings(structure="projection")
KNOWN = scaling_of(
    correlation=np.eye(1), site_distances=np.zeros((1, 1)), binary_rate=np.full(1, np.nan), counts=(30,)
)
EVIDENCE = METHOD.stages(SETTINGS, METHOD.context(SETTINGS, KNOWN, 0))["projection"]


def test_sites_up_to_about_twice_what_is_kept_are_not_thinned() -> None:
    assert 2 * subsample.KEPT <= subsample.LARGE < 2.01 * subsample.KEPT
    assert subsample.share([50, subsample.LARGE]) == 1.0
    assert subsample.share([50, subsample.LARGE + 1]) < 1.0


@pytest.mark.parametrize("people", [subsample.KEPT + 1, 2 * subsample.KEPT])
def test_nobody_alone_is_left_out_of_a_subsample(people: int) -> None:
    rng = np.random.default_rng(2)
    rows = make_rows(
        rng.normal(size=(people, 1)), np.arange(people) % 2, rng.normal(size=people),
        fold=np.zeros(people), site=0,
    )  # fmt: skip
    asked = Parameters(EVIDENCE.structure.start(np.ones((2, 1)), np.ones(2)), {"fold": np.array(-1)})
    found = subsample.Subsampled(EVIDENCE, 1).statistics(asked, rows)
    assert float(found.per_site["gram"][:, 0].sum()) == pytest.approx(people)
    assert subsample.share([people, 9 * people]) == pytest.approx((people + subsample.KEPT) / (10 * people))


def test_coordinator_and_sites_agree_on_whether_a_site_is_large() -> None:
    """Sites know the size of the largest site as a multiple only."""
    assert subsample.LARGE % ROUNDED == 0
    for rows in range(subsample.LARGE - 2 * ROUNDED, subsample.LARGE + 2 * ROUNDED):
        rounded = -(-rows // ROUNDED) * ROUNDED
        assert subsample.is_large(rows) == subsample.is_large(rounded)


def test_of_many_sites_some_are_in_the_subsample_and_the_others_send_zeros() -> None:
    counts = [600] * 64
    every = subsample.interval(64, sum(counts))
    assert every == 4
    assert subsample.share(counts) == 16 / 64
    rng = np.random.default_rng(1)
    free = EVIDENCE.structure.start(np.ones((2, 1)), np.ones(2))
    asked = Parameters(free, {"fold": np.array(-1)})
    for site in (3, 4):
        table = rng.normal(size=(30, 1)), np.arange(30.0) % 2, rng.normal(size=30)
        rows = make_rows(*table, fold=np.zeros(30), site=site)
        found = subsample.Subsampled(EVIDENCE, every).statistics(asked, rows)
        expected = EVIDENCE.statistics(asked, rows)
        for ours, own in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(ours, own if site == 4 else 0.0 * own)


@pytest.mark.parametrize("treated", [0.5, 0.01])
@pytest.mark.parametrize("order", ["alternating", "sorted", "random"])
def test_both_arms_are_drawn_in_proportion_whatever_the_order_of_the_table(
    order: str, treated: float
) -> None:
    people, rng = 5000, np.random.default_rng(3)
    count = round(treated * people)
    w = np.zeros(people)
    w[:: people // count][:count] = 1.0
    if order != "alternating":
        w = np.sort(w) if order == "sorted" else rng.permutation(w)
    nothing = np.zeros(people)
    rows = make_rows(nothing[:, None], w, nothing, fold=nothing, site=0)
    kept = np.asarray(subsample.drawn(rows))
    assert len(set(kept)) == subsample.KEPT  # nobody twice
    assert kept.max() < people  # no padding
    assert w[kept].sum() == pytest.approx(subsample.KEPT * treated, abs=1)
    # Not every k-th person of an arm, which a pattern in the table could coincide with.
    steps = np.diff(np.sort(kept[w[kept] == 0.0]))
    assert len(set(steps)) > 3


def test_each_site_draws_its_own_and_keeps_it() -> None:
    people = 5000
    tables = [
        make_rows(
            np.zeros((people, 1)), np.arange(people) % 2, np.zeros(people), fold=np.zeros(people), site=s
        )
        for s in (0, 0, 1)
    ]
    first, again, other = (np.asarray(subsample.drawn(rows)) for rows in tables)
    np.testing.assert_array_equal(first, again)
    assert np.mean(first == other) < 0.6
    assert subsample.share([people, 50]) == (subsample.KEPT + 50) / (people + 50)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_thinned_fit_is_everybodys_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    made = simulate("fedci-data1", sites=3, rows=200, test_rows=100, seed=5)
    people = made.test["site1"]
    study = up.Study(treatment="w", outcome="y", covariates=[name for name in people if name.startswith("x")])

    def cate() -> np.ndarray:
        return (
            up.FedCI(structure="projection", seed=3)
            .fit(study, made.frames)
            .effect_draws(people, site="site1")
        )

    whole = cate()
    monkeypatch.setattr(subsample, "KEPT", 64)
    monkeypatch.setattr(subsample, "LARGE", 128)
    subsampled = cate()
    monkeypatch.setattr(laplace, "refine", _not_at_all)
    unrefined = cate()

    def away(draws: np.ndarray) -> float:
        return float(np.sqrt(np.mean((draws.mean(axis=0) - whole.mean(axis=0)) ** 2)) / whole.std())

    assert away(subsampled) < 0.03
    assert away(unrefined) > 3.0 * away(subsampled)
    assert subsampled.std(axis=0).mean() == pytest.approx(whole.std(axis=0).mean(), rel=0.3)


def _not_at_all(name, evidence, start, hessian, fixed, tolerance):
    """A refinement that stays where it starts."""
    stay = lbfgs.Stopping(1, tolerance)
    one, problem = ({k: np.asarray(v)[None] for k, v in tree.items()} for tree in (start, fixed))
    axes = 1e-12 * np.eye(len(hessian))[None]
    return (yield from lbfgs.lbfgs(name, evidence, one, axes, problem, stay))
