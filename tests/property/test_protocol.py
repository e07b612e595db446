"""Trees of arrays travel unharmed; triangles pack and unpack."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from unpooled.errors import MessageError
from unpooled.maths.linear_algebra import pack, unpack
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.messages import Message, Replies, Statistics

ARRAYS = st.sampled_from(["<f8", "<f4", "<i8", "<i4", "|b1", ">f8", "<u4"]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5)
TREES = st.recursive(
    ARRAYS | PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=8,
)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return bool(
            isinstance(right, np.ndarray)
            and left.shape == right.shape
            and left.dtype.newbyteorder("<") == right.dtype.newbyteorder("<")
            and np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right or (left != left and right != right))


@given(total=TREES, each=TREES)
def test_trees_of_arrays_arrive_as_they_left(total: Any, each: Any) -> None:
    back = decode(encode(Replies((Statistics(total, each),))))
    assert isinstance(back, Replies)
    (reply,) = back.replies
    assert isinstance(reply, Statistics)
    assert same(total, reply.summed)
    assert same(each, reply.per_site)


@given(total=TREES, cut=st.floats(0.0, 1.0, exclude_max=True))
def test_a_message_cut_anywhere_is_an_error_of_the_protocol(total: Any, cut: float) -> None:
    payload = encode(Statistics(total))
    with pytest.raises(MessageError):
        decode(payload[: int(cut * len(payload))])


@given(total=TREES, place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_message_with_one_wrong_byte_is_a_message_or_an_error_of_the_protocol(
    total: Any, place: int, byte: int
) -> None:
    payload = bytearray(encode(Statistics(total)))
    payload[place % len(payload)] = byte
    with suppress(MessageError):
        assert isinstance(decode(bytes(payload)), Message)


@given(noise=st.binary(max_size=60))
def test_noise_is_an_error_of_the_protocol(noise: bytes) -> None:
    with pytest.raises(MessageError):
        decode(noise)


class Intruder:
    """Something that is not data."""


INTRUDERS = st.sampled_from([Intruder(), {1, 2}, 1j, print, Intruder, np.array(["a"]), np.array([None])])


@given(tree=TREES, intruder=INTRUDERS, within=st.sampled_from([list, tuple, "dict"]))
def test_what_is_not_data_is_refused_wherever_it_hides(tree: Any, intruder: Any, within: Any) -> None:
    hidden = {"here": intruder} if within == "dict" else within([tree, intruder])
    with pytest.raises(MessageError):
        encode(Statistics({"deep": hidden}))


@given(lower=st.integers(1, 5).flatmap(lambda n: hnp.arrays("<f8", (2, n, n), elements=st.floats(-9, 9))))
@settings(max_examples=15)
def test_triangles_pack_and_unpack(lower: np.ndarray) -> None:
    symmetric = lower + np.swapaxes(lower, 1, 2)
    size = lower.shape[1]
    packed = pack(symmetric)
    assert packed.shape == (2, size * (size + 1) // 2)
    np.testing.assert_array_equal(unpack(packed), symmetric)
    np.testing.assert_array_equal(pack(unpack(packed)), packed)
