"""Sampling weights multiply every sum, and clusters take the place of people where errors are computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.coordinator.agreement import reach_agreement
from unpooled.coordinator.rounds import run
from unpooled.coordinator.run import adoption
from unpooled.data import batches
from unpooled.disclosure.limits import NONE, Limits
from unpooled.disclosure.protection import capped_weights, fewest_people, protect
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import DataError, LimitRefusal, StudyError
from unpooled.methods.method import with_settings
from unpooled.models.effects import averages, bootstrap_weights, group_weights
from unpooled.protocol.rows import Rows, make_rows, sums_by_cluster
from unpooled.site.site import Site, adopt
from unpooled.study import Study

pytestmark = pytest.mark.filterwarnings("ignore::unpooled.errors.FailedCheckWarning")
PLAIN: dict[str, Any] = {"folds": 1, "repeats": 1, "ridge": 1e-7, "site_terms": "none"}
"""Neither folds, which are drawn by row, nor penalties, whose effect depends on the number of people."""


def table(seed: int, rows: int = 160) -> pd.DataFrame:
    """People with a large x, whose effect is larger, are sampled more often and stand for fewer."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    keep = rng.uniform(size=rows) < 1.0 / (1.0 + np.exp(-x))
    x = np.where(keep, x, rng.normal(0.5, 1.0, size=rows))
    treated = rng.uniform(size=rows) < 1.0 / (1.0 + np.exp(-0.5 * x))
    y = x + treated * (1.0 + x) + rng.normal(size=rows)
    weight = rng.integers(1, 5, rows).astype(float)
    ward = np.char.add("ward", rng.integers(0, 12, rows).astype(str))
    return pd.DataFrame({"x": x, "w": 1 * treated, "y": y, "weight": weight, "ward": ward})


def tables() -> dict[str, pd.DataFrame]:
    return {name: table(seed) for seed, name in enumerate(("north", "south", "east"))}


def study(**changed: Any) -> Study:
    return Study(**{"treatment": "w", "outcome": "y", "covariates": ["x"], **changed})


