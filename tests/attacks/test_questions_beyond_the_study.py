"""Attacks F to H and J to M: more than was approved, refusals as an oracle, other tables, broken messages."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pandas as pd
import pytest

from attacks.coordinator import Attacker, people, study
from unpooled.protocol.codec import encode
from unpooled.protocol.envelope import Asked
from unpooled.protocol.messages import Adopt, Refusal, Reply, Statistics
from unpooled.protocol.records import SiteSummaries
from unpooled.protocol.table_messages import Describe
from unpooled.site.allowance import budget_of

TABLE = people(300, numbers=3)
EVERYBODY = {"without": np.array([-1])}


# ---------------------------------------------------------------- F: features


@pytest.mark.parametrize("basis", [300, 41, 21])
def test_a_site_adopts_no_finer_settings_than_were_approved(tmp_path: Path, basis: int) -> None:
    asked = study(TABLE, {"name": "fedci", "structure": "isotropic", "basis": 20})
    site = Attacker(tmp_path, TABLE, asked)
    adopt = site.agreed()
    finer = {**adopt.settings, "basis": basis}
    assert isinstance(site.ask(replace(adopt, settings=finer).to_site(0)), Refusal)


def test_inducing_inputs_are_the_sites_own() -> None:
    """No question carries them: the site computes them from the settings, the seed and the scaling."""
    sent = {field.name for field in fields(Adopt)}
    known = {
        "schema",
        "scaling",
        "method",
        "settings",
        "seed",
        "sites",
        "diagnostics",
        "by_site",
        "subgroups",
    }
    assert sent == known


# --------------------------------------------------------------- G: refusals


def test_refusals_do_not_depend_on_the_table(tmp_path: Path) -> None:
    """How many people have which rare level is in the custodian's log, not in what leaves."""
    told = []
    for number, rare in enumerate((["a"] * 1, ["b"] * 3, ["secret"] * 4)):
        root = tmp_path / str(number)
        root.mkdir()
        levels = np.array(["x"] * 150 + ["y"] * (150 - len(rare)) + rare)
        table = TABLE.assign(level=levels)
        site = Attacker(root, table, study(table, {"name": "aipw"}))
        told.append(encode(site.ask(Describe(site.study.columns))))
        log = (site.own.folder / "refusals.log").read_text()
        assert "level" in log
    assert len(set(told)) == 1


# ------------------------------------------------------------------ H: tables


def changed(site: Attacker, table: pd.DataFrame) -> Attacker:
    table.to_parquet(site.path)
    site.restart()
    return site


def test_another_table_needs_another_approval(tmp_path: Path) -> None:
    site = Attacker(tmp_path, TABLE, study(TABLE, {"name": "aipw"}))
    describe = Describe(site.study.columns)
    assert not isinstance(site.ask(describe), Refusal)
    changed(site, TABLE.iloc[:-1])
    assert isinstance(site.ask(describe), Refusal)


@pytest.mark.parametrize(("more", "answered"), [(1, False), (4, False), (5, True), (60, True)])
def test_tables_of_two_approvals_differ_in_nobody_or_in_many(
    tmp_path: Path, more: int, answered: bool
) -> None:
    site = Attacker(tmp_path, TABLE, study(TABLE, {"name": "aipw"}))
    describe = Describe(site.study.columns)
    assert not isinstance(site.ask(describe), Refusal)
    changed(site, pd.concat([TABLE, people(more, seed=9)]))
    site.approve()
    assert isinstance(site.ask(describe), Refusal) is not answered


# ---------------------------------------------------------- J: the other sites


def test_a_site_is_told_nothing_of_another_site(tmp_path: Path) -> None:
    site = Attacker(tmp_path, TABLE, study(TABLE, {"name": "fedci"}))
    adopt = site.agreed()
    secret = 123_457
    others = SiteSummaries(("site", "other"), (300, secret), np.zeros((2, 0)))
    sent = replace(adopt, scaling=replace(adopt.scaling, by_site=others)).to_site(0)
    assert sent.scaling.by_site is None  # type: ignore[attr-defined]
    assert msgpack.packb(secret) not in encode(sent)


# ------------------------------------------------------------------ K: budgets


@pytest.mark.parametrize("restarted", [False, True])
def test_a_site_answers_no_more_rounds_than_the_custodian_was_shown(tmp_path: Path, restarted: bool) -> None:
    site = Attacker(tmp_path, TABLE, study(TABLE, {"name": "aipw"}))
    adopt = site.adopted()
    most = budget_of(site.study, 10**9).rounds
    answered = 0
    for number in range(3 * most):
        if restarted and number % 4 == 3:
            site.restart()
            site.ask(adopt.to_site(0))
        answered += isinstance(_treatment(site, number), Statistics)
    assert 0 < answered <= most - 4


