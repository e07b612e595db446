"""The site's own record: what it keeps, and what it shows when somebody touched it."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from unpooled.errors import ResultsError
from unpooled.protocol.codec import encode
from unpooled.protocol.messages import (
    Ask,
    Gradient,
    Message,
    Question,
    Refusal,
    Replies,
    Statistics,
    Together,
    Vjp,
)
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage
from unpooled.protocol.table_messages import Described
from unpooled.site import ledger as module
from unpooled.site import ledger_chain as chain
from unpooled.site.ledger import Entry, Ledger, entries, open_reply, revealed, verify
from unpooled.site.ledger_files import Head

STUDY = "a" * 64
REPLY = Statistics({"gram": np.ones((1, 2, 6)), "moment": np.ones((1, 2, 3))}, {})


QUESTION = Ask("ridge", Parameters({"x": np.array([[0.5, -2.5]])}))


def _one(ledger: Ledger, number: int = 1, reply: Message = REPLY, question: Question = QUESTION) -> Entry:
    return ledger.record(STUDY, number, question, encode(question), reply, encode(reply))


def _record(path: Path, count: int = 1, reply: Message = REPLY) -> None:
    ledger = Ledger(path)
    for number in range(count):
        _one(ledger, number + 1, reply)


def _canonical(values: dict[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def _chained(values: dict[str, Any], key: bytes) -> bytes:
    """A line whose own hash is right."""
    values = {name: value for name, value in values.items() if name != "hash"}
    return _canonical({**values, "hash": hmac.new(key, _canonical(values), hashlib.sha256).hexdigest()})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def four(path: Path) -> Path:
    """A ledger of four lines."""
    _record(path, 4)
    return path


def test_a_line_says_what_left_without_its_numbers(path: Path) -> None:
    _record(path, 2)
    first, second = entries(path)
    assert (first.number, first.round, first.question, first.kind) == (
        1,
        1,
        "ridge: statistics",
        "Statistics",
    )
    assert first.shapes == ("summed.gram: 1x2x6", "summed.moment: 1x2x3")
    assert first.bytes == len(encode(REPLY))
    assert first.digest == hashlib.sha256(encode(REPLY)).hexdigest()
    assert first.time.endswith("+00:00")
    assert second.previous == first.hash
    found = verify(path)
    assert found == (2, first.time, second.time)


def test_the_hash_is_keyed_and_of_the_line_without_it(path: Path) -> None:
    _record(path)
    (line,) = path.read_bytes().splitlines()
    assert _chained(json.loads(line), path.with_suffix(".key").read_bytes()) == line


def test_nobody_else_may_read_it(path: Path) -> None:
    _record(path)
    for file in (path, path.with_suffix(".head"), path.with_suffix(".key"), *path.parent.glob("replies/*")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((path.parent / "replies").stat().st_mode) == 0o700


def test_what_a_reply_of_several_parts_reveals_is_what_each_part_does(path: Path) -> None:
    class Counting(Stage):
        reveals: ClassVar[str] = "how many"

        def statistics(self, parameters: Any, rows: Rows) -> Any:
            return {}

        def bounds(self) -> Bounds:
            return {}

    together = Replies((REPLY, REPLY, Gradient({"a": np.ones(3)})))
    question = "counting: statistics + ridge: gradient"
    assert revealed(question, together, {"counting": Counting()}) == f"how many; {Gradient.reveals}"
    assert revealed(question, together, {}) == f"{Statistics.reveals}; {Gradient.reveals}"
    _record(path, reply=together)
    (entry,) = entries(path)
    assert entry.shapes[0] == "replies.0.summed.gram: 1x2x6"
    assert entry.shapes[-1] == "replies.2.gradient.a: 3"


def test_levels_of_a_column_are_counted_and_not_named(path: Path) -> None:
    column = {"name": "city", "kind": "categorical", "levels": ["Oslo", "Rome"]}
    _record(path, reply=Described({"rows": 30, "arms": {"drug": 12, "none": 18}, "columns": [column]}))
    _record(path, reply=Refusal("LimitRefusal", "a", "b", "c"))
    text = path.read_text()
    assert not any(word in text for word in ("Oslo", "Rome", "drug"))
    assert "description.columns.0.levels: 2 texts" in entries(path)[0].shapes


def test_a_ledger_goes_on_where_it_ended(four: Path) -> None:
    _record(four, 2)
    assert verify(four).lines == 6


def test_nothing_recorded_holds_together_too(path: Path) -> None:
    Ledger(path)
    assert verify(path) == (0, None, None)
    assert entries(path) == []


FOREIGN = b"not the key of this ledger, 32 by"
"""Whoever rewrites a line knows how the chain is made, and not its key."""


def _altered(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].replace(b'"bytes":', b'"bytes":1'), *lines[2:]]


def _respaced(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].replace(b'"bytes":', b'"bytes": '), *lines[2:]]


def _altered_with_its_hash(lines: list[bytes]) -> list[bytes]:
    return [lines[0], _chained({**json.loads(lines[1]), "bytes": 1}, FOREIGN), *lines[2:]]


def _last_altered_with_its_hash(lines: list[bytes]) -> list[bytes]:
    return [*lines[:3], _chained({**json.loads(lines[3]), "bytes": 1}, FOREIGN)]


def _with_one_that_continues(lines: list[bytes]) -> list[bytes]:
    last = json.loads(lines[-1])
    return [*lines, _chained({**last, "number": 5, "previous": last["hash"]}, FOREIGN)]


TOUCHED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "altered": (_altered, "line 2 was altered"),
    "respaced": (_respaced, "line 2 was altered"),
    "altered with its hash": (_altered_with_its_hash, "line 2 was altered"),
    "last altered with its hash": (_last_altered_with_its_hash, "line 4 was altered"),
    "no longer JSON": (lambda lines: [*lines[:2], b"{", lines[3]], "line 3 was altered"),
    "an empty line": (lambda lines: [lines[0], b"", *lines[1:]], "line 2 was altered"),
    "first removed": (lambda lines: lines[1:], "line 1 was removed"),
    "removed": (lambda lines: [*lines[:2], *lines[3:]], "line 3 was removed"),
    "last removed": (lambda lines: lines[:3], "line 4 was removed"),
    "all removed": (lambda lines: [], "line 1 was removed"),
    "reordered": (lambda lines: [lines[0], lines[2], lines[1], lines[3]], "line 2 was removed or moved"),
    "added": (lambda lines: [*lines[:2], lines[1], *lines[2:]], "line 3 was added"),
    "added at the end": (lambda lines: [*lines, lines[3]], "line 5 was added"),
    "added and chained": (_with_one_that_continues, "line 5 was altered"),
}


@pytest.mark.parametrize("how", TOUCHED)
def test_the_first_line_that_was_touched_is_named(how: str, four: Path) -> None:
    touch, words = TOUCHED[how]
    lines = touch(four.read_bytes().splitlines())
    four.write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(ResultsError, match=words):
        verify(four)


@pytest.mark.parametrize("how", ["removed", "last removed", "added at the end", "added and chained"])
def test_a_ledger_of_another_length_is_not_written_into(how: str, four: Path) -> None:
    touch, words = TOUCHED[how]
    four.write_bytes(b"".join(line + b"\n" for line in touch(four.read_bytes().splitlines())))
    with pytest.raises(ResultsError, match=words):
        Ledger(four)


def test_a_truncated_line_is_named(four: Path) -> None:
    four.write_bytes(four.read_bytes()[:-40])
    with pytest.raises(ResultsError, match="line 4 was cut short"):
        verify(four)
    with pytest.raises(ResultsError, match="line 4 was cut short"):
        Ledger(four)


def test_a_removed_ledger_and_a_removed_head_show(four: Path) -> None:
    content, head = four.read_bytes(), four.with_suffix(".head")
    for part in (four, head, four.with_suffix(".key")):
        kept = part.read_bytes()
        part.unlink()
        for use in (verify, entries, Ledger):
            with pytest.raises(ResultsError, match=f"removed .*: {re.escape(part.name)}"):
                use(part if part == four else four)
        part.write_bytes(kept)
    assert four.read_bytes() == content
    kept = head.read_text()
    head.write_text(kept.replace('"end":', '"end":1'))
    with pytest.raises(ResultsError):
        Ledger(four)
    head.write_text("{}x")
    with pytest.raises(ResultsError, match=r"ledger\.head"):
        Ledger(four)


def test_a_line_that_a_crash_cut_short_is_dropped(four: Path) -> None:
    whole = four.read_bytes()
    four.write_bytes(whole + whole.splitlines()[0][:50])
    assert verify(four).lines == 4
    assert len(entries(four)) == 4
    _record(four)
    assert verify(four).lines == 5
    assert four.read_bytes().startswith(whole)


def test_a_crash_between_a_line_and_its_head_is_no_addition(
    four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, heads = module.write_head, []

    def crash(path: Path, head: Head, key: bytes) -> None:
        heads.append(head)
        if len(heads) == 2:
            raise KeyboardInterrupt
        write(path, head, key)

    monkeypatch.setattr(module, "write_head", crash)
    with pytest.raises(KeyboardInterrupt):
        _record(four)
    monkeypatch.undo()
    assert verify(four).lines == 5
    _record(four)
    assert verify(four).lines == 6


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_where_the_disk_is_full_nothing_is_recorded_and_an_error_says_so(
    four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = four.read_bytes()
    ledger = Ledger(four)
    for name, when in (("fsync", 1), ("fsync", 2), ("fsync", 3), ("fsync", 4)):
        calls: list[int] = []

        def fail(number: int, calls: list[int] = calls, when: int = when) -> None:
            calls.append(number)
            if len(calls) == when:
                _full()

        monkeypatch.setattr(os, name, fail)
        with pytest.raises(ResultsError, match="No space left") as raised:
            _one(ledger, 9)
        monkeypatch.undo()
        assert raised.value.exit_code == 7
        assert four.read_bytes() == before
        assert verify(four).lines == len(list(four.parent.glob("replies/*"))) == 4
    _record(four)
    assert verify(four).lines == 5


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_device_that_is_always_full_is_met_as_an_error(path: Path) -> None:
    Ledger(path)
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(ResultsError, match="No space left"):
        _record(path)


def test_half_a_line_that_fitted_is_taken_back(path: Path) -> None:
    program = f"""
