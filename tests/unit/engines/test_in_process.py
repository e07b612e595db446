"""Sites in this process: what travels is still bytes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import DataError, MessageError, StudyError
from unpooled.protocol.codec import encode
from unpooled.protocol.messages import Ask
from unpooled.protocol.records import Parameters
from unpooled.protocol.table_messages import Describe, Described
from unpooled.study import Study

STUDY = Study(treatment="w", outcome="y", covariates=["a"])
TABLE = pd.DataFrame({"a": np.arange(6.0), "w": [0, 1] * 3, "y": np.arange(6.0) ** 2})
QUESTION = Describe(STUDY.columns)


def _engine(**tables: pd.DataFrame) -> InProcess:
    return InProcess(open_sites(STUDY, tables, NONE))


def test_every_site_answers_in_the_order_given_and_bytes_are_counted() -> None:
    engine = _engine(z=TABLE, a=TABLE.head(4))
    replies, traffic = engine.exchange(QUESTION)
    assert engine.sites == tuple(replies) == tuple(traffic) == ("z", "a")
    assert all(isinstance(reply, Described) for reply in replies.values())
    assert replies["a"].description.rows == 4
    for site, reply in replies.items():
        assert traffic[site].down == len(encode(QUESTION))
        assert traffic[site].up == len(encode(reply))


def test_what_cannot_travel_is_refused_here_too() -> None:
    with pytest.raises(MessageError):
        _engine(a=TABLE).exchange(Ask("ridge", Parameters({"table": object()})))


def test_a_refusal_is_a_reply() -> None:
    engine = InProcess(open_sites(STUDY, {"a": TABLE}, Limits(rows=100)))
    replies, traffic = engine.exchange(QUESTION)
    assert replies["a"].kind == "LimitRefusal"
    assert traffic["a"].up > 0


def test_tables_are_checked_before_anything_is_asked() -> None:
    with pytest.raises(DataError, match="site 'bad'"):
        _engine(good=TABLE, bad=TABLE.assign(y=np.inf))


def test_a_study_without_sites_is_refused() -> None:
    with pytest.raises(StudyError, match="at least one site"):
        open_sites(STUDY, None, NONE)
    with pytest.raises(StudyError, match="at least one site"):
        open_sites(STUDY, {}, NONE)


def test_a_confounder_is_not_left_aside_silently() -> None:
    study = Study(treatment="w", outcome="y", covariates=["a"], incomplete=["u"])
    with pytest.raises(StudyError, match="incomplete: u"):
        open_sites(study, {"north": pd.DataFrame()}, NONE)


def test_columns_may_be_named_by_numbers() -> None:
    study = Study(treatment="1", outcome="2", covariates=["0"])
    table = pd.DataFrame(np.column_stack([np.arange(6.0), np.arange(6) % 2, np.arange(6.0) ** 2]))
    (site,) = open_sites(study, {"north": table}, NONE).values()
    assert list(site.frame.columns) == ["1", "2", "0"]
    assert list(table.columns) == [0, 1, 2]
