"""What a site answers to a stranger: approved studies, within its limits, on the record."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from engines.stage import approve_together, study, tables, written
from unpooled import errors
from unpooled.disclosure.limits import Limits
from unpooled.errors import MessageError, UnpooledError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.envelope import Answered, Asked, digest, open_reply
from unpooled.protocol.messages import Adopted, Ask, Message, Refusal, Together
from unpooled.protocol.records import Parameters
from unpooled.protocol.table_messages import Describe, Described, Summarise
from unpooled.site.allowance import Spent
from unpooled.site.folder import SiteFolder
from unpooled.site.gateway import CONSTANT, Gateway
from unpooled.site.ledger import entries, verify
from unpooled.site.site import Site

STUDY = study()
QUESTION = Describe(STUDY.columns)


def folder(tmp_path: Path, **more: object) -> SiteFolder:
    source = written(tmp_path, tables())["north"]
    return SiteFolder.create(tmp_path / "north", "north", source, **more)  # type: ignore[arg-type]


def sealed(question: Message = QUESTION, number: int = 1) -> bytes:
    return Asked(STUDY.model_dump_json(exclude={"sites"}), b"once", number, encode(question)).seal()


def asked(own: SiteFolder, envelope: bytes) -> Message:
    return decode(open_reply(Gateway(own.folder).answer(envelope), envelope, "north").reply)


def approved(own: SiteFolder) -> SiteFolder:
    approve_together([own.folder], STUDY)
    return own


def test_an_approved_question_is_answered_and_on_record(tmp_path: Path) -> None:
    own = approved(folder(tmp_path))
    assert isinstance(asked(own, sealed()), Described)
    (entry,) = entries(own.ledger)
    assert (entry.kind, entry.asked) == ("Described", hashlib.sha256(encode(QUESTION)).hexdigest())
    verify(own.ledger)


def test_the_ledgers_head_travels_with_every_reply(tmp_path: Path) -> None:
    own = approved(folder(tmp_path))
    gateway = Gateway(own.folder)
    heads = [open_reply(gateway.answer(sealed()), sealed(), "north").ledger for _ in range(2)]
    assert heads == [f"{entry.number} {entry.hash}" for entry in entries(own.ledger)]
    assert open_reply(gateway.answer(b"junk"), b"junk", "north").ledger == heads[-1]
    for other in ("1", f"1 {'g' * 64}", f"{'1' * 400} {'a' * 64}", f"1 {'a' * 64}\n"):
        forged = Answered("north", digest(sealed()), b"", other).seal()
        with pytest.raises(MessageError, match="other text"):
            open_reply(forged, sealed(), "north")


def test_nothing_is_answered_before_an_approval_or_after_it_was_taken_back(tmp_path: Path) -> None:
    own = folder(tmp_path)
    gateway = Gateway(own.folder)
    kinds = []
    for decision in (None, True, False):
        if decision is not None:
            approve_together([own.folder], STUDY, approved=decision)
        reply = decode(open_reply(gateway.answer(sealed()), sealed(), "north").reply)
        kinds.append(getattr(reply, "kind", type(reply).__name__))
    assert kinds == ["ApprovalError", "Described", "ApprovalError"]


@pytest.mark.parametrize(
    ("more", "kind"),
    [({"limits": Limits(rows=1000)}, "LimitRefusal"), ({"reply_bytes": 10}, "LimitRefusal")],
)
def test_a_sites_own_limits_bind(tmp_path: Path, more: dict[str, object], kind: str) -> None:
    reply = asked(approved(folder(tmp_path, **more)), sealed())
    assert isinstance(reply, Refusal)
    assert reply.kind == kind


def _refused(own: SiteFolder) -> Refusal:
    reply = asked(own, sealed())
    assert isinstance(reply, Refusal)
    return reply


def test_refusals_that_depend_on_the_table_are_one_sentence_and_the_custodian_has_the_reason(
    tmp_path: Path,
) -> None:
    """Whether it is the rows, an arm or a level that is too small is nobody else's business."""
    found, logged = set(), []
    rare = tables()["north"].assign(a=["x"] * 3 + ["z"] * 127)
    changes = {
        "rows": (Limits(rows=131), tables()["north"], "at least 131 rows"),
        "an arm": (Limits(cell=70), tables()["north"], "smaller groups in: arm"),
        "a level": (Limits(), rare, "smaller groups in: a"),
    }
    for number, (limits, table, words) in enumerate(changes.values()):
        (tmp_path / str(number)).mkdir()
        own = approved(folder(tmp_path / str(number), limits=limits))
        table.to_parquet(tmp_path / str(number) / "north.parquet")
        found.add(_refused(own))
        logged.append(own.refusals.read_text())
        assert words in logged[-1] and logged[-1].count("\n") == 1
        assert own.refusals.stat().st_mode & 0o777 == 0o600
    assert found == {Refusal("LimitRefusal", *CONSTANT["LimitRefusal"])}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda t: t.drop(columns="b"), "DataError"),
        (lambda t: t.assign(y=t["y"].where(t.index > 0)), "DataError"),
        (lambda t: t.assign(w=t["w"].where(t.index > 0, 2)), "DataError"),
        (lambda _: None, "DataError"),
    ],
    ids=["a column is missing", "an outcome is missing", "a third arm", "no table"],
)
def test_what_is_wrong_with_a_table_is_told_to_its_custodian_only(
    tmp_path: Path, change: Any, kind: str
) -> None:
    own = approved(folder(tmp_path))
    table = change(tables()["north"])
    if table is None:
        (tmp_path / "north.parquet").unlink()
    else:
        table.to_parquet(tmp_path / "north.parquet")
    reply = _refused(own)
    assert reply == Refusal(reply.kind, *CONSTANT[reply.kind])
    assert reply.kind == "LimitRefusal"  # whether it is the table or a limit would be an answer in itself
    assert f"{kind}: " in own.refusals.read_text()


