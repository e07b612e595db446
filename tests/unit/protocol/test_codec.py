"""Messages as bytes: what goes in comes out, what is not data is refused at the sender."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import msgpack
import numpy as np
import pytest

from unpooled.errors import MessageError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.messages import QUESTIONS, REPLIES, Ask, Message, Refusal, Statistics, Together
from unpooled.protocol.records import Parameters

EXAMPLE = Together((Ask("stage", Parameters({"a": np.arange(6.0).reshape(2, 3)}, ())), Ask("b", None)))


@pytest.mark.parametrize("kind", [*QUESTIONS, *REPLIES])
def test_every_message_of_the_vocabulary_travels(kind: type[Message]) -> None:
    values = {field.name: f"<{field.name}>" for field in dataclasses.fields(kind)}
    assert decode(encode(kind(**values))) == kind(**values)


@pytest.mark.parametrize("kind", REPLIES)
def test_every_reply_says_what_it_reveals(kind: type[Message]) -> None:
    assert isinstance(kind.reveals, str)
    assert kind.reveals


def test_structure_and_arrays_survive_the_journey() -> None:
    back = decode(encode(EXAMPLE))
    assert isinstance(back, Together)
    assert isinstance(back.questions, tuple)
    first = back.questions[0]
    np.testing.assert_array_equal(first.parameters.free["a"], np.arange(6.0).reshape(2, 3))
    assert first.parameters.fixed == ()


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5),
        np.zeros((0, 4)),
        np.arange(5)[::2],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([1.0, 2.0], dtype=">f8"),
        np.array([True, False]),
        jnp.arange(3.0),
        np.array([np.nan, np.inf]),
    ],
    ids=["scalar", "empty", "strided", "fortran", "big-endian", "bool", "jax", "not finite"],
)
def test_arrays_of_every_layout_arrive_as_they_left(array: np.ndarray) -> None:
    back = decode(encode(Statistics(total=array))).total
    np.testing.assert_array_equal(back, np.asarray(array))
    assert back.shape == array.shape


def test_numpy_scalars_arrive_as_plain_numbers() -> None:
    sent = {"a": np.float64(1.5), "b": np.int32(3), "c": np.bool_(True)}
    assert decode(encode(Statistics(total=sent))).total == {"a": 1.5, "b": 3, "c": True}


@pytest.mark.parametrize(
    "intruder",
    [object(), {1, 2}, lambda: None, np.array([object()]), np.array(["text"]), 1 + 2j, str],
    ids=["object", "set", "function", "array of objects", "array of text", "complex", "type"],
)
def test_what_is_not_data_is_refused_at_the_sender(intruder: object) -> None:
    with pytest.raises(MessageError):
        encode(Statistics(total={"deep": [intruder]}))


def test_a_message_outside_the_vocabulary_is_refused_at_the_sender() -> None:
    @dataclasses.dataclass(frozen=True)
    class Secret(Message):
        rows: object = None

    with pytest.raises(MessageError):
        encode(Secret())


def test_every_cut_message_is_an_error_of_the_protocol() -> None:
    whole = encode(EXAMPLE)
    for length in range(len(whole)):
        with pytest.raises(MessageError):
            decode(whole[:length])


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        msgpack.packb({"kind": "Ask"}),
        msgpack.packb(msgpack.ExtType(2, msgpack.packb(["Unheard", {}]))),
        msgpack.packb(msgpack.ExtType(2, msgpack.packb([]))),
        msgpack.packb(msgpack.ExtType(2, msgpack.packb(["Ask", {"strange": 1}]))),
        msgpack.packb(msgpack.ExtType(2, msgpack.packb(["Statistics", {"total": msgpack.ExtType(1, b"")}]))),
        msgpack.packb(msgpack.ExtType(9, b"?")),
        encode(EXAMPLE) + b"\0",
    ],
    ids=[
        "nothing",
        "a map",
        "unknown name",
        "no name",
        "unknown field",
        "empty array",
        "unknown code",
        "a tail",
    ],
)
def test_bytes_that_are_no_message_are_refused(payload: bytes) -> None:
    with pytest.raises(MessageError):
        decode(payload)


def test_a_refusal_travels_with_its_three_parts() -> None:
    refusal = Refusal("LimitRefusal", "expected", "found", "remedy")
    assert decode(encode(refusal)) == refusal
