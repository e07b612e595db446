"""Trees from histograms that are added up over sites are those of one stacked table."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from oracle import trees as oracle
from unpooled import Study
from unpooled.estimators.causal_forest import CausalForest
from unpooled.maths.streams import key_data, stream
from unpooled.maths.trees import LAST_BITS, binned, groups, histogram
from unpooled.methods.causal_forest.settings import (
    CausalForestContext,
    CausalForestSettings,
    effect_plan,
    nuisance_plan,
)
from unpooled.methods.causal_forest.stages import Effect, Outcome, Treatment
from unpooled.models.trees import Plan
from unpooled.protocol.records import Parameters

pytestmark = pytest.mark.slow

STUDY = Study(treatment="w", outcome="y", covariates=["a", "b", "c", "flag"])
SETTINGS: dict[str, Any] = {"seed": 5, "trees": 20, "nuisance_trees": 10, "leaf": 5, "draws": 20}


def people(count: int = 160) -> pd.DataFrame:
    random = np.random.default_rng(11)
    table = pd.DataFrame(random.normal(size=(count, 3)), columns=["a", "b", "c"])
    table["b"] = table["b"].round(1)
    table["flag"] = random.integers(0, 2, count)
    table["w"] = random.binomial(1, 1 / (1 + np.exp(-table["a"])))
    table["y"] = table["b"] + table["w"] * (1.0 + 2.0 * (table["a"] > 0.3)) + random.normal(0, 0.5, count)
    return table


def cut(parts: int) -> dict[str, pd.DataFrame]:
    table = people()
    return {f"s{i}": table.iloc[i::parts].reset_index(drop=True) for i in range(parts)}


@cache
def fitted(parts: int) -> CausalForest:
    return CausalForest(site_terms="none", **SETTINGS).fit(STUDY, cut(parts))


def test_every_tree_is_that_of_a_recursive_forest_on_the_stacked_table() -> None:
    model = fitted(3)
    settings, context = _settings(model)
    shared = model.result_.draws.shared
    rows = [site.adopted.rows for site in model.sites_.values()]  # pyright: ignore[reportOptionalMemberAccess]
    edges = jnp.asarray(shared["edges"][0]).reshape(4, -1)
    bins = [np.asarray(binned(one.covariates, edges)) for one in rows]
    rng = stream(SETTINGS["seed"], "trees")
    keys = [key_data(rng, 1) for _ in range(2)]
    streams = rng.spawn(2)
    for name, target, key, own in zip(
        ("treatment", "outcome"), (Treatment(), Outcome()), keys, streams, strict=True
    ):
        assert np.array_equal(shared[name]["key"], key)
        values = _values(target, {"key": key[0]}, rows, bins, settings.nuisance_trees)
        _compare(shared[name], nuisance_plan(settings, context), values, np.concatenate(bins), own)
    nuisances = {name: _first(shared[name]) for name in ("treatment", "outcome")}
    key = key_data(rng, 1)
    target = Effect(settings.nuisance_trees, False, False)
    known = {"edges": shared["edges"][0], "key": key[0], **nuisances}
    values = _values(target, known, rows, bins, settings.trees)
    _compare(shared["effect"], effect_plan(settings, context), values, np.concatenate(bins), rng)
    # Other people than those by whom a tree was grown give its leaves.
    honest = _values(Effect(settings.nuisance_trees, False, True), known, rows, bins, settings.trees)
    assert np.all((honest[:, :, 1] > 0) + (values[:, :, 1] > 0) < 2)
    depth = effect_plan(settings, context).depth
    splits = _splits(shared["effect"], settings.trees)
    place = [oracle.leaf(splits[7], depth, one) for one in np.concatenate(bins)]
    told = {name: shared["effect"][name].reshape(settings.trees, -1)[7] for name in ("num", "den")}
    for number in range(2**depth):
        there = (np.array(place) == number) & (honest[7, :, 1] > 0)
        if there.any():
            assert np.isclose(told["num"][number], honest[7, there, 0].mean())
            assert np.isclose(told["den"][number], honest[7, there, 1].mean())


def test_splitting_a_site_changes_nothing() -> None:
    one, three = fitted(1), fitted(3)
    for name in ("feature", "cut"):
        assert np.array_equal(
            one.result_.draws.shared["effect"][name], three.result_.draws.shared["effect"][name]
        )
    asked = people()[["a", "b", "c", "flag"]].iloc[:20]
    np.testing.assert_allclose(one.effect(asked, site="s0"), three.effect(asked, site="s0"), rtol=1e-8)
    np.testing.assert_allclose(one.ate(), three.ate(), rtol=1e-6)


def test_effects_that_change_in_a_step_are_found() -> None:
    asked = pd.DataFrame({"a": [-1.0, 1.5], "b": 0.0, "c": 0.0, "flag": 0})
    low, high = fitted(3).effect(asked, site="s0")
    assert low < 2.0 < high


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("least", [1.0, 5.0])
def test_cells_with_few_people_are_added_to_their_neighbours(level: int, least: float) -> None:
    random, bits = np.random.default_rng(level), 5
    cell = np.minimum(random.geometric(0.08, size=(120, 2)) - 1, 2**bits - 1)
    counted = random.uniform(0.1, 1.0, 120)
    values = jnp.asarray(np.column_stack([random.normal(size=120), counted]))
    total, largest = np.zeros((2**bits, 2)), np.zeros((2**bits, 2))
    for one, weight in zip(cell, counted, strict=True):
        for feature in range(2):
            total[one[feature], feature] += weight
            largest[one[feature], feature] = max(largest[one[feature], feature], weight)
    found = np.asarray(groups(jnp.asarray(total), jnp.asarray(largest), jnp.asarray(level), bits, least))
    stride = 2**bits >> level
    for feature in range(2):
        slow: list[int] = []
        for start in range(0, 2**bits, stride):
            part = slice(start, start + stride)
            own = oracle.groups(total[part, feature], largest[part, feature], least)
            slow += [start + one if one >= 0 else -1 for one in own]
        assert found[:, feature].tolist() == slow
    sums = np.asarray(histogram(jnp.asarray(cell), values, jnp.asarray(level), bits, least))
    for feature in range(2):
        for place in np.flatnonzero(sums[feature, :, 1]):
            there = found[cell[:, feature], feature] == place
            assert counted[there].sum() > least * counted[there].max()
            np.testing.assert_allclose(sums[feature, place, 0], np.asarray(values)[there, 0].sum())


def _settings(model: CausalForest) -> tuple[CausalForestSettings, CausalForestContext]:
    adopted = next(iter(model.sites_.values())).adopted
    assert adopted is not None
    settings, context = adopted.settings, adopted.context
    assert isinstance(settings, CausalForestSettings) and isinstance(context, CausalForestContext)
    return settings, context


def _first(forest: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], forest)


def _values(target: Any, fixed: dict[str, Any], rows: list[Any], bins: list[Any], count: int) -> np.ndarray:
    """num and den [tree, person, 2] of the stacked table."""
    each = []
    for one, own in zip(rows, bins, strict=True):
        prepared = target.prepared(Parameters(fixed=fixed), one, jnp.asarray(own))
        found = [np.asarray(target.of_tree(prepared, jnp.asarray(number), one)) for number in range(count)]
        each.append(np.stack(found))
    return np.concatenate(each, axis=1)


def _splits(forest: dict[str, Any], trees: int) -> list[dict[int, tuple[int, int]]]:
    feature, cut = (np.asarray(forest[name]).reshape(trees, -1) for name in ("feature", "cut"))
    return [
        {node: (int(f), int(c)) for node, (f, c) in enumerate(zip(*one, strict=True)) if c < oracle.BINS - 1}
        for one in zip(feature, cut, strict=True)
    ]


def _compare(
    forest: dict[str, Any], plan: Plan, values: np.ndarray, bins: np.ndarray, rng: np.random.Generator
) -> None:
    tried = [
        rng.permuted(np.tile(np.arange(plan.features), (plan.trees, 1)), axis=1)[:, : plan.tried]
        for _ in range(plan.depth)
    ]
    found = _splits(forest, plan.trees)
    assert sum(map(len, found)) > plan.trees
    for number in range(plan.trees):
        own = [one[number] for one in tried]
        slow = oracle.tree(bins, *values[number].T, own, plan.smallest, LAST_BITS)
        assert found[number] == slow