def test_every_kind_of_error_has_its_constant_refusal() -> None:
    kinds = {
        name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, UnpooledError)
    }
    about_the_question = {"ApprovalError", "MessageError"}
    at_the_coordinator = {"UnpooledError", "EngineError", "SiteLost"}
    of_the_table = {"DataError", "SchemaError", "StudyError"}  # told as if it were a limit
    assert set(CONSTANT) == kinds - about_the_question - at_the_coordinator - of_the_table
    assert not any("{" in text for texts in CONSTANT.values() for text in texts)


def test_a_repeated_question_is_answered_with_the_recorded_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = approved(folder(tmp_path))
    first = asked(own, sealed())

    def never(*_: object) -> Message:
        raise AssertionError("the answer was computed again")

    monkeypatch.setattr("unpooled.site.gateway.answer", never)
    assert asked(own, sealed()) == first
    assert asked(own, sealed(number=7)) == first
    assert [entry.kind for entry in entries(own.ledger)] == ["Described"] * 3
    (state,) = own.allowances.glob("*.json")
    assert Spent.model_validate_json(state.read_bytes()).kinds == {"describe": 1}


def test_what_cannot_be_recorded_does_not_leave(tmp_path: Path) -> None:
    own = approved(folder(tmp_path))
    gateway = Gateway(own.folder)
    own.ledger.with_name("ledger.head.new").mkdir()  # now no head can be written
    reply = decode(open_reply(gateway.answer(sealed()), sealed(), "north").reply)
    assert reply == Refusal("ResultsError", *CONSTANT["ResultsError"])
    assert "cannot be written" in own.refusals.read_text()


