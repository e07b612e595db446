"""Somebody at a site rewrites the record of what left it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.stage import approve_together, study, tables, written
from unpooled.errors import ResultsError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.envelope import Asked, open_reply
from unpooled.protocol.messages import Ask, Refusal, Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.table_messages import Describe
from unpooled.site.folder import SiteFolder
from unpooled.site.gateway import Gateway
from unpooled.site.ledger import Ledger, entries, verify
from unpooled.site.ledger_files import Head, read_key, write_head

STUDY = study()
QUESTION = Ask("ridge", Parameters({"x": np.ones((1, 3))}))
REPLY = Statistics({"gram": np.arange(6.0).reshape(1, 2, 3)})


@pytest.fixture
def own(tmp_path: Path) -> SiteFolder:
    """A site with an approved study and five replies on record."""
    made = SiteFolder.create(tmp_path / "north", "north", written(tmp_path, tables())["north"])
    approve_together([made.folder], STUDY)
    ledger = Ledger(made.ledger)
    for number in range(5):
        ledger.record(STUDY.hash, number + 1, QUESTION, encode(QUESTION), REPLY, encode(REPLY))
    return made


def unkeyed(values: dict[str, Any]) -> dict[str, Any]:
    """A hash as anybody can compute it."""
    bare = {name: value for name, value in values.items() if name not in ("hash", "seal")}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"))
    return {**bare, "hash": hashlib.sha256(text.encode()).hexdigest()}


def written_anew(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Rewrite all lines and the head so that everything fits together, except for the key."""
    lines = change([json.loads(line) for line in path.read_text().splitlines()])
    previous, texts = "0" * 64, []
    for number, line in enumerate(lines, start=1):
        line = unkeyed({**line, "number": number, "previous": previous})
        previous = line["hash"]
        texts.append(json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n")
    path.write_text("".join(texts))
    head = json.loads(path.with_suffix(".head").read_text())
    head |= {"lines": len(lines), "hash": previous, "end": path.stat().st_size}
    path.with_suffix(".head").write_text(json.dumps(head, sort_keys=True, separators=(",", ":")) + "\n")


CHANGES: dict[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = {
    "a reply is left out": lambda lines: [*lines[:2], *lines[3:]],
    "the last reply is left out": lambda lines: lines[:-1],
    "a reply is made smaller": lambda lines: [{**lines[0], "bytes": 1}, *lines[1:]],
    "nothing is changed": lambda lines: lines,
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_ledger_and_head_rewritten_together_do_not_verify_without_the_key(
    own: SiteFolder, how: str
) -> None:
    written_anew(own.ledger, CHANGES[how])
    with pytest.raises(ResultsError):
        verify(own.ledger)
    with pytest.raises(ResultsError):
        Ledger(own.ledger)


def test_a_ledger_cut_back_to_an_earlier_line_does_not_verify(own: SiteFolder) -> None:
    """The hash of every line can be read, but no head can be written for it."""
    third = entries(own.ledger)[2]
    kept = own.ledger.read_bytes().splitlines(keepends=True)[:3]
    own.ledger.write_bytes(b"".join(kept))
    head = json.loads(own.ledger.with_suffix(".head").read_text())
    head |= {"lines": 3, "hash": third.hash, "end": len(b"".join(kept))}
    own.ledger.with_suffix(".head").write_text(json.dumps(head) + "\n")
    with pytest.raises(ResultsError, match=r"ledger\.head was altered"):
        verify(own.ledger)


@pytest.mark.parametrize(
    "gone",
    [
        ("ledger.jsonl", "ledger.head"),
        ("ledger.jsonl", "ledger.head", "ledger.key"),
        ("ledger.jsonl", "ledger.head", "ledger.key", "replies"),
        ("ledger.key",),
        ("replies",),
    ],
)
def test_a_ledger_that_was_removed_is_missed_and_the_site_answers_nothing(
    own: SiteFolder, gone: tuple[str, ...]
) -> None:
    for name in gone:
        path = own.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for use in (verify, entries, Ledger):
        with pytest.raises(ResultsError, match="removed"):
            use(own.ledger)
    with pytest.raises(ResultsError, match="removed"):
        Gateway(own.folder)
    assert not any((own.folder / name).exists() for name in gone)


def test_a_ledger_removed_while_the_site_runs_is_missed_too(own: SiteFolder) -> None:
    gateway = Gateway(own.folder)
    own.ledger.unlink()
    question = Describe(STUDY.columns)
    sealed = Asked(STUDY.model_dump_json(exclude={"sites"}), b"once", 1, encode(question)).seal()
    reply = decode(open_reply(gateway.answer(sealed), sealed, "north").reply)
    assert isinstance(reply, Refusal) and reply.kind == "ResultsError"
    assert "removed" in own.refusals.read_text()


def test_a_kept_reply_that_was_exchanged_does_not_verify(own: SiteFolder) -> None:
    other = Statistics({"gram": np.zeros((1, 2, 3))})
    (own.folder / "replies" / "000002.msgpack").write_bytes(encode(other))
    with pytest.raises(ResultsError, match="the reply of line 2 was altered"):
        verify(own.ledger)


def test_the_coordinator_knows_the_head_so_that_a_ledger_rewritten_with_the_key_shows(
    own: SiteFolder,
) -> None:
    gateway = Gateway(own.folder)
    question = Describe(STUDY.columns)
    sealed = Asked(STUDY.model_dump_json(exclude={"sites"}), b"once", 1, encode(question)).seal()
    told = open_reply(gateway.answer(sealed), sealed, "north").ledger
    key, lines = read_key(own.ledger), own.ledger.read_bytes().splitlines(keepends=True)
    third = entries(own.ledger)[2]
    own.ledger.write_bytes(b"".join(lines[:3]))
    write_head(own.ledger, Head(lines=3, hash=third.hash, end=len(b"".join(lines[:3]))), key)
    assert verify(own.ledger).lines == 3  # whoever has the key can do this
    assert told.startswith("6 ")
    assert told not in [f"{one.number} {one.hash}" for one in entries(own.ledger)]
