"""At a site, inside NVIDIA FLARE: every task is one question, answered at the site's own gateway."""

from __future__ import annotations

from pathlib import Path

from nvflare.apis.executor import Executor as FlareExecutor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from unpooled.engines.nvflare.wire import ASK, QUESTION, REPLY
from unpooled.site.gateway import Gateway


class Executor(FlareExecutor):
    """One gateway for a whole job, so tables are read and programs compiled once."""

    def __init__(self) -> None:
        super().__init__()
        self._gateway: Gateway | None = None

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        sealed = shareable.get(QUESTION)
        if task_name != ASK or not isinstance(sealed, bytes):
            return make_reply(ReturnCode.TASK_UNKNOWN)
        if self._gateway is None:
            # NVIDIA FLARE's workspace is the kit, which stands in the site's own folder.
            self._gateway = Gateway(Path(str(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT))).absolute().parent)
        reply = Shareable()
        reply[REPLY] = self._gateway.answer(sealed)
        return reply
