"""What a site refuses, whoever asks: NVIDIA FLARE's client would run more than a study needs.

A site's `authorization.json` binds only an honest server: the server says in each message whether rights are
to be checked, and whose. So what must never happen is not forbidden there but taken away here: reading files
(`cat`, `grep`), describing the machine, changing what is logged, showing errors, every job other than ours,
and trust in any authority but the consortium's own.
"""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

from nvflare.apis.app_validation import AppValidator
from nvflare.apis.fl_component import FLComponent
from nvflare.fuel.f3.drivers import net_utils
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from nvflare.private.fed.client import admin_commands, scheduler_cmds, training_cmds
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from unpooled.engines.nvflare.job import EXECUTOR

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
"""What the site's own process does when it is asked: take a job, run it, tell that it runs, end it."""

COMMANDS = (
    admin_commands.CheckStatusCommand,
    admin_commands.AbortTaskCommand,
    admin_commands.AbortCommand,
    admin_commands.ByeCommand,
)
"""The same for the process of a job."""

_SIGNATURES = (NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE)
_EXECUTORS = [{"tasks": ["*"], "executor": {"path": EXECUTOR, "args": {}}}]


class ClosedDoors(FLComponent):
    """Leaves a site's processes no request and no command but those above; built before anybody is called."""

    def __init__(self) -> None:
        super().__init__()
        requests = ClientRequestProcessors.request_processors
        requests[:] = [one for one in requests if type(one) in REQUESTS]
        commands = AdminCommands.commands
        commands[:] = [one for one in commands if type(one) in COMMANDS]
        net_utils.get_ssl_context = own_authority_only


_ssl_context = net_utils.get_ssl_context


def own_authority_only(params: dict[str, Any], ssl_server: bool) -> ssl.SSLContext | None:
    """NVIDIA FLARE itself would trust every authority that the machine trusts, whomever they vouch for."""
    if ssl_server or not net_utils.ssl_required(params):
        return _ssl_context(params, ssl_server)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(params[DriverParams.CA_CERT.value])
    context.load_cert_chain(params[DriverParams.CLIENT_CERT.value], params[DriverParams.CLIENT_KEY.value])
    return context


class OnlyStudies(AppValidator):
    """Refuses every job but the one that asks our executor, with nothing to say to it."""

    def validate(self, app_folder: str) -> tuple[str, dict[str, Any]]:
        return ("", {}) if is_ours(Path(app_folder)) else ("this site runs studies of unpooled only", {})


def is_ours(folder: Path) -> bool:
    """Whether a job's folder holds one file, but for signatures, and that names no class but our executor.

    Anything but numbers beside it could refer to a variable of the site's environment.
    """
    config = folder / "config" / "config_fed_client.json"
    for one in folder.rglob("*"):
        if one.is_symlink() or not (one.is_dir() or one == config or one.name in _SIGNATURES):
            return False
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(content, dict) or content.pop("executors", None) != _EXECUTORS:
        return False
    return content.pop("components", []) == [] and _only_numbers(content)


def _only_numbers(value: object) -> bool:
    if isinstance(value, dict):
        return all(str(name).isidentifier() and _only_numbers(one) for name, one in value.items())
    return isinstance(value, int | float)
