"""Attack B: an honest run, and a coordinator who computes rows from what it was sent.

The sums of a fold of an arm are those of everybody minus those without the fold. If one person of such a
group carries a flag, the flag's row of the Gram matrix is this person's row; likewise if one person does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from attacks.coordinator import people, study
from unpooled.engines import in_process
from unpooled.errors import LimitRefusal
from unpooled.maths.linear_algebra import unpack
from unpooled.protocol.messages import Adopt, Ask, Message, Statistics, Together

FLAGS = [7, 9, 12]
ROWS = [30, 36, 48, 60, 120]


def transcript(
    monkeypatch: pytest.MonkeyPatch, model: Any, rows: int, flags: int
) -> tuple[pd.DataFrame, list[Any]]:
    """An honest study with a small and a large site under the default limits, as the small one answered."""
    heard: list[tuple[Message, Message]] = []
    honest = in_process.answer

    def recorded(site: Any, question: Message) -> Any:
        reply = honest(site, question)
        if site.name == "small":
            heard.append((question, reply))
        return reply

    monkeypatch.setattr(in_process, "answer", recorded)
    small, large = people(rows, flags, 1, seed=rows + flags), people(900, flags, 1, seed=1)
    asked = study(small, {"name": "aipw"})
    model.fit(asked, {"small": small, "large": large}, limits=up.Limits())
    return small, heard


def groups(heard: list[Any]) -> Iterator[tuple[np.ndarray, Any]]:
    """Gram matrices [1, x] of every group that follows from the replies, and the scaling in use."""
    scaling = next(question.scaling for question, _ in heard if isinstance(question, Adopt))
    for question, reply in heard:
        parts = (
            zip(question.questions, reply.replies, strict=True)
            if isinstance(question, Together)
            else [(question, reply)]
        )
        for one, answer in parts:
            if not isinstance(one, Ask) or not isinstance(answer, Statistics):
                continue
            sums = (
                answer.summed
                if isinstance(answer.summed, dict) and "gram" in answer.summed
                else answer.per_site
            )
            if one.stage.split("/")[-1] not in ("outcome", "ridge", "regression") or "gram" not in sums:
                continue
            gram = np.asarray(unpack(sums["gram"]))
            everybody = gram[0] if "fold" in one.parameters.fixed else gram[-1]
            for without in gram:
                for arm in (0, 1):
                    yield without[arm], scaling
                    yield everybody[arm] - without[arm], scaling


def rows_read(table: pd.DataFrame, heard: list[Any]) -> int:
    """How many people's flags can be read off exactly."""
    flags = [name for name in table.columns if name.startswith("flag")]
    true = {tuple(row) for row in table[flags].to_numpy(int).tolist()}
    found: set[tuple[int, ...]] = set()
    width = len(flags) + 2
    for gram, scaling in groups(heard):
        if gram[0, 0] < 0.5:
            continue
        # In the table's own units: [1, x] = [1, z] @ change.
        change = np.eye(width)
        change[0, 1:], change[range(1, width), range(1, width)] = scaling.mean, scaling.sd
        raw = change.T @ gram[:width, :width] @ change
        counts = raw[2:, 2:]
        for place in range(len(flags)):
            if abs(counts[place, place] - 1.0) < 1e-3:
                found.add(tuple(np.round(counts[place]).astype(int).tolist()))
            if abs(raw[0, 0] - counts[place, place] - 1.0) < 1e-3:
                found.add(tuple(np.round(raw[0, 2:] - counts[place]).astype(int).tolist()))
    return sum(tuple(row) in found for row in table[flags].to_numpy(int).tolist()) if found & true else 0


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("rows", ROWS)
def test_no_flag_pattern_can_be_read_off_an_honest_run_of_aipw(
    monkeypatch: pytest.MonkeyPatch, rows: int, flags: int
) -> None:
    try:
        table, heard = transcript(monkeypatch, up.AIPW(draws=20), rows, flags)
    except LimitRefusal:
        assert rows < 6 * (flags + 2)  # fewer than three people in an arm for each feature
        return
    assert rows_read(table, heard) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        up.MetaAnalysis(draws=20),
        up.FedCI(draws=20, evaluations=5),
        up.CausalRFF(draws=20, frequencies=4, classes=2, starts=1, rounds=5, sweeps=3),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("rows", [36, 120])
def test_nor_off_that_of_other_methods(monkeypatch: pytest.MonkeyPatch, model: Any, rows: int) -> None:
    try:
        table, heard = transcript(monkeypatch, model, rows, 7)
    except LimitRefusal:
        assert rows == 36
        return
    assert rows_read(table, heard) == 0


def test_a_small_site_gets_a_coarser_plan_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    model = up.AIPW(draws=20)
    transcript(monkeypatch, model, 120, 7)
    assert model.result_.notes == ("folds = 1 instead of 3",)
    assert model.result_.study.method.settings["folds"] == 1