def repeated(sites: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {name: one.loc[np.repeat(one.index, one["weight"].astype(int))] for name, one in sites.items()}


@pytest.mark.parametrize("estimator", ["aipw", "ipw", "difference"])
@pytest.mark.parametrize("aggregation", ["plain", "secure"])
def test_whole_weights_estimate_as_that_many_rows(estimator: str, aggregation: str) -> None:
    settings = {**({} if estimator == "difference" else PLAIN), "estimator": estimator}
    asked = study(weight="weight", privacy={"aggregation": aggregation})
    found = up.AIPW(**settings).fit(asked, tables())
    expected = up.AIPW(**settings).fit(study(), repeated(tables()))
    places = found.estimates().index
    np.testing.assert_allclose(
        found.estimates().loc[places, "estimate"], expected.estimates().loc[places, "estimate"], rtol=1e-5
    )
    shares = found.result_.average_outcomes.weight[:, 0]
    np.testing.assert_allclose(
        shares / shares.sum(),
        [len(one) for one in repeated(tables()).values()]
        / np.sum([len(one) for one in repeated(tables()).values()]),
        rtol=1e-9,
    )


def test_meta_analysis_estimates_sites_as_that_many_rows() -> None:
    found = up.MetaAnalysis(folds=1, repeats=1, ridge=1e-7).fit(study(weight="weight"), tables())
    expected = up.MetaAnalysis(folds=1, repeats=1, ridge=1e-7).fit(study(), repeated(tables()))
    sites = list(tables())
    np.testing.assert_allclose(
        found.estimates().loc[sites, "estimate"], expected.estimates().loc[sites, "estimate"], rtol=1e-5
    )


def test_equal_weights_change_nothing() -> None:
    sites = {name: one.assign(weight=7.0) for name, one in tables().items()}
    found = up.AIPW(seed=2).fit(study(weight="weight", diagnostics=True), sites)
    expected = up.AIPW(seed=2).fit(study(diagnostics=True), sites)
    np.testing.assert_allclose(
        found.estimates().to_numpy(float), expected.estimates().to_numpy(float), rtol=1e-9
    )
    assert found.result_.notes == ("480 people with sampling weights count as 480 of equal weight",)
    mine, theirs = (one.diagnostics().table_one for one in (found, expected))
    pd.testing.assert_frame_equal(mine, theirs)


def test_weights_add_up_to_the_effective_sample_size_of_all_sites() -> None:
    asked = with_settings(study(weight="weight"), "aipw", {})
    sites = open_sites(asked, tables(), NONE)
    agreed = run(reach_agreement(asked), InProcess(sites))
    weight = np.concatenate([one["weight"] for one in tables().values()])
    kish = weight.sum() ** 2 / (weight**2).sum()
    assert agreed.effective == pytest.approx(kish, rel=1e-9)
    adopted = [adopt(site, adoption(asked, agreed.schema, agreed.scaling)) for site in sites.values()]
    rows = [one.rows for one in adopted if isinstance(one.rows, Rows)]
    assert float(sum(one.present.sum() for one in rows)) == pytest.approx(kish, rel=1e-9)
    assert sum(int(one.people.sum()) for one in rows) == len(weight)
    assert [one.count for one in adopted] == [160, 160, 160]


def test_weights_undo_unequal_sampling() -> None:
    """The effect in the population is 1. People with a large x, where it is larger, are 4 times as likely to
    be in the table."""
    rng = np.random.default_rng(8)
    sites = {}
    for name in ("north", "south"):
        x = rng.normal(size=12_000)
        chance = np.where(x > 0.0, 0.8, 0.2)
        x = x[rng.uniform(size=len(x)) < chance]
        treated = rng.integers(0, 2, len(x))
        y = x + treated * (1.0 + x) + rng.normal(size=len(x))
        sites[name] = pd.DataFrame(
            {"x": x, "w": treated, "y": y, "weight": 1.0 / np.where(x > 0.0, 0.8, 0.2)}
        )
    weighted = up.AIPW().fit(study(weight="weight"), sites)
    ignored = up.AIPW().fit(study(), sites)
    error = float(weighted.estimates().iloc[-1]["standard_error"])
    assert abs(weighted.ate() - 1.0) < 4.0 * error
    assert abs(ignored.ate() - 1.0) > 10.0 * error


def test_large_tables_have_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = study(weight="weight")
    whole = up.AIPW(**PLAIN).fit(asked, tables())
    paths = {name: tmp_path / f"{name}.parquet" for name in tables()}
    for name, one in tables().items():
        one.to_parquet(paths[name])
    monkeypatch.setattr(batches, "LARGE", 10)
    monkeypatch.setattr(batches, "BATCH", 64)
    found = up.AIPW(**PLAIN).fit(asked, paths)
    np.testing.assert_allclose(
        found.estimates().to_numpy(float), whole.estimates().to_numpy(float), rtol=1e-7
    )


@pytest.mark.parametrize("least", [5.0, 8.0])
def test_with_limits_nobody_dominates_a_weighted_sum(least: float) -> None:
    rng = np.random.default_rng(4)
    groups = np.arange(90) % 3 == np.arange(3)[:, None]
    weight = np.exp(rng.normal(size=90) * 2.0)
    capped = capped_weights(weight, groups, least)
    people = [np.sum(capped[one] ** 2) / np.max(capped[one]) ** 2 for one in groups]
    assert min(people) > least
    assert np.all(capped <= weight)
    far = rng.standard_t(2.0, size=(90, 2))
    found = protect(far, groups, least, weight=capped)
    assert not found.left_out.any()
    for column in found.values.T:
        for centre in (np.median(column), column.mean()):
            each = np.where(groups, capped * (column - centre) ** 2, 0.0)
            assert np.all(each.sum(axis=1) / each.max(axis=1) > least)
    assert fewest_people(found.values, groups, capped) > least


def test_a_site_refuses_weights_that_few_people_have() -> None:
    sites = {
        name: one.assign(weight=np.where(np.arange(160) < 3, 2.0, 1.0)) for name, one in tables().items()
    }
    with pytest.raises(LimitRefusal, match="weight \\(rarest value\\)"):
        up.AIPW().fit(study(weight="weight"), sites, limits=Limits())
    up.AIPW().fit(study(weight="weight"), tables(), limits=Limits())


def rows_of(frame: pd.DataFrame, **changed: Any) -> Rows:
    codes = np.unique(frame["ward"], return_inverse=True)[1]
    known: dict[str, Any] = {"fold": np.zeros(len(frame)), "site": 0, "weight": frame["weight"].to_numpy()}
    return make_rows(
        frame[["x"]].to_numpy(), frame["w"].to_numpy(float), frame["y"].to_numpy(),
        **{**known, "cluster": codes, **changed},
    )  # fmt: skip


def test_sums_by_cluster_are_those_of_a_loop() -> None:
    frame = table(3)
    rows = rows_of(frame)
    values = np.random.default_rng(1).normal(size=(2, len(rows.present))) * np.asarray(rows.present)
    found = np.asarray(sums_by_cluster(jax.numpy.asarray(values), rows))
    for place, name in enumerate(sorted(set(frame["ward"]))):
        mine = np.flatnonzero(frame["ward"] == name)
        np.testing.assert_allclose(found[:, place], values[:, mine].sum(axis=1), rtol=1e-12)
    assert np.all(found[:, frame["ward"].nunique() :] == 0.0)
    alone = rows_of(frame, cluster=None)
    np.testing.assert_array_equal(sums_by_cluster(jax.numpy.asarray(values), alone), values)


def test_bootstrap_weights_are_drawn_by_cluster() -> None:
    frame = table(3)
    rows, key = rows_of(frame), jax.random.key(0)
    drawn = np.asarray(bootstrap_weights(key, rows, (5,)))[:, : len(frame)]
    for name in set(frame["ward"]):
        mine = drawn[:, frame["ward"] == name]
        np.testing.assert_allclose(mine, np.broadcast_to(mine[:, :1], mine.shape), rtol=1e-12)
    assert len(np.unique(drawn[0].round(12))) == frame["ward"].nunique()
    # If everybody is a cluster, the draws are those without clusters.
    alone = rows_of(frame, cluster=np.arange(len(frame)))
    np.testing.assert_array_equal(
        bootstrap_weights(key, alone, (5,)), bootstrap_weights(key, rows_of(frame, cluster=None), (5,))
    )


def test_population_means_vary_as_a_weighted_mean_of_clusters() -> None:
    """The variance of the bootstrap means is Σ_c (Σ w (y − m))²/(Σ w)², computed with a loop."""
    rng = np.random.default_rng(6)
    frame = table(3, 600).assign(ward=rng.permutation(np.repeat(np.arange(60), 10)))
    frame["y"] += 2.0 * rng.normal(size=60)[frame["ward"]]
    rows = rows_of(frame)
    outcomes = np.stack([np.asarray(rows.outcome)] * 2, axis=-1)

    def means(one: Rows) -> np.ndarray:
        drawn = jax.vmap(
            lambda key: averages(jax.numpy.asarray(outcomes), group_weights(one), one, key)["population"][
                0, 0
            ]
        )
        return np.asarray(drawn(jax.random.split(jax.random.key(3), 4000)))

    w, y = frame["weight"].to_numpy(), frame["y"].to_numpy()
    mean = np.sum(w * y) / w.sum()
    by_ward = [np.sum((w * (y - mean))[frame["ward"] == ward]) for ward in range(60)]
    expected = np.sqrt(np.sum(np.square(by_ward))) / w.sum()
    assert means(rows).std() == pytest.approx(expected, rel=0.06)
    alone = np.sqrt(np.sum((w * (y - mean)) ** 2)) / w.sum()
    assert means(rows_of(frame, cluster=None)).std() == pytest.approx(alone, rel=0.06)
    assert expected > 1.5 * alone


def test_a_site_numbers_its_clusters_in_any_order_of_rows() -> None:
    roles = study(weight="weight", cluster="ward").columns
    plain = with_settings(study(), "aipw", {})
    agreed = run(reach_agreement(plain), InProcess(open_sites(plain, tables(), NONE)))
    question = adoption(plain, agreed.schema, agreed.scaling)
    found = []
    for frame in (tables()["north"], tables()["north"].iloc[::-1].reset_index(drop=True)):
        rows = adopt(Site("north", frame, roles), question).rows
        assert isinstance(rows, Rows)
        assert rows.cluster is not None
        found.append((np.asarray(rows.cluster)[:160], np.asarray(rows.present)[:160]))
    expected = np.unique(tables()["north"]["ward"], return_inverse=True)[1]
    np.testing.assert_array_equal(found[0][0], expected)
    np.testing.assert_array_equal(found[1][0], expected[::-1])
    np.testing.assert_allclose(found[0][1], tables()["north"]["weight"])


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"weight": 0.0}, "'weight' must be above 0 at site 'north'"),
        ({"weight": -1.0}, "'weight' must be above 0 at site 'north'"),
        ({"weight": np.inf}, "'weight' must be finite at site 'north'"),
        ({"weight": np.nan}, "'weight' must have no missing values at site 'north'"),
        ({"weight": "heavy"}, "'weight' must be numeric at site 'north'"),
    ],
)
def test_weights_must_be_numbers_above_0(changed: dict[str, Any], found: str) -> None:
    sites = tables()
    sites["north"] = sites["north"].assign(**changed)
    with pytest.raises(DataError, match=found):
        open_sites(study(weight="weight", method={"name": "aipw"}), sites, NONE)


