"""At a site, inside NVIDIA FLARE: the one task that the site answers, and the refusal of everything else.

A site's `authorization.json` binds only an honest server, because each message from the server claims whether
permissions are checked, and whose. Whatever must never happen is therefore removed from the client here:
reading files (`cat`, `grep`), describing the machine, changing what is logged, showing errors, running any
job but ours, putting a job in place of a folder of the kit, and trusting any certificate authority but the
consortium's own.
"""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from nvflare.apis.app_validation import AppValidator
from nvflare.apis.executor import Executor as FlareExecutor
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.drivers import net_utils
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from nvflare.private.admin_defs import Message, error_reply
from nvflare.private.defs import RequestHeader
from nvflare.private.fed.client import admin_commands, scheduler_cmds, training_cmds
from nvflare.private.fed.client.admin import RequestProcessor
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from unpooled.engines.nvflare.configuration import EXECUTORS, QUESTION, REPLY, TASK

if TYPE_CHECKING:
    from unpooled.site.gateway import Gateway


class Executor(FlareExecutor):
    """Answers every question of a job through one gateway, so that the table is read once."""

    def __init__(self) -> None:
        super().__init__()
        self._gateway: Gateway | None = None

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        sealed = shareable.get(QUESTION)
        if task_name != TASK or not isinstance(sealed, bytes):
            return make_reply(ReturnCode.TASK_UNKNOWN)
        if self._gateway is None:
            # Imported only here: the site's long-running process has no use for JAX.
            from unpooled.site.gateway import Gateway

            # NVIDIA FLARE's workspace is the kit, which lies in the site's own folder.
            self._gateway = Gateway(Path(str(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT))).absolute().parent)
        reply = Shareable()
        reply[REPLY] = self._gateway.answer(sealed)
        return reply


REQUESTS = (
    training_cmds.DeployProcessor,
    scheduler_cmds.CheckResourceProcessor,
    scheduler_cmds.CancelResourceProcessor,
    scheduler_cmds.StartJobProcessor,
    training_cmds.NotifyJobStatusProcessor,
    training_cmds.ClientStatusProcessor,
    training_cmds.AbortTaskProcessor,
    training_cmds.AbortAppProcessor,
    training_cmds.ShutdownClientProcessor,
)
"""What the site's own process may be asked: to accept a job, run it, report that it runs, and end it."""

COMMANDS = (
    admin_commands.CheckStatusCommand,
    admin_commands.AbortTaskCommand,
    admin_commands.AbortCommand,
    admin_commands.ByeCommand,
)
"""The same for the process of a job."""

_SIGNATURES = (NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE)


class RestrictedClient(FLComponent):
    """Removes every other request and command from a site's processes; built before they connect."""

    def __init__(self) -> None:
        super().__init__()
        requests = ClientRequestProcessors.request_processors
        requests[:] = [JobRequest(one) for one in requests if type(one) in REQUESTS]
        commands = AdminCommands.commands
        commands[:] = [one for one in commands if type(one) in COMMANDS]
        net_utils.get_ssl_context = own_authority_only


class JobRequest(RequestProcessor):
    """Passes a request on unless it names a job by anything but an id of NVIDIA FLARE, which is a UUID.

    A job's folder has its id for a name, lies in the kit, and is removed before the job is put there. With
    the id `startup` or `local`, a site would lose its key or its configuration.
    """

    def __init__(self, request: RequestProcessor) -> None:
        self.request = request

    def get_topics(self) -> list[str]:
        return list(self.request.get_topics())

    def process(self, req: Message, app_ctx: object) -> Message:
        job = req.get_header(RequestHeader.JOB_ID)
        if job is not None and not is_job_id(job):
            return error_reply("this site refuses a job whose id is no UUID")
        return self.request.process(req, app_ctx)


def is_job_id(value: object) -> bool:
    """Whether a value is a UUID as NVIDIA FLARE writes it.

    >>> is_job_id("7f1c2a52-93a5-4a8e-9a53-0d6f3a5b1c11"), is_job_id("startup"), is_job_id("../startup")
    (True, False, False)
    """
    try:
        return str(UUID(str(value))) == value
    except ValueError:
        return False


_ssl_context = net_utils.get_ssl_context


def own_authority_only(params: dict[str, str], ssl_server: bool) -> ssl.SSLContext | None:
    """A client context without the machine's own authorities, all of which NVIDIA FLARE would trust."""
    if ssl_server or not net_utils.ssl_required(params):
        return _ssl_context(params, ssl_server)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(params[DriverParams.CA_CERT.value])
    context.load_cert_chain(params[DriverParams.CLIENT_CERT.value], params[DriverParams.CLIENT_KEY.value])
    return context


class StudyJobValidator(AppValidator):
    """Refuses every job but the one that runs our executor without arguments."""

    def validate(self, app_folder: str) -> tuple[str, dict[str, object]]:
        return ("", {}) if is_study_job(Path(app_folder)) else ("this site runs studies of unpooled only", {})


def is_study_job(folder: Path) -> bool:
    """Whether a job's folder holds one file besides signatures, which names no class but our executor.

    All its other values must be numbers, because text could refer to a variable of the site's environment.
    """
    config = folder / "config" / "config_fed_client.json"
    for one in folder.rglob("*"):
        if one.is_symlink() or not (one.is_dir() or one == config or one.name in _SIGNATURES):
            return False
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(content, dict) or content.pop("executors", None) != EXECUTORS:
        return False
    return content.pop("components", []) == [] and _only_numbers(content)


def _only_numbers(value: object) -> bool:
    if isinstance(value, dict):
        return all(str(name).isidentifier() and _only_numbers(one) for name, one in value.items())
    return isinstance(value, int | float)
