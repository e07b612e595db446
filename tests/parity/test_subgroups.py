"""Effects by subgroup are those of one stacked table, and of plain averages over the people of each group."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from oracle.world import STUDY, frames
from unpooled import CausalRFF, FedCI, Limits
from unpooled.disclosure.effective_people import effective_people
from unpooled.models.effects import averages, group_weights
from unpooled.protocol.rows import make_rows
from unpooled.study import Study

GROUPS = {"a": [-1.0, 0.0, 1.0], "b and c": "b > 0.5 and c < 1", "most": "not -0.2 <= a < 0.2"}
QUERIES = {
    "a -1 to 0": "-1 <= a < 0",
    "a 0 to 1": "0 <= a < 1",
    "a 1 and over": "a >= 1",
    "b and c": "b > 0.5 and c < 1",
    "most": "a < -0.2 or a >= 0.2",
}
SAMPLE: Study = STUDY.with_changes(target="sample", subgroups=GROUPS)
TABLES = frames({"north": 70, "south": 90, "east": 80})
STACKED = pd.concat(TABLES.values(), ignore_index=True)
LINEAR: dict[str, Any] = {"confounding": "observed", "site_terms": "none", "frequencies": 3, "draws": 60}


@pytest.fixture(scope="module")
def federated() -> CausalRFF:
    return CausalRFF(**LINEAR).fit(SAMPLE, TABLES)


@pytest.mark.slow
def test_the_table_by_subgroup_is_that_of_one_stacked_table(federated: CausalRFF) -> None:
    mixed = STACKED.sample(frac=1.0, random_state=1)
    other = CausalRFF(**LINEAR).fit(SAMPLE, {"first": mixed.iloc[:200], "second": mixed.iloc[200:]})
    found, expected = federated.gate(), other.gate()
    assert list(found.index) == list(QUERIES)
    np.testing.assert_array_equal(found["n"], [len(STACKED.query(one)) for one in QUERIES.values()])
    numbers = [name for name in found if name not in ("n", "note")]
    np.testing.assert_allclose(found[numbers], expected[numbers], rtol=1e-6)
    np.testing.assert_allclose(federated.gate_test("a"), other.gate_test("a"), rtol=1e-5)


@pytest.mark.slow
def test_effects_in_the_sample_are_plain_averages_of_the_effects_of_people(federated: CausalRFF) -> None:
    effects = {site: federated.effect_draws(table, site=site) for site, table in TABLES.items()}
    for group, query in QUERIES.items():
        total, count = 0.0, 0
        for site, table in TABLES.items():
            inside = table.eval(query).to_numpy()
            own = effects[site][:, inside]
            expected = federated.mean_draws(group, site=site)
            np.testing.assert_allclose(
                expected[:, 1] - expected[:, 0], own.mean(axis=1), rtol=1e-6, atol=1e-9
            )
            total, count = total + own.sum(axis=1), count + int(inside.sum())
        both = federated.mean_draws(group)
        np.testing.assert_allclose(both[:, 1] - both[:, 0], total / count, rtol=1e-6)


@pytest.mark.slow
def test_masks_and_one_table_of_sums_change_nothing() -> None:
    settings: dict[str, Any] = {"structure": "projection", "draws": 40, "evaluations": 8}
    plain = FedCI(**settings).fit(SAMPLE, TABLES)
    masked = FedCI(**settings).fit(SAMPLE.with_changes(privacy={"aggregation": "secure"}), TABLES)
    together = FedCI(**settings).fit(SAMPLE.with_changes(by_site=False), TABLES)
    for other in (masked, together):
        for group in plain.groups():
            np.testing.assert_allclose(plain.mean_draws(group), other.mean_draws(group), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(plain.gate()["n"], other.gate()["n"])


@pytest.mark.slow
def test_a_group_of_nobody_at_a_site_is_of_the_others() -> None:
    tables = {**TABLES, "north": TABLES["north"].query("a < 1")}
    model = CausalRFF(**LINEAR).fit(SAMPLE, tables)
    there = model.gate("a", site="north")
    assert there.loc["a 1 and over", "n"] == 0
    assert np.isnan(there.loc["a 1 and over", "effect"])
    assert "nobody" in there.loc["a 1 and over", "note"]
    own = [model.mean_draws("a 1 and over", site=site) for site in ("south", "east")]
    weights = [len(tables[site].query("a >= 1")) for site in ("south", "east")]
    np.testing.assert_allclose(
        model.mean_draws("a 1 and over"), np.average(own, axis=0, weights=weights), rtol=1e-6
    )


def test_means_by_group_are_those_of_loops_over_people() -> None:
    rng, n = np.random.default_rng(2), 21
    treatment, nothing = rng.integers(0, 2, n).astype(float), np.zeros(n)
    named = rng.random((3, n)) < [[0.5], [0.2], [0.0]]
    rows = make_rows(nothing[:, None], treatment, nothing, fold=nothing, site=0, groups=named)
    outcomes = rng.normal(size=(4, len(rows.present), 2))
    found = averages(jnp.asarray(outcomes), group_weights(rows), rows, jax.random.key(0))
    groups = [np.ones(n), treatment, 1.0 - treatment, *named]
    for place, group in enumerate(groups):
        inside = [person for person in range(n) if group[person]]
        assert found["weight"][0, place] == len(inside)
        for draw in range(4):
            for arm in (0, 1):
                total = sum(outcomes[draw, person, arm] for person in inside)
                expected = total / len(inside) if inside else 0.0
                assert found["sample"][draw, place, arm] == pytest.approx(expected, abs=1e-12)


def test_means_of_small_groups_stay_near_their_own_with_limits() -> None:
    """A site with limits caps deviations from its median; it does not move a small group to that median."""
    rng, n = np.random.default_rng(3), 60
    nothing, group = np.zeros(n), np.arange(n) < 14
    outcome = np.where(group, 3.0, 0.0) + 0.5 * rng.normal(size=n)
    rows = make_rows(nothing[:, None], nothing, nothing, fold=nothing, site=0, groups=group[None], least=5)
    both = np.stack([np.pad(outcome, (0, len(rows.present) - n))] * 2, axis=-1)
    assert effective_people(jnp.abs(outcome[group] - np.median(outcome))) > 5
    found = averages(jnp.asarray(both), group_weights(rows), rows, jax.random.key(0))["sample"]
    np.testing.assert_allclose(found[-1], outcome[group].mean(), atol=0.1)


def test_one_person_cannot_be_seen_in_a_group() -> None:
    n = 60
    nothing, group = np.zeros(n), np.arange(n) < 14
    rows = make_rows(nothing[:, None], nothing, nothing, fold=nothing, site=0, groups=group[None], least=5)
    outcome = np.zeros((len(rows.present), 2))
    outcome[3] = 1e6
    found = averages(jnp.asarray(outcome), group_weights(rows), rows, jax.random.key(0))
    np.testing.assert_array_equal(found["sample"], 0.0)
    np.testing.assert_array_equal(found["population"], 0.0)


@pytest.mark.slow
def test_sites_with_limits_say_for_which_groups_they_do_not_answer() -> None:
    frame = TABLES["north"]
    edge = float(np.sort(frame["a"])[-3])
    rules = {"many": "a > -0.2", "three people": f"a >= {edge}", "big b": "b > 0"}
    tables = {"north": frame, "south": TABLES["south"]}
    model = CausalRFF(**LINEAR).fit(SAMPLE.with_changes(subgroups=rules), tables, limits=Limits())
    (note,) = (one for one in model.result_.notes if "'north'" in one)
    assert note.endswith("would follow: three people")
    assert model.gate(site="north")["n"].tolist() == [
        len(frame.query("a > -0.2")),
        0,
        len(frame.query("b > 0")),
    ]
