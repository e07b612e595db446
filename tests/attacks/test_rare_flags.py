"""Attack E: a flag that one person carries, asked about in another way or called by another kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attacks.coordinator import Attacker, people, study
from unpooled.maths.linear_algebra import unpack
from unpooled.protocol.messages import Adopted, Refusal
from unpooled.protocol.table_messages import Summarise
from unpooled.study import ColumnSchema

METHODS = [
    {"name": "aipw"},
    {"name": "fedci", "structure": "isotropic", "basis": 5},
    {"name": "meta_analysis"},
]


def with_flag(carriers: dict[int, int], value: float = 1.0) -> pd.DataFrame:
    """200 people, of whom so many carry the flag in each arm."""
    table = people(200, numbers=2)
    flag = np.zeros(200)
    for arm, count in carriers.items():
        flag[np.flatnonzero(table["w"] == arm)[:count]] = value
    return table.assign(flag=flag if value != 1.0 else flag.astype(int))


@pytest.mark.parametrize("method", METHODS, ids=lambda one: str(one["name"]))
@pytest.mark.parametrize("value", [1.0, 2.5])
def test_a_flag_of_one_person_is_in_no_answer(
    tmp_path: Path, method: dict[str, object], value: float
) -> None:
    """Whatever the schema calls it, and whether or not the sums were asked for before."""
    common = people(200, numbers=2).assign(flag=np.arange(200) % 2 * (value if value != 1.0 else 1))
    root = tmp_path / "asked"
    root.mkdir()
    adopt = Attacker(root, common, study(common, method)).agreed()
    rare = with_flag({1: 1}, value)
    site = Attacker(tmp_path, rare, study(rare, method))
    numeric = tuple(ColumnSchema(name=one.name, kind="numeric") for one in adopt.schema.covariates)
    schema = adopt.schema.model_copy(update={"covariates": numeric})
    for question in (Summarise(schema), adopt.to_site(0), replace(adopt, schema=schema).to_site(0)):
        assert isinstance(site.ask(question), Refusal)


def test_a_flag_of_few_people_in_an_arm_is_left_out_everywhere(tmp_path: Path) -> None:
    """Its sums over one arm would be the sums of these people alone: their whole rows if it is one person."""
    table = with_flag({0: 20, 1: 1})
    site = Attacker(tmp_path, table, study(table, {"name": "aipw", "folds": 1}))
    adopt = site.agreed()
    reply = site.ask(adopt.to_site(0))
    assert isinstance(reply, Adopted)
    assert reply.left_out == ("flag",)
    gram = np.asarray(unpack(site.statistics("outcome", fixed={"without": np.array([-1])}).summed["gram"]))
    place = 1 + list(adopt.schema.features).index("flag")
    assert np.all(gram[..., place, :] == 0.0)


def test_an_outlier_is_clipped(tmp_path: Path) -> None:
    """The largest person's share of any sum of squares, from any centre, is at most a fifth."""
    table = people(200, numbers=2)
    table.loc[table.index[table["w"] == 1][0], "x0"] = 1e4
    site = Attacker(tmp_path, table, study(table, {"name": "aipw", "folds": 1}))
    site.adopted()
    adopted = next(iter(site.gateway._open.values())).adopted
    assert adopted is not None
    sent = np.asarray(adopted.rows.covariates)[:200, 0]
    for arm in (0, 1):
        inside = sent[table["w"] == arm]
        squares = (inside - np.median(inside)) ** 2
        assert squares.max() <= squares.sum() / 5.0
    assert np.asarray(adopted.own_rows.covariates)[:200, 0].max() > 10.0
