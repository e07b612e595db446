"""Mutated messages, envelopes and study files: nothing but the package's own errors.

`MUTATIONS=20000 pytest tests/attacks/test_mutated_bytes.py` tries more of them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attacks.coordinator import Attacker, people, study
from unpooled.errors import MessageError, UnpooledError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.envelope import Asked
from unpooled.protocol.messages import Ask, Message, Reply, Statistics, Together, Vjp
from unpooled.protocol.records import Parameters
from unpooled.protocol.table_messages import Describe, Summarise
from unpooled.study.file import read_study, study_template

MUTATIONS = int(os.environ.get("MUTATIONS", "300"))
MANY = settings(max_examples=MUTATIONS, suppress_health_check=list(HealthCheck))
TABLE = people(120, numbers=2)
STUDY = study(TABLE, {"name": "aipw", "folds": 1})
ASK = Ask("outcome", Parameters(fixed={"without": np.array([-1])}))
CHANGES = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 255), st.sampled_from("xid")), min_size=1, max_size=6
)


def mutated(original: bytes, changes: list[tuple[int, int, str]]) -> bytes:
    """Bytes changed (x), inserted (i) and deleted (d)."""
    found = bytearray(original)
    for place, value, how in changes:
        at = place % max(len(found), 1)
        if how == "i" or not found:
            found.insert(at, value)
        elif how == "d":
            del found[at]
        else:
            found[at] ^= value
    return bytes(found)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Attacker:
    found = Attacker(tmp_path_factory.mktemp("fuzzed"), TABLE, STUDY)
    found.adopted()
    return found


@pytest.fixture(scope="module")
def messages(site: Attacker, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    other = Attacker(tmp_path_factory.mktemp("other"), TABLE, STUDY)
    adopt = other.agreed()
    gradient = Vjp("outcome", ASK.parameters, Statistics({"gram": np.ones((1, 2, 3))}))
    asked: list[Message] = [Describe(STUDY.columns), Summarise(adopt.schema), adopt.to_site(0), ASK]
    return [encode(one) for one in (*asked, gradient, Together((ASK, ASK)))]


@MANY
@given(which=st.integers(0, 5), changes=CHANGES)
def test_a_mutated_message_is_a_message_or_refused(
    messages: list[bytes], which: int, changes: list[tuple[int, int, str]]
) -> None:
    with suppress(MessageError):
        assert isinstance(decode(mutated(messages[which], changes)), Message)


@MANY
@given(which=st.integers(0, 5), changes=CHANGES, sealed=st.booleans())
def test_a_site_answers_every_envelope(
    site: Attacker, messages: list[bytes], which: int, changes: list[tuple[int, int, str]], sealed: bool
) -> None:
    asked = site.study.model_dump_json(exclude={"sites"})
    question = messages[which] if sealed else mutated(messages[which], changes)
    envelope = Asked(asked, b"run", 1, question).seal()
    reply = site.send(mutated(envelope, changes) if sealed else envelope)
    assert isinstance(reply, Reply)


@MANY
@given(changes=CHANGES)
def test_a_mutated_study_file_is_a_study_or_an_error_with_a_remedy(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, str]]
) -> None:
    path = Path(tmp_path_factory.getbasetemp()) / "mutated.toml"
    path.write_bytes(mutated(study_template().encode(), changes))
    try:
        read_study(path)
    except UnpooledError as error:
        assert error.remedy
