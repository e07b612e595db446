"""At the coordinator, inside NVIDIA FLARE: questions from the process that runs the study go to the sites.

The study itself runs in the process that the user started, which also holds its checkpoint and journal; this
is only the way to the sites. When either end goes, the other notices at once.
"""

from __future__ import annotations

import socket
import time
from queue import Empty, SimpleQueue
from select import select
from typing import Any

from nvflare.apis.client import Client as Peer
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from unpooled.engines.nvflare.wire import ASK, QUESTION, REPLY, Line, Request, Response

LARGEST = 2**28
"""Bytes of a reply, past which it is not taken."""
GLANCE = 0.5
"""Seconds between two looks at whether anybody has gone."""


class Relay(Controller):
    """Puts each question to the sites it names and hands back what they answered."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to prepare."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to put away."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        with socket.socket(socket.AF_UNIX) as connected, Line(connected) as caller:
            connected.connect(self._address)
            while not abort_signal.triggered:
                try:
                    if select([caller], [], [], GLANCE)[0]:
                        request = Request(*caller.receive())  # type: ignore[arg-type]
                        caller.send(self._exchange(request, abort_signal, fl_ctx))
                except EOFError:
                    return  # whoever ran the study has finished, or has gone

    def _exchange(self, request: Request, abort_signal: Signal, fl_ctx: FLContext) -> Response:
        arrived: SimpleQueue[tuple[str, Any]] = SimpleQueue()

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            result = client_task.result
            arrived.put((client_task.client.name, result.get(REPLY) if result else None))

        tasks = {}
        for site, sealed in request.questions.items():
            data = Shareable()
            data[QUESTION] = sealed
            tasks[site] = Task(ASK, data=data, result_received_cb=received)
            self.broadcast(tasks[site], fl_ctx, targets=[site], min_responses=1)
        replies = self._collect(arrived, request, abort_signal)
        for task in tasks.values():
            self.cancel_task(task)
        missing = [site for site in tasks if site not in replies]
        gone = [site for site in missing if self.get_client_disconnect_time(site)]
        taken = {site: reply if isinstance(reply, bytes) else b"" for site, reply in replies.items()}
        return Response({site: reply for site, reply in taken.items() if len(reply) <= LARGEST}, gone)

    def _collect(
        self, arrived: SimpleQueue[tuple[str, Any]], request: Request, stop: Signal
    ) -> dict[str, Any]:
        """Whatever comes in time; a site that has left is not waited for."""
        replies: dict[str, Any] = {}
        until = time.monotonic() + request.seconds
        while len(replies) < len(request.questions) and time.monotonic() < until and not stop.triggered:
            try:
                site, reply = arrived.get(timeout=GLANCE)
                replies[site] = reply
            except Empty:
                waited = [site for site in request.questions if site not in replies]
                if all(self.get_client_disconnect_time(site) for site in waited):
                    break
        return replies

    def process_result_of_unknown_task(
        self, client: Peer, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """An answer that nobody waits for any more is dropped."""
