"""Messages between two processes of one machine: length-prefixed bytes over a connected socket."""

from __future__ import annotations

from socket import socket
from typing import Self

LENGTH = 8
"""Bytes of the prefix that holds the length of what follows."""


class Channel:
    """One end of a connection. `EOFError` means that the other end has closed."""

    def __init__(self, connected: socket) -> None:
        self._socket = connected

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def send(self, payload: bytes, timeout: float | None = None) -> None:
        """Send one message; `TimeoutError` if the other end stops reading for `timeout` seconds."""
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(len(payload).to_bytes(LENGTH, "big") + payload)
        except TimeoutError:
            raise
        except OSError:
            raise EOFError from None

    def receive(self, timeout: float | None = None) -> bytes:
        """Receive one message; `TimeoutError` if nothing arrives for `timeout` seconds."""
        self._socket.settimeout(timeout)
        length = int.from_bytes(self._exactly(LENGTH), "big")
        return bytes(self._exactly(length))

    def _exactly(self, count: int) -> bytearray:
        received, filled = bytearray(count), 0
        view = memoryview(received)
        while filled < count:
            try:
                more = self._socket.recv_into(view[filled:])
            except TimeoutError:
                raise
            except OSError:
                more = 0
            if not more:
                raise EOFError
            filled += more
        return received
