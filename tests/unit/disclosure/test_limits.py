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
from unpooled.disclosure.limits import NONE, Limits, check_cells, check_parameters, check_rows
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
    return pd.DataFrame(
        {"a": RNG.normal(size=rows), "b": b.astype(int), "w": w.astype(int), "y": RNG.normal(size=rows)}
    )


def _adoption(agreement: Agreement, values: dict[str, Any]) -> Adopt:
    study = methods.with_settings(STUDY, "fedci", values)
    return adoption(study, agreement.schema, agreement.scaling)


def _adopt(tables: dict[str, pd.DataFrame], limits: Limits, structure: str = "projection") -> None:
    def procedure() -> Any:
        agreement = yield from reach_agreement(STUDY)
        yield _adoption(agreement, {"structure": structure} | ({"basis": 10} if structure == "auto" else {}))

    for _ in Conduct(procedure(), InProcess(open_sites(STUDY, tables, limits))):
        pass


REFUSED = {
    "too few rows": (_table(8), "at least 10 rows"),
    "too small an arm": (_table(30, treated=3), "arm 1"),
    "too few ones": (_table(30, ones=2), "groups in: b"),
    "too few zeros": (_table(30, ones=28), "b (zeros)"),
    "too many features": (_table(60), "features per row"),
    "a rare level": (_table(150).assign(b=["rare"] * 2 + ["common"] * 148), "groups in: b"),
    "a small fold": (_table(150, treated=18), "of arm 1"),
}
FOLDS = {"a small fold"}


@pytest.mark.parametrize("what", REFUSED)
def test_every_limit_refuses_by_name_and_only_where_limits_are_on(what: str) -> None:
    table, words = REFUSED[what]
    big = _table(160)
    if "level" in what:
        big["b"] = ["common", "other"] * 80
    tables, structure = {"big": big, "small": table}, "auto" if what in FOLDS else "projection"
    with pytest.raises(LimitRefusal) as raised:
        _adopt(tables, Limits(), structure)
    assert words in str(raised.value)
    assert "site 'small'" in str(raised.value)
    _adopt(tables, NONE, structure)
    if what in FOLDS:
        _adopt(tables, Limits(), "projection")  # nobody is held out, so there are no folds to be small


def test_a_study_inside_the_limits_is_answered() -> None:
    _adopt({"big": _table(160), "small": _table(120)}, Limits())


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
    tiny = replace(sites["small"], limits=Limits(), frame=tables["small"].iloc[[0, 59]])
    assert isinstance(answer(tiny, asked[1]), Refusal)


def test_limits_bind_at_their_value() -> None:
    check_rows(Limits(rows=10), 10)
    check_cells(Limits(cell=5), {"x": 5, "absent": 0})
    check_parameters(Limits(share=0.5), 5, 10)
    with pytest.raises(LimitRefusal):
        check_rows(Limits(rows=10), 9)
    with pytest.raises(LimitRefusal):
        check_cells(Limits(cell=5), {"x": 4})
    with pytest.raises(LimitRefusal):
        check_parameters(Limits(share=0.5), 6, 10)


def test_a_refusal_for_few_rows_does_not_say_how_few() -> None:
    with pytest.raises(LimitRefusal) as raised:
        check_rows(Limits(rows=10), 7)
    assert "7" not in str(raised.value)
    with pytest.raises(LimitRefusal) as raised:
        check_cells(Limits(cell=5), {"x": 3})
    assert "3" not in str(raised.value)