def test_a_defect_is_logged_and_refused_without_its_message(tmp_path: Path, monkeypatch) -> None:
    value = repr(tables()["north"]["a"].iloc[0])

    def broken(*_: object) -> Message:
        quoted = value
        try:
            raise KeyError(quoted)
        except KeyError as error:
            raise ValueError(f"cannot convert {quoted}") from error

    monkeypatch.setattr("unpooled.site.gateway.answer", broken)
    own = approved(folder(tmp_path))
    for _ in range(2):
        reply = asked(own, sealed())
        assert isinstance(reply, Refusal)
        assert "ValueError" in reply.found
        assert "errors.log in the site's folder" in reply.remedy
        assert value not in f"{reply}"
    log = own.errors.read_text()
    assert own.errors == own.folder / "errors.log"
    assert own.errors.stat().st_mode & 0o777 == 0o600
    assert log.count("builtins.ValueError") == log.count("builtins.KeyError") == 2
    assert log.count(f"{__file__}, line ") >= 4 and "in broken" in log
    assert value not in log and "cannot convert" not in log and "quoted" not in log
    assert [entry.kind for entry in entries(own.ledger)] == ["Refusal", "Refusal"]


def test_a_defect_in_a_stage_is_logged_too(tmp_path: Path, monkeypatch) -> None:
    """The exception comes out of a traced JAX function, through frames of other packages."""
    value = repr(tables()["north"]["a"].iloc[0])

    def broken(site: Site) -> None:
        raise ZeroDivisionError(f"row 0 holds {site.frame['a'].iloc[0]!r}")

    monkeypatch.setattr("unpooled.site.answer.description", lambda *given: jax.jit(lambda: broken(*given))())
    own = approved(folder(tmp_path))
    reply = asked(own, sealed())
    assert isinstance(reply, Refusal) and "ZeroDivisionError" in reply.found
    assert value not in f"{reply}{own.errors.read_text()}"
    assert "in broken" in own.errors.read_text()


def test_a_defect_is_refused_though_the_log_cannot_be_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("unpooled.site.gateway.answer", lambda *_: 1 / 0)
    own = approved(folder(tmp_path))
    own.errors.mkdir()
    reply = asked(own, sealed())
    assert isinstance(reply, Refusal) and "could not be written" in reply.remedy


def test_a_defect_of_the_ledger_itself_is_refused(tmp_path: Path, monkeypatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise TypeError("the patient is 41")

    monkeypatch.setattr("unpooled.site.ledger.Ledger.record", broken)
    own = approved(folder(tmp_path))
    reply = asked(own, sealed())
    assert isinstance(reply, Refusal) and "TypeError" in reply.found
    assert "41" not in f"{reply}" and "the patient" not in own.errors.read_text()


@pytest.mark.parametrize("envelope", [b"", b"\x00" * 40, Asked("{", b"", 1, b"").seal()])
def test_other_bytes_are_refused_in_words(tmp_path: Path, envelope: bytes) -> None:
    assert isinstance(asked(approved(folder(tmp_path)), envelope), Refusal)


def _unchecked(*parts: Message) -> Together:
    """As another program might send it."""
    together = Together(())
    object.__setattr__(together, "questions", parts)
    return together


ASK = Ask("regression", Parameters({"a": np.zeros((1, 2))}))


NONSENSE: dict[str, Message] = {
    "sums of no schema": Summarise(3),  # type: ignore[arg-type]
    "a reply": Adopted(3),
    "a reply among questions": _unchecked(ASK, Adopted(3)),
    "a description among questions": _unchecked(ASK, QUESTION),
    "nonsense among questions": _unchecked(ASK, _unchecked(Summarise(3))),  # type: ignore[arg-type]
    "a question before the study is adopted": ASK,
    "parameters that are none": Ask("regression", 3),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", NONSENSE)
def test_messages_that_are_no_questions_are_refused(tmp_path: Path, what: str) -> None:
    own = approved(folder(tmp_path))
    assert isinstance(asked(own, sealed(NONSENSE[what])), Refusal)
    assert isinstance(asked(own, sealed()), Described)


def test_an_old_reply_answers_no_new_question(tmp_path: Path) -> None:
    old = Gateway(approved(folder(tmp_path)).folder).answer(sealed(number=1))
    with pytest.raises(MessageError, match="another question"):
        open_reply(old, sealed(number=2), "north")
    with pytest.raises(MessageError, match="another site"):
        open_reply(old, sealed(number=1), "south")
