"""At the coordinator, inside NVIDIA FLARE: a site that is connected is not replaced by another process.

Without this, a second process with a site's key would take the site's place, and nobody would be told.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import NotAuthenticated
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection
from nvflare.fuel.f3.sfm.sfm_endpoint import SfmEndpoint
from nvflare.private.defs import InternalFLContextKey

from unpooled.disclosure.private_files import own
from unpooled.engines.nvflare.configuration import HEARTBEAT_TIMEOUT, SECOND

_add = SfmEndpoint.add_connection


class Doorkeeper(FLComponent):
    """Refuses a second process of a site that is connected, and names the site in a file."""

    def __init__(self) -> None:
        super().__init__()
        self._contested: dict[str, float] = {}

        def add(endpoint: SfmEndpoint, new: SfmConnection) -> None:
            if endpoint.connections:  # NVIDIA FLARE closes the older one, which then connects again
                self._contested[endpoint.endpoint.name] = time.monotonic()
            _add(endpoint, new)

        SfmEndpoint.add_connection = add  # type: ignore[method-assign]

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type != EventType.CLIENT_REGISTER_RECEIVED:
            return
        registering = fl_ctx.get_prop(InternalFLContextKey.CLIENT_REG_SESSION)
        name = str(getattr(registering, "client_name", ""))
        if name and self._is_connected(name, fl_ctx):
            with open(Path(SECOND), "a", encoding="utf-8", opener=own) as file:
                file.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {name}\n")
            raise NotAuthenticated(f"{name} is connected already")

    def _is_connected(self, name: str, fl_ctx: FLContext) -> bool:
        """Whether the new connection met an open one of a site whose heart beats.

        A site that was killed leaves no open connection, so that it may come back at once.
        """
        if time.monotonic() - self._contested.get(name, float("-inf")) > HEARTBEAT_TIMEOUT:
            return False
        engine: Any = fl_ctx.get_engine()
        clients = engine.client_manager.clients.values()
        now = time.time()
        return any(one.name == name and now - one.last_connect_time < HEARTBEAT_TIMEOUT for one in clients)
