"""The lead's short visits to the server: who is there, hand in a job, ask after it, end it."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from unpooled.engines.nvflare.kits import CONSORTIUM, LEAD
from unpooled.errors import EngineError, ResultsError

FRESH = 12.0
"""Seconds since a site last called, after which it counts as gone."""


@contextmanager
def session(coordinator: Path) -> Iterator[Session]:
    """A visit; closed at its end, or the caller would never end."""
    logging.getLogger("nvflare").setLevel(logging.CRITICAL)  # what goes wrong is said below, in a sentence
    try:
        with redirect_stdout(io.StringIO()):  # it announces itself
            opened = new_secure_session(LEAD, str(coordinator / "lead"), timeout=10.0)
    except Exception as error:  # NVIDIA FLARE raises many kinds
        raise EngineError(
            "the coordinator must be running",
            found=f"nobody answers at its address ({type(error).__name__})",
            remedy="start it with `unpooled coordinator start`; a study that had begun goes on with --resume",
        ) from None
    try:
        yield opened
    finally:
        opened.close()


def connected(visit: Session) -> set[str]:
    """The sites that have called lately."""
    clients = visit.get_system_info().client_info
    return {one.name for one in clients if time.time() - (one.last_connect_time or 0.0) < FRESH}


def members(coordinator: Path) -> tuple[str, ...]:
    """Every site that has a kit of this coordinator, in the consortium's order."""
    try:
        return tuple(json.loads((coordinator / CONSORTIUM).read_text(encoding="utf-8"))["sites"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ResultsError(
            "a coordinator's folder holds its consortium and its kit",
            found=f"no coordinator in {coordinator}",
            remedy="make one with `unpooled coordinator create consortium.toml`, or give its folder",
        ) from None
