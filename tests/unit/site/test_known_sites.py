"""Sites know each other: identities, their words, and what a coordinator cannot exchange."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from engines.stage import SIZES, approve_together, study, tables, written
from unpooled.engines.pipes import SiteProcesses
from unpooled.errors import ApprovalError, ResultsError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.envelope import Asked, open_reply
from unpooled.protocol.key_messages import Introduce, Introduction, Meet
from unpooled.protocol.messages import Refusal
from unpooled.site.approval import Approvals
from unpooled.site.fingerprint import LENGTH, WORDS, fingerprint
from unpooled.site.folder import SiteFolder
from unpooled.site.gateway import Gateway
from unpooled.site.identity import public_identity, read_identity_key
from unpooled.site.session import Party
from unpooled.study import Study

STUDY = study()
PLAIN = study(privacy={"aggregation": "plain"})
NAMES = tuple(SIZES)


@pytest.fixture
def owns(tmp_path: Path) -> dict[str, SiteFolder]:
    sources = written(tmp_path, tables())
    return {name: SiteFolder.create(tmp_path / name, name, source) for name, source in sources.items()}


def identities(owns: dict[str, SiteFolder]) -> dict[str, bytes]:
    return {name: public_identity(own.identity) for name, own in owns.items()}


def ask(gateway: Gateway, name: str, question: Any, number: int = 1, asked: Study = STUDY) -> Any:
    sealed = Asked(asked.model_dump_json(exclude={"sites"}), b"once", number, encode(question)).seal()
    return decode(open_reply(gateway.answer(sealed), sealed, name).reply)


# --- words


def test_the_words_are_distinct_also_in_their_first_letters() -> None:
    assert len(set(WORDS)) == len({word[:4] for word in WORDS}) == 256
    assert all(word.isascii() and word.isalpha() and word.islower() and len(word) < 10 for word in WORDS)


def test_every_byte_of_an_identity_changes_the_words() -> None:
    base = bytes(range(32))
    changed = {fingerprint(base[:i] + bytes([base[i] ^ 1]) + base[i + 1 :]) for i in range(32)}
    assert len(changed | {fingerprint(base)}) == 33
    assert len(fingerprint(base).split()) == LENGTH == 8


# --- the identity of a folder


def test_every_folder_has_an_identity_of_its_own_which_nobody_else_may_read(
    owns: dict[str, SiteFolder],
) -> None:
    assert len(set(identities(owns).values())) == len(owns)
    for own in owns.values():
        assert stat.S_IMODE(own.identity.stat().st_mode) == 0o600
        assert own.identity.read_bytes().hex() not in f"{own!r}{public_identity(own.identity).hex()}"
        assert (
            public_identity(own.identity) == read_identity_key(own.identity).public_key().public_bytes_raw()
        )


def test_a_missing_or_damaged_identity_is_told_without_its_bytes(owns: dict[str, SiteFolder]) -> None:
    path = owns["north"].identity
    path.write_bytes(b"secret")
    with pytest.raises(ResultsError, match="another file") as raised:
        read_identity_key(path)
    assert "secret" not in str(raised.value)
    path.unlink()
    with pytest.raises(ResultsError, match="join again with a new invitation"):
        read_identity_key(path)


# --- at the gateway


def test_a_study_with_masks_is_not_answered_if_its_approval_names_no_sites(
    owns: dict[str, SiteFolder],
) -> None:
    own = owns["north"]
    for asked, refused in ((STUDY, True), (PLAIN, False)):
        Approvals(own.approvals).decide(asked, approved=True)
        reply = ask(Gateway(own.folder), "north", Introduce(NAMES), asked=asked)
        assert isinstance(reply, Refusal) == refused
        if refused:
            assert (reply.kind, reply.found) == ("ApprovalError", "no list of sites")


def test_in_a_rehearsal_no_list_is_needed(tmp_path: Path) -> None:
    source = written(tmp_path, tables())["north"]
    own = SiteFolder.create(tmp_path / "north", "north", source, rehearsal=True)
    Approvals(own.approvals).decide(STUDY, approved=True)
    assert isinstance(ask(Gateway(own.folder), "north", Introduce(NAMES)), Introduction)


def test_an_approval_with_another_identity_of_this_site_is_not_answered(owns: dict[str, SiteFolder]) -> None:
    own, other = owns["north"], Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    Approvals(own.approvals).decide(STUDY, approved=True, sites={**identities(owns), "north": other})
    reply = ask(Gateway(own.folder), "north", Introduce(NAMES))
    assert isinstance(reply, Refusal) and reply.found == "another identity of 'north'"


def test_a_site_signs_with_the_identity_of_its_folder(owns: dict[str, SiteFolder]) -> None:
    approve_together([own.folder for own in owns.values()], STUDY)
    for name, own in owns.items():
        reply = ask(Gateway(own.folder), name, Introduce(NAMES))
        assert isinstance(reply, Introduction)
        assert reply.identity == public_identity(own.identity)


def met(owns: dict[str, SiteFolder], change: Any = None) -> dict[str, Any]:
    """What the sites reply to each other's introductions, which `change` may exchange."""
    approve_together([own.folder for own in owns.values()], STUDY)
    gateways = {name: Gateway(own.folder) for name, own in owns.items()}
    introduced = {name: ask(one, name, Introduce(NAMES)) for name, one in gateways.items()}
    changed = change(introduced) if change else introduced
    return {
        name: ask(one, name, Meet({**changed, name: introduced[name]}), 2) for name, one in gateways.items()
    }


def test_a_coordinator_that_exchanges_an_identity_is_refused_by_the_others(
    owns: dict[str, SiteFolder],
) -> None:
    assert not any(isinstance(reply, Refusal) for reply in met(owns).values())

    def swapped(introduced: dict[str, Introduction]) -> dict[str, Introduction]:
        return {**introduced, "south": Party("south", STUDY.hash).introduce(NAMES)}

    replies = met(owns, swapped)
    for name in ("north", "east"):
        assert isinstance(replies[name], Refusal) and replies[name].kind == "ApprovalError"
        assert "another identity than was approved" in replies[name].found


def test_a_coordinator_that_adds_a_site_is_refused(owns: dict[str, SiteFolder]) -> None:
    approve_together([own.folder for own in owns.values()], STUDY)
    reply = ask(Gateway(owns["north"].folder), "north", Introduce((*NAMES, "west")))
    assert isinstance(reply, Refusal) and "not approved: 'west'" in reply.found


# --- over processes


@pytest.mark.slow
def test_over_processes_a_study_runs_with_the_sites_that_were_approved_only(
    owns: dict[str, SiteFolder],
) -> None:
    from unpooled.estimators import of_study

    folders = {name: own.folder for name, own in owns.items()}
    asked = study("known", method={"name": "aipw", "draws": 40, "folds": 1})
    approve_together(folders.values(), asked)
    assert len(of_study(asked).fit(asked, SiteProcesses(folders)).ate_draws()) == 40  # type: ignore[arg-type]
    swapped = {**identities(owns), "south": bytes(32)}
    Approvals(owns["north"].approvals).decide(asked, approved=True, sites=swapped)
    with pytest.raises(ApprovalError, match="another identity than was approved"):
        of_study(asked).fit(asked, SiteProcesses(folders))  # type: ignore[arg-type]
    fewer = {name: one for name, one in identities(owns).items() if name != "south"}
    Approvals(owns["north"].approvals).decide(asked, approved=True, sites=fewer)
    with pytest.raises(ApprovalError, match="not approved: 'south'"):
        of_study(asked).fit(asked, SiteProcesses(folders))  # type: ignore[arg-type]
