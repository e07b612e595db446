"""What NVIDIA FLARE is told at each party, written anew by the party's own package whenever it starts.

So a kit holds names and keys and nothing else: what a site's processes may do is never what somebody sent.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from unpooled.engines.nvflare.badge import Badge
from unpooled.engines.nvflare.job import EXECUTOR, RELAY

STORAGE = "UNPOOLED_STORAGE"
"""The variable that tells a starting server where its jobs and snapshots are kept."""

HEART_BEAT_TIMEOUT = 10
"""Seconds without a sign of life after which the server takes a site for gone."""

_SCHEME, _SECURITY = "http", "mtls"
_DOORS = "unpooled.engines.nvflare.doors"
_NOTHING = {"byoc": "none", "server-predeployed-flwr": "none", "shell_commands": "none", "operate": "none"}
_LEAD_AT_SERVER = {
    "submit_job": "any",
    "manage_job": "n:submitter",
    "download_job": "n:submitter",
    "app_command": "n:submitter",
    "view": "any",
    "shutdown": "any",
}
_LEAD_AT_SITE = {
    "submit_job": "any",
    "manage_job": "n:submitter",
    "configure_job_log": "none",
    "check_status": "any",
    "shutdown": "any",
}


def configure_server(folder: Path, badge: Badge) -> None:
    """The coordinator: one port for sites and for the lead, and no class but our relay in a job."""
    service = {"target": f"{badge.host}:{badge.port}", "scheme": _SCHEME}
    server = {
        "name": badge.consortium,
        "service": service,
        "admin_server": badge.host,
        "admin_port": badge.port,
        "ssl_private_key": "server.key",
        "ssl_cert": "server.crt",
        "ssl_root_cert": "rootCA.pem",
        "connection_security": _SECURITY,
    }
    started = {"format_version": 2, "require_signed_jobs": True, "servers": [server]}
    _clear(folder)
    _write(folder / "startup" / "fed_server.json", started)
    _write(folder / "local" / "resources.json", _server_resources())
    _write_rights_and_logs(folder, _LEAD_AT_SERVER)


def configure_site(folder: Path, badge: Badge) -> None:
    """A site: calls the coordinator, runs no class but our executor, sends no log."""
    service = {"target": f"{badge.host}:{badge.port}", "scheme": _SCHEME}
    client = {
        "ssl_private_key": "client.key",
        "ssl_cert": "client.crt",
        "ssl_root_cert": "rootCA.pem",
        "fqsn": badge.name,
        "is_leaf": True,
        "connection_security": _SECURITY,
    }
    started = {
        "format_version": 2,
        "require_signed_jobs": True,
        "servers": [{"name": badge.consortium, "service": service, "identity": badge.host}],
        "client": client,
    }
    _clear(folder)
    _write(folder / "startup" / "fed_client.json", started)
    _write(folder / "local" / "resources.json", _site_resources())
    _write_rights_and_logs(folder, _LEAD_AT_SITE)


def configure_lead(folder: Path, badge: Badge) -> None:
    """The one person who may hand in studies, at the coordinator's machine, whatever it is called outside."""
    admin = {
        "project_name": badge.consortium,
        "username": badge.name,
        "server_identity": badge.host,
        "scheme": _SCHEME,
        "host": "localhost",
        "port": badge.port,
        "connection_security": _SECURITY,
        "uid_source": "user_input",
        "with_file_transfer": True,
        "upload_dir": "transfer",
        "download_dir": "transfer",
        "client_key": "client.key",
        "client_cert": "client.crt",
        "ca_cert": "rootCA.pem",
    }
    (folder / "transfer").mkdir(mode=0o700, exist_ok=True)
    waiting = {"idle_timeout": 900.0, "login_timeout": 10.0, "authenticate_msg_timeout": 2.0}
    _write(folder / "startup" / "fed_admin.json", {"format_version": 1, "admin": admin})
    _write(
        folder / "local" / "resources.json", {"format_version": 1, "admin": {**waiting, "with_debug": False}}
    )


def _server_resources() -> dict[str, Any]:
    storage = "{$" + STORAGE + "}"
    files = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    scheduler = "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler"
    jobs = {"uri_root": f"{storage}/jobs", "job_store_id": "job_store"}
    launcher = "nvflare.app_common.job_launcher.server_process_launcher.ServerProcessJobLauncher"
    snapshots = {"path": files, "args": {"root_dir": f"{storage}/snapshots", "uri_root": "/"}}
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [RELAY],
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": 100,
                "heart_beat_timeout": HEART_BEAT_TIMEOUT,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {"uri_root": "/", "storage": snapshots},
        },
        "components": [
            _component("job_scheduler", scheduler, max_jobs=4),
            _component("job_manager", "nvflare.apis.impl.job_def_manager.SimpleJobDefManager", **jobs),
            _component("job_store", files),
            _component("process_launcher", launcher),
        ],
    }


def _site_resources() -> dict[str, Any]:
    resources = "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager"
    consumer = "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
    launcher = "nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher"
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [EXECUTOR],
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30},
        "app_validator": {"path": f"{_DOORS}.OnlyStudies", "args": {}},
        "components": [
            _component("closed_doors", f"{_DOORS}.ClosedDoors"),
            _component("resource_manager", resources, num_of_gpus=0, mem_per_gpu_in_GiB=0),
            _component("resource_consumer", consumer),
            _component("process_launcher", launcher),
        ],
    }


def _component(name: str, path: str, **arguments: object) -> dict[str, Any]:
    return {"id": name, "path": path, "args": arguments}


def _write_rights_and_logs(folder: Path, lead: dict[str, str]) -> None:
    roles = {role: _NOTHING for role in ("project_admin", "org_admin", "member")}
    rights = {"format_version": "1.0", "permissions": {**roles, "lead": {**_NOTHING, **lead}}}
    _write(folder / "local" / "authorization.json", rights)
    _write(folder / "local" / "log_config.json", _logs())
    _write(folder / "local" / "comm_config.json", _inside())


def _inside() -> dict[str, Any]:
    """Between a party and the processes of its jobs: certificates too, as users share the loopback."""
    resources = {"host": "localhost", "connection_security": _SECURITY}
    return {"allow_adhoc_conns": False, "internal": {"scheme": "tcp", "resources": resources}}


def _logs() -> dict[str, Any]:
    """Warnings only, to the output that the party's log file holds."""
    form = "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s"
    console = {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stdout"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"()": "nvflare.fuel.utils.log_utils.BaseFormatter", "fmt": form}},
        "handlers": {"console": console},
        "loggers": {"root": {"level": "WARNING", "handlers": ["console"]}},
    }


def _clear(folder: Path) -> None:
    """NVIDIA FLARE also reads whatever files of certain names it finds: none but ours are there."""
    shutil.rmtree(folder / "local", ignore_errors=True)
    for one in (folder / "startup").glob("*.json"):
        one.unlink()


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    text = json.dumps(content, indent=2) + "\n"
    beside = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    beside.replace(path)
