"""Every limit of a site, by name; none when limits are off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.coordinator.agreement import Agreement, reach_agreement
from unpooled.coordinator.rounds import Conduct
from unpooled.coordinator.run import adoption
from unpooled.disclosure.limits import (
    FOLD_CELLS,
    NONE,
    Limits,
    check_cells,
    check_groups,
    check_rows,
    group_problem,
)
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import LimitRefusal
from unpooled.methods import method as methods
from unpooled.protocol.messages import Adopt, Refusal
from unpooled.site.answer import answer
from unpooled.study import Study

STUDY = Study(treatment="w", outcome="y", covariates=["a", "b"])
RNG = np.random.default_rng(0)


def _table(rows: int, *, treated: int | None = None, ones: int | None = None) -> pd.DataFrame:
    w = np.arange(rows) < (rows // 2 if treated is None else treated)
    b = RNG.permutation(np.arange(rows) < (rows // 2 if ones is None else ones))
    a, noise = RNG.normal(size=(2, rows))
    y = RNG.permutation(np.arange(rows) % 2 * 2 - 1) + 0.1 * noise  # nobody is far from the others
    return pd.DataFrame({"a": a, "b": b.astype(int), "w": w.astype(int), "y": y})


def _adoption(agreement: Agreement, values: dict[str, Any]) -> Adopt:
    study = methods.with_settings(STUDY, "fedci", values)
    return adoption(study, agreement.schema, agreement.scaling)


SMALL: dict[str, Any] = {"structure": "isotropic", "basis": 10}
"""13 features, and nobody is held out."""


def _adopt(tables: dict[str, pd.DataFrame], limits: Limits, settings: dict[str, Any] = SMALL) -> None:
    def procedure() -> Any:
        agreement = yield from reach_agreement(STUDY)
        yield _adoption(agreement, settings)

    for _ in Conduct(procedure(), InProcess(open_sites(STUDY, tables, limits))):
        pass


REFUSED = {
    "too few rows": (_table(8), "at least 10 rows"),
    "too small an arm": (_table(30, treated=3), "arm 1"),
    "too few ones": (_table(30, ones=2), "groups in: b"),
    "too few zeros": (_table(30, ones=28), "b (zeros)"),
    "too many features": (_table(60), "13 features for groups of 30 people"),
    "a rare level": (_table(150).assign(b=["rare"] * 2 + ["common"] * 148), "groups in: b"),
    "few values of the outcome": (_table(60).assign(y=[1.0] * 3 + [2.0] * 57), "y (rarest value)"),
    "few values of a column": (_table(60).assign(a=[0.5] * 3 + [2.0] * 20 + [7.0] * 37), "a (rarest value)"),
    "few people's outcome": (_table(150).assign(y=lambda t: t["y"] ** 2 * (t.index < 4)), "of the outcome"),
    "a small fold": (_table(240, treated=79), "groups of 19 people, the smaller arm divided into 4"),
}
FOLDS = {"a small fold": {"structure": "auto", "basis": 10}}


@pytest.mark.parametrize("what", REFUSED)
def test_every_limit_refuses_by_name_and_only_where_limits_are_on(what: str) -> None:
    table, words = REFUSED[what]
    big = _table(900)
    if "level" in what:
        big["b"] = ["common", "other"] * 450
    tables, settings = {"big": big, "small": table}, FOLDS.get(what, SMALL)
    with pytest.raises(LimitRefusal) as raised:
        _adopt(tables, Limits(), settings)
    assert words in str(raised.value)
    assert "site 'small'" in str(raised.value)
    _adopt(tables, NONE, settings)
    if what in FOLDS:
        _adopt(tables, Limits(), SMALL)  # nobody is held out, so there are no folds to be small


def test_a_study_inside_the_limits_is_answered() -> None:
    _adopt({"big": _table(160), "small": _table(80)}, Limits())


def test_a_refused_adoption_is_not_adopted_and_sums_need_rows_too() -> None:
    tables = {"big": _table(160), "small": _table(60)}
    sites = open_sites(STUDY, tables, NONE)
    asked: list[Any] = []

    class Watched(InProcess):
        def exchange(self, question: Any) -> Any:
            asked.append(question)
            return super().exchange(question)

    def procedure() -> Any:
        agreement = yield from reach_agreement(STUDY)
        yield _adoption(agreement, {})

    for _ in Conduct(procedure(), Watched(sites)):
        pass
    strict = replace(sites["small"], limits=Limits(), adopted=None)
    assert isinstance(answer(strict, asked[-1]), Refusal)
    assert strict.adopted is None
    tiny = replace(sites["small"], limits=Limits(), table=tables["small"].iloc[[0, 59]])
    assert isinstance(answer(tiny, asked[1]), Refusal)


def test_limits_bind_at_their_value() -> None:
    check_rows(Limits(rows=10), 10)
    check_cells(Limits(cell=5), {"x": 5, "absent": 0})
    check_groups(Limits(share=0.5), 5, (10, 30), 0)
    check_groups(Limits(share=0.5), 10, (60, 80), 3)
    check_groups(NONE, 1000, (1, 1), 5)
    with pytest.raises(LimitRefusal):
        check_rows(Limits(rows=10), 9)
    with pytest.raises(LimitRefusal):
        check_cells(Limits(cell=5), {"x": 4})
    for features, arms, folds in [
        (6, (10, 30), 0),
        (6, (30, 11), 1),
        (1, (4, 100), 0),
        (11, (60, 80), 3),
        (1, (59, 80), 3),
    ]:
        with pytest.raises(LimitRefusal):
            check_groups(Limits(share=0.5), features, arms, folds)


def test_the_smallest_group_is_a_fold_of_the_smaller_arm() -> None:
    """The sums of a fold are those of everybody less those without it."""
    limits = Limits(cell=5, share=0.5)
    assert limits.cell * FOLD_CELLS == 20
    assert group_problem(limits, 3, (1000, 99), 5) == "groups of 19 people, the smaller arm divided into 5"
    assert group_problem(limits, 11, (1000, 104), 5) == "11 features for groups of 20 people"
    assert group_problem(limits, 10, (1000, 100), 5) is None
    assert group_problem(limits, 3, (), 0) == "groups of 0 people, the smaller arm divided into 1"


def test_a_refusal_for_few_rows_does_not_say_how_few() -> None:
    with pytest.raises(LimitRefusal) as raised:
        check_rows(Limits(rows=10), 7)
    assert "7" not in str(raised.value)
    with pytest.raises(LimitRefusal) as raised:
        check_cells(Limits(cell=5), {"x": 3})
    assert "3" not in str(raised.value)
