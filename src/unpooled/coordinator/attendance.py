"""Sites that a study was to rest on and does not: kept beside its checkpoint, so that it goes on so."""

from __future__ import annotations

import json
from pathlib import Path

from unpooled.coordinator.checkpoint import writing
from unpooled.errors import SiteLost
from unpooled.protocol.engine import Engine

FILE = "left_out.json"


class Attendance:
    """`left_out` says of every site that was lost why."""

    def __init__(self, engine: Engine, least: int | None, folder: Path | None, *, resume: bool) -> None:
        self._engine, self._least = engine, least
        self._path = None if folder is None else folder / FILE
        self.left_out: dict[str, str] = {}
        if resume and self._path is not None and self._path.exists():
            self.left_out = json.loads(self._path.read_text(encoding="utf-8"))
            for site in self.left_out:
                engine.go_on_without(site)

    def lose(self, lost: SiteLost) -> None:
        """Go on with the others, or raise where the study may not rest on so few."""
        others = len(self._engine.sites) - 1
        if self._least is None or others < self._least:
            raise lost
        self._engine.go_on_without(lost.site)
        self.left_out[lost.site] = lost.reason
        if self._path is not None:
            with writing(self._path.parent):
                self._path.write_text(json.dumps(self.left_out), encoding="utf-8")
