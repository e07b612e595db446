"""The loop, its record, and going on from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from unpooled.coordinator.checkpoint import (
    Checkpoint,
    StoredRound,
    earlier,
    read_rounds,
    require_same,
    set_aside,
)
from unpooled.coordinator.journal import Journal, cost, line, read_lines
from unpooled.coordinator.rounds import Conduct, Round
from unpooled.errors import LimitRefusal, ResultsError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.engine import Traffic
from unpooled.protocol.messages import (
    Adopt,
    Adopted,
    Ask,
    Question,
    Refusal,
    Reply,
    SiteReplies,
    Statistics,
    Together,
    Vjp,
)
from unpooled.protocol.records import Parameters, Scaling
from unpooled.protocol.table_messages import Describe, MissingPatterns
from unpooled.study import ColumnRoles, Schema

SCHEMA = Schema(covariates=(), control="0", treated="1")
NOTHING = np.zeros(0)
SCALING = Scaling(
    NOTHING, NOTHING, 0.0, 1.0, NOTHING, NOTHING, "continuous", NOTHING, NOTHING, (), 2, 18, 50, NOTHING,
)  # fmt: skip
ADOPT = Adopt(SCHEMA, SCALING, "m", {}, 0, ("a", "b"))


class Stub:
    """Two sites whose statistics nobody could guess, so that only a replay can repeat them."""

    sites = ("a", "b")

    def __init__(self, seed: int = 0, rows: int = 9) -> None:
        self.rng, self.rows = np.random.default_rng(seed), rows
        self.asked: list[Question] = []

    def exclude(self, site: str) -> None:
        raise AssertionError("no site is lost here")

    def exchange(self, question: Question) -> tuple[dict[str, Reply], dict[str, Traffic]]:
        self.asked.append(question)
        replies = {site: self.answer(question) for site in self.sites}
        return replies, {"a": Traffic(10, 20), "b": Traffic(10, 30)}

    def answer(self, question: Question) -> Reply:
        return (
            Adopted(self.rows) if isinstance(question, Adopt) else Statistics({"x": self.rng.normal(size=3)})
        )


def procedure(rounds: int = 6, stage: str = "s") -> Generator[Question, Any, np.ndarray]:
    """Every question depends on every reply so far, as an optimiser's does."""
    yield ADOPT
    state = np.zeros(3)
    for _ in range(rounds):
        reply = yield Ask(stage, Parameters({"x": state}))
        state = np.tanh(state + reply.summed["x"])
    return state


def _run(conduct: Conduct[Any], stop_after: int | None = None) -> list[Round]:
    rounds = []
    for happened in conduct:
        rounds.append(happened)
        if len(rounds) == stop_after:
            break
    return rounds


def test_rounds_are_numbered_and_labelled_and_the_result_is_the_procedures() -> None:
    conduct = Conduct(procedure(2), Stub())
    rounds = _run(conduct)
    assert [r.number for r in rounds] == [1, 2, 3]
    assert [r.question for r in rounds] == ["adopt", "s: statistics", "s: statistics"]
    assert conduct.result.shape == (3,)
    assert not any(r.replayed for r in rounds)


@pytest.mark.parametrize("interrupted_after", [1, 2, 4, 7])
def test_a_resumed_study_gives_the_same_numbers_to_the_last_bit(
    tmp_path: Path, interrupted_after: int
) -> None:
    path, engine = tmp_path / "rounds", Stub()
    _run(Conduct(procedure(), engine, Checkpoint(path)), stop_after=interrupted_after)
    resumed = Conduct(procedure(), engine, Checkpoint(path, resume=True))
    rounds = _run(resumed)
    whole = Conduct(procedure(), Stub())
    _run(whole)
    np.testing.assert_array_equal(resumed.result, whole.result)
    assert [r.replayed for r in rounds] == [n < interrupted_after for n in range(7)]


def test_a_site_whose_table_changed_meanwhile_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    _run(Conduct(procedure(), Stub(), Checkpoint(path)), stop_after=4)
    with pytest.raises(ResultsError, match="another table at: a, b"):
        _run(Conduct(procedure(), Stub(rows=10), Checkpoint(path, resume=True)))


def test_a_site_that_left_or_came_meanwhile_is_named() -> None:
    one, two = SiteReplies({"a": Adopted(9)}), SiteReplies({"a": Adopted(9), "b": Adopted(9)})
    with pytest.raises(ResultsError, match="no longer in the study: b"):
        require_same(two, one)
    with pytest.raises(ResultsError, match="new in the study: b"):
        require_same(one, two)
    require_same(two, two)