def _treatment(site: Attacker, number: int) -> Reply:
    own = {"treatment": np.full((1, 4), 1e-3 * number)}
    return site.statistics("treatment", fixed=EVERYBODY, per_site=own)


def test_many_parameters_in_one_message_count_as_many(tmp_path: Path) -> None:
    site = Attacker(tmp_path, TABLE, study(TABLE, {"name": "aipw"}))
    site.adopted()
    many = {"without": np.full(500, -1)}
    own = {"treatment": np.random.default_rng(0).normal(size=(500, 4))}
    assert isinstance(site.statistics("treatment", fixed=many, per_site=own), Refusal)


# ------------------------------------------------------------ L: suppressed cells


def test_what_is_withheld_is_withheld_from_the_sums_too(tmp_path: Path) -> None:
    asked = study(TABLE, {"name": "aipw"}, diagnostics=True)
    site = Attacker(tmp_path, TABLE, asked)
    site.adopted()
    steep = np.zeros((1, 3, 4))
    steep[..., 1] = 3.0
    reply = site.statistics("diagnostics/balance", per_site={"treatment": steep})
    assert isinstance(reply, Statistics)
    few = (reply.summed["histogram"] > 0) & (reply.summed["histogram"] < 5)
    assert not few.any()
    np.testing.assert_array_equal(reply.summed["histogram"], reply.per_site["histogram"])


# ------------------------------------------------------------ M: broken messages


@pytest.mark.parametrize(
    "change",
    [
        {"sd": np.zeros(3)},
        {"sd": np.full(3, np.nan)},
        {"mean": np.array([np.inf, 0.0, 0.0])},
        {"outcome_sd": 0.0},
        {"outcome_sd": 1e-9},
        {"sd": np.full(3, 1e-6)},
        {"mean": np.zeros(2)},
    ],
    ids=str,
)
def test_a_scaling_that_is_none_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    site = Attacker(tmp_path, TABLE, study(TABLE, {"name": "aipw"}))
    adopt = site.agreed()
    assert isinstance(site.ask(replace(adopt, scaling=replace(adopt.scaling, **change)).to_site(0)), Refusal)


def test_broken_bytes_are_refused_and_nothing_escapes(tmp_path: Path) -> None:
    site = Attacker(tmp_path, TABLE, study(TABLE, {"name": "aipw"}))
    asked = site.study.model_dump_json(exclude={"sites"})
    deep = "[" * 100_000 + "]" * 100_000
    together = msgpack.packb(msgpack.ExtType(2, msgpack.packb(["Together", {"questions": 5}])))
    nested = encode(Describe(site.study.columns))
    for _ in range(3):
        nested = msgpack.packb(msgpack.ExtType(3, nested))
    for question in (together, nested, b"", b"\xc1", b"\xdd\xff\xff\xff\xff"):
        assert isinstance(site.send(Asked(asked, b"run", 1, question).seal()), Refusal)
    for broken in (deep, json.dumps({"a": 1}), "", "null", "5", asked.replace('"aipw"', '"fedci"')):
        assert isinstance(
            site.send(Asked(broken, b"run", 1, encode(Describe(site.study.columns))).seal()), Refusal
        )


def test_after_another_adoption_the_same_question_has_another_answer(tmp_path: Path) -> None:
    """A study that starts again without a lost site has other units: earlier replies are not those of now."""
    table = people(300)
    attacker = Attacker(
        tmp_path, table, study(table, {"name": "fedci", "structure": "projection"}, min_sites=1)
    )
    first = attacker.adopted()
    fixed = {"fold": np.array([-1])}
    before = attacker.statistics("ridge", fixed=fixed)
    assert not isinstance(before, Refusal)
    again = replace(first, scaling=replace(first.scaling, outcome_sd=2.0 * first.scaling.outcome_sd))
    assert not isinstance(attacker.ask(again.to_site(0)), Refusal)
    after = attacker.statistics("ridge", fixed=fixed)
    np.testing.assert_allclose(after.summed["moment"], 0.5 * before.summed["moment"], rtol=1e-5)
    attacker.restart()
    attacker.ask(again.to_site(0))
    repeated = attacker.statistics("ridge", fixed=fixed)
    np.testing.assert_array_equal(repeated.summed["moment"], after.summed["moment"])
