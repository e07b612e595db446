"""How NVIDIA FLARE is configured at each party, and the job that carries a study.

The party's own package writes its configuration anew at every start. A kit holds only names and keys, so
nobody else decides what a site's processes may do. A job names two installed classes and holds no code.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from unpooled.engines.nvflare.consortium import Identity

RELAY = "unpooled.engines.nvflare.controller.Relay"
EXECUTOR = "unpooled.engines.nvflare.executor.Executor"
EXECUTORS = [{"tasks": ["*"], "executor": {"path": EXECUTOR, "args": {}}}]
"""The only executors that a site accepts in a job."""
_RESTRICTIONS = "unpooled.engines.nvflare.executor.RestrictedClient"
_DOORKEEPER = "unpooled.engines.nvflare.doorkeeper.Doorkeeper"
_JOB_VALIDATOR = "unpooled.engines.nvflare.executor.StudyJobValidator"

TASK, QUESTION, REPLY = "unpooled.ask", "unpooled.question", "unpooled.reply"
"""The only task, and the only keys of its data and its result."""

STORAGE = "UNPOOLED_STORAGE"
"""The environment variable that names the folder of a server's jobs and snapshots."""

SECOND = "second_processes.log"
"""The file of a server that names sites of which a second process was refused."""

HEARTBEAT_TIMEOUT = 10
"""Seconds without a heartbeat after which the server considers a site disconnected."""

TASK_REQUEST_INTERVAL = 0.02
"""Seconds between two requests of a site for its next question."""

_INLINE = {"np_download_chunk_size": 0}
"""Arrays travel inside their message instead of as separate downloads."""

_SCHEME, _SECURITY = "http", "mtls"
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


def configure_server(folder: Path, identity: Identity) -> None:
    """The coordinator: one port for sites and for the lead, and in a job no class but our relay."""
    service = {"target": f"{identity.host}:{identity.port}", "scheme": _SCHEME}
    server = {
        "name": identity.consortium,
        "service": service,
        "admin_server": identity.host,
        "admin_port": identity.port,
        "ssl_private_key": "server.key",
        "ssl_cert": "server.crt",
        "ssl_root_cert": "rootCA.pem",
        "connection_security": _SECURITY,
    }
    started = {"format_version": 2, "require_signed_jobs": True, "servers": [server]}
    _clear(folder)
    _write(folder / "startup" / "fed_server.json", started)
    _write(folder / "local" / "resources.json", _server_resources())
    _write_permissions_and_logs(folder, _LEAD_AT_SERVER)


def configure_site(folder: Path, identity: Identity) -> None:
    """A site: connects to the coordinator, runs no class but our executor, and sends no log."""
    service = {"target": f"{identity.host}:{identity.port}", "scheme": _SCHEME}
    client = {
        "ssl_private_key": "client.key",
        "ssl_cert": "client.crt",
        "ssl_root_cert": "rootCA.pem",
        "fqsn": identity.name,
        "is_leaf": True,
        "connection_security": _SECURITY,
    }
    started = {
        "format_version": 2,
        "require_signed_jobs": True,
        "servers": [{"name": identity.consortium, "service": service, "identity": identity.host}],
        "client": client,
    }
    _clear(folder)
    _write(folder / "startup" / "fed_client.json", started)
    _write(folder / "local" / "resources.json", _site_resources())
    _write_permissions_and_logs(folder, _LEAD_AT_SITE)