def test_a_resumed_study_puts_only_the_adoption_and_what_was_never_asked(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    _run(Conduct(procedure(), Stub(), Checkpoint(path)), stop_after=4)
    engine = Stub(1)
    _run(Conduct(procedure(), engine, Checkpoint(path, resume=True)))
    assert [type(question) for question in engine.asked] == [Adopt, Ask, Ask, Ask]


def test_a_finished_study_replays_without_its_sites(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    first = Conduct(procedure(), Stub(), Checkpoint(path))
    _run(first)
    again = Conduct(procedure(), Stub(9), Checkpoint(path, resume=True))
    rounds = _run(again)
    np.testing.assert_array_equal(again.result, first.result)
    assert all(r.replayed for r in rounds)


def test_a_changed_study_cannot_go_on_from_another_ones_record(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    _run(Conduct(procedure(), Stub(), Checkpoint(path)), stop_after=4)
    with pytest.raises(ResultsError, match="round 2"):
        _run(Conduct(procedure(stage="another"), Stub(), Checkpoint(path, resume=True)))


def test_a_record_cut_short_loses_its_last_round_only(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    _run(Conduct(procedure(), Stub(), Checkpoint(path)), stop_after=5)
    whole = path.read_bytes()
    for missing in (1, 20, 60):
        path.write_bytes(whole[:-missing])
        checkpoint = Checkpoint(path, resume=True)
        assert checkpoint.rounds == 4
        # What is left is whole again, so that new rounds follow it.
        unpacker = msgpack.Unpacker()
        unpacker.feed(path.read_bytes())
        assert len(list(unpacker)) == 4


JUNK = [
    b"junk, not a record",
    b"\xc1",
    bytes(40),
    msgpack.packb([b"digest", b"reply"]),
    msgpack.packb([b"question", {"a": 3}, b"reply", b"checksum"]),
    msgpack.packb([b"d"]),
]


@pytest.mark.parametrize("junk", JUNK)
def test_a_damaged_record_is_refused_and_left_as_it_is(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "rounds"
    path.write_bytes(junk)
    with pytest.raises(ResultsError, match="damaged"):
        Checkpoint(path, resume=True)
    assert path.read_bytes() == junk


@pytest.mark.parametrize("reply", [b"\xc1", msgpack.packb(3), encode(Adopted(9))])
def test_a_reply_that_does_not_decode_is_a_damaged_record(tmp_path: Path, reply: bytes) -> None:
    path = tmp_path / "rounds"
    record = StoredRound(encode(ADOPT), {}, bytes(reply or b""), b"")
    record = record._replace(checksum=record.proper_checksum(b""))
    path.write_bytes(bytes(msgpack.packb(list(record)) or b""))
    with pytest.raises(ResultsError, match="damaged"):
        Checkpoint(path, resume=True).recall(ADOPT)


@pytest.mark.parametrize("part", range(4))
def test_an_altered_round_is_named_and_nothing_is_asked(tmp_path: Path, part: int) -> None:
    path = tmp_path / "rounds.msgpack"
    _run(Conduct(procedure(), Stub(), Checkpoint(path)))
    rounds = read_rounds(path)
    changed: list[Any] = list(rounds[3])
    changed[part] = {"a": "0" * 64} if part == 1 else changed[part][:-1] + b"x"
    rounds[3] = StoredRound(*changed)
    path.write_bytes(b"".join(bytes(msgpack.packb(list(one)) or b"") for one in rounds))
    with pytest.raises(ResultsError, match=r"round 4 of rounds\.msgpack was altered"):
        Checkpoint(path, resume=True)


def test_rounds_that_were_exchanged_or_dropped_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rounds.msgpack"
    _run(Conduct(procedure(), Stub(), Checkpoint(path)))
    packed = [bytes(msgpack.packb(list(one)) or b"") for one in read_rounds(path)]
    for order in ([0, 1, 3, 2, 4, 5, 6], [0, 1, 3, 4, 5, 6]):
        path.write_bytes(b"".join(packed[index] for index in order))
        with pytest.raises(ResultsError, match=r"round 3 of rounds\.msgpack was altered"):
            Checkpoint(path, resume=True)


def test_a_round_keeps_the_question_and_a_digest_of_every_sites_reply(tmp_path: Path) -> None:
    class Telling(Stub):
        def exchange(self, question: Question) -> tuple[dict[str, Reply], dict[str, Traffic]]:
            replies, _ = super().exchange(question)
            return replies, {"a": Traffic(1, 2, "f" * 64), "b": Traffic(1, 2)}

    path = tmp_path / "rounds.msgpack"
    _run(Conduct(procedure(), Telling(), Checkpoint(path)), stop_after=1)
    (found,) = read_rounds(path)
    assert decode(found.question).label == "adopt"  # type: ignore[attr-defined]
    assert found.digests == {"a": "f" * 64, "b": hashlib.sha256(encode(Adopted(9))).hexdigest()}
    assert path.stat().st_mode & 0o777 == 0o600


def test_rounds_before_a_site_was_lost_are_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "rounds.msgpack"
    for stop in (2, 3):
        _run(Conduct(procedure(), Stub(), Checkpoint(path)), stop_after=stop)
        set_aside(path)
    assert [len(read_rounds(one)) for one in earlier(path)] == [2, 3]
    assert [one.name for one in earlier(path)] == ["rounds-1.msgpack", "rounds-2.msgpack"]


def test_a_record_that_cannot_be_written_is_told_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="cannot be written") as raised:
        Checkpoint(tmp_path / "file" / "rounds")
    assert str(tmp_path / "file") in raised.value.found
    checkpoint = Checkpoint(tmp_path / "folder" / "rounds")
    (tmp_path / "folder" / "rounds").unlink()
    (tmp_path / "folder").rmdir()
    with pytest.raises(ResultsError, match="cannot be written"):
        checkpoint.append(ADOPT, SiteReplies({"a": Adopted(9)}))
    with pytest.raises(ResultsError, match="cannot be written"):
        Journal(tmp_path / "folder" / "journal").record(Round(1, "s", 0.1, {}, False))


def test_without_resume_an_old_record_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    _run(Conduct(procedure(), Stub(), Checkpoint(path)))
    assert Checkpoint(path).rounds == 0


def test_a_refusal_ends_the_study_and_leaves_the_rounds_before_it(tmp_path: Path) -> None:
    class Refusing(Stub):
        def exchange(self, question: Question) -> tuple[dict[str, Reply], dict[str, Traffic]]:
            replies, traffic = super().exchange(question)
            if len(self.asked) == 3:
                replies["b"] = Refusal("LimitRefusal", "x", "y", "z")
            return replies, traffic

    path, closed = tmp_path / "rounds", []

    def watched() -> Generator[Question, Any, Any]:
        try:
            return (yield from procedure())
        finally:
            closed.append(True)

    with pytest.raises(LimitRefusal, match="site 'b'"):
        _run(Conduct(watched(), Refusing(), Checkpoint(path)))
    assert closed
    assert Checkpoint(path, resume=True).rounds == 2


def test_leaving_the_loop_closes_the_procedure() -> None:
    closed = []

    def watched() -> Generator[Question, Any, Any]:
        try:
            return (yield from procedure())
        finally:
            closed.append(True)

    rounds = iter(Conduct(watched(), Stub()))
    next(rounds)
    rounds.close()  # type: ignore[attr-defined]
    assert closed


def test_labels_name_the_stage_and_what_is_asked_of_it() -> None:
    theta = Parameters({"x": np.ones(1)})
    together = Together((Ask("p", theta), Vjp("q", theta, Statistics()), Ask("p", Parameters())))
    assert together.label == "p: statistics + q: gradient"
    assert Describe(ColumnRoles(treatment="w", outcome="y", covariates=("a",))).label == "describe"
    assert MissingPatterns(SCHEMA, NOTHING).label == "missing patterns"


def test_the_cost_counts_rounds_seconds_and_bytes_by_site(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for happened in Conduct(procedure(3), Stub()):
        journal.record(happened)
    found = journal.cost()
    assert found.rounds == 4
    assert found.bytes_down == {"a": 40, "b": 40}
    assert found.bytes_up == {"a": 80, "b": 120}
    assert found.seconds == pytest.approx(sum(r.seconds for r in journal.rounds))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert lines[0]["bytes"]["b"] == {"down": 10, "up": 30}


def test_rounds_that_were_replayed_cost_no_bytes() -> None:
    happened = Round(1, "s", 0.1, {}, True)
    assert cost([happened]).bytes_up == {}
    assert cost([happened]).rounds == cost([happened]).rounds_without_bytes == 1


def test_the_journal_has_the_heads_of_the_sites_ledgers() -> None:
    happened = Round(1, "s", 0.1, {"a": Traffic(1, 2, "", "3 abc"), "b": Traffic(1, 2)}, False)
    assert line(happened)["ledgers"] == {"a": "3 abc"}
    assert line(happened)["bytes"] == {"a": {"down": 1, "up": 2}, "b": {"down": 1, "up": 2}}


@pytest.mark.parametrize("objective", [None, 1.5, float("inf"), float("nan")])
def test_the_journal_is_json_whatever_the_objective(tmp_path: Path, objective: float | None) -> None:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    journal = Journal(tmp_path / "journal.jsonl")
    journal.record(Round(1, "s", 0.1, {"a": Traffic(1, 2)}, False, objective))
    line = json.loads((tmp_path / "journal.jsonl").read_text(), parse_constant=refuse)
    assert line["objective"] in (None, 1.5)


def test_a_line_that_was_cut_short_goes_before_the_next_is_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    happened = Round(1, "s", 0.1, {"a": Traffic(1, 2)}, False)
    Journal(path).record(happened)
    path.write_text(path.read_text() + path.read_text()[:25])
    assert len(read_lines(path)) == 1
    Journal(path).record(happened)
    assert path.read_text().count("\n") == len(read_lines(path)) == 2


@pytest.mark.parametrize("junk", [b"junk\n", b"3\n", b"\xff\n"])
def test_a_damaged_journal_is_refused_before_the_fit(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(junk)
    with pytest.raises(ResultsError, match="damaged"):
        Journal(path)
