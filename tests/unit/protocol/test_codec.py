"""Messages as bytes: what goes in comes out, what is not data is refused at the sender."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import msgpack
import numpy as np
import pytest
from pydantic import BaseModel

from unpooled.errors import MessageError
from unpooled.maths.missing_patterns import Pattern
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.messages import (
    Adopt,
    Adopted,
    Ask,
    Message,
    Refusal,
    Reply,
    SiteReplies,
    Statistics,
    Together,
    Vjp,
    question_kinds,
)
from unpooled.protocol.records import (
    Draws,
    IncompleteColumn,
    Limits,
    Parameters,
    Record,
    Scaling,
    SiteSummaries,
)
from unpooled.protocol.table_messages import Centre, Describe, Described, Patterns, Summarise
from unpooled.study import ColumnRoles, Description, Schema
from unpooled.study.schema import ColumnSchema

EXAMPLE = Together(
    (Ask("stage", Parameters({"a": np.arange(6.0).reshape(2, 3)}, {"b": ()})), Ask("b", Parameters()))
)
QUESTIONS = [*question_kinds().values()]
REPLIES = [kind for kind in Reply.__subclasses__() if kind.__module__.startswith("unpooled.")]


@pytest.mark.parametrize("kind", [*QUESTIONS, *REPLIES, SiteReplies])
def test_every_message_of_the_vocabulary_travels(kind: type[Message]) -> None:
    values: dict[str, object] = {field.name: f"<{field.name}>" for field in dataclasses.fields(kind)}
    if kind is Together:  # its parts are checked
        values = {"questions": (Ask("stage", Parameters()),)}
    assert decode(encode(kind(**values))) == kind(**values)


@pytest.mark.parametrize("kind", REPLIES)
def test_every_reply_says_what_it_reveals(kind: type[Message]) -> None:
    assert isinstance(vars(kind)["reveals"], str)
    assert kind.reveals


def test_the_vocabulary_is_not_empty() -> None:
    assert {Describe, Summarise, Adopt, Ask, Vjp, Together} < set(QUESTIONS)
    assert {Described, Patterns, Statistics, Refusal} < set(REPLIES)


COLUMNS = ColumnRoles(
    treatment="w",
    outcome="y",
    covariates=("a", "b"),
    incomplete=("u", "v"),
    units={"y": "kg"},
    family="count",
)
SCHEMA = Schema(
    covariates=(
        ColumnSchema(name="a", kind="numeric"),
        ColumnSchema(name="b", kind="categorical", levels=("x", "z")),
    ),
    control="0",
    treated="1",
    incomplete=(ColumnSchema(name="u", kind="count"), ColumnSchema(name="v", kind="binary")),
)
SCALING = Scaling(
    mean=np.array([1.0, 0.25]),
    sd=np.array([2.0, 0.5]),
    outcome_mean=3.0,
    outcome_sd=4.0,
    correlation=np.array([[1.0, 0.1], [0.1, 1.0]]),
    binary_rate=np.array([np.nan, 0.25]),
    family="count",
    incomplete_mean=np.array([1.5, 0.5]),
    incomplete_sd=np.array([0.7, 0.5]),
    incomplete_columns=(IncompleteColumn("u", "count", 1), IncompleteColumn("v", "binary", 1)),
    sites=2,
    people=24,
    largest_site=50,
    site_distances=np.array([[0.0, 0.3], [0.3, 0.0]]),
    by_site=SiteSummaries(("north", "south"), (9, 15), np.array([[8, 9], [11, 15]])),
)
PATTERN = Pattern(np.array([True, False, True]), 6, np.array([0.5, -1.0]), np.array([[2.0, 0.3], [0.3, 1.0]]))
DRAWS = Draws({"w": np.ones((3, 2))}, {"deep": {"g": np.arange(12.0).reshape(3, 2, 2)}}, "isotropic")
DESCRIPTION = Description(rows=24, arms={"0": 10, "1": 14}, columns=SCHEMA.covariates)
ADOPT = Adopt(
    SCHEMA,
    SCALING,
    "fedci",
    {"draws": 40},
    7,
    ("north",),
)


@pytest.mark.parametrize(
    "message",
    [
        Describe(COLUMNS),
        Described(DESCRIPTION, Limits(rows=30, share=0.2)),
        Summarise(SCHEMA),
        Summarise(SCHEMA, Centre(np.ones(3), np.zeros(2))),
        Patterns((PATTERN, PATTERN), 2, 5),
        ADOPT,
        Vjp("s", Parameters({"a": np.ones(2)}), Statistics(np.ones(2), {"b": np.ones((2, 3))})),
        Statistics({"draws": DRAWS}),
        SiteReplies({"north": Described(DESCRIPTION), "south": Patterns((PATTERN,), 0, 0)}),
        ADOPT.to_site(0),
        Adopted(9, ("b", "v")),
        Together((Ask("s", Parameters(fixed={"fold": np.arange(3)})), Vjp("s", Parameters(), Statistics()))),
    ],
    ids=lambda message: type(message).__name__,
)
def test_records_inside_a_message_arrive_with_their_types(message: Message) -> None:
    _same(decode(encode(message)), message)


def test_draws_arrive_with_the_name_of_their_model() -> None:
    back = _statistics(DRAWS).summed
    assert isinstance(back, Draws)
    assert back.model == "isotropic"
    np.testing.assert_array_equal(back.at(1)["deep"]["g"], DRAWS.at(1)["deep"]["g"])


def _same(found: object, sent: object) -> None:
    """Equal in type, structure and every number, however deep."""
    assert type(found) is type(sent)
    if isinstance(sent, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert found.dtype == sent.dtype
        np.testing.assert_array_equal(found, sent)
    elif isinstance(sent, Record | Pattern):
        _same(vars(found), vars(sent))
    elif isinstance(sent, dict):
        assert isinstance(found, dict)
        assert list(found) == list(sent)
        for key, value in sent.items():
            _same(found[key], value)
    elif isinstance(sent, tuple | list):
        assert isinstance(found, tuple | list)
        for one, other in zip(found, sent, strict=True):
            _same(one, other)
    else:
        assert found == sent


def test_structure_and_arrays_survive_the_journey() -> None:
    back = decode(encode(EXAMPLE))
    assert isinstance(back, Together)
    assert isinstance(back.questions, tuple)
    first, second = back.questions
    assert isinstance(first, Ask)
    np.testing.assert_array_equal(first.parameters.free["a"], np.arange(6.0).reshape(2, 3))
    assert first.parameters.fixed == {"b": ()}
    assert second == Ask("b", Parameters())


def _statistics(summed: object) -> Statistics:
    back = decode(encode(Statistics(summed)))
    assert isinstance(back, Statistics)
    return back


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
    back = _statistics(array).summed
    np.testing.assert_array_equal(back, np.asarray(array))
    assert back.shape == array.shape


def test_numpy_scalars_arrive_as_plain_numbers() -> None:
    sent = {"a": np.float64(1.5), "b": np.int32(3), "c": np.bool_(True)}
    assert _statistics(sent).summed == {"a": 1.5, "b": 3, "c": True}


@pytest.mark.parametrize(
    "intruder",
    [object(), {1, 2}, lambda: None, np.array([object()]), np.array(["text"]), 1 + 2j, str],
    ids=["object", "set", "function", "array of objects", "array of text", "complex", "type"],
)
def test_what_is_not_data_is_refused_at_the_sender(intruder: object) -> None:
    with pytest.raises(MessageError):
        encode(Statistics({"deep": [intruder]}))


@dataclasses.dataclass(frozen=True)
class Unregistered:
    """A dataclass that is no `Record`."""

    rows: object = None


class Unlisted(BaseModel):
    """A model that is none of the study's."""

    rows: int = 3


