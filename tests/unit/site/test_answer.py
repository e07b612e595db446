"""The whole disclosure surface of a site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oracle import records
from unpooled.coordinator.agreement import reach_agreement
from unpooled.coordinator.rounds import Conduct
from unpooled.coordinator.run import adoption
from unpooled.data.stored_columns import describe
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import StudyError
from unpooled.maths.streams import stream
from unpooled.methods import method as methods
from unpooled.methods.fedci import METHOD
from unpooled.protocol.codec import encode
from unpooled.protocol.messages import Adopted, Ask, Message, Question, Refusal, Replies, Statistics, Together
from unpooled.protocol.records import Draws, Parameters
from unpooled.protocol.table_messages import (
    Centre,
    Describe,
    Described,
    MissingPatterns,
    Patterns,
    Summarise,
    Summary,
)
from unpooled.site.answer import answer
from unpooled.site.effects import conditional_effects
from unpooled.site.folds import folds
from unpooled.site.site import Site
from unpooled.study import Study, agree

STUDY = methods.with_explicit_settings(
    Study(
        treatment="w",
        outcome="y",
        covariates=["a", "b"],
        method={"name": "fedci", "structure": "projection"},
    )
)
SETTINGS = METHOD.Settings(structure="projection")
RIDGE = Ask("ridge", Parameters(fixed={"fold": np.array([-1])}))


def _table(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    w = np.arange(rows) % 2
    return pd.DataFrame(
        {"a": rng.normal(size=rows), "b": rng.normal(size=rows), "w": w, "y": rng.normal(size=rows)}
    )


def _questions(table: pd.DataFrame) -> list[Question]:
    """Every kind of question, in the order of a study."""
    schema = agree({"s": describe(table, STUDY.columns)}, STUDY.columns)
    scaling = records.scaling(sites=("s",), counts=(len(table),))
    return [
        Describe(STUDY.columns),
        Summarise(schema),
        Summarise(schema, Centre(np.zeros(3), np.zeros(0))),
        adoption(STUDY, schema, scaling),
        RIDGE,
        Together((RIDGE, RIDGE)),
        MissingPatterns(schema, np.zeros(4)),
    ]


def test_every_question_has_its_reply_and_none_grows_with_rows() -> None:
    kinds = [Described, Summary, Summary, Adopted, Statistics, Replies, Patterns]
    sizes = []
    for rows in (20, 700):
        site = Site("s", _table(rows), STUDY.columns)
        replies = [answer(site, question) for question in _questions(site.frame)]
        assert [type(reply) for reply in replies] == kinds
        assert [question.reply for question in _questions(site.frame)] == kinds
        sizes.append([len(encode(reply)) for reply in replies])
    # A count takes a few more bytes when it is larger; thirty-five times the rows change nothing else.
    assert np.max(np.abs(np.subtract(*sizes))) <= 12


@pytest.mark.parametrize("limits", [NONE, Limits(cell=5, share=np.inf)], ids=["without limits", "with"])
def test_no_reply_holds_the_value_of_a_row(limits: Limits) -> None:
    site = Site("s", _table(40), STUDY.columns, limits)
    replies = [answer(site, question) for question in _questions(site.frame)]
    assert not any(isinstance(reply, Refusal) for reply in replies)
    sent = b"".join(map(encode, replies))
    for value in site.frame[["a", "b", "y"]].to_numpy().ravel():
        assert np.float64(value).tobytes() not in sent
        assert np.float32(value).tobytes() not in sent


def test_with_limits_statistics_have_seven_digits_and_half_the_bytes() -> None:
    sites = [Site("s", _table(900), STUDY.columns, limits) for limits in (NONE, Limits(share=np.inf))]
    asked = _questions(sites[0].frame)
    without, limited = ([answer(site, question) for question in asked] for site in sites)
    for place in (2, 4, 5):  # summary, statistics, replies
        assert len(encode(limited[place])) < 0.75 * len(encode(without[place]))
    gram = without[4].summed["gram"], limited[4].summed["gram"]  # type: ignore[union-attr]
    assert gram[1].dtype == np.float32
    # Extreme values are clipped under limits, so that only counts are the same.
    np.testing.assert_allclose(gram[1][:, :, 0], gram[0][:, :, 0], rtol=1e-7)


def test_columns_in_very_large_units_keep_their_digits() -> None:
    table, unit = _table(90), 1e-25
    site = Site("s", table.assign(a=unit * table["a"]), STUDY.columns, Limits(share=np.inf))
    cross = answer(site, _questions(site.frame)[2]).sums["cross"]  # type: ignore[union-attr]
    np.testing.assert_allclose(cross[0, 0], np.sum((unit * table["a"]) ** 2), rtol=1e-6)


def test_a_summary_of_many_columns_needs_many_people() -> None:
    site = Site("s", _table(20), STUDY.columns, Limits(share=0.1))
    refusal = answer(site, _questions(site.frame)[1])
    assert isinstance(refusal, Refusal)
    assert "3 features for groups of 20 people" in refusal.found


def test_statistics_are_sums_over_the_people_present() -> None:
    table = _table(20)
    site = Site("s", table, STUDY.columns)
    for question in _questions(table)[:4]:
        answer(site, question)
    reply = answer(site, RIDGE)
    assert isinstance(reply, Statistics)
    treated = table[table["w"] == 1]
    features = np.column_stack([np.ones(10), treated[["a", "b"]]])
    np.testing.assert_allclose(reply.summed["moment"][0, 1], features.T @ treated["y"])
    np.testing.assert_allclose(reply.summed["gram"][0, 1], (features.T @ features)[np.tril_indices(3)])


@dataclass(frozen=True)
class Tell(Message):
    """Not in the protocol."""

    row: int = 0


@pytest.mark.parametrize(
    "question", [RIDGE, Together((RIDGE,)), Tell()], ids=["early", "early too", "unknown"]
)
def test_what_a_site_cannot_answer_it_refuses_in_words(question: Message) -> None:
    reply = answer(Site("s", _table(20), STUDY.columns), question)
    assert isinstance(reply, Refusal)
    assert reply.kind == "MessageError"


def test_a_stage_that_is_not_the_methods_is_refused() -> None:
    site = Site("s", _table(20), STUDY.columns)
    for question in _questions(site.frame)[:4]:
        answer(site, question)
    reply = answer(site, Ask("rows", RIDGE.parameters))
    assert isinstance(reply, Refusal)
    assert "rows" not in reply.found


def test_effects_wait_for_a_study_to_be_adopted() -> None:
    with pytest.raises(StudyError, match="adopted"):
        conditional_effects(Site("s", _table(20), STUDY.columns), Draws(), _table(3))


def test_folds_spread_each_arm_evenly_and_replay() -> None:
    treatment = np.array([1.0] * 9 + [0.0] * 14)
    found = folds(treatment, 4, stream(7, "folds", 0))
    for arm in (0.0, 1.0):
        counts = np.bincount(found[treatment == arm], minlength=4)
        assert counts.max() - counts.min() <= 1
    np.testing.assert_array_equal(found, folds(treatment, 4, stream(7, "folds", 0)))
    assert not np.array_equal(found, folds(treatment, 4, stream(7, "folds", 1)))


def test_sites_standardise_by_the_numbers_of_all_of_them() -> None:
    tables = {"n": _table(20), "s": _table(31, seed=1).assign(a=lambda t: 5 + 3 * t["a"])}
    sites = open_sites(STUDY, tables, NONE)

    def procedure() -> Any:
        agreement = yield from reach_agreement(STUDY)
        yield adoption(STUDY, agreement.schema, agreement.scaling)

    for _ in Conduct(procedure(), InProcess(sites)):
        pass
    rows = [site.adopted.rows for site in sites.values()]
    counts = [site.adopted.count for site in sites.values()]
    together = np.concatenate([np.asarray(r.covariates)[:n] for r, n in zip(rows, counts, strict=True)])
    outcome = np.concatenate([np.asarray(r.outcome)[:n] for r, n in zip(rows, counts, strict=True)])
    np.testing.assert_allclose(together.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(together.std(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose([outcome.mean(), outcome.std()], [0.0, 1.0], atol=1e-12)
