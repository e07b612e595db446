"""Between the process that runs a study and the relay: a socket file, sealed questions, sealed replies."""

from __future__ import annotations

from socket import socket
from typing import NamedTuple, Self

import msgpack

ASK, QUESTION, REPLY = "unpooled.ask", "unpooled.question", "unpooled.reply"
"""The only task, and the only keys of what travels in it."""
LENGTH = 8
"""Bytes that tell how many follow."""


class Request(NamedTuple):
    """What to put to whom, and how many seconds to wait for the answers."""

    questions: dict[str, bytes]
    seconds: float


class Response(NamedTuple):
    """What came back in time; and which sites have left."""

    replies: dict[str, bytes]
    gone: list[str]


class Line:
    """One end of a connection; the other end's going is an EOFError."""

    def __init__(self, connected: socket) -> None:
        self._socket = connected

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, parts: Request | Response) -> None:
        payload = bytes(msgpack.packb(list(parts)) or b"")
        try:
            self._socket.sendall(len(payload).to_bytes(LENGTH, "big") + payload)
        except OSError:
            raise EOFError from None

    def receive(self, seconds: float | None = None) -> list[object]:
        """The parts of what was sent; TimeoutError where nothing comes."""
        self._socket.settimeout(seconds)
        length = int.from_bytes(self._exactly(LENGTH), "big")
        return list(msgpack.unpackb(self._exactly(length), max_bin_len=2**32 - 1))

    def _exactly(self, count: int) -> bytearray:
        found, filled = bytearray(count), 0
        view = memoryview(found)
        while filled < count:
            try:
                got = self._socket.recv_into(view[filled:])
            except TimeoutError:
                raise
            except OSError:
                got = 0
            if not got:
                raise EOFError
            filled += got
        return found
