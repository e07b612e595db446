"""Attack B: an honest run, and a coordinator who computes rows from what it was sent.

The sums of a fold of an arm are those of everybody minus those without the fold. The Gram matrix of 0/1
columns counts the people who have two of them. In a small group, only one table of people has these counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import unpooled as up
from attacks.coordinator import people, study
from attacks.factor import certain_people
from unpooled.disclosure.limits import NONE
from unpooled.engines import in_process
from unpooled.errors import LimitRefusal
from unpooled.maths.linear_algebra import unpack
from unpooled.protocol.messages import Adopt, Ask, Message, Replies, Statistics, Together
from unpooled.protocol.table_messages import Summarise, Summary

FLAGS = [7, 9, 12]
ROWS = [30, 36, 48, 60, 120]


class Transcript(NamedTuple):
    """What the small site was asked and what it answered, whether or not the study came to its end."""

    table: pd.DataFrame
    heard: list[tuple[Message, Message]]
    refused: bool


def transcript(monkeypatch: pytest.MonkeyPatch, model: Any, rows: int, flags: int) -> Transcript:
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
    try:
        model.fit(asked, {"small": small, "large": large}, limits=up.Limits())
    except LimitRefusal:
        return Transcript(small, heard, True)
    return Transcript(small, heard, False)


def groups(heard: list[tuple[Message, Message]]) -> Iterator[np.ndarray]:
    """Products of [1, x], in the table's own units, of every group that follows from the replies."""
    whole = None
    scaling = next((question.scaling for question, _ in heard if isinstance(question, Adopt)), None)
    for question, reply in heard:
        if isinstance(question, Summarise) and question.centre is not None and isinstance(reply, Summary):
            whole = _of_summary(question.centre.complete, reply)
            yield whole
        parts = (
            zip(question.questions, reply.replies, strict=True)
            if isinstance(question, Together) and isinstance(reply, Replies)
            else [(question, reply)]
        )
        for one, answer in parts:
            if isinstance(one, Ask) and isinstance(answer, Statistics) and scaling is not None:
                for gram in _of_statistics(one, answer):
                    width = len(scaling.mean) + 1
                    # [1, x] = [1, z] @ change
                    change = np.eye(width)
                    change[0, 1:], change[range(1, width), range(1, width)] = scaling.mean, scaling.sd
                    found = change.T @ gram[:width, :width] @ change
                    yield found
                    if whole is not None:
                        yield whole - found


def _of_summary(centre: np.ndarray, told: Summary) -> np.ndarray:
    """The products from those of deviations from a centre; the outcome is last and left out."""
    count, total, cross = told.people, np.asarray(told.sums["sum"]), np.asarray(told.sums["cross"])
    whole = cross + np.outer(total, centre) + np.outer(centre, total) + count * np.outer(centre, centre)
    first = np.append(count, (total + count * centre)[:-1])
    return np.block([[first[:1], first[None, 1:]], [first[1:, None], whole[:-1, :-1]]])


def _of_statistics(asked: Ask, answer: Statistics) -> Iterator[np.ndarray]:
    """Gram matrices that begin with [1, z]: of both arms or of everybody, without a fold and within it."""
    sums = {**answer.per_site, **(answer.summed if isinstance(answer.summed, dict) else {})}
    for name in ("gram", "confounders"):
        if name not in sums or asked.stage.split("/")[-1] in ("treatment", "isotropic"):
            continue  # weighted sums, which are not whole numbers
        gram = np.asarray(unpack(jnp.asarray(sums[name])))
        gram = gram.reshape(len(gram), -1, *gram.shape[-2:])
        fold = asked.parameters.fixed.get("fold", asked.parameters.fixed.get("without"))
        everybody = gram[0] if fold is None else gram[np.argmax(np.asarray(fold) == -1)]
        for without in gram:
            yield from without
            yield from everybody - without


def recovered(found: Transcript) -> int:
    """How many people's flags follow from the counts of a group, over all groups."""
    flags = [name for name in found.table.columns if name.startswith("flag")]
    most, seen = 0, set()
    for products in groups(found.heard):
        raw = products[[0, *range(2, 2 + len(flags))]][:, [0, *range(2, 2 + len(flags))]]
        counts = np.round(raw).astype(int)
        if counts[0, 0] > 0 and np.abs(raw - counts).max() < 1e-3 and counts.tobytes() not in seen:
            seen.add(counts.tobytes())
            most += sum(certain_people(counts).values())
    return most


def test_the_attack_recovers_everybody_of_a_small_group() -> None:
    flags = people(6, 7, 0)[[f"flag{i}" for i in range(7)]].to_numpy(int)
    table = np.column_stack([np.ones(6, int), flags])
    assert certain_people(table.T @ table) == Counter(map(tuple, flags.tolist()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "flags"),
    [
        # Where the solver takes long, the longest tests have it.
        pytest.param(rows, flags, marks=[pytest.mark.thorough] * (rows == 120 and flags > 7))
        for rows in ROWS
        for flags in FLAGS
    ],
)
def test_no_flag_pattern_can_be_read_off_an_honest_run_of_aipw(
    monkeypatch: pytest.MonkeyPatch, rows: int, flags: int
) -> None:
    found = transcript(monkeypatch, up.AIPW(draws=20), rows, flags)
    assert recovered(found) == 0
    # Fewer than three people in an arm for each feature are refused.
    assert found.refused == (rows < 6 * (flags + 2))


OTHERS = {
    "meta_analysis": up.MetaAnalysis(draws=20),
    "fedci": up.FedCI(draws=20, evaluations=5),
    "causal_rff": up.CausalRFF(draws=20, frequencies=4, classes=2, starts=1, rounds=5, sweeps=6),
    "causal_fi": up.CausalFI(draws=20, sweeps=6, most_sweeps=6),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["aipw", *(pytest.param(name, marks=pytest.mark.thorough) for name in OTHERS)]
)
def test_the_attack_recovers_people_from_a_run_without_limits(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Folds of an arm of five people, as they were before limits applied to such groups."""
    monkeypatch.setattr(up, "Limits", lambda: NONE)
    model = {"aipw": up.AIPW(draws=20, repeats=1), **OTHERS}[name]
    assert recovered(transcript(monkeypatch, model, 30, 7)) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("model", [OTHERS["fedci"], OTHERS["meta_analysis"]], ids=["fedci", "meta_analysis"])
def test_nor_off_that_of_other_methods(monkeypatch: pytest.MonkeyPatch, model: Any) -> None:
    found = transcript(monkeypatch, model, 120, 7)
    assert not found.refused
    assert recovered(found) == 0


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("model", OTHERS.values(), ids=OTHERS)
def test_nor_at_other_sizes(monkeypatch: pytest.MonkeyPatch, model: Any, rows: int, flags: int) -> None:
    assert recovered(transcript(monkeypatch, model, rows, flags)) == 0


@pytest.mark.slow
def test_a_small_site_gets_a_coarser_plan_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    model = up.AIPW(draws=20)
    transcript(monkeypatch, model, 120, 7)
    assert model.result_.notes == ("folds = 1 instead of 3",)
    assert model.result_.study.method.settings["folds"] == 1
