"""A job for NVIDIA FLARE: names of two installed classes, no code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RELAY = "unpooled.engines.nvflare.controller.Relay"
EXECUTOR = "unpooled.engines.nvflare.executor.Executor"
INLINE = {"np_download_chunk_size": 0}
"""Arrays travel inside their message."""
ASKING = 0.02
"""Seconds between two requests of a site for its next question."""


def write_job(folder: Path, name: str, sites: tuple[str, ...], address: str) -> Path:
    """The job's three files; `address` is the socket where the study's questions come from."""
    meta = {
        "name": name,
        "resource_spec": {},
        "min_clients": len(sites),
        "mandatory_clients": list(sites),
        "deploy_map": {"coordinator": ["server"], "site": list(sites)},
    }
    server = {
        "format_version": 2,
        **INLINE,
        "server": {"task_request_interval": ASKING},
        "dead_client_grace_period": 1.0,
        "dead_client_check_lead_time": 1.0,
        "workflows": [{"id": "relay", "path": RELAY, "args": {"address": address}}],
        "components": [],
    }
    site = {
        "format_version": 2,
        **INLINE,
        "executors": [{"tasks": ["*"], "executor": {"path": EXECUTOR, "args": {}}}],
        "components": [],
    }
    job = folder / "study"
    _write(job / "meta.json", meta)
    _write(job / "coordinator" / "config" / "config_fed_server.json", server)
    _write(job / "site" / "config" / "config_fed_client.json", site)
    return job


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