def test_everybody_must_have_a_cluster() -> None:
    sites = tables()
    sites["north"].loc[:4, "ward"] = None
    with pytest.raises(DataError, match="'ward' must have no missing values at site 'north'"):
        open_sites(study(cluster="ward", method={"name": "aipw"}), sites, NONE)


@pytest.mark.parametrize("name", ["fedci", "causal_rff", "causal_fi"])
def test_methods_without_errors_by_cluster_refuse_clusters_and_say_which_method_has_them(name: str) -> None:
    asked = study(cluster="ward", method={"name": name})
    with pytest.raises(StudyError, match=f"'{name}' takes people as independent") as raised:
        open_sites(asked, tables(), NONE)
    (problem,) = raised.value.problems
    assert "ward" in problem.found
    assert "aipw" in (problem.remedy or "")


def test_a_method_that_would_ignore_weights_refuses_them_by_name() -> None:
    asked = study(weight="weight", method={"name": "causal_fi"})
    with pytest.raises(StudyError, match="'causal_fi' does not support sampling weights"):
        open_sites(asked, tables(), NONE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: up.AIPW(folds=1, ridge=1e-7, site_terms="none"),
        lambda: up.AIPW(estimator="ipw", folds=1, ridge=1e-7, site_terms="none"),
        lambda: up.AIPW(estimator="difference"),
        lambda: up.MetaAnalysis(folds=1, ridge=1e-7),
    ],
    ids=["aipw", "ipw", "difference", "meta-analysis"],
)
def test_copies_of_a_person_in_one_cluster_are_one_person(make: Callable[[], Any]) -> None:
    """A cluster of three copies tells no more than one of them: estimates and errors stay as they are."""
    one = {name: frame.assign(person=np.arange(len(frame))) for name, frame in tables().items()}
    three = {name: pd.concat([frame] * 3, ignore_index=True) for name, frame in one.items()}
    for target in ("sample", "population"):
        alone = make().fit(study(target=target), one)
        together = make().fit(study(target=target, cluster="person"), three)
        ignored = make().fit(study(target=target), three)
        np.testing.assert_allclose(together.ate(), alone.ate(), rtol=1e-5)
        np.testing.assert_allclose(together.ate_draws().std(), alone.ate_draws().std(), rtol=1e-5)
        assert ignored.ate_draws().std() < 0.65 * alone.ate_draws().std()


def test_people_of_a_cluster_are_in_the_same_fold() -> None:
    roles = study(cluster="ward", method={"name": "aipw"})
    plain = with_settings(roles, "aipw", {"folds": 2, "repeats": 2})
    agreed = run(reach_agreement(plain), InProcess(open_sites(plain, tables(), NONE)))
    question = adoption(plain, agreed.schema, agreed.scaling)
    frame = tables()["north"]
    rows = adopt(Site("north", frame, roles.columns), question).rows
    assert isinstance(rows, Rows) and rows.more_folds is not None
    for fold in (rows.fold, rows.more_folds[0]):
        by_ward = pd.Series(np.asarray(fold)[: len(frame)]).groupby(frame["ward"].to_numpy())
        assert (by_ward.nunique() == 1).all() and by_ward.first().nunique() == 2
