"""The history of a study: one line per round. Not a log."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unpooled.coordinator.rounds import Round


@dataclass
class Journal:
    """Rounds as they happen, in memory and, where a path is given, as JSON lines on disk."""

    path: Path | None = None
    rounds: list[Round] = field(default_factory=list)

    def record(self, happened: Round) -> None:
        self.rounds.append(happened)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line(happened)) + "\n")

    def cost(self) -> dict[str, Any]:
        """Rounds, seconds, and bytes by site."""
        return cost(self.rounds)


def line(happened: Round) -> dict[str, Any]:
    """A round as JSON-ready values."""
    return {
        "round": happened.number,
        "question": happened.question,
        "seconds": round(happened.seconds, 6),
        "replayed": happened.replayed,
        "objective": _finite(happened.objective),
        "bytes": {site: {"down": t.down, "up": t.up} for site, t in happened.traffic.items()},
    }


def _finite(value: float | None) -> float | None:
    """JSON has no infinity, which is where a descent begins."""
    return value if value is not None and math.isfinite(value) else None


def cost(rounds: Iterable[Round]) -> dict[str, Any]:
    rounds = list(rounds)
    sites = sorted({site for happened in rounds for site in happened.traffic})
    return {
        "rounds": len(rounds),
        "seconds": sum(happened.seconds for happened in rounds),
        "bytes_down": {s: sum(r.traffic[s].down for r in rounds if s in r.traffic) for s in sites},
        "bytes_up": {s: sum(r.traffic[s].up for r in rounds if s in r.traffic) for s in sites},
    }