import resource, signal
from pathlib import Path
from unpooled.errors import ResultsError
from unpooled.protocol.messages import Statistics, Together
from unpooled.site.ledger import Ledger, verify
path = Path({str(path)!r})
ledger = Ledger(path)
ledger.record("s", 1, Together(()), b"", Statistics(), b"")
size = path.stat().st_size
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
try:
    ledger.record("s", 2, Together(()), b"", Statistics(), b"")
except ResultsError:
    assert path.stat().st_size == size
    print(verify(path).lines)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1", done.stderr


def test_a_folder_that_is_not_there_is_met_on_opening(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="cannot be written"):
        Ledger(tmp_path / "nowhere" / "ledger.jsonl")


def test_processes_that_write_at_once_take_turns(path: Path) -> None:
    Ledger(path)
    program = f"""
from pathlib import Path
from unpooled.protocol.messages import Statistics, Together
from unpooled.site.ledger import Ledger
ledger = Ledger(Path({str(path)!r}))
for number in range(25):
    ledger.record("s", number, Together(()), b"", Statistics(), b"")
"""
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    assert [one.wait(timeout=120) for one in running] == [0, 0]
    assert verify(path).lines == 50


def test_a_line_costs_the_same_however_long_the_ledger_is(
    four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the whole ledger was read")

    ledger = Ledger(four)
    monkeypatch.setattr(module, "checked", never)
    monkeypatch.setattr(chain, "_parsed", never)
    for number in range(3):
        _one(ledger, number)
    assert ledger.recorded(STUDY, hashlib.sha256(encode(QUESTION)).hexdigest()) == encode(REPLY)
    monkeypatch.undo()
    assert verify(four).lines == 7


def test_a_long_name_from_outside_does_not_fill_the_disk(path: Path) -> None:
    _one(Ledger(path), question=Ask("x" * 10_000, Parameters()))
    assert len(path.read_bytes()) < 2_000


def test_a_line_says_how_much_was_asked(path: Path) -> None:
    three = Parameters({"x": np.array([[1.0], [np.inf], [-7.0]])}, {"key": np.full((3, 2), 2**31)})
    question = Together((Ask("p", three), Vjp("q", Parameters({"x": np.ones((2, 1))}), Statistics())))
    entry = _one(Ledger(path), question=question)
    assert entry.asked == hashlib.sha256(encode(question)).hexdigest()
    assert (entry.stages, entry.batch, entry.largest, entry.people) == (("p", "q"), 5, 7.0, None)
    told = Ledger(path).record(STUDY, 2, QUESTION, b"", REPLY, encode(REPLY), people=12)
    assert (told.batch, told.largest, told.people) == (1, 2.5, 12)
    assert entries(path) == [entry, told]


@pytest.mark.parametrize("nonsense", [3, None, "x", {"a": {"b": "c"}}, [object]])
def test_nonsense_in_place_of_parameters_is_recorded_as_nothing(path: Path, nonsense: Any) -> None:
    entry = Ledger(path).record(STUDY, 1, Ask(nonsense, nonsense), b"", REPLY, encode(REPLY))
    assert (entry.batch, entry.largest) == (0, None)


def test_the_reply_to_a_question_that_was_answered_is_found_again(path: Path) -> None:
    ledger, other = Ledger(path), Ask("other", Parameters())
    asked = hashlib.sha256(encode(QUESTION)).hexdigest()
    assert ledger.recorded(STUDY, asked) is None
    _one(ledger, reply=Refusal("LimitRefusal", "a", "b", "c"))
    assert ledger.recorded(STUDY, asked) is None
    beside = Ledger(path)
    _one(ledger)
    for one in (ledger, beside, Ledger(path)):
        assert one.recorded(STUDY, asked) == encode(REPLY)
        assert one.recorded("b" * 64, asked) is None
        assert one.recorded(STUDY, hashlib.sha256(encode(other)).hexdigest()) is None


def test_the_head_tells_how_many_lines_and_the_last_hash(path: Path) -> None:
    ledger = Ledger(path)
    assert ledger.head == ""
    _one(ledger)
    assert ledger.head == Ledger(path).head == f"1 {entries(path)[0].hash}"


def test_a_reply_is_kept_and_opened_only_as_it_left(four: Path) -> None:
    entry, content = open_reply(four, 3)
    assert (entry.number, content) == (3, encode(REPLY))
    for line in (0, 5):
        with pytest.raises(ResultsError, match=f"line {line} of 4"):
            open_reply(four, line)
    kept = four.parent / "replies" / "000003.msgpack"
    kept.write_bytes(content[:-1] + b"x")
    asked = hashlib.sha256(encode(QUESTION)).hexdigest()
    for use in (lambda: open_reply(four, 3), lambda: verify(four)):
        with pytest.raises(ResultsError, match="the reply of line 3 was altered"):
            use()
    assert Ledger(four).recorded(STUDY, asked) == content  # the first answer
    kept.unlink()
    with pytest.raises(ResultsError, match="the reply of line 3 was removed"):
        verify(four)
