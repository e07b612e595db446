"""At the coordinator, inside NVIDIA FLARE: passes questions from the study's process to the sites.

The study itself runs in the process that the user started, which also holds its checkpoint and journal. That
process and this one talk over a socket file; when either ends, the other notices at once.
"""

from __future__ import annotations

import socket
import time
from queue import Empty, SimpleQueue
from select import select
from typing import NamedTuple

import msgpack
from nvflare.apis.client import Client as Peer
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from unpooled.engines.channel import Channel
from unpooled.engines.nvflare.configuration import QUESTION, REPLY, TASK

LARGEST = 2**28
"""Bytes of the largest reply that is accepted."""
POLL = 0.5
"""Seconds between two checks whether the study or a site has gone."""


class Request(NamedTuple):
    """The envelopes to send, by site, and how many seconds to wait for the replies."""

    envelopes: dict[str, bytes]
    timeout: float

    def encode(self) -> bytes:
        return bytes(msgpack.packb(list(self)) or b"")


class Response(NamedTuple):
    """The replies that arrived in time, by site, and the sites that have disconnected."""

    replies: dict[str, bytes]
    disconnected: list[str]

    def encode(self) -> bytes:
        return bytes(msgpack.packb(list(self)) or b"")


def decode_request(payload: bytes) -> Request:
    return Request(*msgpack.unpackb(payload, max_bin_len=2**32 - 1))


def decode_response(payload: bytes) -> Response:
    return Response(*msgpack.unpackb(payload, max_bin_len=2**32 - 1))


class Relay(Controller):
    """Sends each site its envelope and returns what the sites answered."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def start_controller(self, fl_ctx: FLContext) -> None:
        """There is nothing to prepare."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """There is nothing to clean up."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        with socket.socket(socket.AF_UNIX) as connected, Channel(connected) as study:
            connected.connect(self._address)
            while not abort_signal.triggered:
                try:
                    if select([study], [], [], POLL)[0]:
                        request = decode_request(study.receive())
                        study.send(self._exchange(request, abort_signal, fl_ctx).encode())
                except EOFError:
                    return  # the study has finished, or its process has ended

    def _exchange(self, request: Request, abort_signal: Signal, fl_ctx: FLContext) -> Response:
        arrived: SimpleQueue[tuple[str, object]] = SimpleQueue()

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            result = client_task.result
            arrived.put((client_task.client.name, result.get(REPLY) if result else None))

        tasks = {}
        for site, envelope in request.envelopes.items():
            data = Shareable()
            data[QUESTION] = envelope
            tasks[site] = Task(TASK, data=data, result_received_cb=received)
            self.broadcast(tasks[site], fl_ctx, targets=[site], min_responses=1)
        replies = self._collect(arrived, request, abort_signal)
        for task in tasks.values():
            self.cancel_task(task)
        missing = [site for site in tasks if site not in replies]
        disconnected = [site for site in missing if self.get_client_disconnect_time(site)]
        return Response({site: _checked(reply) for site, reply in replies.items()}, disconnected)

    def _collect(
        self, arrived: SimpleQueue[tuple[str, object]], request: Request, stop: Signal
    ) -> dict[str, object]:
        """The replies that arrive in time; a site that has disconnected is not waited for."""
        replies: dict[str, object] = {}
        until = time.monotonic() + request.timeout
        while len(replies) < len(request.envelopes) and time.monotonic() < until and not stop.triggered:
            try:
                site, reply = arrived.get(timeout=POLL)
                replies[site] = reply
            except Empty:
                waiting = [site for site in request.envelopes if site not in replies]
                if all(self.get_client_disconnect_time(site) for site in waiting):
                    break
        return replies

    def process_result_of_unknown_task(
        self, client: Peer, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """A reply that arrives too late is dropped."""


def _checked(reply: object) -> bytes:
    """A reply that can be passed on; another object, or one too large, becomes empty and is not valid."""
    return reply if isinstance(reply, bytes) and len(reply) <= LARGEST else b""