def configure_lead(folder: Path, identity: Identity) -> None:
    """The one user who may submit studies, from the coordinator's own machine."""
    admin = {
        "project_name": identity.consortium,
        "username": identity.name,
        "server_identity": identity.host,
        "scheme": _SCHEME,
        "host": "localhost",
        "port": identity.port,
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
    timeouts = {"idle_timeout": 900.0, "login_timeout": 10.0, "authenticate_msg_timeout": 2.0}
    _write(folder / "startup" / "fed_admin.json", {"format_version": 1, "admin": admin})
    _write(
        folder / "local" / "resources.json", {"format_version": 1, "admin": {**timeouts, "with_debug": False}}
    )


def write_job(folder: Path, name: str, sites: tuple[str, ...], address: str) -> Path:
    """The job's three files; `address` is the socket from which the study's questions come."""
    meta = {
        "name": name,
        "resource_spec": {},
        "min_clients": len(sites),
        "mandatory_clients": list(sites),
        "deploy_map": {"coordinator": ["server"], "site": list(sites)},
    }
    server = {
        "format_version": 2,
        **_INLINE,
        "server": {"task_request_interval": TASK_REQUEST_INTERVAL},
        "dead_client_grace_period": 1.0,
        "dead_client_check_lead_time": 1.0,
        "workflows": [{"id": "relay", "path": RELAY, "args": {"address": address}}],
        "components": [],
    }
    site = {"format_version": 2, **_INLINE, "executors": EXECUTORS, "components": []}
    job = folder / "study"
    _write(job / "meta.json", meta)
    _write(job / "coordinator" / "config" / "config_fed_server.json", server)
    _write(job / "site" / "config" / "config_fed_client.json", site)
    return job


def _server_resources() -> dict[str, object]:
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
                "heart_beat_timeout": HEARTBEAT_TIMEOUT,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {"uri_root": "/", "storage": snapshots},
        },
        "components": [
            _component("doorkeeper", _DOORKEEPER),
            _component("job_scheduler", scheduler, max_jobs=4),
            _component("job_manager", "nvflare.apis.impl.job_def_manager.SimpleJobDefManager", **jobs),
            _component("job_store", files),
            _component("process_launcher", launcher),
        ],
    }


def _site_resources() -> dict[str, object]:
    resources = "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager"
    consumer = "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
    launcher = "nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher"
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [EXECUTOR],
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30},
        "app_validator": {"path": _JOB_VALIDATOR, "args": {}},
        "components": [
            _component("restricted_client", _RESTRICTIONS),
            _component("resource_manager", resources, num_of_gpus=0, mem_per_gpu_in_GiB=0),
            _component("resource_consumer", consumer),
            _component("process_launcher", launcher),
        ],
    }


def _component(name: str, path: str, **arguments: object) -> dict[str, object]:
    return {"id": name, "path": path, "args": arguments}


def _write_permissions_and_logs(folder: Path, lead: dict[str, str]) -> None:
    roles = {role: _NOTHING for role in ("project_admin", "org_admin", "member")}
    permissions = {"format_version": "1.0", "permissions": {**roles, "lead": {**_NOTHING, **lead}}}
    _write(folder / "local" / "authorization.json", permissions)
    _write(folder / "local" / "log_config.json", _logs())
    _write(folder / "local" / "comm_config.json", _internal_connections())


def _internal_connections() -> dict[str, object]:
    """TLS also between a party and its job processes: all users of a machine share its loopback."""
    resources = {"host": "localhost", "connection_security": _SECURITY}
    return {"allow_adhoc_conns": False, "internal": {"scheme": "tcp", "resources": resources}}


def _logs() -> dict[str, object]:
    """Warnings only, to the output, which goes to the party's log file."""
    layout = "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s"
    console = {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stdout"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"()": "nvflare.fuel.utils.log_utils.BaseFormatter", "fmt": layout}},
        "handlers": {"console": console},
        "loggers": {"root": {"level": "WARNING", "handlers": ["console"]}},
    }


def _clear(folder: Path) -> None:
    """Remove every configuration file that NVIDIA FLARE would read besides ours."""
    shutil.rmtree(folder / "local", ignore_errors=True)
    for one in (folder / "startup").glob("*.json"):
        one.unlink()


def _write(path: Path, content: dict[str, object]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = json.dumps(content, indent=2) + "\n"
    beside = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    beside.replace(path)