@pytest.mark.parametrize("secret", [Unregistered(), Unlisted()], ids=["dataclass", "model"])
def test_a_class_outside_the_vocabulary_is_refused_at_the_sender(secret: object) -> None:
    with pytest.raises(MessageError):
        encode(Statistics({"deep": [secret]}))


def _record(name: str, **fields: object) -> msgpack.ExtType:
    """A record as it travels, whatever its name and fields."""
    return msgpack.ExtType(2, _packed([name, fields]))


def _packed(value: object) -> bytes:
    return bytes(msgpack.packb(value) or b"")


def _tuple(*values: object) -> msgpack.ExtType:
    return msgpack.ExtType(3, _packed(list(values)))


def _asking() -> msgpack.ExtType:
    return _record("Ask", stage="s", parameters=_record("Parameters"))


def _describing() -> msgpack.ExtType:
    return _record("Describe", columns=_record("ColumnRoles", **COLUMNS.model_dump(mode="json")))


def test_the_bytes_made_here_by_hand_are_those_of_the_codec() -> None:
    assert decode(_packed(_describing())) == Describe(COLUMNS)
    together = _record("Together", questions=_tuple(_asking(), _asking()))
    assert decode(_packed(together)) == Together((Ask("s", Parameters()),) * 2)


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
        msgpack.packb(msgpack.ExtType(2, msgpack.packb(["Statistics", {"summed": msgpack.ExtType(1, b"")}]))),
        msgpack.packb(msgpack.ExtType(9, b"?")),
        encode(EXAMPLE) + b"\0",
        _packed(_record("Parameters")),
        _packed(_record("Ask", stage="s", parameters=_record("Unheard"))),
        _packed(_record("Ask", stage="s", parameters=_record("Parameters", strange={}))),
        _packed(_record("Statistics", summed=_record("Unregistered"))),
        _packed(_record("Statistics", summed=_record("Scaling", mean=1.0))),
        _packed(
            _record("Describe", columns=_record("ColumnRoles", **COLUMNS.model_dump(mode="json"), strange=1))
        ),
        _packed(_record("Describe", columns=_record("ColumnRoles", treatment="w"))),
        _packed(_record("Summarise", schema=_record("Schema", covariates=3, control="0", treated="1"))),
        _packed(_record("Together", questions=_tuple(_record("Adopted", rows=3)))),
        _packed(_record("Together", questions=_tuple(_asking(), _record("Together", questions=_tuple())))),
        _packed(_record("Together", questions=_tuple(_describing(), _asking()))),
        _packed(_record("Together", questions=[_asking()])),
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
        "a record that is no message",
        "unknown name inside",
        "unknown field inside",
        "a class that is no record",
        "missing fields inside",
        "unknown field of a model",
        "missing fields of a model",
        "wrong field of a model",
        "a reply among questions",
        "questions inside questions",
        "a description together with statistics",
        "questions in a list",
    ],
)
def test_bytes_that_are_no_message_are_refused(payload: bytes) -> None:
    with pytest.raises(MessageError):
        decode(payload)


def test_a_refusal_travels_with_its_three_parts() -> None:
    refusal = Refusal("LimitRefusal", "expected", "found", "remedy")
    assert decode(encode(refusal)) == refusal
