"""Encode messages as bytes: msgpack for structure, raw little-endian buffers for arrays, no pickle."""

from __future__ import annotations

import dataclasses

import jax
import msgpack
import numpy as np
from pydantic import BaseModel

from unpooled.errors import MessageError
from unpooled.maths.missing_patterns import Pattern
from unpooled.protocol import duplicate_messages, key_messages, table_messages
from unpooled.protocol.messages import Message
from unpooled.protocol.records import Record, field_values
from unpooled.study import ColumnRoles, Description, Schema

_ARRAY, _RECORD, _TUPLE = 1, 2, 3
_DTYPES = ("<f8", "<f4", "<i8", "<i4", "|b1", "|u1", "<u4", "<u8")
_PLAIN = {kind.__name__: kind for kind in (ColumnRoles, Description, Schema, Pattern)}
"""Types that may be encoded in addition to subclasses of `Record`."""
MESSAGES = (duplicate_messages, key_messages, table_messages)
"""Modules whose messages are known because they are imported here, beside `messages` itself."""


def _known(name: str) -> type | None:
    """Look up an encodable class by name; None if there is none."""
    return _PLAIN.get(name) or _records(Record).get(name)


def _records(base: type) -> dict[str, type]:
    found = {base.__name__: base}
    for one in base.__subclasses__():
        found |= _records(one)
    return found


def encode(message: Message) -> bytes:
    """Encode a message. Values other than arrays, numbers, text and known records raise `MessageError`."""
    return _nested(message)


def decode(payload: bytes) -> Message:
    """Decode a message. Bytes that do not hold a message of the protocol raise `MessageError`."""
    try:
        message = msgpack.unpackb(payload, ext_hook=_unpack, strict_map_key=False)
    except MessageError:
        raise
    except (ValueError, TypeError, LookupError, RecursionError, msgpack.UnpackException) as error:
        raise _undecodable(type(error).__name__) from None
    if not isinstance(message, Message):
        raise _undecodable("no message inside")
    return message


def _undecodable(found: str) -> MessageError:
    return MessageError(
        "the bytes must hold one message of the protocol",
        found=found,
        remedy="run the same version of unpooled at every party",
    )


def _pack(value: object) -> object:
    if isinstance(value, BaseModel) and type(value) in _PLAIN.values():
        return msgpack.ExtType(_RECORD, _nested([type(value).__name__, value.model_dump(mode="json")]))
    if dataclasses.is_dataclass(value) and (isinstance(value, Record) or type(value) in _PLAIN.values()):
        return msgpack.ExtType(_RECORD, _nested([type(value).__name__, field_values(value)]))
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, _nested(list(value)))
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    if isinstance(value, np.ndarray | jax.Array):
        return msgpack.ExtType(_ARRAY, _array_bytes(np.asarray(value)))
    raise MessageError(
        "a message must hold arrays, numbers and text only",
        found=type(value).__name__,
        remedy="report this as a bug",
    )


def _nested(value: object) -> bytes:
    return bytes(msgpack.packb(value, default=_pack, strict_types=True) or b"")


def _array_bytes(array: np.ndarray) -> bytes:
    dtype = array.dtype.newbyteorder("<").str
    if dtype not in _DTYPES:
        raise MessageError(
            "an array must be numeric", found=f"dtype {array.dtype}", remedy="report this as a bug"
        )
    header = _nested([dtype, list(array.shape)])
    return bytes([len(header)]) + header + np.ascontiguousarray(array, dtype=dtype).tobytes()


def _unpack(code: int, payload: bytes) -> object:
    if code == _ARRAY:
        length = payload[0]
        dtype, shape = msgpack.unpackb(payload[1 : 1 + length])
        if dtype not in _DTYPES:
            raise _undecodable("an array with an unknown dtype")
        # A copy is aligned in memory: the last digit of a sum may depend on it.
        return np.frombuffer(payload, dtype=dtype, offset=1 + length).reshape(shape).copy()
    inner = msgpack.unpackb(payload, ext_hook=_unpack, strict_map_key=False)
    if code == _TUPLE:
        return tuple(inner)
    kind = _known(inner[0]) if code == _RECORD else None
    if kind is None:
        raise _undecodable("an unknown record")
    return kind(**inner[1])
